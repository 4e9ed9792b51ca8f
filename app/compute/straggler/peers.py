"""Each rank against the median of the others: leave-one-out, without a loop over ranks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from steptax.app.compute.stats.rows import Floats, row_count

#: Reports that are sorted at once: what they take along stays in the processor's cache.
_CELLS_AT_ONCE = 1 << 17


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


def peer_median_at(
    values: Floats,
    cells: tuple[NDArray[np.intp], NDArray[np.intp]],
    groups: NDArray[np.int32] | None = None,
) -> Floats:
    """``peer_median(values, groups)[cells]``, of some step and rank positions alone: [K]."""
    out = np.full(len(cells[0]), np.nan)
    own = np.zeros(values.shape[1], dtype=np.int32) if groups is None else groups
    for group in np.unique(own[cells[1]]):
        members = np.flatnonzero(own == group)
        asked = np.flatnonzero(own[cells[1]] == group)
        rows = np.unique(cells[0][asked])
        at = np.searchsorted(rows, cells[0][asked])
        for first, last in _parts(len(rows), len(members)):
            here = (at >= first) & (at < last)
            middles = _middles(values[np.ix_(rows[first:last], members)])
            each = np.column_stack([asked[here], at[here] - first])
            kept = values[cells[0][each[:, 0]], cells[1][each[:, 0]]]
            out[each[:, 0]] = _without(kept, middles[:, each[:, 1]])
    return out


def _others_median(values: Floats) -> Floats:
    """[S, n] median of each row without the value in question."""
    out = np.full(values.shape, np.nan)
    for first, last in _parts(*values.shape):
        part = values[first:last]
        out[first:last] = _without(part, _middles(part)[:, :, None])
    return out


def _parts(rows: int, width: int) -> Iterator[tuple[int, int]]:
    """Runs of rows with about so many cells as are sorted at once."""
    step = max(1, _CELLS_AT_ONCE // max(1, width))
    for first in range(0, rows, step):
        yield first, min(first + step, rows)


def _middles(values: Floats) -> Floats:
    """[4, S] the values around the lower and the upper middle of each row [S, n].

    Taking one value out of n sorted ones shifts every place above it by one. So each middle
    place of the remaining n - 1 is one of two neighbours in the full order. NaN in a row of one.
    """
    count = row_count(values)
    out = np.full((4, len(values)), np.nan)
    rows = np.flatnonzero(count > 1)
    if len(rows):
        ordered = np.sort(values if len(rows) == len(values) else values[rows], axis=1)
        others, index = count[rows] - 1, np.arange(len(rows))
        lower, upper = (others - 1) // 2, others // 2
        for k, place in enumerate((lower, lower + 1, upper, upper + 1)):
            out[k, rows] = ordered[index, place]
    return out


def _without(values: Floats, middles: Floats) -> Floats:
    """The median of the others: whether the value taken out lies below tells which neighbour."""
    low, low_next, high, high_next = middles
    total = np.where(values <= low, low_next, low) + np.where(values <= high, high_next, high)
    return np.where(np.isnan(values), np.nan, 0.5 * total)
