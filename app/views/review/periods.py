"""Periods of the cost review: its days, what they are compared with, weeks and months."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

import numpy as np

from steptax.app.compute.bill.job_days import OTHER, UNDATED
from steptax.app.compute.measure import Measure
from steptax.app.compute.spend.budget import Day, Period
from steptax.app.compute.spend.compared import (
    PREVIOUS,
    Days,
    Delta,
    length_text,
    newest,
    reference_of,
)
from steptax.app.compute.spend.totals import Totals, figures
from steptax.app.compute.stats.exact import int_sum
from steptax.app.compute.stats.rows import Flags, Ints
from steptax.app.errors import UserError
from steptax.app.format import format_value
from steptax.app.views.fleet.stated_months import NO_MONTH, in_time, stated_month
from steptax.app.views.review.executive_models import PeriodRow
from steptax.app.views.review.models import WeekRow
from steptax.app.views.review.money import Review
from steptax.app.words import count_text, day_text

_EPOCH = date(1970, 1, 1)
#: Periods whose days on record differ by less are as long: months are.
_EVEN = 0.9
#: Weeks of a trend; the ones before them are left to the files.
MAX_WEEKS = 156


@dataclass(frozen=True)
class Periods:
    """The period that was chosen, and what its newest part is compared with."""

    chosen: Days | None
    """None: everything there is."""
    record: Days | None
    """Days on which any job held a device."""
    current: Days | None
    """What deltas are of: the chosen days, or the newest four weeks of the record."""
    reference: Days | None
    reference_name: str

    @property
    def text(self) -> str:
        """The period, in words."""
        days = self.chosen or self.record
        return "all jobs; their dates are unknown" if days is None else f"{days.text}, UTC"

    @property
    def compared_text(self) -> str:
        """What deltas compare with what; empty where nothing is compared."""
        if self.current is None or self.reference is None:
            return ""
        what = f"{self.part}, {self.current.text}, " if self.part else "chosen days "
        name = self.reference_name
        days = "" if name == self.reference.text else f" ({self.reference.text})"
        partly = "".join(f"; {text}" for text in (self.partly, self.uneven) if text)
        return f"{what}vs {name}{days}{partly}"

    @property
    def part(self) -> str:
        """Of which part of what is shown changes are, ``newest 4 weeks``; empty: of all of it."""
        if self.chosen is not None or self.current is None:
            return ""
        return f"newest {length_text(self.current.count)}"

    @property
    def uneven(self) -> str:
        """Why amounts of the two periods cannot be held against each other; empty where they can.

        They add up over days, so that half as many days on record would look like a rise.
        """
        now, before = self._on_record(self.current), self._on_record(self.reference)
        if not now or not before or min(now, before) >= _EVEN * max(now, before):
            return ""
        return (
            f"{count_text(now, 'day')} on record are not held against {before:,}: an amount adds "
            "up over days"
        )

    def _on_record(self, days: Days | None) -> int:
        """Days of a period that lie in the record."""
        if days is None or self.record is None:
            return 0
        first, last = max(days.first, self.record.first), min(days.last, self.record.last)
        return max((last - first).days + 1, 0)

    @property
    def partly(self) -> str:
        """That the record does not reach over all of the reference; empty where it does."""
        if self.reference is None or self.record is None:
            return ""
        begin, end = self.record.first, self.record.last
        if begin <= self.reference.first or not begin <= self.reference.last <= end:
            return ""
        there = (self.reference.last - begin).days + 1
        return (
            f"the record begins on {day_text(begin)}, so of the {self.reference.count:,} days "
            f"compared with only {there:,} are in it"
        )


def day_of(day: date) -> int:
    """Days since 1970."""
    return (day - _EPOCH).days


def date_of(day: int) -> date:
    """The date of a day since 1970."""
    return _EPOCH + timedelta(days=int(day))


def read_periods(
    review: Review, first: date | None, last: date | None, compare_to: str, today: date
) -> Periods:
    """The periods of ``review``; UserError where they cannot be."""
    days = review.rows.day[review.rows.day != UNDATED]
    record = Days(date_of(days.min()), date_of(days.max())) if len(days) else None
    chosen = None
    if first is not None or last is not None:
        begin = first or (record.first if record else last)
        end = last or max(today, first or today)
        assert begin is not None
        if first is None and begin > end:
            begin = end
        chosen = Days(begin, end)
    current = chosen
    if current is None and record is not None:
        last_day = min(record.last, today)
        twice = (last_day - record.first).days + 1 if compare_to == PREVIOUS else None
        current = newest(last_day, twice)
    found = None if current is None else reference_of(current, compare_to)
    if current is None:
        reference_of(Days(today, today), compare_to)  # what cannot be is said all the same
    return Periods(chosen, record, current, *(found or (None, "")))


def inside(review: Review, days: Days | None) -> Flags:
    """Rows of the review in ``days``; all for None, those without a date too."""
    return inside_days(review.rows.day, days)


def inside_days(place: Ints, days: Days | None) -> Flags:
    """Which days [N] since 1970 are among ``days``; all for None."""
    if days is None:
        return np.ones(len(place), dtype=np.bool_)
    return (place >= day_of(days.first)) & (place <= day_of(days.last))


def figures_of(review: Review, days: Days | None) -> dict[str, Measure]:
    """The headline figures of ``days``."""
    return figures(review.rows.sums(inside(review, days)), review.no_price)


# -- weeks, months, days --------------------------------------------------------------------------


def week_of(day: Ints) -> Ints:
    """Weeks [N] since that of 29 December 1969, a Monday."""
    return (day + 3) // 7


def weeks(review: Review, days: Days | None, budgets: Mapping[date, float]) -> list[WeekRow]:
    """Weeks of the period that have data, and those between them, oldest first.

    ``budgets`` is what the budget gives each day.
    """
    keep = inside(review, days) & (review.rows.day != UNDATED)
    if not keep.any():
        return []
    place = week_of(review.rows.day)
    last = int(place[keep].max())
    first = max(int(place[keep].min()), last - MAX_WEEKS + 1)
    keep &= place >= first
    bins = np.where(keep, place - first, -1)
    found = []
    for k, totals in enumerate(review.rows.by_bin(bins, last - first + 1)):
        begin = date_of((first + k) * 7 - 3)
        own = [begin + timedelta(days=n) for n in range(7)]
        if days is not None:
            own = [day for day in own if days.first <= day <= days.last]
        planned = [budgets[day] for day in own if day in budgets]
        found.append(
            WeekRow(
                str(begin),
                len(own),
                _week_figures(review, totals),
                sum(planned) if planned else None,
                "" if len(own) == 7 else f"{count_text(len(own), 'day')} of it",
            )
        )
    return found


def _week_figures(review: Review, totals: Totals) -> dict[str, Measure]:
    return figures(totals, review.no_price)


def daily(review: Review, keep: Flags, period: Period, today: date) -> tuple[Day, ...]:
    """Cost and goodput of each day of ``period`` up to ``today`` on which rows of ``keep`` lie."""
    first, last = day_of(period.first), day_of(min(period.last, max(today, period.first)))
    place = review.rows.day
    own = keep & (place >= first) & (place <= last)
    bins = np.where(own, place - first, -1)
    there = np.bincount(bins[own], minlength=last - first + 1)
    found = []
    by_day = review.rows.by_bin(bins, last - first + 1)
    beside = own & (review.owner == OTHER)
    other = np.bincount(bins[beside], weights=review.rows.usd[beside], minlength=last - first + 1)
    tells_steps = any(totals.has_steps for totals in by_day)
    for k, totals in enumerate(by_day):
        if not there[k]:
            continue
        made = figures(totals, review.no_price)
        usd = made["cost_usd"].value
        low = high = None
        if tells_steps and totals.billed_us:
            low = totals.step_us / totals.billed_us
            high = min((totals.step_us + totals.open_us) / totals.billed_us, 1.0)
        found.append(
            Day(
                date_of(first + k),
                None if usd is None else round(usd, 2),
                made["goodput_ratio"].value,
                low,
                high,
                round(float(other[k]), 2),
            )
        )
    return tuple(found)


def months(review: Review, days: Days | None) -> tuple[PeriodRow, ...]:
    """GPU-hours by month, split by time; of jobs without dates as their record states it."""
    base, rows = review.base, review.rows
    keep = inside(review, days) & (review.owner >= 0)
    dated = keep & (rows.day != UNDATED)
    month = rows.day[dated].astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
    held: dict[str, int] = {}
    jobs: dict[str, int] = {}
    for number in np.unique(month).tolist():
        own = month == number
        name = str(np.datetime64(number, "M"))
        held[name] = int_sum(rows.held_us[dated][own])
        jobs[name] = len(np.unique(review.owner[dated][own]))
    unknown: dict[str, int] = {}
    if days is None:
        placed = np.zeros(len(base.jobs), dtype=np.bool_)
        placed[review.owner[dated]] = True
        for k in np.flatnonzero(~placed).tolist():
            name = stated_month(base.jobs[k]) or NO_MONTH
            jobs[name] = jobs.get(name, 0) + 1
            if base.hours_known[k]:
                held[name] = held.get(name, 0) + int(base.held_us[k])
            else:
                unknown[name] = unknown.get(name, 0) + 1
    summed = {stated_month(job) or NO_MONTH for job in base.jobs if job.get("is_sum")}
    return tuple(
        PeriodRow(
            name,
            None if name in summed else jobs[name],
            held[name] / 3.6e9 if name in held else None,
            unknown.get(name, 0),
        )
        for name in sorted(jobs, key=in_time)
    )


def sparks(rows: Sequence[WeekRow], name: str, newest_weeks: int = 26) -> tuple[float | None, ...]:
    """A figure by whole week, oldest first; empty where fewer than two weeks tell it.

    A part of a week would look like a fall.
    """
    whole = [row for row in rows if row.days == 7]
    values = tuple(row.figures[name].value for row in whole[-newest_weeks:])
    return values if sum(value is not None for value in values) >= 2 else ()


def change_text(found: Delta) -> str:
    """``+12.0 %``, ``-2.1 points``, ``level``; empty where the change is not known.

    Both bounds where it may have been a fall or a rise: ``-2.1 to +8.4 points``.
    """
    if found.change.value is None:
        return ""
    if found.change.sign_is_open:
        low, high = (format_value(abs(bound), "ratio") for bound in found.change.bounds)
        unit = "points" if found.is_points else "%"
        return f"-{low.removesuffix(' %')} to +{high.removesuffix(' %')} {unit}"
    size = format_value(abs(found.change.value), "ratio")
    if size.startswith(("<", "0.0 ")):
        return "level"
    if found.is_points:
        size = f"{size.removesuffix(' %')} points"
    return f"{'-' if found.change.value < 0 else '+'}{size}"


def read_day(text: str | None, flag: str) -> date | None:
    """A day as 2026-11-29; UserError for anything else."""
    if text is None:
        return None
    try:
        return date.fromisoformat(text.strip())
    except ValueError:
        raise UserError(
            f"expected a day as 2026-11-29, found {text!r}", where=flag, hint="days are UTC"
        ) from None
