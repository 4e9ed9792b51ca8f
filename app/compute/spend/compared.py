"""Which days a period is compared with, and what that is called."""

from __future__ import annotations

import calendar
import re
from dataclasses import dataclass
from datetime import date, timedelta

from steptax.app.compute.measure import Measure
from steptax.app.errors import UserError
from steptax.app.format import format_measure
from steptax.app.words import count_text, day_text

PREVIOUS, YEAR, NOTHING = "previous", "year", "none"
#: Weeks that a record without chosen days is compared by, the newest, and fewer of a short record.
NEWEST_WEEKS = 4
_DAYS = re.compile(r"(\d{4}-\d{2}-\d{2})\.\.(\d{4}-\d{2}-\d{2})")


@dataclass(frozen=True)
class Days:
    """From a day to a day, both included."""

    first: date
    last: date

    def __post_init__(self) -> None:
        """UserError where it ends before it starts."""
        if self.last < self.first:
            raise UserError(
                f"{self.last} is before {self.first}", where="--to", hint="both days are included"
            )

    @property
    def count(self) -> int:
        """How many there are."""
        return (self.last - self.first).days + 1

    @property
    def is_month(self) -> bool:
        """Whether it is one whole calendar month."""
        end = calendar.monthrange(self.first.year, self.first.month)[1]
        return self.first.day == 1 and self.last == self.first.replace(day=end)

    @property
    def text(self) -> str:
        """``2026-10-03 to 2026-10-30``."""
        first, last = day_text(self.first), day_text(self.last)
        return first if first == last else f"{first} to {last}"


def length_text(days: int) -> str:
    """``4 weeks``, ``10 days``."""
    return count_text(days // 7, "week") if days % 7 == 0 else count_text(days, "day")


def newest(last: date, record_days: int | None = None) -> Days:
    """The four weeks up to ``last``; of a record of ``record_days`` as many as it has twice.

    Then as many days lie before them. Of less than two weeks nothing can be compared.
    """
    weeks = NEWEST_WEEKS
    if record_days is not None and record_days >= 14:
        weeks = min(weeks, record_days // 14)
    return Days(last - timedelta(days=7 * weeks - 1), last)


def reference_of(current: Days, how: str) -> tuple[Days, str] | None:
    """The days that ``current`` is compared with by ``how``, and their name; None: with nothing.

    ``previous``: as many days just before, the month before of a whole month. ``year``: the same
    days a year before. ``2026-09-01..2026-09-30``: these.

    Raises UserError for anything else.
    """
    if how == NOTHING:
        return None
    if how == PREVIOUS:
        last = current.first - timedelta(days=1)
        if current.is_month:
            return Days(last.replace(day=1), last), f"previous month, {last:%Y-%m}"
        first = last - timedelta(days=current.count - 1)
        return Days(first, last), f"previous {length_text(current.count)}"
    if how == YEAR:
        before = Days(_year_before(current.first), _year_before(current.last))
        return before, "same days a year before"
    found = _DAYS.fullmatch(how.strip())
    if found is None:
        raise UserError(
            f"there is nothing to compare with called {how!r}",
            where="--compare-to",
            hint=f"use {PREVIOUS}, {YEAR}, {NOTHING} or 2026-09-01..2026-09-30",
        )
    try:
        days = Days(date.fromisoformat(found[1]), date.fromisoformat(found[2]))
    except ValueError:
        raise UserError(f"{how!r} names a day that is none", where="--compare-to") from None
    return days, days.text


def _year_before(day: date) -> date:
    if (day.month, day.day) == (2, 29):
        day = day - timedelta(days=1)
    return day.replace(year=day.year - 1)


@dataclass(frozen=True)
class Delta:
    """A value now against the same in the reference."""

    now: Measure
    before: Measure
    reference: str
    change: Measure
    """Relative for amounts, in points for shares (both as ratio); with a reason where missing.

    Between bounds where one of the values is.
    """
    is_points: bool
    part: str = ""
    """Of which part of what is shown it is the change; empty: of all of it."""

    @property
    def against(self) -> str:
        """What is compared with what: ``newest 4 weeks 12.0 % vs previous 4 weeks 9.0 %``.

        With both values: that of all that is shown may be another one.
        """
        before = format_measure(self.before)
        if not self.part:
            return f"vs {self.reference}: {before}"
        return f"{self.part} {format_measure(self.now)} vs {self.reference} {before}"


def delta(now: Measure, before: Measure, reference: str) -> Delta:
    """How ``now`` differs from ``before``; nothing is a change from or to the unknown."""
    points = now.unit == "ratio"
    for one, when in ((now, "in the days compared"), (before, reference)):
        if one.value is None:
            reason = f"{when}: {one.reason}"
            return Delta(now, before, reference, Measure.missing("ratio", reason), points)
    assert now.value is not None
    assert before.value is not None
    if not points and not before.value:
        change = Measure.missing("ratio", f"{reference}: it was 0")
        return Delta(now, before, reference, change, points)

    def over(a: float, b: float) -> float:
        return a - b if points else a / b - 1

    low = high = None
    (now_low, now_high), (low_before, high_before) = now.bounds, before.bounds
    if (now_low < now_high or low_before < high_before) and (points or low_before > 0):
        low, high = over(now_low, high_before), over(now_high, low_before)
    change = Measure(over(now.value, before.value), "ratio", low, high)
    return Delta(now, before, reference, change, points)
