"""How often to save a checkpoint."""

from __future__ import annotations

import math
from dataclasses import dataclass

from steptax.app.compute.calculators.base import Result, calculator
from steptax.app.compute.calculators.parameter import Parameter
from steptax.app.compute.fleet.checkpointing import (
    best_interval_s,
    daly_high_order_interval_s,
    daly_interval_s,
    useful_ratio,
    young_interval_s,
)
from steptax.app.compute.measure import Measure, Ratio
from steptax.app.errors import UserError
from steptax.app.format import format_share


@dataclass(frozen=True, kw_only=True)
class CheckpointInterval(Result):
    """Four intervals, each the useful time between two saves, and what they leave useful.

    ``lost_per_failure_s`` is at the best interval: half of it, what was not yet durable, and the
    restart. ``first_order_loss_ratio`` is sqrt(2 delta/M) + R/M, for comparison.
    """

    headline: str = "best_interval_s"

    best_interval_s: Measure
    useful_at_best_ratio: Ratio
    ceiling: Ratio
    """Useful if saving cost nothing and happened all the time: restarts are left."""
    useful_at_interval_ratio: Ratio
    young_s: Measure
    daly_s: Measure
    daly_high_order_s: Measure
    first_order_loss_ratio: Measure
    lost_per_failure_s: Measure


@calculator(
    name="checkpoint-interval",
    title="Checkpoint interval",
    formula="useful = tau / (M e^(R/M) (e^((tau + delta)/M) - 1)); best tau = M (1 + W0(-e^(-1 - "
    "delta/M))); Young sqrt(2 delta M)",
    source="Young 1974; Daly 2006, A higher order estimate of the optimum checkpoint interval",
    page="Saving often costs the blocking part of each save; saving seldom loses more work at a "
    "failure. Where saves are written in the background, give only the blocking part, and the "
    "time until a save is durable: a failure before then falls back to the one before, and saves "
    "cannot come faster than they are written. Each failure costs about half an interval plus the "
    "restart, so work on the larger of the two.",
    parameters=(
        Parameter("checkpoint_s", "s", "part of a save that blocks training", above=0),
        Parameter("mtbf_s", "s", "mean time between failures of the whole job", above=0),
        Parameter("restart_s", "s", "failure to training again, lost work excluded", minimum=0),
        Parameter("interval_s", "s", "your interval, to compare", above=0),
        Parameter(
            "write_s", "s", "time until a background save is durable; 0 = saves block", minimum=0
        ),
    ),
)
def checkpoint_interval(
    *,
    checkpoint_s: float,
    mtbf_s: float,
    restart_s: float,
    interval_s: float | None = None,
    write_s: float = 0.0,
) -> CheckpointInterval:
    """The best interval, the classical ones, and the useful share at each.

    Raises:
        UserError: an interval shorter than it takes to write a save.
    """
    if interval_s is not None and interval_s < write_s:
        raise UserError(
            f"expected at least write_s, {write_s:g} s: saves cannot come faster than they are "
            "written",
            where="interval_s",
        )
    recover_s = restart_s + write_s
    best = max(best_interval_s(checkpoint_s, mtbf_s), write_s)
    useful = useful_ratio(best, checkpoint_s, mtbf_s, recover_s)
    daly = daly_interval_s(checkpoint_s, mtbf_s)
    rework_s = best / 2 + write_s
    larger = "lost work" if rework_s > restart_s else "the restart"
    return CheckpointInterval(
        best_interval_s=Measure(best, "s"),
        useful_at_best_ratio=Ratio(useful),
        ceiling=Ratio(math.exp(-recover_s / mtbf_s)),
        useful_at_interval_ratio=_useful(interval_s, checkpoint_s, mtbf_s, recover_s),
        young_s=Measure(young_interval_s(checkpoint_s, mtbf_s), "s"),
        daly_s=Measure.missing("s", "a save takes more than twice the time between failures")
        if daly is None
        else Measure(daly, "s"),
        daly_high_order_s=Measure(daly_high_order_interval_s(checkpoint_s, mtbf_s), "s"),
        first_order_loss_ratio=Measure(
            math.sqrt(2 * checkpoint_s / mtbf_s) + recover_s / mtbf_s, "ratio"
        ),
        lost_per_failure_s=Measure(rework_s + restart_s, "s"),
        sentence=f"Save every {best:,.0f} s: {format_share(useful)} of the time is useful. A "
        f"failure costs {rework_s + restart_s:,.0f} s; the larger part is {larger}.",
        warnings=("failures are taken as independent and equally likely at any moment",),
    )


def _useful(
    interval_s: float | None, checkpoint_s: float, mtbf_s: float, recover_s: float
) -> Ratio:
    if interval_s is None:
        return Ratio(None, reason="no interval of your own was given")
    return Ratio(useful_ratio(interval_s, checkpoint_s, mtbf_s, recover_s))


CALCULATORS = (checkpoint_interval,)
