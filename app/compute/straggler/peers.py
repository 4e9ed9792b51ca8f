"""Each rank against the median of the others: leave-one-out, without a loop over ranks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from steptax.app.compute.stats.rows import Floats, row_count


def peer_median(values: Floats, groups: NDArray[np.int32] | None = None) -> Floats:
    """[S, R] median over a rank's peers: the *other* ranks of its group that reported the step.

    ``groups`` [R] limits peers to ranks of the same number (a pipeline stage); None makes all
    ranks peers. NaN where a rank did not report or has no peer.
    """
    if groups is None:
        return _others_median(values)
    out = np.full(values.shape, np.nan)
    for group in np.unique(groups):
        members = np.flatnonzero(groups == group)
        out[:, members] = _others_median(values[:, members])
    return out


def _others_median(values: Floats) -> Floats:
    """[S, n] median of each row without the value in question.

    Taking one value out of n sorted ones shifts every place above it by one. So each middle
    place of the remaining n - 1 is one of two neighbours in the full order, and which one is told
    by whether the value that was taken out lies below.
    """
    count = row_count(values)
    out = np.full(values.shape, np.nan)
    rows = np.flatnonzero(count > 1)
    if not len(rows):
        return out
    kept = values[rows]
    ordered = np.sort(kept, axis=1)
    others = count[rows] - 1
    index = np.arange(len(rows))
    total = np.zeros(kept.shape)
    for place in ((others - 1) // 2, others // 2):
        below = ordered[index, place][:, None]
        above = ordered[index, place + 1][:, None]
        total += np.where(kept <= below, above, below)
    out[rows] = np.where(np.isnan(kept), np.nan, 0.5 * total)
    return out
