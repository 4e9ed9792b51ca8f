"""When every operation of one step starts and ends: as recorded, and as simulated.

The simulator of many scenarios keeps no times of single operations; this one keeps all of one step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steptax.app.errors import NotFoundError
from steptax.app.whatif.analysis import Model
from steptax.app.whatif.optypes import (
    BACKWARD,
    COMPUTE,
    DP_COLLECTIVES,
    FORWARD,
    KNOWN,
    P2P,
)
from steptax.app.whatif.trace import Floats, Ids, Trace

#: Stream of an operation; on each, one runs after the other.
COMPUTE_STREAM = "compute"
DP_STREAM = "data-parallel"
TAIL_STREAM = "end of step"
STREAMS = (COMPUTE_STREAM, *P2P, DP_STREAM, TAIL_STREAM)


@dataclass(frozen=True, eq=False)
class Playback:
    """Seconds from the begin of a step, [O, D].

    ``wait_s`` is the part at the start of an operation in which it only waits for its peers.
    """

    start_s: Floats
    end_s: Floats
    wait_s: Floats

    @property
    def span_s(self) -> float:
        """Last end less first start."""
        return float(self.end_s.max() - self.start_s.min())


def step_index(trace: Trace, step: int) -> int:
    """Position of a step by its number; NotFoundError names some that are there."""
    if step not in trace.steps:
        listed = ", ".join(map(str, trace.steps[:10])) + (", ..." if len(trace.steps) > 10 else "")
        raise NotFoundError(
            f"step {step} is not among the analysed ones", where="step", hint=f"there are {listed}"
        )
    return trace.steps.index(step)


def recorded(model: Model, step: int) -> Playback:
    """The step (its number) as it was measured."""
    at = step_index(model.trace, step)
    start = model.trace.start_s[:, at]
    duration = model.trace.duration_s[:, at]
    wait = np.clip(duration - model.work.own_s[:, at], 0.0, duration)
    return Playback(start, start + duration, wait)


def ideal(model: Model) -> Playback:
    """The step in which everything takes its ideal work, the same for every step."""
    dps = model.trace.shape[2]
    return simulated(model, np.tile(model.work.ideal_s[:, None], (1, dps)))


def simulated(model: Model, work_s: Floats) -> Playback:
    """The step in which operations take ``work_s`` [O, D], without launch delays.

    start = latest end of the predecessors; operations that move data together all end their own
    work after the last of them has started.
    """
    preds = model.graph.preds
    start, end, wait = (np.zeros(work_s.shape) for _ in range(3))
    for node in (*model.program.head, *model.program.tail):
        members = list(node.members)
        for op in members:
            if preds[op]:
                start[op] = end[list(preds[op])].max(axis=0)
        begin = start[members].max(axis=0)
        if node.synced:
            begin = np.full_like(begin, begin.max())
        end[members] = begin + work_s[members]
        wait[members] = begin - start[members]
    return Playback(start, end, wait)


def stream_of(trace: Trace) -> list[str]:
    """Stream of each operation type, in the order of ``trace.types``."""
    out = []
    for name in trace.types:
        if name in P2P:
            out.append(name)
        elif name in DP_COLLECTIVES:
            out.append(DP_STREAM)
        elif name in COMPUTE or (name not in KNOWN):
            out.append(COMPUTE_STREAM)
        else:
            out.append(TAIL_STREAM)
    return out


def group_of(model: Model) -> Ids:
    """[O] number of the group in which an operation moves data with others; -1 where in none."""
    out = np.full(model.trace.shape[0], -1, np.intp)
    for number, group in enumerate(model.graph.groups):
        if len(group.members) > 1 or group.synced:
            out[list(group.members)] = number
    return out


def micro_batches(model: Model) -> Ids:
    """[O] micro-batch of passes and of the transfers that belong to them; -1 where none applies.

    The passes of one virtual stage and direction run their micro-batches in order; a transfer has
    that of the pass which waits for it or which it waits for.
    """
    trace, preds = model.trace, model.graph.preds
    out = np.full(trace.shape[0], -1, np.intp)
    for kind in COMPUTE:
        rows = trace.rows_of[kind]
        count: dict[tuple[int, int], int] = {}
        for op in range(rows.start, rows.stop):
            key = (int(trace.op_stage[op]), int(trace.op_chunk[op]))
            out[op] = count[key] = count.get(key, -1) + 1
    kinds = {name: trace.rows_of.get(name) for name in (*COMPUTE, *P2P)}
    for op, before in enumerate(preds):
        for pred in before:
            for send, recv, compute in _TRANSFERS:
                passes = kinds[compute]
                if passes is None:
                    continue
                if _in(op, kinds[send]) and _in(pred, passes):
                    out[op] = out[pred]
                elif _in(op, passes) and _in(pred, kinds[recv]):
                    out[pred] = out[op]
    return out


_TRANSFERS = (
    ("forward-send", "forward-recv", FORWARD),
    ("backward-send", "backward-recv", BACKWARD),
)


def _in(op: int, rows: slice | None) -> bool:
    return rows is not None and rows.start <= op < rows.stop
