"""Intervals for means over steps that depend on their neighbours.

Steps are not independent: a slow minute holds many slow steps. The moving-block bootstrap draws
whole blocks of neighbouring steps (Künsch 1989); blocks that run past the end go on at the
beginning, so that every step counts alike (Politis and Romano 1992). Block length S^(1/3).
"""

from __future__ import annotations

import numpy as np

from steptax.app.compute.stats.rows import Floats

#: Counts held at once; bounds the memory of the weights of the replicates.
_COUNTS_AT_ONCE = 4_000_000
#: Means of replicates held at once, of many columns.
_MEANS_AT_ONCE = 800_000


def block_length(steps: int) -> int:
    """Steps in a block: the cube root of their number, at least 1."""
    return max(1, round(float(np.cbrt(steps))))


def block_means(values: Floats, *, replicates: int, seed: int) -> Floats:
    """[B, K] bootstrap means over the steps of ``values`` [S, K].

    All columns share the same drawn steps, so ratios of columns may be taken per replicate. The
    same seed gives the same draw. NaN is "not reported": a mean is over the steps that are there.
    """
    known = ~np.isnan(values)
    if not known.all():
        filled = np.where(known, values, 0.0)
        total = block_means(filled, replicates=replicates, seed=seed)
        there = block_means(known.astype(np.float64), replicates=replicates, seed=seed)
        return np.where(there > 0, total / np.where(there > 0, there, 1.0), np.nan)
    steps = len(values)
    length = block_length(steps)
    blocks = -(-steps // length)
    running = np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)])
    wrapped = np.concatenate([running, running[-1] + running[1:length]])
    sums = wrapped[length : length + steps] - wrapped[:steps]
    starts = np.random.default_rng(seed).integers(steps, size=(replicates, blocks))
    out = np.empty((replicates, values.shape[1]))
    chunk = max(1, _COUNTS_AT_ONCE // steps)
    for first in range(0, replicates, chunk):
        drawn = starts[first : first + chunk]
        flat = (np.arange(len(drawn))[:, None] * steps + drawn).ravel()
        counts = np.bincount(flat, minlength=len(drawn) * steps).reshape(len(drawn), steps)
        out[first : first + len(drawn)] = counts.astype(np.float64) @ sums
    return out / (blocks * length)


def mean_intervals(values: Floats, *, replicates: int, seed: int) -> tuple[Floats, Floats]:
    """``interval`` of the ``block_means`` of ``values`` [S, K]: [K] each.

    Some columns at a time, which all have the same draw: the replicates of very many columns take
    more memory than their values.
    """
    low, high = np.empty(values.shape[1]), np.empty(values.shape[1])
    width = max(1, _MEANS_AT_ONCE // max(1, replicates))
    for first in range(0, len(low), width):
        columns = slice(first, first + width)
        means = block_means(values[:, columns], replicates=replicates, seed=seed)
        # Column by column in memory: the order statistics of each are then read in one stretch.
        low[columns], high[columns] = interval(np.ascontiguousarray(means.T).T)
    return low, high


def interval(replicates: Floats) -> tuple[Floats, Floats]:
    """Bounds of the middle 95 % over the replicates [B, ...]."""
    low, high = np.quantile(replicates, (0.025, 0.975), axis=0)
    return low, high
