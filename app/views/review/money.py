"""The rows of a review: its jobs by day, with all that is spread over them."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steptax.app.compute.bill.goodput import GPU_US_PER_HOUR
from steptax.app.compute.bill.job_days import (
    NOBODY,
    UNDATED,
)
from steptax.app.compute.spend.totals import ReviewRows
from steptax.app.compute.stats.rows import Floats, Ints
from steptax.app.views.models import Price
from steptax.app.views.review.base import ReviewBase
from steptax.app.views.review.costs import DAY_KEYS, Costs, FreeDevices, costs_of
from steptax.app.views.workspace import Workspace

#: Tables that tell what was paid.
PAID_BY = ("charges", "charge_states", "prices", "device_samples")
#: Sets of rows kept: one per price.
KEPT = 8


@dataclass(frozen=True, eq=False)
class Review:
    """The rows of a review: ``owner`` [N] is the place of each row's job.

    ``NOBODY`` for devices that none held, ``OTHER`` for what none is known to have used.
    """

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
    free: FreeDevices | None = None


_cache: OrderedDict[tuple[Any, ...], Review] = OrderedDict()
_lock = Lock()


def review_of(ws: Workspace, base: ReviewBase, cost: Price) -> Review:
    """The rows of ``base`` at ``cost``, or at what the lake says (``lake_tells``)."""
    versions = [ws.lake.version(name) for name in PAID_BY]
    key = (ws.key, base.version, *versions, cost, ws.settings.bill_rules)
    with _lock:
        if key in _cache:
            _cache.move_to_end(key)
            return _cache[key]
    made = _rows(base, costs_of(ws, base, cost))
    with _lock:
        _cache[key] = made
        while len(_cache) > KEPT:
            _cache.popitem(last=False)
    return made


# -- rows -----------------------------------------------------------------------------------------


def _rows(base: ReviewBase, costs: Costs) -> Review:
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
    per_hour = of_owner(costs.per_hour, np.nan, owner)
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
        return np.asarray(of_owner(values, 0.0, owner) * weight)

    timed_steps = {k: facts for k, facts in base.steps.items() if facts.is_timed}

    def of(value: Any) -> Floats:
        found = np.zeros(count)
        for k, facts in timed_steps.items():
            found[k] = value(facts)
        return found

    wait = spread(of(lambda f: f.wait_us))
    recover = spread(of(lambda f: f.recover_us))
    tokens = of(lambda f: f.tokens) * base.kept_ratio
    paid = spread(of(lambda f: f.recorded_us if f.has_waiting else 0.0))
    told = spread(of(lambda f: f.told_us))
    own_tokens, saves = spread(tokens), _saves(base, owner, day)
    unknown = np.isnan(usd)
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
        lost_us=np.concatenate([days.lost_us, none, nobody]),
        unscheduled_us=np.concatenate([days.unscheduled_us, none, idle_us]),
        has_steps=of_owner(has_steps, 0, owner),
        usd=known,
        unpriced_us=np.where(np.isnan(usd), held, 0),
        paid_us=paid,
        wait_us=wait,
        wait_usd=wait * rate,
        told_us=told,
        recover_us=recover,
        recover_usd=recover * rate,
        tokens=own_tokens,
        token_usd=np.where(of_owner(tokens, 0.0, owner) > 0, known, 0.0),
        saves=saves,
        save_usd=np.where(of_owner(saved, False, owner), known, 0.0),
        unpriced_paid_us=np.where(unknown, paid, 0.0),
        unpriced_told_us=np.where(unknown, told, 0.0),
        unpriced_tokens=np.where(unknown, own_tokens, 0.0),
        unpriced_saves=np.where(unknown, saves, 0.0),
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
        costs.free,
    )


def of_owner(values: NDArray[Any], none: Any, owner: Ints) -> NDArray[Any]:
    """[N] of ``values`` [J] that of the job of each row; ``none`` for what is of no job."""
    return np.append(values, [none, none])[owner]  # NOBODY is the last, OTHER before it


def _saves(base: ReviewBase, owner: Ints, day: Ints) -> Floats:
    """Checkpoints kept [N], each on the row of its job and day."""
    found = np.zeros(len(owner))
    if not len(owner):
        return found
    keys = owner * DAY_KEYS + day
    order = np.argsort(keys, kind="stable")
    wanted = base.save_job * DAY_KEYS + base.save_day
    at = order[np.minimum(np.searchsorted(keys[order], wanted), len(order) - 1)]
    np.add.at(found, at[keys[at] == wanted], 1.0)
    return found
