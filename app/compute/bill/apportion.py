"""Time cut at the boundaries of calendar days and months, so that nothing counts twice.

A span belongs to each period with the part that overlaps it, in whole microseconds; the parts add
up to the span exactly. Days and months are those of UTC unless a reporting zone is named, where a
day may have 23 or 25 hours.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from steptax.app.errors import InputError, IntegrityError, UserError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_US = timedelta(microseconds=1)


class Unit(StrEnum):
    """Calendar periods."""

    DAY = "day"
    MONTH = "month"


@dataclass(frozen=True)
class Piece:
    """The part [start, end) of a span that lies in one period."""

    period: str
    """``2025-01-31`` or ``2025-01``."""
    start_us: int
    end_us: int


@dataclass(frozen=True)
class GpuSpan:
    """Devices that are held from start to end."""

    start_us: int
    end_us: int
    gpus: int


@lru_cache(maxsize=64)
def zone(name: str) -> ZoneInfo:
    """The time zone called ``name``.

    Raises:
        UserError: there is none.
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise UserError(
            f"no time zone {name!r}", where="tz", hint="e.g. UTC, Europe/Berlin"
        ) from error


def local_us(wall: datetime, tz: str, *, fold: int | None = None) -> int:
    """A wall-clock time without offset, as written in zone ``tz``, in microseconds UTC.

    In the hour that the clock shows twice, ``fold`` says which: 0 the first, 1 the second.

    Raises:
        UserError: no such zone, or ``wall`` has an offset of its own.
        InputError: the clock never showed that time, or showed it twice and ``fold`` is None.
    """
    if wall.tzinfo is not None:
        raise UserError("has an offset of its own already", where=wall.isoformat())
    info = zone(tz)
    first, second = (wall.replace(tzinfo=info, fold=k) for k in (0, 1))
    if first.utcoffset() != second.utcoffset():
        if first.astimezone(UTC).astimezone(info).replace(tzinfo=None) != wall:
            raise InputError(f"no clock in {tz} ever showed that time", where=wall.isoformat())
        if fold is None:
            raise InputError(
                f"clocks in {tz} showed that time twice",
                where=wall.isoformat(),
                hint="give times in UTC or with their offset",
            )
    return to_us(second if fold else first)


def to_us(moment: datetime) -> int:
    """A moment with its offset, in whole microseconds since 1970 UTC."""
    return (moment.astimezone(UTC) - _EPOCH) // _US


@lru_cache(maxsize=1 << 14)
def _first_us(day: date, tz: str) -> int:
    """The first moment of a calendar day in zone ``tz``.

    Where a clock change skips midnight, reading it by the offset from before gives the change.
    """
    return to_us(datetime(day.year, day.month, day.day, tzinfo=zone(tz)))


def _next(day: date, unit: Unit) -> date:
    if unit is Unit.DAY:
        return day + timedelta(days=1)
    return date(day.year + day.month // 12, day.month % 12 + 1, 1)


def pieces(start_us: int, end_us: int, unit: Unit, tz: str = "UTC") -> list[Piece]:
    """[start, end) cut at the boundaries of days or months in zone ``tz``, in order of time.

    The pieces touch and add up to the span; a span without length has none.

    Raises:
        UserError: no such zone.
        IntegrityError: the span ends before it starts.
    """
    if end_us < start_us:
        raise IntegrityError(f"a span of {end_us - start_us} us ends before it starts")
    day = (_EPOCH + timedelta(microseconds=start_us)).astimezone(zone(tz)).date()
    if unit is Unit.MONTH:
        day = day.replace(day=1)
    found, at = [], start_us
    while at < end_us:
        after = _next(day, unit)
        until = min(_first_us(after, tz), end_us)
        if until > at:
            label = f"{day:%Y-%m-%d}" if unit is Unit.DAY else f"{day:%Y-%m}"
            found.append(Piece(label, at, until))
            at = until
        day = after
    return found


def apportion(spans: Iterable[GpuSpan], unit: Unit, tz: str = "UTC") -> dict[str, int]:
    """GPU-microseconds of ``spans`` by period, in calendar order; they add up to the spans.

    Raises:
        UserError: no such zone.
        IntegrityError: a span ends before it starts.
    """
    held: dict[str, int] = {}
    for span in spans:
        for piece in pieces(span.start_us, span.end_us, unit, tz):
            gpu_us = (piece.end_us - piece.start_us) * span.gpus
            held[piece.period] = held.get(piece.period, 0) + gpu_us
    return dict(sorted(held.items()))
