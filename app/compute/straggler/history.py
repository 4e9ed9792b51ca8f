"""Who was slow over the whole history of a job, from sums over blocks of its steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steptax.app.compute.stats.rows import Flags, Floats, Ints

#: A block in which a rank exceeds its peers by this share of their work counts as slow.
SLOW_RATIO = 0.04


@dataclass(frozen=True, eq=False)
class History:
    """Mean work of R ranks in B blocks of steps, and how far it exceeds the peers' mean."""

    ranks: Ints
    """[R] ascending."""
    blocks: Ints
    """[B] first step of each block, ascending."""
    work_us: Floats
    """[R, B] mean work of a step; NaN where the rank did not report."""
    excess_us: Floats
    """[R, B] of it beyond the mean of all reports of its peers in that block."""
    rows: Floats
    """[R, B] reported steps."""

    @property
    def mean_excess_us(self) -> Floats:
        """[R] over all steps that a rank reported."""
        return _weighted(self.excess_us, self.rows)

    @property
    def mean_work_us(self) -> Floats:
        """[R] over all steps that a rank reported."""
        return _weighted(self.work_us, self.rows)

    @property
    def is_slow(self) -> Flags:
        """[R, B] whether a rank was slow in a block; not where it did not report."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self.excess_us > SLOW_RATIO * (self.work_us - self.excess_us))


def history(
    rank: Ints, block_step: Ints, row_count: Ints, work_sum_us: Ints, stage: Ints | None = None
) -> History:
    """From sums of work [N] by rank and block; each pair at most once.

    ``stage`` [R], by ascending rank, tells who is compared with whom; None: all with all. The mean
    of the peers is weighted by reports and holds the rank itself: with R peers an excess e reads
    as e (R - 1) / R.
    """
    ranks, row = np.unique(rank, return_inverse=True)
    blocks, column = np.unique(block_step, return_inverse=True)
    rows = np.zeros((len(ranks), len(blocks)))
    work = np.zeros(rows.shape)
    rows[row, column] = row_count
    work[row, column] = work_sum_us
    group = np.zeros(len(ranks), dtype=np.int64) if stage is None else stage
    usual = np.empty(rows.shape)
    with np.errstate(invalid="ignore", divide="ignore"):
        for one in np.unique(group):
            mine = group == one
            usual[mine] = work[mine].sum(axis=0) / rows[mine].sum(axis=0)
        mean = work / rows
    return History(ranks, blocks, mean, mean - usual, rows)


def waiting_ratio(
    row_count: Ints, duration_us: Ints, work_sum_us: Ints, work_max_us: Ints
) -> Floats:
    """[S] share of a step's paid time in which ranks wait for the one that works longest.

    From sums over the ranks of each step: (rows x longest work - all work) / (rows x duration).
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        waited_us = row_count * work_max_us.astype(np.float64) - work_sum_us
        return np.asarray(waited_us / (row_count * duration_us.astype(np.float64)))


def _weighted(values: Floats, weights: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        total = np.where(weights > 0, values * weights, 0.0).sum(axis=1)
        return np.asarray(total / weights.sum(axis=1))
