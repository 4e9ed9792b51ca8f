"""The per-rank, per-stage and per-step arrays of the straggler analysis."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steptax.app.compute.stats.resample import block_means, mean_intervals
from steptax.app.compute.stats.rows import (
    Flags,
    Floats,
    Ints,
    column_mean,
    row_argmax,
    row_max,
    row_mean,
    row_quantile,
    row_sum,
)
from steptax.app.compute.stats.simultaneous import lower_bounds
from steptax.app.compute.straggler.arrival import Arrivals
from steptax.app.compute.straggler.blame import blame_sum_us
from steptax.app.compute.straggler.coverage import Coverage
from steptax.app.compute.straggler.peers import peer_median
from steptax.app.compute.straggler.recover import saved_by_each_us
from steptax.app.compute.straggler.result import RankTable, StageTable, StepTable
from steptax.app.compute.straggler.rules import StragglerRules
from steptax.app.compute.straggler.steps import StepMatrix


@dataclass(frozen=True, eq=False)
class Used:
    """The reports that are used, and what several statistics share; NaN where one is missing."""

    matrix: StepMatrix
    arrived: Arrivals
    rules: StragglerRules
    peers_us: Floats
    """[S, R] median work of the peers; NaN without a report, or a peer."""
    excess_us: Floats
    """[S, R] work over it."""
    slow: Flags
    """[S, R]"""
    last: Flags
    """[S, R] True for whoever arrives last in a step, all of them among equals."""

    @classmethod
    def of(cls, matrix: StepMatrix, arrived: Arrivals, rules: StragglerRules) -> Used:
        """Compare each report of ``matrix`` with its peers."""
        peers_us = peer_median(arrived.work_us, matrix.stage)
        excess_us = arrived.work_us - peers_us
        with np.errstate(invalid="ignore"):
            least_us = np.minimum(
                rules.slow_over_peers_ratio * peers_us,
                _least_excess_us(excess_us, float(arrived.step_us.mean()), rules),
            )
            slow = excess_us > least_us
        last = arrived.arrival_us == row_max(arrived.arrival_us)[:, None]
        return cls(matrix, arrived, rules, peers_us, excess_us, slow, last)

    @property
    def enough(self) -> bool:
        """True when there are steps enough to tell lasting from passing."""
        return len(self.matrix.steps) >= self.rules.min_steps

    @property
    def step_us(self) -> float:
        """Mean length of a step."""
        return float(self.arrived.step_us.mean())

    def share_of(self, cells: Flags) -> Floats:
        """[R] in which share of its reports each rank is in ``cells`` [S, R]; NaN without any."""
        reported = ~np.isnan(self.arrived.work_us)
        return column_mean(np.where(reported, cells.astype(np.float64), np.nan))

    def draw(self, columns: Floats) -> Floats | None:
        """[B, K] bootstrap means of ``columns`` [S, K]; None with too few steps."""
        if not self.enough:
            return None
        return block_means(columns, replicates=self.rules.replicates, seed=self.rules.seed)


def late_steps(used: Used, place: int) -> Ints:
    """Positions of the steps in which a rank is slow; those above its mean excess where none is."""
    slow = np.flatnonzero(used.slow[:, place])
    if not len(slow):
        excess = used.excess_us[:, place]
        slow = np.flatnonzero(excess >= np.nanmean(excess))
    return slow.astype(np.int64)


def _least_excess_us(excess_us: Floats, step_us: float, rules: StragglerRules) -> Floats:
    """[R] half of what a rank is over its peers in most steps; infinite where that is little.

    In quiet noise a rank may cost much by an excess that is small, and the same in every step.
    """
    if not excess_us.size:
        return np.full(excess_us.shape[1], np.inf)
    usual = row_quantile(excess_us.T, 0.5)[0]
    usual = np.minimum(usual, column_mean(excess_us))
    typical = usual[~np.isnan(usual)]
    over = max(0.0, float(np.median(typical))) if len(typical) else 0.0
    much = usual - over >= rules.worker_excess_ratio * step_us
    return np.where(much & (usual > 0.0), 0.5 * usual, np.inf)


def rank_table(used: Used) -> RankTable:
    """One entry per used rank."""
    arrived, matrix = used.arrived, used.matrix
    ranks = len(matrix.ranks)
    excess = column_mean(used.excess_us)
    low = high = np.full(ranks, np.nan)
    if used.enough:
        low, high = mean_intervals(
            used.excess_us, replicates=used.rules.replicates, seed=used.rules.seed
        )
    alone = np.isnan(excess)
    anybody = used.slow.any(axis=1)
    last_of = np.where(np.isnan(arrived.arrival_us), np.nan, used.last.astype(np.float64))
    blame = blame_sum_us(arrived.arrival_us)
    each = saved_by_each_us(arrived.arrival_us, used.excess_us)
    unknown = np.full(ranks, np.nan)
    return RankTable(
        ranks=matrix.ranks,
        stage=matrix.stage,
        dp=matrix.dp,
        mean_work_us=column_mean(arrived.work_us),
        excess_us=excess,
        excess_low_us=low,
        excess_high_us=high,
        excess_surely_us=lower_bounds(used.excess_us, used.rules.worker_family_error),
        persistence_ratio=np.where(alone, np.nan, used.share_of(used.slow)),
        stability_ratio=column_mean(last_of[anybody]) if anybody.any() else unknown,
        last_ratio=column_mean(last_of),
        mean_wait_us=column_mean(arrived.wait_us),
        blame_us=blame,
        blame_ratio=blame / blame.sum() if blame.sum() > 0 else unknown,
        recoverable_ratio=np.where(alone, np.nan, each / arrived.step_us.sum()),
    )


def stage_table(used: Used) -> StageTable | None:
    """One entry per pipeline stage; None unless there are several."""
    stage = used.matrix.stage
    if stage is None or not used.matrix.has_pipeline:
        return None
    stages = np.unique(stage)
    work = np.stack(
        [row_quantile(used.arrived.work_us[:, stage == p], 0.5)[0] for p in stages], axis=1
    )
    excess = work - peer_median(work)
    with np.errstate(invalid="ignore"):
        heavy = excess > used.rules.stage_excess_ratio * used.arrived.step_us[:, None]
    return StageTable(
        stages=stages,
        ranks=np.array([np.count_nonzero(stage == p) for p in stages], dtype=np.int64),
        work_us=column_mean(work),
        excess_us=column_mean(excess),
        excess_surely_us=lower_bounds(excess, used.rules.worker_family_error),
        persistence_ratio=heavy.mean(axis=0),
    )


def step_table(matrix: StepMatrix, coverage: Coverage, arrived: Arrivals | None) -> StepTable:
    """One entry per recorded step.

    ``arrived`` is None when waits cannot be told: work is then the whole duration.
    """
    steps = len(matrix.steps)
    used: Flags = np.zeros(steps, dtype=bool)
    used[coverage.step_places] = True

    def spread(values: Floats) -> Floats:
        out = np.full(steps, np.nan)
        out[coverage.step_places] = values
        return out

    last = np.full(steps, -1, dtype=np.int32)
    tax = wait = np.full(steps, np.nan)
    work = matrix.duration_us[np.ix_(coverage.step_places, coverage.rank_places)]
    step_us = row_mean(work)
    if arrived is not None:
        work, step_us, paid_us = arrived.work_us, arrived.step_us, arrived.paid_us
        ranks = matrix.ranks[coverage.rank_places]
        last[coverage.step_places] = ranks[row_argmax(arrived.arrival_us)]
        wait_us = row_sum(arrived.wait_us)
        wait = spread(wait_us)
        lasted = paid_us > 0
        tax = spread(np.where(lasted, wait_us / np.where(lasted, paid_us, 1.0), np.nan))
    p50, p95 = row_quantile(work, 0.5, 0.95)
    return StepTable(
        steps=matrix.steps,
        complete=coverage.complete,
        used=used,
        tax_ratio=tax,
        step_us=spread(step_us),
        max_us=spread(row_max(work)),
        mean_us=spread(row_mean(work)),
        p50_us=spread(p50),
        p95_us=spread(p95),
        last_rank=last,
        wait_sum_us=wait,
    )
