"""Bringing matrices to a size that can be drawn, without losing what stands out."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np

from steptax.app.views.job.models import (
    FloatArray,
    Grid,
    HeatMap,
    IntArray,
    Pooling,
    Series,
)

#: Cells of a heat map that are drawn: more are smaller than what an eye tells apart on a screen,
#: and a live page sends them every few seconds.
MAX_HEAT_CELLS = 20_480
#: Rows that it has at the least, where there are so many ranks.
LEAST_HEAT_RANKS = 128
#: Rows that it has at the most, however few steps there are: more are lower than a pixel, and one
#: that is slow would not be seen.
MOST_HEAT_RANKS = 256
MAX_SERIES_POINTS = 2_000
#: Of the columns of a row so many may lie beyond the colours: what lasts longer is told apart.
_BRIEF_PERCENT = 10


def _edges(count: int, limit: int) -> IntArray:
    """Boundaries of at most ``limit`` nearly equal runs over ``count`` items."""
    cells = min(count, limit)
    return np.unique(np.linspace(0, count, cells + 1).round().astype(np.int64))


def _pool_max(values: FloatArray, edges: IntArray, axis: int) -> FloatArray:
    """Largest value of each run along ``axis``; NaN where the whole run is NaN."""
    filled = np.where(np.isnan(values), -np.inf, values)
    pooled = np.maximum.reduceat(filled, edges[:-1], axis=axis)
    return np.where(np.isneginf(pooled), np.nan, pooled)


def _pool_mean(values: FloatArray, edges: tuple[IntArray, IntArray]) -> FloatArray:
    """Mean of what is known in each cell of runs along both axes; NaN where nothing is."""

    def summed(cells: FloatArray) -> FloatArray:
        rows: FloatArray = np.add.reduceat(cells, edges[0][:-1], axis=0)
        whole: FloatArray = np.add.reduceat(rows, edges[1][:-1], axis=1)
        return whole

    known = summed((~np.isnan(values)).astype(np.float64))
    with np.errstate(invalid="ignore"):
        return summed(np.nan_to_num(values)) / np.where(known > 0, known, np.nan)


def drawn_columns(steps: int, ranks: int) -> int:
    """Columns of the heat map of so many steps, or blocks of steps, and ranks."""
    return min(steps, MAX_HEAT_CELLS // max(1, min(ranks, LEAST_HEAT_RANKS)))


def heat_map(
    excess_us: FloatArray,
    ranks: IntArray,
    steps: IntArray,
    pooled_by: Pooling = "largest",
    until: IntArray | None = None,
) -> HeatMap:
    """Pool ``excess_us`` [S, R] to at most ``MAX_HEAT_CELLS`` by the largest excess or the mean.

    ``until`` [S]: last step of each block, where ``steps`` are those with which blocks begin.

    Here and not in the query: whoever is pooled with others has been compared with the peers first.
    """
    across = drawn_columns(len(steps), len(ranks))
    rank_edges = _edges(len(ranks), min(MOST_HEAT_RANKS, MAX_HEAT_CELLS // max(1, across)))
    step_edges = _edges(len(steps), across)
    cells = excess_us.T / 1000.0
    if pooled_by == "mean":
        cells = _pool_mean(cells, (rank_edges, step_edges))
    else:
        if len(rank_edges) - 1 < len(ranks):
            cells = _pool_max(cells, rank_edges, 0)
        if len(step_edges) - 1 < len(steps):
            cells = _pool_max(cells, step_edges, 1)
    heat = HeatMap(
        cells,
        np.asarray(ranks, dtype=np.int64),
        np.asarray(steps, dtype=np.int64),
        rank_edges,
        step_edges,
        1.0,
        pooled_by,
        until,
    )
    return coloured(heat)


def coloured(heat: HeatMap) -> HeatMap:
    """``heat`` with colours for its cells: to the 99th percentile of the distance from zero.

    The largest of many ranks and steps is above the peers in nearly every cell, whoever is slow.
    Where three quarters of the cells are, zero tells nobody apart: the median cell is the middle,
    and the colours reach as far as the row that exceeds it most does in a tenth of its columns.
    """
    cells = heat.excess_ms
    known = cells[~np.isnan(cells)]
    middle = reach = 0.0
    if heat.is_pooled and heat.pooled_by == "largest" and len(known):
        low, median = np.percentile(known, (25, 50))
        if low > 0:
            middle = float(median)
            rows = cells[~np.isnan(cells).all(axis=1)]
            reach = float(np.nanpercentile(rows, 100 - _BRIEF_PERCENT, axis=1).max()) - middle
    far = float(np.percentile(np.abs(known - middle), 99)) if len(known) else 0.0
    limit = max(far, reach)
    return replace(heat, middle_ms=middle, colour_limit_ms=limit if limit > 0 else 1.0)


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
