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

from steptax.app.compute.bill.goodput import LARGEST_OPEN, LEAST_OPEN, open_text
from steptax.app.compute.measure import Measure
from steptax.app.errors import UserError
from steptax.app.words import count_text

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
    low_ratio: float | None = None
    """The least goodput that it can have had; None: that of the day, else 0."""
    high_ratio: float | None = None
    """The most; None: that of the day, else 1."""
    other_usd: float = 0.0
    """Of ``usd``, for what is no device of a job: there is nothing that could be useful in it."""

    @property
    def device_usd(self) -> float:
        """What the devices cost."""
        return (self.usd or 0.0) - self.other_usd

    @property
    def bounds(self) -> tuple[float, float]:
        """Between which shares its goodput lies."""
        known = self.goodput_ratio
        low = self.low_ratio if self.low_ratio is not None else 0.0 if known is None else known
        high = self.high_ratio if self.high_ratio is not None else 1.0 if known is None else known
        return low, high


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
    period: Period,
    days: Sequence[Day],
    today: date,
    budget_usd: float | None,
    today_left: float = 0.0,
    no_price: str = "no price is known",
) -> SpendOutlook:
    """Spend of ``period`` up to ``today``, of which ``today_left`` is to come, and to its end.

    Days up to ``today`` of which nobody knows what they cost are taken to cost as the newest did.
    """
    inside = [d for d in days if period.first <= d.day <= period.last and d.day <= today]
    known = [d.usd for d in inside if d.usd is not None]
    elapsed = min(max((today - period.first).days + 1, 0), period.days) / period.days
    no_budget = "no budget is set"
    if not known:
        reason = no_price if inside else "nothing was spent in this period"
        none = Measure.missing("USD", reason)
        return SpendOutlook(
            none, none, none, none, Measure.missing("ratio", reason), elapsed,
            Measure.missing("d", reason),
        )  # fmt: skip
    unknown = len(inside) - len(known)
    warnings = (f"the cost of {count_text(unknown, 'day')} is not known",) if unknown else ()
    spent = Measure(math.fsum(known), "USD", warnings=warnings)
    rate = _rate(inside, today)
    ahead = (period.last - max(today, period.first - timedelta(days=1))).days
    days_left = float(max(ahead, 0) + unknown)
    if period.first <= today <= period.last and not any(
        d.day == today and d.usd is None for d in inside
    ):
        days_left += today_left
    at_end = _at_end(days_left, spent, rate)
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


def _at_end(left: float, spent: Measure, rate: tuple[float, float, int] | None) -> Measure:
    """At the end of the ``left`` days that are to come, or whose cost is not known."""
    assert spent.value is not None
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
    """The error budget of ``slo_ratio`` in ``period``.

    What is not known to have been useful counts as lost, and the interval says how much of it may
    have been useful. Where that is the larger part of the cost there is no goodput, and nothing
    that follows from it: the same rule as for the goodput of a bill (``Goodput.measures``). Days
    without cost are left out.

    Raises:
        UserError: an objective that is no share, or allows nothing to be lost.
    """
    if slo_ratio is not None and not 0 < slo_ratio < 1:
        raise UserError(
            f"expected a share between 0 and 1, not {slo_ratio:g}", where="--goodput-slo"
        )
    inside = [d for d in days if period.first <= d.day <= period.last and d.day <= today]
    priced = [d for d in inside if d.usd is not None]
    left_out = len(inside) - len(priced)
    warnings = (f"without {count_text(left_out, 'day')} whose cost is not known",)
    goodput = _goodput(priced, warnings if left_out else ())
    if goodput.value is None:
        return _no_error_budget(goodput.reason or "")
    paid, whole = (
        math.fsum(values)
        for values in zip(*((d.device_usd, d.usd or 0.0) for d in priced), strict=True)
    )
    lost = goodput.map(lambda share: paid * (1 - share), "USD")
    if slo_ratio is None:
        none = _no_error_budget("no objective is set")
        return ErrorBudget(
            goodput, none.allowed_usd, lost, none.left_usd, none.week_burn, none.lasts_days
        )
    of_devices = paid / whole if whole else 0.0
    allowed = at_end_usd.map(lambda usd: usd * of_devices * (1 - slo_ratio), "USD")
    left = _left(allowed, lost)
    recent = [d for d in priced if (today - d.day).days <= WEEK_DAYS]
    daily = _goodput(recent).map(
        lambda share: math.fsum(d.device_usd for d in recent) * (1 - share) / len(recent), "USD"
    )
    if left.value is None:
        lasts = Measure.missing("d", left.reason or "")
    elif left.sign_is_open:
        lasts = Measure.missing("d", "whether any of it is left is not known")
    elif left.value <= 0:
        lasts = Measure(0.0, "d")
    elif not any(d.device_usd for d in recent) or (
        daily.value is not None and daily.value < _NOTHING_USD
    ):
        lasts = Measure.missing("d", "nothing was lost lately")
    elif daily.value is None:
        lasts = Measure.missing("d", f"goodput of the last {WEEK_DAYS} days: {daily.reason}")
    else:
        lasts = Measure(left.value / daily.value, "d")
    return ErrorBudget(
        goodput_ratio=goodput,
        allowed_usd=allowed,
        lost_usd=lost,
        left_usd=left,
        week_burn=_burn(priced, today, WEEK_DAYS, slo_ratio),
        lasts_days=lasts,
    )


def _left(allowed: Measure, lost: Measure) -> Measure:
    """What may still be lost: between the least allowed less the most lost, and the opposite."""
    if allowed.value is None or lost.value is None:
        return Measure.missing("USD", allowed.reason or lost.reason or "")
    low = high = None
    if None not in (allowed.low, allowed.high) or None not in (lost.low, lost.high):
        low = _or(allowed.low, allowed.value) - _or(lost.high, lost.value)
        high = _or(allowed.high, allowed.value) - _or(lost.low, lost.value)
    return Measure(allowed.value - lost.value, "USD", low, high, warnings=lost.warnings)


def _or(bound: float | None, value: float) -> float:
    return value if bound is None else bound


def _goodput(days: Sequence[Day], warnings: tuple[str, ...] = ()) -> Measure:
    """Of days with cost, weighted by it; missing where less than half of the cost tells it."""
    paid = math.fsum(d.device_usd for d in days)
    if paid <= 0 or not any(d.goodput_ratio is not None or d.low_ratio is not None for d in days):
        return Measure.missing("ratio", "goodput and cost are not known on any day of the period")
    low = math.fsum(d.device_usd * d.bounds[0] for d in days) / paid
    high = math.fsum(d.device_usd * d.bounds[1] for d in days) / paid
    rest = high - low
    if rest > LARGEST_OPEN:
        return Measure.missing("ratio", open_text(low, high, rest, "cost"))
    if rest < LEAST_OPEN:
        return Measure(low, "ratio", warnings=warnings)
    return Measure(low, "ratio", low, high, warnings=warnings)


def _burn(days: Sequence[Day], today: date, window_days: int, slo_ratio: float) -> Measure:
    """Burn rate of the newest complete days; the day that runs counts where it is the only one."""
    inside = [d for d in days if 0 < (today - d.day).days <= window_days]
    inside = inside or [d for d in days if d.day == today]
    if not any(d.device_usd for d in inside):
        return Measure.missing("x", f"nothing is known of the last {window_days} days")
    return _goodput(inside).map(lambda share: (1 - share) / (1 - slo_ratio), "x")


def _no_error_budget(reason: str) -> ErrorBudget:
    usd, ratio = Measure.missing("USD", reason), Measure.missing("ratio", reason)
    burn = Measure.missing("x", reason)
    return ErrorBudget(ratio, usd, usd, usd, burn, Measure.missing("d", reason))
