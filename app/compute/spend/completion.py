"""When a run reaches its planned steps and what it will have cost, from its progress so far.

The steps that count are cut into equally long blocks, each with the time from the end of the block
before to its own end: interruptions, restarts and repeated work are in it. What is left takes as
long as the newest blocks did in the mean; the band is the 95 % prediction of a sum of as many:

    t * sd * sqrt(left * (1 + left / n)), n newest blocks, t of Student's law with n - 1
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from steptax.app.compute.learning.curve import superseded
from steptax.app.compute.measure import Level, Measure
from steptax.app.compute.stats.rows import Ints
from steptax.app.words import count_text

#: Blocks that the newest steps are cut into.
BLOCKS = 20
#: With fewer there is no spread worth showing.
MIN_BLOCKS = 8
ASSUMES = (
    "the steps that are left take as long as the newest did, interruptions and repeated steps "
    "included, on as many devices at the same price"
)
_US_PER_HOUR = 3.6e9


@dataclass(frozen=True)
class Completion:
    """Where a run is heading; missing with a reason where that cannot be told."""

    done_steps: int
    target_steps: int | None
    left_hours: Measure
    """From the newest step on, in h."""
    at_end_usd: Measure
    """All that it will have cost."""
    left_usd: Measure


def completion(
    step: Ints,
    end_us: Ints,
    target_steps: int | None,
    *,
    spent_usd: float | None,
    usd_per_hour: float | None,
    no_price: str = "no price is known",
) -> Completion:
    """The forecast of a run from its executed steps [K], with their ends, in the order of time.

    ``target_steps`` counts from step 0 of the run; ``usd_per_hour`` is what an hour of all of its
    devices costs.
    """
    done = int(step.max()) + 1 if len(step) else 0

    def none(reason: str) -> Completion:
        hours, usd = Measure.missing("h", reason), Measure.missing("USD", reason)
        return Completion(done, target_steps, hours, usd, usd)

    if target_steps is None:
        return none("how many steps are planned is not known")
    left = target_steps - done
    if left <= 0:
        return none("its planned steps are done")
    keep = ~superseded(step)
    counted, ended = step[keep], np.maximum.accumulate(end_us)[keep]
    length = max(1, (len(counted) - 1) // BLOCKS)
    edges = np.arange(len(counted) - 1, -1, -length)[: BLOCKS + 1][::-1]
    blocks = len(edges) - 1
    if blocks < MIN_BLOCKS:
        return none(
            f"{count_text(max(blocks, 0), 'block')} of steps so far, {MIN_BLOCKS} are needed"
        )
    steps = np.diff(counted[edges]).astype(np.float64)
    hours = np.diff(ended[edges]) / _US_PER_HOUR
    # A record may leave steps out, so that blocks are not of the same number of steps.
    mean = float(hours.sum() / steps.sum())
    spread = float(np.std(hours - mean * steps, ddof=1))
    ahead = left / float(steps.mean())
    value = mean * left
    width = float(stdtrit(blocks - 1, 0.975)) * spread * math.sqrt(ahead * (1 + ahead / blocks))
    left_hours = Measure(
        value, "h", max(0.0, value - width), value + width, level=Level.STEP_TIME, inputs=("steps",)
    )
    if usd_per_hour is None or spent_usd is None:
        usd = Measure.missing("USD", no_price)
        return Completion(done, target_steps, left_hours, usd, usd)
    left_usd = left_hours.map(lambda h: h * usd_per_hour, "USD", "price")
    at_end = left_usd.map(lambda usd: usd + spent_usd, "USD")
    return Completion(done, target_steps, left_hours, at_end, left_usd)
