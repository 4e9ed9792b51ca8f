"""What each operation itself takes, what it would ideally take, and how late it is launched.

After Lin et al., OSDI'25, section 3.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from steptax.app.whatif.arrays import median
from steptax.app.whatif.graph import Graph
from steptax.app.whatif.optypes import MEAN_IDEAL
from steptax.app.whatif.trace import Floats, Trace, earliest

#: A transfer or delay more negative than this is a fault of the clocks, and counts as none.
_CLAMP_S = 0.01
#: The same as a share of the step, for jobs whose steps are as short.
_CLAMP_SHARE = 0.05


@dataclass(frozen=True, eq=False)
class Work:
    """``own_s`` [O, S, D]: transfer time of what moves data, duration of the rest.

    ``ideal_s`` [O]: one value for each type. ``base_s`` [S]: the measured steps. ``clamped``
    counts transfers that came out below ``-clamp_s`` and were set to zero; smaller negative ones
    are kept, as they cancel.
    """

    own_s: Floats
    ideal_s: Floats
    base_s: Floats
    clamp_s: float
    clamped: int


def measure_work(trace: Trace, graph: Graph, steps: Sequence[int] | None = None) -> Work:
    """Work of every operation; ``steps`` are the positions that the ideal is taken over."""
    start, duration = trace.start_s, trace.duration_s
    base = (start + duration).max(axis=0).max(axis=1) - earliest(start)
    clamp = min(_CLAMP_S, _CLAMP_SHARE * median(base))
    own = duration.copy()
    clamped = _transfers(trace, graph, own, clamp)
    chosen = own if steps is None else own[:, list(steps)]
    return Work(own, ideal_work(trace, chosen), base, clamp, clamped)


def _transfers(trace: Trace, graph: Graph, own: Floats, clamp_s: float) -> int:
    """Turn durations of grouped operations into transfers, in place: end - last start."""
    start = trace.start_s
    clamped = 0
    alike: dict[tuple[int, bool], list[tuple[int, ...]]] = {}
    for group in graph.groups:
        alike.setdefault((len(group.members), group.synced), []).append(group.members)
    for (size, synced), groups in alike.items():
        if size == 1 and not synced:
            continue  # Waits for nobody: all of it is transfer.
        members = np.array(groups)
        latest = start[members[:, 0]]
        for column in members.T[1:]:
            np.maximum(latest, start[column], out=latest)
        if synced:
            latest = latest.max(axis=2, keepdims=True)
        for column in members.T:
            # end - latest, as (start - latest) + duration, which keeps one temporary.
            wait = start[column]
            wait -= latest
            wait += own[column]
            low = wait <= -clamp_s
            if low.any():
                clamped += int(low.sum())
                wait[low] = 0.0
            own[column] = wait
    return clamped


def ideal_work(trace: Trace, own_s: Floats) -> Floats:
    """Ideal work [O]: mean or median of each type over all its operations and lanes."""
    ideal = np.empty(len(own_s))
    for name, rows in trace.rows_of.items():
        values = own_s[rows]
        known = name in MEAN_IDEAL or name in trace.in_stream
        ideal[rows] = values.mean() if known else median(values)
    return ideal


class Delays:
    """How much later than its inputs allow each operation starts."""

    def __init__(self, trace: Trace, graph: Graph, clamp_s: float) -> None:
        self.trace = trace
        self.clamp_s = clamp_s
        count = np.array([len(p) for p in graph.preds], np.intp)
        preds = np.array([p for each in graph.preds for p in each], np.intp)
        first = np.cumsum(count) - count
        # Most predecessors first: those that have a k-th one are then the first rows.
        self.order = np.argsort(-count, kind="stable")
        self.kth = [
            preds[first[self.order[: int(np.count_nonzero(count > k))]] + k]
            for k in range(int(count.max()))
        ]

    def of(self, steps: slice) -> tuple[Floats, int]:
        """Start minus the end of the last predecessor, [O, steps, D]; how many were set to zero.

        For an operation without predecessors, its start from the step's begin.
        """
        start = self.trace.start_s[:, steps]
        end = start + self.trace.duration_s[:, steps]
        ready, other = np.zeros_like(end), np.empty_like(end)
        for preds in self.kth:
            here = ready[: len(preds)]
            ends = end.take(preds, axis=0, out=other[: len(preds)], mode="clip")
            if preds is self.kth[0]:
                here[...] = ends
            else:
                np.maximum(here, ends, out=here)
        delay = end  # Its content is no longer needed.
        delay[self.order] = ready
        np.subtract(start, delay, out=delay)
        low = delay <= -self.clamp_s
        clamped = int(np.count_nonzero(low))
        if clamped:
            delay[low] = 0.0
        return delay, clamped
