"""Who made the others wait: an additive split of the waiting over the late ranks.

Counterfactual gains ("what if this rank were typical") do not add up when several ranks are late.
The Shapley value of the waiting game does: it is the airport game of Littlechild and Owen (1973).
Sort the arrivals of a step, a(1) <= ... <= a(N). Between a(k) and a(k+1) there are k ranks waiting
and N - k missing; each of the missing is charged k (a(k+1) - a(k)) / (N - k).
"""

from __future__ import annotations

import numpy as np

from steptax.app.compute.stats.rows import Floats, row_count

#: Reports that are put in order at once: what that takes along stays in the processor's cache.
_CELLS_AT_ONCE = 1 << 17


def blame_sum_us(arrival_us: Floats) -> Floats:
    """[R] ``blame_us`` summed over the steps; 0 where a rank never reported."""
    total = np.zeros(arrival_us.shape[1])
    step = max(1, _CELLS_AT_ONCE // max(1, arrival_us.shape[1]))
    for first in range(0, len(arrival_us), step):
        for charged in np.nan_to_num(blame_us(arrival_us[first : first + step])):
            total += charged
    return total


def blame_us(arrival_us: Floats) -> Floats:
    """[S, R] waiting charged to each rank, in microseconds, from how late each was ready.

    Never negative. Each row sums to the waiting of that step, sum over ranks of (latest - own
    arrival). NaN where a rank did not report.
    """
    steps, ranks = arrival_us.shape
    out = np.full(arrival_us.shape, np.nan)
    if steps == 0 or ranks == 0:
        return out
    # NaN sorts last, so the reported ranks fill the places before ``count``.
    order = np.argsort(arrival_us, axis=1, kind="stable")
    ordered = np.take_along_axis(arrival_us, order, axis=1)
    count = row_count(arrival_us)[:, None]
    waiting = np.arange(1, ranks)[None, :]
    missing = count - waiting
    gap = np.diff(ordered, axis=1)
    charge = np.where(missing > 0, waiting * gap / np.maximum(missing, 1), 0.0)
    charged = np.concatenate([np.zeros((steps, 1)), np.cumsum(charge, axis=1)], axis=1)
    np.put_along_axis(out, order, charged, axis=1)
    out[np.isnan(arrival_us)] = np.nan
    return out
