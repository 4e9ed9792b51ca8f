"""Spend against a budget and goodput against its objective, with where both are heading.

Spend to the end of a period is what was spent, and for the days that are left the mean of the
newest complete days; its interval is that of the prediction of a sum of as many days:

    t * sd * sqrt(left * (1 + left / n)), n newest days, t of Student's law with n - 1

An objective for goodput leaves an error budget: the share of paid time that may be lost,
(1 - objective) of the spend. The burn rate of a window is the share that was lost in it over the
share that may be (Google, Site Reliability Workbook, chapter 5): 1 uses the budget up exactly at
the end of the period.
"""

from __future__ import annotations

import calendar
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from scipy.special import stdtrit

from steptax.app.compute.measure import Measure
from steptax.app.errors import UserError

#: Newest complete days whose mean is taken to go on.
RECENT_DAYS = 14
#: Less than this a day is nothing.
_NOTHING_USD = 1e-6
_PERIOD = re.compile(r"(?P<year>\d{4})(?:-(?:Q(?P<quarter>[1-4])|(?P<month>\d{2})))?")
#: Window in which it is seen whether the budget will last, in days.
WEEK_DAYS = 7


@dataclass(frozen=True)
class Period:
    """A month, a quarter or a year; both days included."""

    name: str
    first: date
    last: date

    @property
    def days(self) -> int:
        """How many there are."""
        return (self.last - self.first).days + 1

    @classmethod
    def read(cls, name: str) -> Period:
        """``2026-11``, ``2026-Q4`` or ``2026``.

        Raises:
            UserError: it is none of them.
        """
        found = _PERIOD.fullmatch(name.strip())
        year = int(found["year"]) if found else 0
        month = int(found["month"]) if found and found["month"] else None
        if (
            found is None
            or not 1970 <= year <= 2200
            or (month is not None and not 1 <= month <= 12)
        ):
            raise UserError(
                f"there is no period {name!r}",
                where="--period",
                hint="write it as 2026-11, 2026-Q4 or 2026",
            )
        begin, end = 1, 12
        if month is not None:
            begin = end = month
        elif found["quarter"]:
            end = 3 * int(found["quarter"])
            begin = end - 2
        last = date(year, end, calendar.monthrange(year, end)[1])
        return cls(name.strip(), date(year, begin, 1), last)


@dataclass(frozen=True)
class Day:
    """What one day cost, and how much of its paid time was useful; None where not known."""

    day: date
    usd: float | None
    goodput_ratio: float | None


@dataclass(frozen=True)
class SpendOutlook:
    """Where the spend of a period stands and goes."""

    spent_usd: Measure
    at_end_usd: Measure
    left_usd: Measure
    """Budget less what was spent; below 0 it is overspent."""
    over_usd: Measure
    """Spend at the end less the budget; below 0 it holds."""
    used_ratio: Measure
    elapsed_ratio: float
    lasts_days: Measure
    """Until the budget is used up at the present rate."""


def spend_outlook(
    period: Period, days: Sequence[Day], today: date, budget_usd: float | None
) -> SpendOutlook:
    """Spend of ``period`` up to ``today``, which is not complete, and to its end."""
    inside = [d for d in days if period.first <= d.day <= period.last and d.day <= today]
    known = [d.usd for d in inside if d.usd is not None]
    elapsed = min(max((today - period.first).days + 1, 0), period.days) / period.days
    no_budget = "no budget is set"
    if not known:
        reason = "nothing was spent in this period, or no price is known"
        none = Measure.missing("USD", reason)
        return SpendOutlook(
            none, none, none, none, Measure.missing("ratio", reason), elapsed,
            Measure.missing("d", reason),
        )  # fmt: skip
    unknown = len(inside) - len(known)
    warnings = (f"the cost of {unknown} days is not known",) if unknown else ()
    spent = Measure(math.fsum(known), "USD", warnings=warnings)
    rate = _rate(inside, today)
    at_end = _at_end(period, today, spent, rate)
    if budget_usd is None:
        left = over = Measure.missing("USD", no_budget)
        used, lasts = Measure.missing("ratio", no_budget), Measure.missing("d", no_budget)
    else:
        left = spent.map(lambda usd: budget_usd - usd, "USD")
        over = at_end.map(lambda usd: usd - budget_usd, "USD")
        used = (
            spent.map(lambda usd: usd / budget_usd, "ratio")
            if budget_usd
            else Measure.missing("ratio", "the budget is 0")
        )
        lasts = _lasts(left, rate)
    return SpendOutlook(spent, at_end, left, over, used, elapsed, lasts)


def _rate(inside: Sequence[Day], today: date) -> tuple[float, float, int] | None:
    """(mean, standard deviation, n) of the newest complete days; None without any."""
    complete = [d.usd for d in inside if d.day < today and d.usd is not None][-RECENT_DAYS:]
    if not complete:
        return None
    mean = math.fsum(complete) / len(complete)
    if len(complete) < 2:
        return mean, math.nan, 1
    spread = math.sqrt(math.fsum((usd - mean) ** 2 for usd in complete) / (len(complete) - 1))
    return mean, spread, len(complete)


def _at_end(
    period: Period, today: date, spent: Measure, rate: tuple[float, float, int] | None
) -> Measure:
    assert spent.value is not None
    left = (period.last - max(today, period.first - timedelta(days=1))).days
    if left <= 0:
        return spent
    if rate is None:
        return Measure.missing("USD", "no day of the period is complete yet")
    mean, spread, n = rate
    value = spent.value + mean * left
    if not math.isfinite(spread):
        return Measure(value, "USD", warnings=(*spent.warnings, "one complete day has no spread"))
    width = float(stdtrit(n - 1, 0.975)) * spread * math.sqrt(left * (1 + left / n))
    return Measure(
        value, "USD", max(spent.value, value - width), value + width, warnings=spent.warnings
    )


def _lasts(left: Measure, rate: tuple[float, float, int] | None) -> Measure:
    if left.value is None or rate is None:
        return Measure.missing("d", left.reason or "no day of the period is complete yet")
    if left.value <= 0:
        return Measure(0.0, "d")
    if rate[0] < _NOTHING_USD:
        return Measure.missing("d", "nothing was spent lately")
    return Measure(left.value / rate[0], "d")


@dataclass(frozen=True)
class ErrorBudget:
    """What an objective for goodput allows to be lost, and what was."""

    goodput_ratio: Measure
    """Of the period so far, weighted by cost."""
    allowed_usd: Measure
    """In the whole period, at the spend that is expected."""
    lost_usd: Measure
    left_usd: Measure
    week_burn: Measure
    """Burn rate over the newest seven complete days; ``burn`` has those of the newest hours."""
    lasts_days: Measure


def error_budget(
    period: Period,
    days: Sequence[Day],
    today: date,
    slo_ratio: float | None,
    at_end_usd: Measure,
) -> ErrorBudget:
    """The error budget of ``slo_ratio`` in ``period``; days without cost or goodput are left out.

    Raises:
        UserError: an objective that is no share, or allows nothing to be lost.
    """
    if slo_ratio is not None and not 0 < slo_ratio < 1:
        raise UserError(
            f"expected a share between 0 and 1, not {slo_ratio:g}", where="--goodput-slo"
        )
    inside = [d for d in days if period.first <= d.day <= period.last and d.day <= today]
    known = [
        (d.day, d.usd, d.goodput_ratio)
        for d in inside
        if d.usd is not None and d.goodput_ratio is not None
    ]
    paid = math.fsum(usd for _, usd, _ in known)
    if paid <= 0:
        return _no_error_budget("goodput and cost are not known on any day of the period")
    lost_usd = math.fsum(usd * (1 - share) for _, usd, share in known)
    left_out = len(inside) - len(known)
    warnings = (f"{left_out} days are left out: goodput or cost is not known",) if left_out else ()
    goodput = Measure(1 - lost_usd / paid, "ratio", warnings=warnings)
    lost = Measure(lost_usd, "USD", warnings=warnings)
    if slo_ratio is None:
        none = _no_error_budget("no objective is set")
        return ErrorBudget(
            goodput, none.allowed_usd, lost, none.left_usd, none.week_burn, none.lasts_days
        )
    allowed = at_end_usd.map(lambda usd: usd * (1 - slo_ratio), "USD")
    left = allowed.map(lambda usd: usd - lost_usd, "USD")
    recent = [(usd, share) for day, usd, share in known if (today - day).days <= WEEK_DAYS]
    daily = math.fsum(usd * (1 - share) for usd, share in recent) / max(len(recent), 1)
    if left.value is None:
        lasts = Measure.missing("d", left.reason or "")
    elif left.value <= 0:
        lasts = Measure(0.0, "d")
    elif daily < _NOTHING_USD:
        lasts = Measure.missing("d", "nothing was lost lately")
    else:
        lasts = Measure(left.value / daily, "d")
    return ErrorBudget(
        goodput_ratio=goodput,
        allowed_usd=allowed,
        lost_usd=lost,
        left_usd=left,
        week_burn=_burn(known, today, WEEK_DAYS, slo_ratio),
        lasts_days=lasts,
    )


def _burn(
    known: Sequence[tuple[date, float, float]], today: date, window_days: int, slo_ratio: float
) -> Measure:
    """Burn rate of the newest complete days; the day that runs counts where it is the only one."""
    inside = [(usd, share) for day, usd, share in known if 0 < (today - day).days <= window_days]
    inside = inside or [(usd, share) for day, usd, share in known if day == today]
    paid = math.fsum(usd for usd, _ in inside)
    if paid <= 0:
        return Measure.missing("x", f"nothing is known of the last {window_days} days")
    lost = math.fsum(usd * (1 - share) for usd, share in inside) / paid
    return Measure(lost / (1 - slo_ratio), "x")


def _no_error_budget(reason: str) -> ErrorBudget:
    usd, ratio = Measure.missing("USD", reason), Measure.missing("ratio", reason)
    burn = Measure.missing("x", reason)
    return ErrorBudget(ratio, usd, usd, usd, burn, Measure.missing("d", reason))
