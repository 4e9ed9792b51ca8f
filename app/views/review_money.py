"""What the days of a review cost, and its rows with all that is spread over them."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from decimal import Decimal
from threading import Lock
from typing import Any

import numpy as np

from steptax.app.compute.apportion import Unit
from steptax.app.compute.bill_periods import UNALLOCATED, costs_by_period, idle_allocations
from steptax.app.compute.goodput import GPU_US_PER_HOUR
from steptax.app.compute.job_days import NOBODY, UNDATED, Stretches, job_days
from steptax.app.compute.review_totals import ReviewRows
from steptax.app.compute.rows import Floats, Ints
from steptax.app.errors import SteptaxError
from steptax.app.views.fleet_bill_models import USD
from steptax.app.views.fleet_money import Money, money_of
from steptax.app.views.models import Price
from steptax.app.views.offers import load_offers
from steptax.app.views.price import NO_PRICE
from steptax.app.views.review_base import ReviewBase
from steptax.app.views.workspace import Workspace

#: Tables that tell what was paid.
PAID_BY = ("charges", "charge_states", "prices", "device_samples")
#: Sets of rows kept: one per price.
KEPT = 8
_DAY_KEYS = 2**33


@dataclass(frozen=True, eq=False)
class Review:
    """The rows of a review: ``owner`` [N] is the place of each row's job, ``NOBODY`` for none."""

    base: ReviewBase
    rows: ReviewRows
    owner: Ints
    basis: str
    """Whose price it is."""
    no_price: str
    """Why money is not known where it is not."""
    is_billed: bool
    """Whether a provider's bill tells the cost."""
    is_priced_by_day: bool
    """Whether a bill or connected prices tell the cost, and not one price for all."""
    currency: str | None
    per_hour: Floats
    """[J] mean cost of a job's GPU-hour, NaN where not known."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class _Costs:
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


_cache: OrderedDict[tuple[Any, ...], Review] = OrderedDict()
_lock = Lock()


def review_of(ws: Workspace, base: ReviewBase, cost: Price) -> Review:
    """The rows of ``base`` at ``cost``, or at what a connected bill or list price says."""
    versions = [ws.lake.version(name) for name in PAID_BY]
    key = (ws.key, base.version, *versions, cost)
    with _lock:
        if key in _cache:
            _cache.move_to_end(key)
            return _cache[key]
    made = _rows(base, _costs(ws, base, cost))
    with _lock:
        _cache[key] = made
        while len(_cache) > KEPT:
            _cache.popitem(last=False)
    return made


# -- what a row costs -----------------------------------------------------------------------------


def _costs(ws: Workspace, base: ReviewBase, cost: Price) -> _Costs:
    """A bill wins over connected prices, and they over the given one."""
    hours = base.days.held_us / GPU_US_PER_HOUR
    if not ws.lake.segments("charges") and not (ws.lake.segments("prices") and load_offers(ws)):
        rate = np.nan if cost.usd_per_gpu_hour is None else float(cost.usd_per_gpu_hour)
        made = _plain(hours * rate, np.full(len(base.jobs), rate), cost.basis)
        return replace(made, is_priced_by_day=False)
    try:
        money = _money(ws, base, cost.usd_per_gpu_hour)
    except SteptaxError as problem:
        return _unknown(base, problem.message, "cost unknown")
    if money.currency not in (None, USD):
        reason = f"the bill is in {money.currency}, and no rate to USD is set"
        unknown = _unknown(base, reason, money.basis)
        return replace(unknown, currency=money.currency, warnings=money.warnings)
    held = base.held_us / GPU_US_PER_HOUR
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


def _plain(usd: Floats, per_hour: Floats, basis: str) -> _Costs:
    none = np.zeros(0, dtype=np.int64)
    return _Costs(usd, none, none, none, np.zeros(0), per_hour, basis)


def _unknown(base: ReviewBase, reason: str, basis: str) -> _Costs:
    nan = np.full(len(base.days), np.nan)
    return replace(_plain(nan, np.full(len(base.jobs), np.nan), basis), no_price=reason)


def _money(ws: Workspace, base: ReviewBase, price: Decimal | None) -> Money:
    """As the whole bill has it; jobs known by their record alone need a bill only to be charged."""
    apart = bool(ws.lake.segments("charges"))
    known = [one for one in base.bills if one.is_known and (apart or one.held is None)]
    alone = [one.job_id for one in base.bills if one.held is not None and not apart]
    bills = [(one, bill) for one in known if (bill := one.bill) is not None]
    return money_of(
        ws,
        [bill for _, bill in bills],
        {str(job["job_id"]): job for job in base.jobs},
        price,
        None,
        whole=[bill for one, bill in bills if not one.undated],
        records=alone,
        lost={one.job_id: one.lost for one in base.bills if one.lost},
    )


def _by_charges(base: ReviewBase, money: Money, made: _Costs) -> _Costs:
    """What was charged for each day, whatever the rate was on the others."""
    usd = np.where(np.isnan(made.usd), np.nan, 0.0)
    keys = base.days.job * _DAY_KEYS + base.days.day
    extra: list[tuple[int, int, int, float]] = []
    for period, by_job in costs_by_period(money.charges, money.holders, Unit.DAY).items():
        day = _day(period)
        for name, cost in by_job.items():
            k = NOBODY if name == UNALLOCATED else base.place.get(name, NOBODY)
            at = int(np.searchsorted(keys, k * _DAY_KEYS + day)) if k != NOBODY else len(keys)
            if at < len(keys) and keys[at] == k * _DAY_KEYS + day and not np.isnan(usd[at]):
                usd[at] += float(cost)
            elif cost:
                extra.append((k, day, 0, float(cost)))
    extra += [(NOBODY, day, us, 0.0) for day, us in _idle(money)]
    return replace(
        made,
        usd=usd,
        extra_job=np.array([job for job, *_ in extra], dtype=np.int64),
        extra_day=np.array([day for _, day, *_ in extra], dtype=np.int64),
        extra_us=np.array([us for *_, us, _ in extra], dtype=np.int64),
        extra_usd=np.array([usd for *_, usd in extra], dtype=np.float64),
        no_price="no charge belongs to it",
        is_billed=True,
    )


def _day(period: str) -> int:
    return int(np.datetime64(period, "D").astype(np.int64))


def _idle(money: Money) -> list[tuple[int, int]]:
    """Day and GPU-microseconds of what was paid for and held by no job."""
    free = idle_allocations(money.charges, money.holders.by_resource, None)
    if not free:
        return []
    columns = ([getattr(a, name) for a in free] for name in ("start_us", "end_us", "gpus"))
    start, end, gpus = (np.array(values, dtype=np.int64) for values in columns)
    zero = np.zeros(len(start), dtype=np.int64)
    found = job_days(Stretches(zero, start, end, gpus, zero))
    return list(zip(found.day.tolist(), found.held_us.tolist(), strict=True))


# -- rows -----------------------------------------------------------------------------------------


def _rows(base: ReviewBase, costs: _Costs) -> Review:
    days, count = base.days, len(base.jobs)
    stepped = np.zeros(count)
    np.add.at(stepped, days.job, days.step_us)
    timed = np.zeros(count, dtype=np.bool_)
    for k, facts in base.steps.items():
        timed[k] = facts.is_timed
    # Steps that cannot be placed in time count in no period but in all of it.
    loose = np.flatnonzero((base.undated_us > 0) | (timed & (stepped == 0)))
    none = np.zeros(len(loose), dtype=np.int64)
    nobody = np.zeros(len(costs.extra_job), dtype=np.int64)
    owner = np.concatenate([days.job, loose, costs.extra_job])
    day = np.concatenate([days.day, none + UNDATED, costs.extra_day])
    held = np.concatenate([days.held_us, base.undated_us[loose], costs.extra_us])
    per_hour = np.append(costs.per_hour, np.nan)[owner]  # NOBODY is the last
    loose_usd = base.undated_us[loose] / GPU_US_PER_HOUR * costs.per_hour[loose]
    usd = np.concatenate([costs.usd, loose_usd, costs.extra_usd])
    known = np.where(np.isnan(usd), 0.0, usd)
    weight = np.concatenate(
        [
            np.divide(days.step_us, stepped[days.job], out=np.zeros(len(days)),
                      where=stepped[days.job] > 0),
            np.ones(len(loose)),
            nobody.astype(np.float64),
        ]
    )  # fmt: skip
    rate = np.divide(known * GPU_US_PER_HOUR, held, out=per_hour.copy(), where=held > 0)
    rate = np.where(np.isnan(rate), 0.0, rate) / GPU_US_PER_HOUR

    def spread(values: Floats) -> Floats:
        of_owner: Floats = np.append(values, 0.0)[owner]
        return np.asarray(of_owner * weight)

    timed_steps = {k: facts for k, facts in base.steps.items() if facts.is_timed}

    def of(value: Any) -> Floats:
        found = np.zeros(count)
        for k, facts in timed_steps.items():
            found[k] = value(facts)
        return found

    wait = spread(of(lambda f: f.wait_us))
    recover = spread(of(lambda f: f.recover_us))
    tokens = of(lambda f: f.tokens)
    saved = np.zeros(count, dtype=np.bool_)
    saved[base.save_job] = True
    has_steps = np.zeros(count, dtype=np.int64)
    for k in base.steps:
        bill = base.bills[k].made
        has_steps[k] = bill is not None and bill.has_steps
    idle_us = np.where(costs.extra_job == NOBODY, costs.extra_us, 0)
    rows = ReviewRows(
        day=day,
        held_us=held,
        billed_us=np.concatenate([days.held_us, none, costs.extra_us]),
        step_us=np.concatenate([days.step_us, none, nobody]),
        open_us=np.concatenate([days.open_us, none, nobody]),
        unscheduled_us=np.concatenate([days.unscheduled_us, none, idle_us]),
        has_steps=np.append(has_steps, 0)[owner],
        usd=known,
        unpriced_us=np.where(np.isnan(usd), held, 0),
        paid_us=spread(of(lambda f: f.recorded_us if f.has_waiting else 0.0)),
        wait_us=wait,
        wait_usd=wait * rate,
        told_us=spread(of(lambda f: f.told_us)),
        recover_us=recover,
        recover_usd=recover * rate,
        tokens=spread(tokens),
        token_usd=np.where(np.append(tokens, 0.0)[owner] > 0, known, 0.0),
        saves=_saves(base, owner, day),
        save_usd=np.where(np.append(saved, False)[owner], known, 0.0),
    )
    return Review(
        base,
        rows,
        owner,
        costs.basis,
        costs.no_price,
        costs.is_billed,
        costs.is_priced_by_day,
        costs.currency,
        costs.per_hour,
        costs.warnings,
    )


def _saves(base: ReviewBase, owner: Ints, day: Ints) -> Floats:
    """Checkpoints kept [N], each on the row of its job and day."""
    found = np.zeros(len(owner))
    if not len(owner):
        return found
    keys = owner * _DAY_KEYS + day
    order = np.argsort(keys, kind="stable")
    wanted = base.save_job * _DAY_KEYS + base.save_day
    at = order[np.minimum(np.searchsorted(keys[order], wanted), len(order) - 1)]
    np.add.at(found, at[keys[at] == wanted], 1.0)
    return found
