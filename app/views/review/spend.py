"""Why spend changed, and on which days it was not what was to be expected."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from fractions import Fraction

import numpy as np

from steptax.app.compute.bill.goodput import GPU_US_PER_HOUR
from steptax.app.compute.bill.job_days import UNDATED
from steptax.app.compute.bill.waterfall_groups import unstated
from steptax.app.compute.spend.anomalies import (
    HISTORY_DAYS,
    MIN_DAYS,
    RULE,
    Anomaly,
    anomalies,
    trailing,
)
from steptax.app.compute.spend.variance import Factors, price_volume_efficiency
from steptax.app.compute.stats.exact import int_sum, int_sums
from steptax.app.compute.stats.rows import Flags, Floats
from steptax.app.format import format_usd, format_value
from steptax.app.views.fleet.groups import HELD_BY_NONE
from steptax.app.views.review.jobs import OF_NO_JOB, UNMATCHED
from steptax.app.views.review.models import AnomalyRow, VarianceView
from steptax.app.views.review.money import Review, of_owner
from steptax.app.views.review.periods import Periods, date_of, day_of, inside
from steptax.app.words import count_text

#: Anomalies that are listed, newest first.
LISTED = 50
#: An anomaly of a team is told where it is this part of what all spent, at least.
LEAST_OF_ALL = 0.01
_MEANINGS = {
    "price": "another price per GPU-hour on the same kind of device",
    "volume": "more or less work: hours in steps that count, or held where steps are not known",
    "efficiency": "paid GPU-hours per hour in steps that count",
    "unallocated": "paid for and held by no job, or for what no job is known to have used",
}


# -- why spend changed ----------------------------------------------------------------------------


def variance_view(review: Review, periods: Periods) -> tuple[VarianceView | None, str]:
    """Price x volume x efficiency between the two periods, or why it cannot be told."""
    if periods.current is None or periods.reference is None:
        return None, "nothing is compared"
    if periods.uneven:
        return None, f"{periods.uneven}; choose days, or others to compare them with"
    sides, names = [], (periods.reference.text, periods.current.text)
    for days, name in zip((periods.reference, periods.current), names, strict=True):
        keep = inside(review, days)
        if not keep.any():
            return None, f"no job held a device in {name}"
        found, idle, unpriced = _factors(review, keep)
        if not found and not idle:
            return None, f"what {name} cost is unknown: {review.no_price}"
        sides.append((found, idle, unpriced))
    (before, idle0, un0), (after, idle1, un1) = sides
    made = price_volume_efficiency(before, after, (idle0, idle1))
    notes = ["each effect is its mean over all orders of the three (Shapley); they add up exactly"]
    if made.efficiency_known_ratio < 1:
        share = format_value(made.efficiency_known_ratio, "ratio")
        notes.append(
            f"efficiency is known of {share} of the spend; elsewhere it is in volume and price"
        )
    if periods.partly:
        notes.append(periods.partly)
    if un0 or un1:
        left = format_value((un0 + un1) / GPU_US_PER_HOUR, "GPU-hours")
        notes.append(f"without {left} whose cost is not known")
    effects = [
        (name, usd, _MEANINGS[name])
        for name, usd in (
            ("price", made.price_usd),
            ("volume", made.volume_usd),
            ("efficiency", made.efficiency_usd),
            ("unallocated", made.unallocated_usd),
        )
        if name != "unallocated" or usd or review.is_billed
    ]
    return (
        VarianceView(*names, made.before_usd, made.after_usd, tuple(effects), tuple(notes)),
        "",
    )


def _factors(review: Review, keep: Flags) -> tuple[dict[str, Factors], Fraction, int]:
    """What each kind of device cost and held, with and without steps; what nobody held; the rest.

    By kind of device, so that more of a dearer kind is no rise of a price.
    """
    rows = review.rows
    priced = keep & (rows.unpriced_us == 0)
    kinds = review.base.groups("gpu_model")
    of = of_owner(kinds[0], -1, review.owner) * 2 + (rows.has_steps > 0)
    own = priced & (review.owner >= 0)
    count = 2 * len(kinds[1])
    usd = np.bincount(of[own], weights=rows.usd[own], minlength=count)
    held = int_sums(of[own], rows.held_us[own], count)
    stepped = int_sums(of[own], rows.step_us[own], count)
    found = {}
    for k in range(count):
        if held[k] or usd[k]:
            name = f"{kinds[1][k // 2] or unstated('device')}, {'with' if k % 2 else 'no'} steps"
            found[name] = Factors(
                Fraction(float(usd[k])),
                Fraction(int(held[k]), GPU_US_PER_HOUR),
                Fraction(int(stepped[k]), GPU_US_PER_HOUR) if k % 2 else None,
            )
    idle = Fraction(float(rows.usd[priced & (review.owner < 0)].sum()))
    return found, idle, int_sum(rows.unpriced_us[keep])


# -- anomalies ------------------------------------------------------------------------------------


class _Daily:
    """Rows by day and team, in dollars or, without a price, GPU-hours; complete days only.

    Of a bill its days count, and what it has no cost for on them does not.
    """

    def __init__(self, review: Review, today: date) -> None:
        rows = review.rows
        dated = rows.day != UNDATED
        # Of the newest day on record nobody knows whether all of it is.
        newest = int(rows.day[dated].max()) if dated.any() else 0
        dated &= rows.day < min(day_of(today), newest)
        priced, within = dated & (rows.unpriced_us == 0), dated
        billed = review.is_billed and len(np.unique(rows.day[priced])) > MIN_DAYS
        self.is_usd = billed or (bool(dated.any()) and bool(priced[dated].all()))
        dated = priced if self.is_usd else dated
        self.unit = "USD" if self.is_usd else "GPU-hours"
        self.review = review
        self.keep = dated
        self.first = int(rows.day[dated].min()) if dated.any() else 0
        self.count = int(rows.day[dated].max()) - self.first + 1 if dated.any() else 0
        self.day = rows.day - self.first
        self.hours = rows.held_us / GPU_US_PER_HOUR
        self.amount = rows.usd if self.is_usd else self.hours
        codes, names = review.base.groups("team")
        self.teams = [*(name or unstated("team") for name in names), UNMATCHED, HELD_BY_NONE]
        self.team = np.append(codes, len(names) + np.arange(2))[review.owner]
        self.unpriced = within & ~dated & (self.day >= 0) & (self.day < self.count)

    def sums(self, values: Floats, keep: Flags) -> Floats:
        """[D] by day, NaN where no job held a device: that is unknown, not zero."""
        own = self.keep & keep
        found = np.bincount(self.day[own], weights=values[own], minlength=self.count)
        return np.where(self.there, found, np.nan)

    @property
    def there(self) -> Flags:
        """[D] days on which any device was held."""
        return np.bincount(self.day[self.keep], minlength=self.count) > 0

    def by_team(self) -> Floats:
        """[T, D] by team and day."""
        flat, size = self.team * self.count + self.day, len(self.teams) * self.count
        found = np.bincount(flat[self.keep], weights=self.amount[self.keep], minlength=size)
        known = np.bincount(flat[self.keep], minlength=size) > 0
        unknown = (np.bincount(flat[self.unpriced], minlength=size) > 0) & ~known
        found = np.where(unknown, np.nan, found).reshape(len(self.teams), self.count)
        return np.where(self.there, found, np.nan)


def anomaly_rows(
    review: Review, periods: Periods, today: date
) -> tuple[tuple[AnomalyRow, ...], str]:
    """Anomalies of all spend and of each team in the period, newest first, and the rule."""
    daily = _Daily(review, today)
    if daily.count <= MIN_DAYS:
        return (), (
            f"{count_text(daily.count, 'day')} on record: more than {MIN_DAYS} complete ones are "
            "needed to "
            f"tell an anomaly. Rule: {RULE}"
        )
    everything = np.ones(len(daily.day), dtype=np.bool_)
    whole = daily.sums(daily.amount, everything)
    by_team = daily.by_team()
    found: list[tuple[str, int | None, Anomaly]] = [
        ("all jobs", None, one) for one in anomalies(whole)
    ]
    usual = float(np.nanmedian(whole))
    for k, name in enumerate(daily.teams if len(daily.teams) > 3 else ()):  # one team is all jobs
        scope = name if name in OF_NO_JOB else f"team {name}"
        found += [
            (scope, k, one)
            for one in anomalies(by_team[k])
            if abs(one.impact) >= LEAST_OF_ALL * usual * (one.last - one.first + 1)
        ]
    if periods.chosen is not None:
        begin, end = (day_of(d) - daily.first for d in (periods.chosen.first, periods.chosen.last))
        found = [row for row in found if begin <= row[2].last and row[2].first <= end]
    found.sort(key=lambda row: (row[2].last, abs(row[2].impact)), reverse=True)
    usuals = _Usual(_prices(daily), by_team)
    rows = tuple(_row(daily, scope, one, usuals, team) for scope, team, one in found[:LISTED])
    left = f"; the newest {LISTED} of {len(found):,}" if len(found) > LISTED else ""
    return rows, f"Rule: {RULE}{left}."


class _Usual:
    """Prices [D], and spend by team [T, D], each with its median of the days before."""

    def __init__(self, prices: Floats | None, by_team: Floats) -> None:
        self.prices, self.by_team = prices, by_team
        self.price = None if prices is None else trailing(prices)[0]
        self.team = np.array([trailing(series)[0] for series in by_team])


def _prices(daily: _Daily) -> Floats | None:
    """[D] mean price per GPU-hour; None where money is not known."""
    if not daily.is_usd:
        return None
    everything = np.ones(len(daily.day), dtype=np.bool_)
    usd, hours = daily.sums(daily.amount, everything), daily.sums(daily.hours, everything)
    price: Floats = np.divide(usd, hours, out=np.full(len(usd), np.nan), where=hours > 0)
    return price


def _row(daily: _Daily, scope: str, one: Anomaly, usual: _Usual, team: int | None) -> AnomalyRow:
    driver, owner = _driver(daily, one, usual, team)
    return AnomalyRow(
        scope,
        str(date_of(daily.first + one.first)),
        str(date_of(daily.first + one.last)),
        one.actual,
        one.expected,
        one.low,
        one.high,
        one.impact,
        daily.unit,
        driver,
        owner,
        "open" if one.last == daily.count - 1 else "past",
    )


def _driver(daily: _Daily, one: Anomaly, usual: _Usual, team: int | None) -> tuple[str, str | None]:
    """What moved it most: the price, else the team and in it the job; and the owner of the job."""
    days = slice(one.first, one.last + 1)
    within = daily.keep & (daily.day >= one.first) & (daily.day <= one.last)
    if team is not None:
        within &= daily.team == team
    if usual.prices is not None and usual.price is not None:
        before, now = float(usual.price[one.first]), float(np.nanmean(usual.prices[days]))
        effect = (now - before) * float(daily.hours[within].sum())
        if before and abs(effect) > 0.5 * abs(one.impact) and effect * one.impact > 0:
            return (
                f"price: {format_usd(before)} to {format_usd(now)} per GPU-hour, "
                f"{_signed(effect, daily.unit)}"
            ), None
    said = ""
    if team is None:
        expected = np.nan_to_num(usual.team[:, days].sum(axis=1))
        moved = usual.by_team[:, days].sum(axis=1) - expected
        team = int(np.argmax(moved * np.sign(one.impact)))
        name = daily.teams[team]
        said = f"{'' if name in OF_NO_JOB else 'team '}{name} {_signed(moved[team], daily.unit)}"
    job, owner = _job(daily, one, team)
    return ", ".join(part for part in (said, job) if part), owner


def _job(daily: _Daily, one: Anomaly, team: int) -> tuple[str, str | None]:
    """The job of a team that moved most against its own mean day, of the days before."""
    length = one.last - one.first + 1
    mine = daily.keep & (daily.team == team) & (daily.review.owner >= 0)
    now = mine & (daily.day >= one.first) & (daily.day <= one.last)
    before = mine & (daily.day < one.first) & (daily.day >= one.first - HISTORY_DAYS)
    jobs = len(daily.review.base.jobs)
    if not jobs:
        return "", None
    spent = np.bincount(daily.review.owner[now], weights=daily.amount[now], minlength=jobs)
    usual = np.bincount(daily.review.owner[before], weights=daily.amount[before], minlength=jobs)
    ran = np.bincount(daily.review.owner[before], minlength=jobs)
    moved = (spent - usual / np.maximum(ran, 1) * length) * np.sign(one.impact)
    k = int(np.argmax(moved))
    if moved[k] <= 0:
        return "", None
    job = daily.review.base.jobs[k]
    amount = _signed(float(moved[k]) * float(np.sign(one.impact)), daily.unit)
    return f"job {job['job_id']} {amount}", job.get("owner")


def _signed(value: float, unit: str) -> str:
    sign = "+" if value >= 0 else ""
    return f"{sign}{format_value(value, unit)}"


def budget_days(
    entries: Mapping[str, float], days: Mapping[str, tuple[date, date]]
) -> Mapping[date, float]:
    """What a budget gives each day: the amount of the shortest period over its days."""
    found: dict[date, float] = {}
    order = sorted(entries, key=lambda name: (days[name][1] - days[name][0], name))
    for name in order:
        first, last = (day_of(day) for day in days[name])
        for number in range(first, last + 1):
            found.setdefault(date_of(number), entries[name] / (last - first + 1))
    return found
