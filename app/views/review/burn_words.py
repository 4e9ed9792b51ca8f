"""Burn rates of error budgets, in words and as commands print them."""

from __future__ import annotations

from typing import Any

from steptax.app.compute.spend.burn import Burn
from steptax.app.format import format_measure, format_moment


def hours_text(hours: int) -> str:
    """``1 hour``, ``6 hours``."""
    return f"{hours} hour" if hours == 1 else f"{hours} hours"


def burn_note(one: Burn) -> str:
    """What limits a rate, or why there is none; empty where nothing does."""
    if one.rate.value is None:
        return one.rate.reason or ""
    if one.is_stale:
        return f"of the newest hours that are known, up to {format_moment(one.end_us)}"
    return "; ".join(one.rate.warnings)


def burn_text(one: Burn) -> str:
    """The rate, whether it is an alarm, and what limits it."""
    rings = f", an alarm from {one.level:.3g}x on" if one.rings else ""
    note = burn_note(one) if one.rate.value is not None else ""
    return f"{format_measure(one.rate)}{rings}{f' ({note})' if note else ''}"


def burn_json(one: Burn) -> dict[str, Any]:
    """As every command prints it."""
    return {
        "hours": one.window.hours,
        "rate": one.rate,
        "alarm_at": one.level,
        "up_to_us": one.end_us,
        "is_stale": one.is_stale,
        "rings": one.rings,
    }
