"""Quantiles of many whole numbers from their counts by bins that grow with the value.

A bin is an interval of whole numbers: of one up to 255, then 128 equal ones in each octave, as in
HdrHistogram (Gil Tene, hdrhistogram.org). Counts of parts add up to those of the whole, in any
order, so a quantile of the whole needs none of its numbers. What it costs is known: the middle of a
bin is within ``ERROR_RATIO`` of each number in it, the guarantee that Masson, Rim and Lee, DDSketch
(VLDB 12, 2019) call alpha, there of bins by a logarithm.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steptax.app.compute.stats.rows import Floats, Ints
from steptax.app.errors import UserError
from steptax.app.schema.rollups import WORK_BINS

#: A bin from ``WORK_BINS * w`` on holds ``w`` whole numbers, so its middle is (w - 1) / 2 from its
#: ends: less than this share of each number in it.
ERROR_RATIO = 1 / (2 * WORK_BINS)


@dataclass(frozen=True, eq=False)
class Bins:
    """Counts of numbers by group and bin: [N] each, by ascending group, then bin; no pair twice."""

    group: Ints
    bin: Ints
    count: Ints
    """1 at the least."""

    def together(self) -> Bins:
        """All groups as one, of number 0."""
        bins, place = np.unique(self.bin, return_inverse=True)
        count = np.zeros(len(bins), dtype=np.int64)
        np.add.at(count, place, self.count)
        return Bins(np.zeros(len(bins), dtype=np.int64), bins, count)


@dataclass(frozen=True, eq=False)
class Quantiles:
    """A quantile of each of G groups, in the unit of the numbers."""

    group: Ints
    """[G] ascending."""
    value: Floats
    """[G] within ``ERROR_RATIO`` of the exact one."""
    low: Floats
    """[G] the exact one is no less,"""
    high: Floats
    """[G] and no more."""
    count: Ints
    """[G] numbers in the group."""


def edges(bins: Ints) -> tuple[Ints, Ints]:
    """Least and greatest whole number of each bin [N]."""
    shift = np.maximum(bins // WORK_BINS - 1, 0)
    low = (bins - shift * WORK_BINS) << shift
    return low, low + (np.int64(1) << shift) - 1


def quantiles(bins: Bins, ratio: float) -> Quantiles:
    """The ``ratio`` quantile, 0 to 1, of the numbers of each group.

    The exact one is that of ``numpy.quantile``: of n ordered numbers the one at (n - 1) * ratio,
    between two the straight line (type 7 of Hyndman and Fan, The American Statistician 50, 1996).
    Each of the two is in a bin that is known, and a mean of two errors is none that is larger.
    UserError for a ``ratio`` that is none.
    """
    if not 0.0 <= ratio <= 1.0:
        raise UserError(f"a quantile is of a share from 0 to 1, not of {ratio}")
    group, first = np.unique(bins.group, return_index=True)
    if not len(group):
        nothing = np.zeros(0)
        return Quantiles(group, nothing, nothing, nothing, group)
    up_to = np.cumsum(bins.count)
    before = up_to[first] - bins.count[first]
    count = np.diff(np.append(before, up_to[-1]))
    place = (count - 1) * ratio
    whole = np.minimum(np.floor(place).astype(np.int64), count - 1)
    share = place - whole
    low, high = (ends.astype(np.float64) for ends in edges(bins.bin))
    at = np.searchsorted(up_to, before + whole, side="right")
    then = np.searchsorted(up_to, before + np.minimum(whole + 1, count - 1), side="right")

    def between(ends: Floats) -> Floats:
        return np.asarray(ends[at] + share * (ends[then] - ends[at]))

    middle = np.asarray((low + high) / 2, dtype=np.float64)
    return Quantiles(group, between(middle), between(low), between(high), count)
