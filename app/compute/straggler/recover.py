"""What comes back when slow ranks become like their peers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from steptax.app.compute.stats.rows import Floats, row_argmax, row_max


def saved_us(arrival_us: Floats, excess_us: Floats, ranks: NDArray[np.intp]) -> Floats:
    """[S] how much sooner each step ends when the work of ``ranks`` (positions) is their peers'.

    Taken from the latest arrival before and after; never negative, since in a step in which a
    rank is ahead of its peers it stays so. ``excess_us`` [S, R] is work over the peers' median;
    where there is no peer it is NaN and nothing changes.
    """
    repaired = arrival_us.copy()
    repaired[:, ranks] -= np.maximum(np.nan_to_num(excess_us[:, ranks]), 0.0)
    return row_max(arrival_us) - row_max(repaired)


def saved_by_each_us(arrival_us: Floats, excess_us: Floats) -> Floats:
    """[S, R] the same for each rank alone.

    Only the last rank to arrive can shorten a step, and not beyond the second to last.
    """
    out = np.zeros(arrival_us.shape)
    if arrival_us.shape[1] < 2:
        return out
    rows = np.arange(len(arrival_us))
    last = row_argmax(arrival_us)
    latest = arrival_us[rows, last]
    others = np.where(np.isnan(arrival_us), -np.inf, arrival_us)
    others[rows, last] = -np.inf
    lead = latest - others.max(axis=1)
    excess = np.maximum(np.nan_to_num(excess_us[rows, last]), 0.0)
    out[rows, last] = np.minimum(lead, excess)
    return out
