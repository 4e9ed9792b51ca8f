"""What the days of a review cost: by a bill, connected prices, or one price for all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal

import numpy as np

from steptax.app.compute.bill.apportion import Unit
from steptax.app.compute.bill.charge_groups import UNSTATED
from steptax.app.compute.bill.goodput import GPU_US_PER_HOUR
from steptax.app.compute.bill.holders import UNEXPLAINED
from steptax.app.compute.bill.job_days import (
    DAY_US,
    NOBODY,
    OTHER,
    UNDATED,
    Stretches,
    job_days,
    spread_over_days,
)
from steptax.app.compute.bill.periods import (
    UNALLOCATED,
    charge_span,
    unexplained_charges,
)
from steptax.app.compute.stats.exact import int_sum
from steptax.app.compute.stats.rows import Floats, Ints
from steptax.app.errors import SteptaxError
from steptax.app.format import format_value
from steptax.app.views.fleet.bill_models import USD
from steptax.app.views.fleet.money import EVERY_JOB, free_devices, money_of, period_costs
from steptax.app.views.fleet.money_by_bill import Money
from steptax.app.views.fleet.records import Records
from steptax.app.views.models import Price
from steptax.app.views.pricing.given import NO_PRICE
from steptax.app.views.pricing.offers import load_offers
from steptax.app.views.review.base import ReviewBase
from steptax.app.views.workspace import Workspace
from steptax.app.words import day_text

#: Keys of a job's days are this far from those of the next job.
DAY_KEYS = 2**33


@dataclass(frozen=True, eq=False)
class FreeDevices:
    """Stretches [M] in which devices were paid for and held by no job."""

    start_us: Ints
    end_us: Ints
    gpus: Ints
    first_us: int
    """From when on devices of jobs were paid for."""
    last_us: int


@dataclass(frozen=True, eq=False)
class Costs:
    """Cost of the rows [N] of ``base.days``, NaN where not known, and of time beside them [E]."""

    usd: Floats
    extra_job: Ints
    extra_day: Ints
    extra_us: Ints
    extra_usd: Floats
    per_hour: Floats
    """[J] mean cost of a job's GPU-hour, NaN where not known."""
    basis: str
    no_price: str = NO_PRICE
    is_billed: bool = False
    is_priced_by_day: bool = True
    currency: str | None = USD
    warnings: tuple[str, ...] = ()
    free: FreeDevices | None = None


def lake_tells(ws: Workspace, given: Price) -> bool:
    """Whether the lake says what jobs cost: a bill does, and list prices where nobody gave one."""
    if ws.lake.segments("charges"):
        return True
    return given.usd_per_gpu_hour is None and bool(ws.lake.segments("prices"))


def costs_of(ws: Workspace, base: ReviewBase, cost: Price) -> Costs:
    """A bill wins over the given price, and it over connected prices."""
    hours = base.days.held_us / GPU_US_PER_HOUR
    if not lake_tells(ws, cost) or not (ws.lake.segments("charges") or load_offers(ws)):
        rate = np.nan if cost.usd_per_gpu_hour is None else float(cost.usd_per_gpu_hour)
        made = _plain(hours * rate, np.full(len(base.jobs), rate), cost.basis)
        return replace(made, is_priced_by_day=False)
    try:
        money = _money(ws, base, cost.usd_per_gpu_hour)
    except SteptaxError as problem:
        sums = _by_currency(ws)
        reason = problem.message if len(sums) < 2 else _no_rate(sums)
        return _unknown(base, reason, "cost unknown")
    if money.currency not in (None, USD):
        reason = _no_rate(_by_currency(ws))
        unknown = _unknown(base, reason, money.basis)
        return replace(unknown, currency=money.currency, warnings=money.warnings)
    held = base.held_us.astype(np.float64) / GPU_US_PER_HOUR
    per_hour = np.full(len(base.jobs), np.nan)
    for name, price in money.rates.items():
        per_hour[base.place[name]] = float(price)
    if money.charges:
        whole = np.full(len(base.jobs), np.nan)
        for name, amount in money.by_job.items():
            whole[base.place[name]] = float(amount)
        per_hour = np.divide(whole, held, out=np.full(len(held), np.nan), where=held > 0)
    usd = hours * per_hour[base.days.job]
    made = replace(_plain(usd, per_hour, money.basis), warnings=money.warnings)
    return _by_charges(base, money, made) if money.charges else made


def _plain(usd: Floats, per_hour: Floats, basis: str) -> Costs:
    none = np.zeros(0, dtype=np.int64)
    return Costs(usd, none, none, none, np.zeros(0), per_hour, basis)


def _unknown(base: ReviewBase, reason: str, basis: str) -> Costs:
    nan = np.full(len(base.days), np.nan)
    return replace(_plain(nan, np.full(len(base.jobs), np.nan), basis), no_price=reason)


def _by_currency(ws: Workspace) -> dict[str, Decimal]:
    """Effective cost of all charges by currency, by name."""
    rows = ws.engine.run("fleet_charges").select(["currency", "effective_cost"])
    found: dict[str, Decimal] = {}
    for name, cost in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        found[name or UNSTATED] = found.get(name or UNSTATED, Decimal(0)) + (cost or 0)
    return dict(sorted(found.items()))


def _no_rate(sums: Mapping[str, Decimal]) -> str:
    """Why nothing is said in dollars of a bill of these sums, and what to do."""
    said = " and ".join(f"{cost:,.2f} {name}" for name, cost in sums.items())
    name = next((name for name in sums if name != USD), USD)
    return (
        f"the bill is {said}, and no rate is set: name a file with the lines [rates] and "
        f'{name} = "1.08" as STEPTAX_BILL_RULES'
    )


def _money(ws: Workspace, base: ReviewBase, price: Decimal | None) -> Money:
    """As the whole bill has it."""
    bills = [(one, one.made) for one in base.bills if one.held is None and one.made is not None]
    alone = Records.of([one for one in base.bills if one.held is not None])
    return money_of(
        ws,
        [bill for _, bill in bills],
        {str(job["job_id"]): job for job in base.jobs},
        price,
        None,
        whole=[bill for one, bill in bills if not one.undated],
        records=alone,
        whole_records=alone,
        of_all=EVERY_JOB,
        lost={one.job_id: one.lost for one in base.bills if one.lost},
    )


def _by_charges(base: ReviewBase, money: Money, made: Costs) -> Costs:
    """What was charged for each day, whatever the rate was on the others.

    A day of a job for which nothing was charged has no cost that is known, and not none: a bill
    may end before the job does.
    """
    usd = np.where(np.isnan(made.usd) | (base.days.day != UNDATED), np.nan, 0.0)
    keys = base.days.job * DAY_KEYS + base.days.day
    extra: list[tuple[int, int, int, float]] = []
    for period, by_job in period_costs(money, Unit.DAY, "UTC", None).items():
        day = _day(period)
        for name, cost in by_job.items():
            k = NOBODY if name == UNALLOCATED else base.place.get(name, NOBODY)
            at = int(np.searchsorted(keys, k * DAY_KEYS + day)) if k != NOBODY else len(keys)
            if at < len(keys) and keys[at] == k * DAY_KEYS + day:
                usd[at] = np.nan_to_num(usd[at]) + float(cost)
            elif cost:
                extra.append((k, day, 0, float(cost)))
    extra += [(NOBODY, day, us, 0.0) for day, us in _idle(money)]
    other = zip(*(values.tolist() for values in _other(money)), strict=True)
    extra += [(OTHER, day, 0, usd) for day, usd in other if usd]
    span = _span(money)
    said, late = _covered(base, span)
    return replace(
        made,
        warnings=(*made.warnings, *late),
        usd=usd,
        extra_job=np.array([job for job, *_ in extra], dtype=np.int64),
        extra_day=np.array([day for _, day, *_ in extra], dtype=np.int64),
        extra_us=np.array([us for *_, us, _ in extra], dtype=np.int64),
        extra_usd=np.array([usd for *_, usd in extra], dtype=np.float64),
        no_price=f"no charge belongs to it{said}",
        is_billed=True,
        free=_free(money, span),
    )


def _span(money: Money) -> tuple[int, int] | None:
    """From when to when charges are for jobs and their devices; None where none is."""
    spans = [
        span
        for row in money.charges
        if (span := charge_span(row)) is not None
        and money.holders.means(row, is_timed=True) != UNEXPLAINED
    ]
    return (min(s for s, _ in spans), max(e for _, e in spans)) if spans else None


def _covered(base: ReviewBase, span: tuple[int, int] | None) -> tuple[str, tuple[str, ...]]:
    """What to say of that span, and of what was held after it."""
    if span is None:
        return "", ()
    start_us, end_us = span
    first, last = (
        f"{day_text(np.datetime64(us // DAY_US, 'D').item())}" for us in (start_us, end_us - 1)
    )
    after = np.maximum(base.held.end_us - np.maximum(base.held.start_us, end_us), 0)
    gpu_us = int_sum(after * base.held.gpus)
    said = f"; charges for jobs and their devices are from {first} to {last}"
    if not gpu_us:
        return said, ()
    hours = format_value(gpu_us / GPU_US_PER_HOUR, "GPU-hours")
    return said, (
        f"charges for jobs and their devices end on {last}: what {hours} that were held after it "
        "cost is not known yet",
    )


def _other(money: Money) -> tuple[Ints, Floats]:
    """Days, and what was charged on each for what no job is known to have used."""
    found = unexplained_charges(money.charges, money.holders)
    dated = [(*span, float(cost)) for span, cost in found if span is not None]
    loose = float(sum(cost for span, cost in found if span is None))
    start, end, usd = (np.array([one[k] for one in dated]) for k in range(3))
    day, part = spread_over_days(start.astype(np.int64), end.astype(np.int64), usd.astype(float))
    return np.append(day, UNDATED), np.append(part, loose)


def _day(period: str) -> int:
    return int(np.datetime64(period, "D").astype(np.int64))


def _free(money: Money, span: tuple[int, int] | None) -> FreeDevices | None:
    """What was paid for and held by no job."""
    free = free_devices(money, None)
    if not free or span is None:
        return None
    start, end, gpus = (
        np.array([getattr(one, name) for one in free], dtype=np.int64)
        for name in ("start_us", "end_us", "gpus")
    )
    return FreeDevices(start, end, gpus, *span)


def _idle(money: Money) -> list[tuple[int, int]]:
    """Day and GPU-microseconds of what was paid for and held by no job."""
    free = _free(money, (0, 0))
    if free is None:
        return []
    zero = np.zeros(len(free.gpus), dtype=np.int64)
    found = job_days(Stretches(zero, free.start_us, free.end_us, free.gpus, zero))
    return list(zip(found.day.tolist(), found.held_us.tolist(), strict=True))
