"""Stretches of time with a label, and putting one layer of them over another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from steptax.app.compute.stats.rows import Flags, Ints


@dataclass(frozen=True, eq=False)
class Segments:
    """Disjoint half-open stretches [start, end) in ascending order, each with a label [N]."""

    start_us: Ints
    end_us: Ints
    label: Ints

    def __len__(self) -> int:
        """Stretches."""
        return len(self.start_us)

    @property
    def total_us(self) -> int:
        """Time that is covered."""
        return int((self.end_us - self.start_us).sum())


def ints(values: Iterable[int]) -> Ints:
    """Whole numbers as an array."""
    return np.asarray(list(values), dtype=np.int64)


EMPTY = Segments(ints(()), ints(()), ints(()))


def one(start_us: int, end_us: int, label: int) -> Segments:
    """A single stretch, or none if it has no length."""
    if end_us <= start_us:
        return EMPTY
    return Segments(ints([start_us]), ints([end_us]), ints([label]))


def in_order(start_us: Ints, end_us: Ints, label: Ints) -> Segments:
    """Stretches that follow one another: each ends at the latest where the next one starts.

    They must come in ascending order of start; what has no length is left out.
    """
    if not len(start_us):
        return EMPTY
    end = np.minimum(end_us, np.append(start_us[1:], np.iinfo(np.int64).max))
    keep = end > start_us
    return Segments(start_us[keep], end[keep], label[keep])


def _find(layer: Segments, at_us: Ints) -> tuple[Ints, Flags]:
    """Which stretch each moment falls into, and whether it falls into any."""
    place = np.searchsorted(layer.start_us, at_us, side="right") - 1
    inside = place >= 0
    inside &= at_us < layer.end_us[np.maximum(place, 0)]
    return np.asarray(np.maximum(place, 0), dtype=np.int64), inside


def _edges(first: Segments, second: Segments) -> Ints:
    """All starts and ends, ascending, each once."""
    edges = np.sort(np.concatenate([first.start_us, first.end_us, second.start_us, second.end_us]))
    return np.asarray(edges[np.append(True, edges[1:] != edges[:-1])], dtype=np.int64)


def over(below: Segments, above: Segments) -> Segments:
    """``above`` where it is, ``below`` elsewhere; neighbours with one label become one."""
    if not len(above):
        return below
    if not len(below):
        return above
    if below.end_us[-1] <= above.start_us[0]:
        return _join(below, above)
    if above.end_us[-1] <= below.start_us[0]:
        return _join(above, below)
    edges = _edges(below, above)
    start, end = edges[:-1], edges[1:]
    low, in_low = _find(below, start)
    high, in_high = _find(above, start)
    label = np.where(in_high, above.label[high], below.label[low])
    keep = in_low | in_high
    return merged(Segments(start[keep], end[keep], label[keep]))


def _join(first: Segments, second: Segments) -> Segments:
    return merged(
        Segments(
            np.concatenate([first.start_us, second.start_us]),
            np.concatenate([first.end_us, second.end_us]),
            np.concatenate([first.label, second.label]),
        )
    )


def merged(layer: Segments) -> Segments:
    """Neighbours that touch and share a label become one."""
    if len(layer) < 2:
        return layer
    new = np.append(
        True, (layer.start_us[1:] != layer.end_us[:-1]) | (layer.label[1:] != layer.label[:-1])
    )
    first = np.flatnonzero(new)
    last = np.append(first[1:], len(layer)) - 1
    return Segments(layer.start_us[first], layer.end_us[last], layer.label[first])


def stack(layers: Sequence[Segments]) -> Segments:
    """All layers over one another, the first at the bottom.

    Pairs of neighbours first: layers that hardly overlap then cost no more than sorting them.
    """
    rest = [layer for layer in layers if len(layer)]
    while len(rest) > 1:
        pairs = [over(rest[i], rest[i + 1]) for i in range(0, len(rest) - 1, 2)]
        rest = pairs + rest[len(rest) - len(rest) % 2 :]
    return rest[0] if rest else EMPTY


def cut(first: Segments, second: Segments) -> tuple[Segments, Ints]:
    """``first`` where ``second`` is, cut at its edges, and the label of ``second`` there [N]."""
    if not len(first) or not len(second):
        return EMPTY, ints(())
    edges = _edges(first, second)
    start, end = edges[:-1], edges[1:]
    one_at, in_one = _find(first, start)
    two_at, in_two = _find(second, start)
    keep = in_one & in_two
    kept = Segments(start[keep], end[keep], first.label[one_at][keep])
    return kept, second.label[two_at][keep]


def add_up(spans: Iterable[tuple[int, int, int]]) -> Segments:
    """Spans (start, end, amount) that may overlap, as stretches labelled with their sum."""
    given = [span for span in spans if span[1] > span[0]]
    if not given:
        return EMPTY
    moments = np.array([t for start, end, _ in given for t in (start, end)], dtype=np.int64)
    change = np.array([d for *_, amount in given for d in (amount, -amount)], dtype=np.int64)
    edges, place = np.unique(moments, return_inverse=True)
    level = np.zeros(len(edges), dtype=np.int64)
    np.add.at(level, place, change)
    held = np.cumsum(level)[:-1]
    keep = held != 0
    return merged(Segments(edges[:-1][keep], edges[1:][keep], held[keep]))


def covered_us(layer: Segments, start_us: Ints, end_us: Ints) -> Ints:
    """[N] how much of each span [start, end) lies inside of the stretches of ``layer``."""
    if not len(layer):
        return np.zeros(len(start_us), dtype=np.int64)
    done = np.append(0, np.cumsum(layer.end_us - layer.start_us))

    def until(at_us: Ints) -> Ints:
        place = np.maximum(np.searchsorted(layer.start_us, at_us, side="right") - 1, 0)
        inside = np.clip(at_us - layer.start_us[place], 0, (layer.end_us - layer.start_us)[place])
        return np.asarray(done[place] + inside, dtype=np.int64)

    return until(end_us) - until(start_us)
