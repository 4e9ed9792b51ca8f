"""Bringing matrices to a size that can be drawn, without losing what stands out."""

from __future__ import annotations

import itertools

import numpy as np

from steptax.app.views.job.models import FloatArray, Grid, HeatMap, IntArray, Series

MAX_HEAT_RANKS = 256
MAX_HEAT_STEPS = 500
MAX_SERIES_POINTS = 2_000


def _edges(count: int, limit: int) -> IntArray:
    """Boundaries of at most ``limit`` nearly equal runs over ``count`` items."""
    cells = min(count, limit)
    return np.unique(np.linspace(0, count, cells + 1).round().astype(np.int64))


def _pool_max(values: FloatArray, edges: IntArray, axis: int) -> FloatArray:
    """Largest value of each run along ``axis``; NaN where the whole run is NaN."""
    filled = np.where(np.isnan(values), -np.inf, values)
    pooled = np.maximum.reduceat(filled, edges[:-1], axis=axis)
    return np.where(np.isneginf(pooled), np.nan, pooled)


def heat_map(excess_us: FloatArray, ranks: IntArray, steps: IntArray) -> HeatMap:
    """Pool ``excess_us`` [S, R] to at most 256 x 500 cells by the largest excess."""
    rank_edges = _edges(len(ranks), MAX_HEAT_RANKS)
    step_edges = _edges(len(steps), MAX_HEAT_STEPS)
    cells = excess_us.T / 1000.0
    if len(rank_edges) - 1 < len(ranks):
        cells = _pool_max(cells, rank_edges, 0)
    if len(step_edges) - 1 < len(steps):
        cells = _pool_max(cells, step_edges, 1)
    known = np.abs(cells[~np.isnan(cells)])
    limit = float(np.percentile(known, 99)) if len(known) else 0.0
    return HeatMap(
        cells,
        np.asarray(ranks, dtype=np.int64),
        np.asarray(steps, dtype=np.int64),
        rank_edges,
        step_edges,
        limit if limit > 0 else 1.0,
    )


def thin_series(series: Series) -> Series:
    """At most 2,000 points: of each run of steps the one with the longest work and the last one.

    A spike of one step in a million stays visible.
    """
    count = len(series.steps)
    if count <= MAX_SERIES_POINTS:
        return series
    edges = _edges(count, MAX_SERIES_POINTS // 2)
    peak = np.where(np.isnan(series.work_max_ms), -np.inf, series.work_max_ms)
    keep = np.unique(
        np.concatenate(
            [
                [a + int(np.argmax(peak[a:b])) for a, b in itertools.pairwise(edges)],
                edges[1:] - 1,
            ]
        )
    ).astype(np.int64)
    return Series(
        series.steps[keep],
        series.duration_ms[keep],
        series.work_p50_ms[keep],
        series.work_p95_ms[keep],
        series.work_max_ms[keep],
        series.slowest_rank[keep],
        series.tax[keep],
        None if series.loss is None else series.loss[keep],
        count,
    )


def grid(
    mean_excess_us: FloatArray, ranks: IntArray, stage: IntArray, dp: IntArray, pattern: str
) -> Grid:
    """``mean_excess_us`` [R] by pipeline stage (down) and DP replica (across).

    Where several ranks share a cell (tensor parallel) the slowest of them is shown.
    """
    stages, row = np.unique(stage, return_inverse=True)
    replicas, column = np.unique(dp, return_inverse=True)
    cells = np.full((len(stages), len(replicas)), np.nan)
    owner = np.full(cells.shape, -1, dtype=np.int64)
    for i in np.argsort(np.nan_to_num(mean_excess_us, nan=-np.inf), kind="stable"):
        cells[row[i], column[i]] = mean_excess_us[i] / 1000.0
        owner[row[i], column[i]] = ranks[i]
    return Grid(cells, replicas.astype(np.int64), stages.astype(np.int64), owner, pattern)
