"""What comes back when slow ranks become like their peers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from steptax.app.compute.stats.rows import Floats, row_argmax, row_max

#: Reports that are repaired at once: what that takes along stays in the processor's cache.
_CELLS_AT_ONCE = 1 << 17


def saved_us(arrival_us: Floats, excess_us: Floats, ranks: NDArray[np.intp]) -> Floats:
    """[S] how much sooner each step ends when the work of ``ranks`` (positions) is their peers'.

    Taken from the latest arrival before and after; never negative, since in a step in which a
    rank is ahead of its peers it stays so. ``excess_us`` [S, R] is work over the peers' median;
    where there is no peer it is NaN and nothing changes.
    """
    sooner_us = np.maximum(np.nan_to_num(excess_us[:, ranks]), 0.0)
    latest = np.empty(len(arrival_us))
    step = max(1, _CELLS_AT_ONCE // max(1, arrival_us.shape[1]))
    for first in range(0, len(latest), step):
        rows = slice(first, first + step)
        repaired = arrival_us[rows].copy()
        repaired[:, ranks] -= sooner_us[rows]
        latest[rows] = row_max(repaired)
    return row_max(arrival_us) - latest


def saved_by_each_us(arrival_us: Floats, excess_us: Floats) -> Floats:
    """[R] the same for each rank alone, summed over the steps.

    Only the last rank to arrive can shorten a step, and not beyond the second to last.
    """
    ranks = arrival_us.shape[1]
    if ranks < 2:
        return np.zeros(ranks)
    rows = np.arange(len(arrival_us))
    last = row_argmax(arrival_us)
    lead = arrival_us[rows, last] - _latest_but(arrival_us, last)
    excess = np.maximum(np.nan_to_num(excess_us[rows, last]), 0.0)
    gain = np.bincount(last, weights=np.minimum(lead, excess), minlength=ranks)
    return np.asarray(gain, dtype=np.float64)


def _latest_but(arrival_us: Floats, without: NDArray[np.intp]) -> Floats:
    """[S] the latest arrival of all ranks but one, of a position for each step."""
    out = np.empty(len(arrival_us))
    step = max(1, _CELLS_AT_ONCE // max(1, arrival_us.shape[1]))
    for first in range(0, len(out), step):
        rows = slice(first, first + step)
        others = arrival_us[rows].copy()
        others[np.arange(len(others)), without[rows]] = -np.inf
        out[rows] = np.fmax.reduce(others, axis=1)
    return out
