"""Arithmetic of half-open stretches of whole numbers, on sorted arrays.

A set of stretches is a pair of arrays (start, end), disjoint and ascending, as ``union`` makes it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Spans = tuple[Ints, Ints]

EMPTY: Spans = (np.zeros(0, np.int64), np.zeros(0, np.int64))


def union(start: Ints, end: Ints) -> Spans:
    """The stretches [start, end) without their overlaps; what has no length is left out.

    Stretches that touch become one.
    """
    keep = end > start
    start, end = start[keep], end[keep]
    if not len(start):
        return EMPTY
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    first = np.append(True, start[1:] > reach[:-1])
    last = np.append(first[1:], True)
    return start[first], reach[last]


def measure(spans: Spans) -> int:
    """Their total length."""
    return int((spans[1] - spans[0]).sum())


def within(spans: Spans, start: int, end: int) -> Spans:
    """The part of ``spans`` inside of [start, end)."""
    low, high = np.maximum(spans[0], start), np.minimum(spans[1], end)
    keep = high > low
    return low[keep], high[keep]


def minus(spans: Spans, other: Spans) -> Spans:
    """The part of ``spans`` that lies outside of ``other``."""
    return _where(spans, other, inside=False)


def both(spans: Spans, other: Spans) -> Spans:
    """The part of ``spans`` that lies inside of ``other``."""
    return _where(spans, other, inside=True)


def length_until(spans: Spans, at: Ints) -> Ints:
    """[N] how much of ``spans`` lies before each moment."""
    start, end = spans
    if not len(start):
        return np.zeros(len(at), np.int64)
    done = np.append(0, np.cumsum(end - start))
    place = np.searchsorted(start, at, side="right") - 1
    held = np.maximum(place, 0)
    inside = np.clip(at - start[held], 0, (end - start)[held])
    return np.where(place < 0, 0, done[held] + inside).astype(np.int64)


def _where(spans: Spans, other: Spans, *, inside: bool) -> Spans:
    edges = np.unique(np.concatenate([*spans, *other]))
    if len(edges) < 2:
        return EMPTY
    low, high = edges[:-1], edges[1:]
    keep = _covers(spans, low) & (_covers(other, low) == inside)
    return union(low[keep], high[keep])


def _covers(spans: Spans, at: Ints) -> NDArray[np.bool_]:
    start, end = spans
    if not len(start):
        return np.zeros(len(at), np.bool_)
    place = np.searchsorted(start, at, side="right") - 1
    covered: NDArray[np.bool_] = (place >= 0) & (at < end[np.maximum(place, 0)])
    return covered
