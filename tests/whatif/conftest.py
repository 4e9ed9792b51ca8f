"""Made-up traces of pipeline jobs whose timing is exact by construction.

A schedule is played forward with an independent, slow event loop: operations start when their
stream and their inputs allow, transfers when both sides have posted. What comes out is a trace
whose dependencies are known, in the columns of the public artifact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from steptax.app.whatif.rows import FILE_COLUMNS, rows_from_arrow
from steptax.app.whatif.trace import JobSizes, Trace, make_trace


@dataclass
class Job:
    """A job to make up. Times in seconds."""

    dps: int = 2
    stages: int = 2
    micro: int = 4
    steps: int = 3
    forward_s: float = 0.010
    backward_s: float = 0.020
    transfer_s: float = 0.001
    spread: float = 0.0
    seed: int = 0
    slow: dict[tuple[int, int], float] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    #: Seconds that a forward pass is held up, by step (0, 1, ...), dp, stage, micro-batch.
    pauses: dict[tuple[int, int, int, int], float] = field(default_factory=dict)

    def rank(self, dp: int, stage: int) -> int:
        return stage * self.dps + dp


#: dp, stage, rank, step, type, start, duration, seq, chunk, global chunk, micro-batch
Row = tuple[int, int, int, int, str, float, float, int, int, int, int]


def schedule(stages: int, stage: int, micro: int) -> list[tuple[str, int]]:
    """One forward, one backward: warm-up, steady state, drain."""
    warm = min(micro, stages - 1 - stage)
    order = [("forward", i) for i in range(warm)]
    for i in range(micro - warm):
        order += [("forward", warm + i), ("backward", i)]
    return order + [("backward", i) for i in range(micro - warm, micro)]


Op = tuple[str, int, float, float]
"""Type, sequence number, start, end."""
Lanes = list[list[list[Op]]]
"""Operations of one step by [dp][stage]."""


def play(job: Job, rng: np.random.Generator, step: int) -> Lanes:
    """One step, in seconds from its begin."""

    def moved() -> float:
        return job.transfer_s * (1 + job.spread * float(rng.random()))

    gather = [moved() for _ in range(job.stages)]
    ops: Lanes = []
    for d in range(job.dps):
        lane: list[list[Op]] = [[] for _ in range(job.stages)]
        free = [0.0] * job.stages
        if job.dps > 1 and "params-all-gather" not in job.without:
            free = list(gather)
            for p in range(job.stages):
                lane[p].append(("params-all-gather", 0, 0.0, gather[p]))
        _passes(job, step, d, lane, free, rng, moved)
        ops.append(lane)
    _tail(job, ops, moved)
    return ops


def _passes(
    job: Job,
    step: int,
    dp: int,
    lane: list[list[Op]],
    free: list[float],
    rng: np.random.Generator,
    moved: Callable[[], float],
) -> None:
    """Forward and backward passes with their transfers; ``free`` is when each stage can go on."""
    todo = [schedule(job.stages, p, job.micro) for p in range(job.stages)]
    end: dict[tuple[str, int, int], float] = {}
    arrived: dict[tuple[str, int], float] = {}
    sent: dict[tuple[str, int], float] = {}
    while any(todo):
        before = sum(map(len, todo))
        for p in range(job.stages):
            if not todo[p]:
                continue
            kind, i = todo[p][0]
            source = p - 1 if kind == "forward" else p + 1
            begin = free[p]
            if 0 <= source < job.stages:
                if (kind, source, i) not in end:
                    continue
                # Posted when the pass before and the receive before it are through.
                posted = max(end.get((kind, p, i - 1), 0.0), arrived.get((kind, p), 0.0))
                if kind == "backward" and i == 0:
                    posted = max(posted, _second_last(lane[p]))
                ready = max(end[kind, source, i], sent.get((kind, source), 0.0))
                finish = max(ready, posted) + moved()
                lane[source].append((f"{kind}-send", i, ready, finish))
                lane[p].append((f"{kind}-recv", i, posted, finish))
                sent[kind, source] = arrived[kind, p] = finish
                begin = max(begin, finish)
            base = job.forward_s if kind == "forward" else job.backward_s
            took = base * job.slow.get((dp, p), 1.0) * (1 + job.spread * float(rng.random()))
            if kind == "forward":
                took += job.pauses.get((step, dp, p, i), 0.0)
            lane[p].append((f"{kind}-compute", i, begin, begin + took))
            end[kind, p, i] = free[p] = begin + took
            todo[p].pop(0)
        assert sum(map(len, todo)) < before, "the schedule is stuck"


def _second_last(ops: list[Op]) -> float:
    """End of the computation before the last one so far, 0 where there is none."""
    ends = [end for kind, _, _, end in ops if kind.endswith("-compute")]
    return ends[-2] if len(ends) > 1 else 0.0


def _tail(job: Job, ops: Lanes, moved: Callable[[], float]) -> None:
    """What follows the last pass: each operation ends together with those that it waits for."""
    everyone = [(d, p) for d in range(job.dps) for p in range(job.stages)]

    def free(d: int, p: int) -> float:
        return max(end for kind, _, _, end in ops[d][p] if not kind.endswith(("send", "recv")))

    def together(kind: str, workers: list[tuple[int, int]], took: float) -> None:
        starts = {w: free(*w) for w in workers}
        finish = max(starts.values()) + took
        for (d, p), start in starts.items():
            ops[d][p].append((kind, 0, start, finish))

    def add(kind: str, groups: list[list[tuple[int, int]]], took: Callable[[], float]) -> None:
        if kind not in job.without:
            for workers in groups:
                together(kind, workers, took())

    ends = sorted({0, job.stages - 1})
    alone = [[w] for w in everyone]
    add("gc", alone, lambda: 0.0)
    add("layernorm-grads-all-reduce", alone, lambda: 1e-4)
    add("embedding-grads-all-reduce", [[(d, p) for p in ends] for d in range(job.dps)], moved)
    if job.dps > 1:
        by_stage = [[(d, p) for d in range(job.dps)] for p in range(job.stages)]
        add("grads-reduce-scatter", by_stage, moved)
    add("optimizer-clip-main-grad", [everyone], lambda: 1e-4)
    add("optimizer", alone, lambda: 0.002)


def rows_of(job: Job) -> list[Row]:
    """All rows of ``job``."""
    rng = np.random.default_rng(job.seed)
    out: list[Row] = []
    for step in range(job.steps):
        ops = play(job, rng, step)
        for d in range(job.dps):
            for p in range(job.stages):
                for kind, seq, start, end in ops[d][p]:
                    passes = kind.startswith(("forward", "backward"))
                    chunked = passes or kind in ("params-all-gather", "grads-reduce-scatter")
                    out.append(
                        (
                            d,
                            p,
                            job.rank(d, p),
                            10 + 3 * step,
                            kind,
                            start,
                            end - start,
                            seq,
                            0 if chunked else -1,
                            p if passes else -1,
                            seq if passes else -1,
                        )
                    )
    return out


def file_table(rows: list[Row]) -> pa.Table:
    """As in the public artifact, times in seconds as float64."""
    dp, stage, rank, step, kind, start, duration, seq, chunk, whole, micro = zip(*rows, strict=True)
    return pa.table(
        {
            "dp_rank": pa.array(dp, pa.int16()),
            "stage": pa.array(stage, pa.int8()),
            "rank": pa.array(rank, pa.int32()),
            "step": pa.array(step, pa.int64()),
            "optype": pa.array(kind).dictionary_encode(),
            "start_ts": pa.array(start, pa.float64()),
            "duration": pa.array(duration, pa.float64()),
            "seq_id": pa.array(seq, pa.int32()),
            "mc": pa.array(chunk, pa.int8()),
            "gmc": pa.array(whole, pa.int16()),
            "mb_id": pa.array(micro, pa.int16()),
        }
    )


def lake_table(rows: list[Row], epoch_ns: int = 0) -> pa.Table:
    """As rows of the ``ops`` table; steps begin ten seconds apart from ``epoch_ns`` on."""
    dp, stage, rank, step, kind, start, duration, seq, chunk, whole, micro = zip(*rows, strict=True)

    def none_below(values: tuple[int, ...]) -> pa.Array:
        return pa.array([v if v >= 0 else None for v in values], pa.int32())

    begin = [
        epoch_ns + s * 10**10 * bool(epoch_ns) + round(t * 1e9)
        for s, t in zip(step, start, strict=True)
    ]
    return pa.table(
        {
            "job_id": pa.array(["made-up"] * len(rows)),
            "step": pa.array(step, pa.int64()),
            "rank": pa.array(rank, pa.int32()),
            "op_id": pa.array(range(len(rows)), pa.int64()),
            "op_type": pa.array(kind),
            "stream": pa.nulls(len(rows), pa.string()),
            "name": pa.nulls(len(rows), pa.string()),
            "dp": pa.array(dp, pa.int32()),
            "pp": pa.array(stage, pa.int32()),
            "micro_batch": none_below(micro),
            "model_chunk": none_below(chunk),
            "global_chunk": none_below(whole),
            "seq": pa.array(seq, pa.int64()),
            "start_ns": pa.array(begin, pa.int64()),
            "duration_ns": pa.array([round(x * 1e9) for x in duration], pa.int64()),
        }
    )


def file_rows(rows: list[Row]) -> Trace:
    """The trace of ``rows``, as read from a file."""
    return trace_of(file_table(rows))


def trace_of(table: pa.Table, **options: Any) -> Trace:
    """The trace of a table with the columns of the public artifact."""
    return make_trace(rows_from_arrow(table, FILE_COLUMNS, unit="s", required=True, **options))


@pytest.fixture(scope="session")
def made_up() -> SimpleNamespace:
    """Made-up jobs: ``Job``, ``rows_of``, ``file_table``, ``lake_table``, ``trace_of``."""
    return SimpleNamespace(
        Job=Job,
        JobSizes=JobSizes,
        rows_of=rows_of,
        file_table=file_table,
        lake_table=lake_table,
        trace=lambda job: file_rows(rows_of(job)),
        trace_of=trace_of,
    )
