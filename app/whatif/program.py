"""The graph as a list of instructions: what to compute in which order, into which buffer.

Ends of operations live in a few *slots* that are used again once nothing needs their content, so
that the working set of a simulation stays in the cache whatever the length of the pipeline.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from steptax.app.whatif.errors import GraphError
from steptax.app.whatif.graph import Graph
from steptax.app.whatif.optypes import KNOWN, TAIL
from steptax.app.whatif.trace import Trace

Ids = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]


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
    tail; they all come before the ``tail``. ``live`` are the slots that the tail still reads of the
    head; ``finish`` those of the ends that end the step. ``edges`` are predecessor and operation of
    each dependency, and the group of each operation; ``first_member`` and ``rooted`` go by group.
    """

    head: tuple[Node, ...]
    tail: tuple[Node, ...]
    slots: int
    live: tuple[int, ...]
    finish: tuple[int, ...]
    head_ops: frozenset[int]
    edges: tuple[Ids, Ids, Ids]
    first_member: Ids
    rooted: Flags


class Parts(NamedTuple):
    """Groups by number: the groups of the graph, and every other operation alone.

    A synced group is unsynced where there is one data-parallel rank. ``before`` and ``after`` are
    the numbers of groups that each waits for and that wait for it.
    """

    members: list[tuple[int, ...]]
    node_of: list[int]
    synced: list[bool]
    before: list[set[int]]
    after: list[list[int]]


def compile_program(trace: Trace, graph: Graph) -> Program:
    """Order the nodes and give each end a slot. GraphError names operations that wait in a ring."""
    parts = _parts(trace, graph)
    in_tail = _tail_nodes(trace, parts)
    order = _order(trace, graph, parts, in_tail)
    listed, slots, kept = _with_slots(graph, parts, order)
    heads = in_tail.count(False)
    head_ops = frozenset([op for n in order[:heads] for op in parts.members[n]])
    needed = {p for n in order[heads:] for op in parts.members[n] for p in graph.preds[op]}
    needed |= set(graph.finish)
    return Program(
        head=tuple(listed[:heads]),
        tail=tuple(listed[heads:]),
        slots=slots,
        live=tuple([kept[op] for op in needed & head_ops]),
        finish=tuple([kept[op] for op in graph.finish]),
        head_ops=head_ops,
        edges=(
            np.array([p for each in graph.preds for p in each], np.intp),
            np.repeat(np.arange(len(graph.preds)), [len(p) for p in graph.preds]),
            np.array(parts.node_of, np.intp),
        ),
        first_member=np.array([ops[0] for ops in parts.members], np.intp),
        rooted=np.array([not all(graph.preds[op] for op in ops) for ops in parts.members]),
    )


def _parts(trace: Trace, graph: Graph) -> Parts:
    """GraphError where an operation waits for one that it moves data with."""
    preds = graph.preds
    several = trace.shape[2] > 1
    members = [g.members for g in graph.groups]
    synced = [g.synced and several for g in graph.groups]
    node_of = [-1] * len(preds)
    for n, ops in enumerate(members):
        for op in ops:
            node_of[op] = n
    for op, n in enumerate(node_of):
        if n < 0:
            node_of[op] = len(members)
            members.append((op,))
            synced.append(False)
    before = [{node_of[p] for op in ops for p in preds[op]} for ops in members]
    after: list[list[int]] = [[] for _ in members]
    for n, nodes in enumerate(before):
        if n in nodes:
            raise GraphError(
                f"{trace.operation(members[n][0])} waits for what it moves data with",
                where=trace.operation(members[n][0]),
            )
        for m in nodes:
            after[m].append(n)
    return Parts(members, node_of, synced, before, after)


def _tail_nodes(trace: Trace, parts: Parts) -> list[bool]:
    """Groups that a step's end or a meeting of data-parallel ranks leads to."""
    late = {i for i, name in enumerate(trace.types) if name in TAIL or name not in KNOWN}
    codes = trace.op_type.tolist()
    in_tail = [
        codes[ops[0]] in late or (synced and bool(before))
        for ops, synced, before in zip(parts.members, parts.synced, parts.before, strict=True)
    ]
    todo = [n for n, here in enumerate(in_tail) if here]
    while todo:
        for m in parts.after[todo.pop()]:
            if not in_tail[m]:
                in_tail[m] = True
                todo.append(m)
    return in_tail


def _order(trace: Trace, graph: Graph, parts: Parts, in_tail: Sequence[bool]) -> list[int]:
    """Topological, the head first; by measured start among those that are ready.

    In the order of time few ends are awaited at once, hence few slots are needed.
    """
    step, dp = graph.lane
    start = trace.start_s[:, step, dp].tolist()
    key = [
        (late, start[ops[-1]], n)
        for n, (ops, late) in enumerate(zip(parts.members, in_tail, strict=True))
    ]
    waits = [len(b) for b in parts.before]
    ready = [key[n] for n, count in enumerate(waits) if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        n = heapq.heappop(ready)[2]
        order.append(n)
        for m in parts.after[n]:
            waits[m] -= 1
            if not waits[m]:
                heapq.heappush(ready, key[m])
    if len(order) < len(waits):
        ring = [parts.members[n][0] for n, count in enumerate(waits) if count]
        names = ", ".join(trace.operation(op) for op in ring[:4])
        raise GraphError(f"{len(ring)} operations wait for each other in a ring: {names}")
    return order


def _with_slots(
    graph: Graph, parts: Parts, order: Sequence[int]
) -> tuple[list[Node], int, list[int]]:
    """Nodes with slots; the number of slots; the slot of every operation."""
    preds = graph.preds
    never = -1
    last_use = [never] * len(preds)
    for at, n in enumerate(order):
        for op in parts.members[n]:
            for pred in preds[op]:
                last_use[pred] = at
    for op in graph.finish:
        last_use[op] = len(order)
    free: list[int] = []
    slots = 0
    slot = [never] * len(preds)
    nodes = []
    for at, n in enumerate(order):
        members = parts.members[n]
        starts = tuple([tuple([slot[p] for p in preds[op]]) for op in members])
        for op in members:
            if free:
                slot[op] = free.pop()
            else:
                slot[op] = slots
                slots += 1
        for op in members:
            if last_use[op] == never:
                free.append(slot[op])
            for pred in preds[op]:
                if last_use[pred] == at:
                    free.append(slot[pred])
                    last_use[pred] = never  # Members may share it, and it is free once.
        union = starts[0]
        if len(members) > 1:
            union = tuple(dict.fromkeys([s for each in starts for s in each]))
        outs = tuple([(op, slot[op]) for op in members])
        nodes.append(Node(members, starts, union, () in starts, parts.synced[n], outs))
    return nodes, slots, slot
