"""When most ranks are slow, all of them the same: then the few others are fast, and wait.

Peers' medians cannot tell: with more than half of the ranks slow, the slow ones are the median.
What can be told is that the ranks are of two kinds for good: split where the mean work of
neighbouring ranks, in the order of their means, differs most.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steptax.app.compute.stats.rows import Floats, column_mean, row_quantile
from steptax.app.compute.straggler.rules import StragglerRules

#: The slower kind exceeds half of the difference in this share of the steps, at least.
_STEPS_RATIO = 0.8


@dataclass(frozen=True, eq=False)
class Majority:
    """Two kinds of ranks, the slower one the larger; positions of ranks."""

    slow: NDArray[np.intp]
    fast: NDArray[np.intp]
    gap_us: float
    """Mean difference of the typical work of both kinds."""
    steps_ratio: float
    """Share of the steps with at least half of that difference."""


def slow_majority(
    work_us: Floats,
    stage: NDArray[np.int32] | None,
    step_us: float,
    rules: StragglerRules,
) -> Majority | None:
    """The two kinds in ``work_us`` [S, R], of ranks on one stage; None where there are not two."""
    count = work_us.shape[1]
    if count < 3 or (stage is not None and len(np.unique(stage)) > 1):
        return None
    mean = column_mean(work_us)
    if np.isnan(mean).any():
        return None
    order = np.argsort(mean, kind="stable")
    steps = np.diff(mean[order])
    split = int(np.argmax(steps)) + 1
    fast, slow = order[:split], order[split:]
    if len(slow) <= len(fast):
        return None
    # Two kinds differ by more than the ranks of either do.
    spread = max(float(np.ptp(mean[fast])), float(np.ptp(mean[slow])))
    if steps[split - 1] < max(spread, rules.worker_excess_ratio * step_us):
        return None
    apart = row_quantile(work_us[:, slow], 0.5)[0] - row_quantile(work_us[:, fast], 0.5)[0]
    apart = apart[~np.isnan(apart)]
    if not len(apart):
        return None
    gap = float(apart.mean())
    often = float(np.mean(apart >= 0.5 * gap))
    if gap <= 0.0 or often < _STEPS_RATIO:
        return None
    return Majority(np.sort(slow), np.sort(fast), gap, often)
