"""The dependency graph of a step: which operation waits for which, and who moves data with whom.

After Lin et al., OSDI'25, section 3.1. The graph is read off one lane of the trace and holds for
all: predecessors lie on the same stage; stages and data-parallel ranks meet only in groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from steptax.app.whatif.errors import GraphError
from steptax.app.whatif.optypes import (
    BACKWARD_RECV,
    BACKWARD_SEND,
    CLIP,
    DP_COLLECTIVES,
    EMBEDDING_ALL_REDUCE,
    FORWARD,
    FORWARD_RECV,
    FORWARD_SEND,
)
from steptax.app.whatif.stage import StageEdges, stage_edges
from steptax.app.whatif.template import Template, make_template
from steptax.app.whatif.trace import Trace

#: Lanes to try as template before giving up.
_TRIES = 8
#: Most lanes whose order of computing is compared with the template's.
_COMPARED = 4096


@dataclass(frozen=True)
class Group:
    """Operations that move data together: none proceeds before all have started.

    A ``synced`` group also waits for the same operations of every data-parallel rank.
    """

    members: tuple[int, ...]
    synced: bool


@dataclass(frozen=True)
class Graph:
    """Predecessors by operation, groups, and the operations whose end is the end of the step.

    ``first_ops`` start a step on each stage. ``lane`` is the (step, data-parallel rank) position
    in the trace that the graph was read off.
    """

    preds: tuple[tuple[int, ...], ...]
    groups: tuple[Group, ...]
    finish: tuple[int, ...]
    first_ops: tuple[int, ...]
    lane: tuple[int, int]
    warnings: tuple[str, ...] = ()


def build_graph(trace: Trace) -> Graph:
    """The graph of ``trace``, from the first lane whose order of computing most lanes share.

    GraphError when no lane yields one; it names the stage and the operation of the first lane.
    """
    _, steps, dps = trace.shape
    lanes = [(0, 0)]
    spread = np.linspace(0, steps * dps - 1, min(_TRIES, steps * dps)).astype(int)
    lanes += [divmod(int(i), dps) for i in spread if i]
    failure: GraphError | None = None
    best: tuple[float, Graph] | None = None
    for lane in lanes:
        try:
            graph, edges = _from_lane(trace, lane)
        except GraphError as error:
            failure = failure or error
            continue
        share = _share_of_lanes(trace, edges)
        if best is None or share > best[0]:
            best = (share, graph)
        if share > 0.5:
            break
    if best is None:
        raise failure or GraphError("no operations")
    share, graph = best
    warnings = list(graph.warnings)
    if graph.lane != (0, 0):
        step, dp = graph.lane
        warnings.append(
            f"the dependencies are those of step {trace.steps[step]}, data-parallel rank "
            f"{trace.dps[dp]}, since "
            + (f"the first lane has none: {failure}" if failure else "the first lane is unusual")
        )
    if share < 1.0:
        warnings.append(
            f"{(1 - share) * 100:.2g} % of the lanes compute in another order than the model"
        )
    return Graph(
        graph.preds, graph.groups, graph.finish, graph.first_ops, graph.lane, tuple(warnings)
    )


def _from_lane(trace: Trace, lane: tuple[int, int]) -> tuple[Graph, list[StageEdges]]:
    template = make_template(trace, lane)
    preds: list[list[int]] = [[] for _ in range(trace.shape[0])]
    edges = [stage_edges(template, stage, preds) for stage in range(trace.stages)]
    groups = _groups(template, edges)
    warnings = []
    if trace.shape[2] > 1 and not any(g.synced for g in groups):
        warnings.append(
            "no data-parallel collective recorded: data-parallel ranks meet only at the step's end"
        )
    first = [
        ops[0]
        for stage in range(trace.stages)
        if (ops := template.of(stage, FORWARD_RECV if stage else FORWARD))
    ]
    if first and trace.op_seq[first[0]] != 0:
        first = [op for op in first if trace.op_seq[op] == 0]
    graph = Graph(
        preds=tuple(tuple(dict.fromkeys(p)) for p in preds),
        groups=groups,
        finish=tuple(e.finish for e in edges),
        first_ops=tuple(first),
        lane=lane,
        warnings=tuple(warnings),
    )
    return graph, edges


def _groups(template: Template, edges: Sequence[StageEdges]) -> tuple[Group, ...]:
    trace = template.trace
    last = trace.stages - 1
    groups = [Group((op,), False) for e in edges for op in e.alone]
    for stage, here in enumerate(edges):
        for send, recv, peer in (
            (FORWARD_SEND, FORWARD_RECV, (stage + 1) % trace.stages),
            (BACKWARD_SEND, BACKWARD_RECV, (stage - 1) % trace.stages),
        ):
            out, back = here.live[send], edges[peer].live[recv]
            if len(out) != len(back):
                k = min(len(out), len(back))
                odd, other, place = (out, recv, peer) if len(out) > k else (back, send, stage)
                raise GraphError(
                    f"{trace.operation(odd[k])} has no {other} on stage {place}: "
                    f"{len(out)} sent, {len(back)} received",
                    where=template.where(odd[k]),
                )
            groups += [Group(pair, False) for pair in zip(out, back, strict=True)]
    groups += [
        Group((op,), True)
        for stage in range(trace.stages)
        for kind in DP_COLLECTIVES
        for op in template.of(stage, kind)
    ]
    # Embeddings are tied between the first and the last stage; clipping needs every stage's norm.
    groups += _alike(template, EMBEDDING_ALL_REDUCE, (0, last), synced=False)
    groups += _alike(template, CLIP, range(trace.stages), synced=True)
    groups += [
        Group((op,), False)
        for stage in range(1, last)
        for op in template.of(stage, EMBEDDING_ALL_REDUCE)
    ]
    return tuple(groups)


def _alike(template: Template, kind: str, stages: Iterable[int], *, synced: bool) -> list[Group]:
    """One group for each sequence number of ``kind`` over ``stages``."""
    members: dict[int, list[int]] = {}
    for stage in sorted(set(stages)):
        for op in template.of(stage, kind):
            members.setdefault(int(template.trace.op_seq[op]), []).append(op)
    return [Group(tuple(ops), synced) for ops in members.values()]


def _share_of_lanes(trace: Trace, edges: Sequence[StageEdges]) -> float:
    """Share of lanes that start their computing in the template's order."""
    _, steps, dps = trace.shape
    stride = max(1, steps * dps // _COMPARED)
    agree = np.ones((len(range(0, steps, stride)), dps), bool)
    for edge in edges:
        begin = trace.start_s[edge.compute, ::stride]
        # Not ">=" on every pair at once: the temporary would be as large as the trace.
        agree &= (begin[1:] >= begin[:-1]).all(axis=0)
    return float(agree.mean())
