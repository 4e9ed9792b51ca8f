"""Alerts as they are listed: which are open, who was told, what is muted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from steptax.app.alerts.store import STATE_FILE, AlertStore

LISTED = 100


def alert_rows(lake: Path) -> list[dict[str, Any]]:
    """The newest alerts of a lake, open ones first; none where no watch ever ran."""
    path = lake / STATE_FILE
    if not path.is_file():
        return []
    store = AlertStore(path)
    try:
        return [alert | {"told": told_text(alert)} for alert in store.alerts(LISTED)]
    finally:
        store.close()


def told_text(alert: Mapping[str, Any]) -> str:
    """What became of the messages of an alert, in words."""
    if alert["mute"] is not None:
        return f"muted: {alert['mute_reason']} ({alert['mute_owner']})"
    parts = [
        f"{m['channel']} {m['change']}: {m['state']}"
        + (f" ({m['last_error']})" if m["last_error"] else "")
        for m in alert["messages"]
    ]
    return "; ".join(parts) or "nobody: no channel"
