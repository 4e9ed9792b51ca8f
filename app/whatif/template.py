"""One lane of a trace, sorted, as plain lists: what the graph is read off."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steptax.app.whatif.arrays import median
from steptax.app.whatif.optypes import DP_COLLECTIVES, FORWARD
from steptax.app.whatif.trace import Trace

#: By so much a receive may start after the last computation and still belong to one.
_MATCH_S = 5e-5
#: The same as a share of a computation, for jobs whose computations are as short.
_MATCH_SHARE = 0.01


@dataclass(frozen=True, eq=False)
class Template:
    """Operations of one lane, by stage and type, in the order (start, sequence number, type).

    ``start_s`` and ``end_s`` are indexed by operation. ``use_dp`` says whether data-parallel
    collectives take part in the graph.
    """

    trace: Trace
    lane: tuple[int, int]
    start_s: list[float]
    end_s: list[float]
    position: list[int]
    by_type: dict[tuple[int, str], list[int]]
    use_dp: bool
    overlap: bool
    tolerance_s: float

    def of(self, stage: int, op_type: str) -> list[int]:
        """The operations of one type on one stage; empty where there are none."""
        return self.by_type.get((stage, op_type), [])

    def where(self, op: int) -> str:
        """``step 16, rank 5`` of an operation in this lane."""
        step, dp = self.lane
        rank = self.trace.ranks[dp, self.trace.op_stage[op]]
        return f"step {self.trace.steps[step]}, rank {rank}"


def make_template(trace: Trace, lane: tuple[int, int]) -> Template:
    """Sort the operations of ``lane``, a (step, data-parallel rank) position."""
    step, dp = lane
    start = trace.start_s[:, step, dp]
    duration = trace.duration_s[:, step, dp]
    order = np.lexsort((trace.op_type, trace.op_seq, start, trace.op_stage))
    position = np.empty(len(order), np.intp)
    position[order] = np.arange(len(order))
    stages = trace.op_stage[order].tolist()
    types = trace.op_type[order].tolist()
    by_type: dict[tuple[int, str], list[int]] = {}
    for op, stage, kind in zip(order.tolist(), stages, types, strict=True):
        by_type.setdefault((stage, trace.types[kind]), []).append(op)
    forward = duration[trace.rows_of[FORWARD]]
    return Template(
        trace=trace,
        lane=lane,
        start_s=start.tolist(),
        end_s=(start + duration).tolist(),
        position=position.tolist(),
        by_type=by_type,
        use_dp=len(trace.dps) * (trace.sizes.dsp or 1) > 1
        or any(t in trace.types for t in DP_COLLECTIVES),
        overlap=DP_COLLECTIVES[2] in trace.types,
        tolerance_s=min(_MATCH_S, _MATCH_SHARE * median(forward)),
    )
