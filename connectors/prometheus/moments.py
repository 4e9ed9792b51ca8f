"""Moments and lengths of time as a person writes them."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime

from steptax.app.errors import InputError
from steptax.connectors.prometheus.exposition import us_of

_UNITS_S = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_LENGTH = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)?")


def seconds_of(text: str, where: str) -> float:
    """A length of time in seconds, ``15``, ``30s``, ``5m``; InputError for another text."""
    found = _LENGTH.fullmatch(text.strip())
    seconds = float(found[1]) * _UNITS_S[found[2] or "s"] if found else 0.0
    if not 1e-3 <= seconds <= 1e9:
        raise InputError(
            f"expected a length of time, found {text[:40]!r}", where=where, hint="for example 30s"
        )
    return seconds


def moment_of(text: str, where: str, *, now_s: float | None = None) -> int:
    """A moment in microseconds: ISO 8601 (UTC where it names no zone), seconds, ``now``, ``-2h``.

    InputError for another text.
    """
    now = time.time() if now_s is None else now_s
    told = text.strip()
    found: int | None
    if told == "now":
        found = us_of(now)
    elif told.startswith("-"):
        found = us_of(now - seconds_of(told[1:], where))
    elif re.fullmatch(r"\d+(\.\d+)?", told):
        found = us_of(float(told))
    else:
        try:
            moment = datetime.fromisoformat(told)
        except ValueError:
            found = None
        else:
            zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            found = us_of(zoned.timestamp())
    if found is None:
        raise InputError(
            f"expected a moment, found {text[:40]!r}",
            where=where,
            hint="for example 2026-11-01T08:00:00Z, or -2h",
        )
    return found
