"""The graph as a list of instructions: what to compute in which order, into which buffer.

Ends of operations live in a few *slots* that are used again once nothing needs their content, so
that the working set of a simulation stays in the cache whatever the length of the pipeline.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from steptax.app.whatif.errors import GraphError
from steptax.app.whatif.graph import Graph, Group
from steptax.app.whatif.optypes import KNOWN, TAIL
from steptax.app.whatif.trace import Trace


class Node(NamedTuple):
    """Operations that end together, or one operation alone.

    ``starts`` has for each member the slots of its predecessors; ``union`` all of them once;
    ``rooted`` says that a member has none and so starts with the step. ``outs`` are pairs of
    operation and slot of its end.
    """

    members: tuple[int, ...]
    starts: tuple[tuple[int, ...], ...]
    union: tuple[int, ...]
    rooted: bool
    synced: bool
    outs: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Program:
    """Nodes in an order that respects every dependency.

    ``head`` nodes wait for no data-parallel rank but their own, and hold no operation of a step's
    tail; they all come before the ``tail``. ``live`` are (operation, slot) pairs that the tail
    still reads of the head; ``finish`` the slots of the ends that end the step.
    """

    head: tuple[Node, ...]
    tail: tuple[Node, ...]
    slots: int
    live: tuple[tuple[int, int], ...]
    finish: tuple[int, ...]
    finish_ops: tuple[int, ...]
    preds: tuple[tuple[int, ...], ...]
    head_ops: frozenset[int]


def compile_program(trace: Trace, graph: Graph) -> Program:
    """Order the nodes and give each end a slot. GraphError names operations that wait in a ring."""
    groups = _all_groups(trace, graph)
    node_of = [0] * len(graph.preds)
    for n, group in enumerate(groups):
        for op in group.members:
            node_of[op] = n
    before = [
        {node_of[p] for op in group.members for p in graph.preds[op]} - {n}
        for n, group in enumerate(groups)
    ]
    _refuse_self(trace, graph, groups, node_of)
    after: list[list[int]] = [[] for _ in groups]
    for n, nodes in enumerate(before):
        for m in nodes:
            after[m].append(n)
    in_tail = _tail_nodes(trace, groups, before, after)
    order = _order(trace, graph, groups, before, after, in_tail)
    listed, slots, kept = _with_slots(graph, groups, order)
    heads = sum(1 for n in order if not in_tail[n])
    head_ops = frozenset(op for n in order[:heads] for op in groups[n].members)
    needed = {p for n in order[heads:] for op in groups[n].members for p in graph.preds[op]}
    needed |= set(graph.finish)
    return Program(
        head=tuple(listed[:heads]),
        tail=tuple(listed[heads:]),
        slots=slots,
        live=tuple((op, kept[op]) for op in sorted(needed & head_ops)),
        finish=tuple(kept[op] for op in graph.finish),
        finish_ops=graph.finish,
        preds=graph.preds,
        head_ops=head_ops,
    )


def _all_groups(trace: Trace, graph: Graph) -> list[Group]:
    """The groups, and every other operation as a group of its own.

    A synced group is unsynced where there is one data-parallel rank.
    """
    groups = list(graph.groups)
    if trace.shape[2] == 1:
        groups = [replace(g, synced=False) for g in groups]
    grouped = {op for g in groups for op in g.members}
    groups += [Group((op,), False) for op in range(len(graph.preds)) if op not in grouped]
    return groups


def _refuse_self(
    trace: Trace, graph: Graph, groups: Sequence[Group], node_of: Sequence[int]
) -> None:
    for n, group in enumerate(groups):
        for op in group.members:
            for pred in graph.preds[op]:
                if node_of[pred] == n:
                    raise GraphError(
                        f"{trace.operation(op)} waits for {trace.operation(pred)}, which waits "
                        "for it",
                        where=trace.operation(op),
                    )


def _tail_nodes(
    trace: Trace,
    groups: Sequence[Group],
    before: Sequence[set[int]],
    after: Sequence[Sequence[int]],
) -> list[bool]:
    """Nodes that a step's end or a meeting of data-parallel ranks leads to."""
    tail_codes = {i for i, name in enumerate(trace.types) if name in TAIL or name not in KNOWN}
    codes = trace.op_type.tolist()
    todo = [
        n
        for n, group in enumerate(groups)
        if codes[group.members[0]] in tail_codes or (group.synced and before[n])
    ]
    in_tail = [False] * len(groups)
    for n in todo:
        in_tail[n] = True
    while todo:
        for m in after[todo.pop()]:
            if not in_tail[m]:
                in_tail[m] = True
                todo.append(m)
    return in_tail


def _order(
    trace: Trace,
    graph: Graph,
    groups: Sequence[Group],
    before: Sequence[set[int]],
    after: Sequence[Sequence[int]],
    in_tail: Sequence[bool],
) -> list[int]:
    """Topological, the head first; by measured start among those that are ready.

    In the order of time few ends are awaited at once, hence few slots are needed.
    """
    step, dp = graph.lane
    start = trace.start_s[:, step, dp].tolist()
    key = [
        (late, max(start[op] for op in g.members), n)
        for n, (g, late) in enumerate(zip(groups, in_tail, strict=True))
    ]
    waits = [len(b) for b in before]
    ready = [key[n] for n, count in enumerate(waits) if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        n = heapq.heappop(ready)[2]
        order.append(n)
        for m in after[n]:
            waits[m] -= 1
            if not waits[m]:
                heapq.heappush(ready, key[m])
    if len(order) < len(groups):
        ring = [groups[n].members[0] for n, count in enumerate(waits) if count]
        names = ", ".join(trace.operation(op) for op in ring[:4])
        raise GraphError(f"{len(ring)} operations wait for each other in a ring: {names}")
    return order


def _with_slots(
    graph: Graph, groups: Sequence[Group], order: Sequence[int]
) -> tuple[list[Node], int, list[int]]:
    """Nodes with slots; the number of slots; the slot of every operation."""
    preds = graph.preds
    never = -1
    last_use = [never] * len(preds)
    for at, n in enumerate(order):
        for op in groups[n].members:
            for pred in preds[op]:
                last_use[pred] = at
    for op in graph.finish:
        last_use[op] = len(order)
    free: list[int] = []
    slots = 0
    slot = [never] * len(preds)
    nodes = []
    for at, n in enumerate(order):
        members = groups[n].members
        starts = tuple([tuple([slot[p] for p in preds[op]]) for op in members])
        for op in members:
            if free:
                slot[op] = free.pop()
            else:
                slot[op] = slots
                slots += 1
        done = {p for op in members for p in preds[op] if last_use[p] == at}
        done.update(op for op in members if last_use[op] == never)
        free += [slot[op] for op in done]
        union = starts[0]
        if len(members) > 1:
            union = tuple(dict.fromkeys([s for each in starts for s in each]))
        outs = tuple([(op, slot[op]) for op in members])
        nodes.append(Node(members, starts, union, () in starts, groups[n].synced, outs))
    return nodes, slots, slot
