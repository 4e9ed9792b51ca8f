"""Reductions along the ranks of a step x rank matrix in which NaN means "not reported"."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Ints = NDArray[np.int64]


def row_count(values: Floats) -> Ints:
    """Reported values per row: [S, R] to [S]."""
    return np.asarray(np.count_nonzero(~np.isnan(values), axis=1), dtype=np.int64)


def row_max(values: Floats) -> Floats:
    """Largest reported value per row, NaN for an empty row: [S, R] to [S]."""
    out = np.fmax.reduce(values, axis=1, initial=-np.inf)
    return np.where(np.isneginf(out), np.nan, out)


def row_min(values: Floats) -> Floats:
    """Smallest reported value per row, NaN for an empty row: [S, R] to [S]."""
    out = np.fmin.reduce(values, axis=1, initial=np.inf)
    return np.where(np.isposinf(out), np.nan, out)


def row_sum(values: Floats) -> Floats:
    """Sum of the reported values per row, 0 for an empty row: [S, R] to [S]."""
    total = np.asarray(values.sum(axis=1), dtype=np.float64)
    holed = np.flatnonzero(np.isnan(total))
    if len(holed):
        total[holed] = np.nansum(values[holed], axis=1)
    return total


def row_mean(values: Floats) -> Floats:
    """Mean of the reported values per row, NaN for an empty row: [S, R] to [S]."""
    count = row_count(values)
    return np.where(count > 0, row_sum(values) / np.maximum(count, 1), np.nan)


def column_mean(values: Floats) -> Floats:
    """Mean of the reported values per column, NaN for an empty column: [S, R] to [R]."""
    total = values.sum(axis=0)
    if len(values) and not np.isnan(total).any():
        return np.asarray(total / len(values))
    known = ~np.isnan(values)
    count = np.count_nonzero(known, axis=0)
    total = np.where(known, values, 0.0).sum(axis=0)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def row_argmax(values: Floats) -> NDArray[np.intp]:
    """Position of the largest reported value per row, the first among equals: [S, R] to [S]."""
    out = np.asarray(np.argmax(values, axis=1), dtype=np.intp)
    # The largest of a row with a hole is taken to be the hole.
    holed = np.flatnonzero(np.isnan(values[np.arange(len(values)), out]))
    if len(holed):
        out[holed] = np.argmax(np.nan_to_num(values[holed], nan=-np.inf), axis=1)
    return out


def row_quantile(values: Floats, *q: float) -> list[Floats]:
    """Quantiles ``q`` (0..1, linear interpolation) of the reported values: [S, R] to [S] each.

    One sort serves all of them, and NaN sorts last, so that no row needs a loop of its own.
    """
    ordered = np.sort(values, axis=1)
    count = row_count(values)
    rows = np.arange(len(values))
    last = np.maximum(count - 1, 0)
    out = []
    for share in q:
        place = share * last
        low = np.floor(place).astype(np.int64)
        high = np.minimum(low + 1, last)
        part = place - low
        value = ordered[rows, low] * (1 - part) + ordered[rows, high] * part
        out.append(np.where(count > 0, value, np.nan))
    return out
