"""Edges inside one stage: streams, matching of transfers to computing, and the step's tail."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from steptax.app.whatif.errors import GraphError
from steptax.app.whatif.optypes import (
    ALL_GATHER,
    BACKWARD,
    BACKWARD_RECV,
    BACKWARD_SEND,
    CLIP,
    COMPUTE,
    EMBEDDING_ALL_REDUCE,
    FORWARD,
    FORWARD_RECV,
    FORWARD_SEND,
    GC,
    KNOWN,
    LAYERNORM_ALL_REDUCE,
    OPTIMIZER,
    P2P,
    REDUCE_SCATTER,
    SEPARATE_ALL_REDUCE,
)
from steptax.app.whatif.template import Template

Preds = list[list[int]]


@dataclass
class StageEdges:
    """What is known of one stage besides its predecessor lists.

    ``compute`` is its compute stream in order; ``live`` are the transfers with a peer, by type;
    ``alone`` those without; ``finish`` the operation that ends the step here.
    """

    compute: list[int]
    finish: int = -1
    live: dict[str, list[int]] = field(default_factory=dict)
    alone: list[int] = field(default_factory=list)


def stage_edges(t: Template, stage: int, preds: Preds) -> StageEdges:
    """Enter the edges of ``stage`` into ``preds``. GraphError names what does not fit."""
    for kind in COMPUTE:
        if not t.of(stage, kind):
            raise GraphError(f"stage {stage} has no {kind}", where=f"stage {stage}")
    own = _ordered(t, t.of(stage, FORWARD) + t.of(stage, BACKWARD))
    tail, early = _tail(t, stage, own[-1])
    extras = [op for kind in t.trace.types if kind not in KNOWN for op in t.of(stage, kind)]
    chain, extras = _into_tail(t, tail, extras)
    stream = _ordered(t, own + extras + early)
    edges = StageEdges(stream)
    _chain(preds, stream)
    for kind in P2P:
        _chain(preds, t.of(stage, kind))
        edges.live[kind] = []
    for compute, recv, send in (
        (FORWARD, FORWARD_RECV, FORWARD_SEND),
        (BACKWARD, BACKWARD_RECV, BACKWARD_SEND),
    ):
        _match(t, stage, compute, recv, preds, edges)
        _match(t, stage, compute, send, preds, edges)
    _first_backward(t, stage, own, preds)
    if t.use_dp:
        _dp_stream(t, stage, preds)
    last = _latest(stream, t.end_s)
    if chain:
        preds[chain[0]].append(last)
        _chain(preds, chain)
        _overlapped_scatter(t, stage, chain, preds)
    optimizer = t.of(stage, OPTIMIZER)
    edges.finish = optimizer[-1] if optimizer else chain[-1] if chain else last
    return edges


def _ordered(t: Template, ops: Iterable[int]) -> list[int]:
    return sorted(ops, key=t.position.__getitem__)


def _latest(ops: Iterable[int], value: list[float]) -> int:
    """The operation of largest value; the earlier one where two are equal."""
    return max(ops, key=value.__getitem__)


def _chain(preds: Preds, ops: list[int]) -> None:
    for before, after in pairwise(ops):
        preds[after].append(before)


def _match(
    t: Template, stage: int, compute: str, kind: str, preds: Preds, edges: StageEdges
) -> None:
    """Tie each transfer of one type to the computation that makes or takes its data."""
    trace = t.trace
    ops = t.of(stage, kind)
    computes = t.of(stage, compute)
    receives = kind in (FORWARD_RECV, BACKWARD_RECV)
    if receives:
        latest = max(t.start_s[c] for c in computes) + t.tolerance_s
        live = [op for op in ops if t.start_s[op] <= latest]
    else:
        earliest = min(t.end_s[c] for c in computes) - t.tolerance_s
        live = [op for op in ops if t.end_s[op] >= earliest]
    n, c = len(computes), len(live)
    edge = stage in (0, trace.stages - 1)
    if c != n and not (edge and c in (0, n - 1)):
        raise GraphError(
            f"{c} {kind} belong to the {n} {compute} of stage {stage}, expected {n}"
            + (f", {n - 1} or none" if edge else ""),
            where=f"{t.where(computes[0])}, {kind}",
            hint="an operation is missing, or its times do not fit the others",
        )
    by_seq = {int(trace.op_seq[op]): op for op in computes}
    lead = 1 if receives and c == n - 1 else 0
    peer = 1 if kind in (FORWARD_SEND, BACKWARD_RECV) else -1
    virtual = trace.chunks * trace.stages
    alive = set(live)
    edges.alone += [op for op in ops if op not in alive]
    for k, op in enumerate(live):
        mate = by_seq.get(k + lead)
        if mate is None:
            raise GraphError(
                f"no {compute} {k + lead} on stage {stage}", where=f"{t.where(op)}, {kind} {k}"
            )
        if receives:
            preds[mate].append(op)
            before = by_seq.get(k + lead - 1)
            if before is not None:
                preds[op].append(before)
        else:
            preds[op].append(mate)
        if 0 <= int(trace.op_global[mate]) + peer < virtual:
            edges.live[kind].append(op)
        else:
            edges.alone.append(op)


def _first_backward(t: Template, stage: int, stream: list[int], preds: Preds) -> None:
    """The first backward's transfers are posted while the computing before it still runs."""
    backward = set(t.of(stage, BACKWARD))
    first = next(i for i, op in enumerate(stream) if op in backward)
    if first < 2:
        return
    for kind in (BACKWARD_RECV, BACKWARD_SEND):
        for op in t.of(stage, kind):
            if t.trace.op_seq[op] == 0:
                preds[op].append(stream[first - 2])


def _dp_stream(t: Template, stage: int, preds: Preds) -> None:
    trace = t.trace
    gathers, scatters = t.of(stage, ALL_GATHER), t.of(stage, REDUCE_SCATTER)
    _chain(preds, _ordered(t, gathers + scatters))
    for chunk in range(trace.chunks):
        last = [op for op in gathers if trace.op_chunk[op] == chunk]
        forward = [op for op in t.of(stage, FORWARD) if trace.op_chunk[op] == chunk]
        if last and forward:
            first = min(forward, key=t.start_s.__getitem__)
            preds[first].append(max(last, key=trace.op_seq.__getitem__))
        first_scatter = [op for op in scatters if trace.op_chunk[op] == chunk]
        backward = [op for op in t.of(stage, BACKWARD) if trace.op_chunk[op] == chunk]
        if t.overlap and first_scatter and backward:
            head = min(first_scatter, key=trace.op_seq.__getitem__)
            preds[head].append(_latest(backward, t.end_s))


def _tail(t: Template, stage: int, last_compute: int) -> tuple[list[int], list[int]]:
    """What follows the last micro-batch, in the order in which it must happen.

    Also garbage collections before that, which hold up the computing itself.
    """

    def all_of(kind: str) -> list[int]:
        return sorted(t.of(stage, kind), key=t.trace.op_seq.__getitem__)

    gc = all_of(GC)
    early = [op for op in gc if t.start_s[op] < t.start_s[last_compute]]
    chain = [op for op in gc if op not in early]
    chain += all_of(LAYERNORM_ALL_REDUCE) + all_of(EMBEDDING_ALL_REDUCE)
    if t.use_dp:
        chain += all_of(SEPARATE_ALL_REDUCE if t.overlap else REDUCE_SCATTER)
    return chain + all_of(CLIP) + all_of(OPTIMIZER), early


def _into_tail(t: Template, tail: list[int], extras: list[int]) -> tuple[list[int], list[int]]:
    """Put unknown operations that start after the tail has begun into it; the rest comes back."""
    chain, stay = list(tail), []
    for op in _ordered(t, extras):
        at = sum(1 for other in chain if t.start_s[other] <= t.start_s[op])
        if chain and t.start_s[chain[0]] <= t.start_s[op]:
            chain.insert(at, op)
        else:
            stay.append(op)
    return chain, stay


def _overlapped_scatter(t: Template, stage: int, chain: list[int], preds: Preds) -> None:
    """With overlap the tail also waits for the last gradient scatter, right after gc."""
    scatters = t.of(stage, REDUCE_SCATTER)
    if not (t.use_dp and t.overlap and scatters):
        return
    gc = set(t.of(stage, GC))
    head = next((op for op in chain if op not in gc), None)
    if head is not None:
        preds[head].append(max(scatters, key=t.trace.op_seq.__getitem__))
