"""Collectives of a job: who comes last, who holds up a hang, and what bandwidth there is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from steptax.app.compute.collectives.arrivals import CollectiveArrivals, collective_arrivals
from steptax.app.compute.collectives.calls import ALL_RANKS, Call, GroupState, Scope, group_names
from steptax.app.compute.collectives.recorded_bandwidth import (
    BenchRow,
    BenchSweep,
    SizeBandwidth,
    bandwidth_by_size,
    bench_sweeps,
    shares_of_best,
)
from steptax.app.compute.hang.holders import Hang, find_hang
from steptax.app.compute.measure import Measure
from steptax.app.errors import NotFoundError
from steptax.app.views.workspace import Workspace

#: Operations on a rank that one view loads; beyond it the oldest are left out, and it says so.
MAX_ROWS = 500_000


@dataclass(frozen=True)
class CollectivesView:
    """What is known of a job's collectives."""

    job_id: str
    names: Mapping[str, str]
    """What to call each communicator."""
    places: Mapping[tuple[str, int], str]
    """Where a rank runs, by communicator and rank."""
    arrivals: tuple[CollectiveArrivals, ...]
    bandwidth: tuple[SizeBandwidth, ...]
    shares_of_best: tuple[Measure, ...]
    """Bandwidth over the best of the same communicator, for each of ``bandwidth``."""
    hang: Hang
    sweeps: tuple[BenchSweep, ...]
    gauges: tuple[dict[str, Any], ...]
    """Figures of devices by size bucket, as NCCL Inspector exports them."""
    operations: int
    warnings: tuple[str, ...]

    def place(self, comm_id: str, rank: int) -> str | None:
        """Where a rank runs, where that is known."""
        return self.places.get((comm_id, rank))


def collectives_view(ws: Workspace, job_id: str) -> CollectivesView:
    """Everything that the lake has on the collectives of ``job_id``.

    Raises NotFoundError when it has nothing.
    """
    rows = ws.engine.run("collective_rows", job_id=job_id, limit_rows=MAX_ROWS + 1)
    told = ws.engine.run("communicator_rows", job_id=job_id).to_pylist()
    bench = ws.engine.run("bench_rows", job_id=job_id).to_pylist()
    if not (rows.num_rows or told or bench):
        raise _nothing(ws, job_id)
    warnings = []
    if rows.num_rows > MAX_ROWS:
        rows = rows.slice(0, MAX_ROWS)
        warnings.append(f"only the newest {MAX_ROWS:,} operations on ranks are used")
    calls = _calls(rows.to_pydict())
    globals_ = _global_ranks(ws, job_id)
    states = [_state(row, globals_) for row in told]
    arrivals = tuple(collective_arrivals(calls))
    if calls and not arrivals:
        warnings.append("only sends and receives are recorded: they have no common start")
    hang = find_hang(states, calls)
    bandwidth = tuple(bandwidth_by_size(calls))
    sweeps = tuple(bench_sweeps([_bench(row) for row in bench]))
    return CollectivesView(
        job_id,
        group_names(states),
        {(s.comm_id, s.rank): s.place for s in states if s.place},
        arrivals,
        bandwidth,
        tuple(shares_of_best(bandwidth)),
        hang,
        sweeps,
        tuple(row for row in bench if row["test"].startswith("inspector ")),
        len(calls),
        tuple(warnings),
    )


def _nothing(ws: Workspace, job_id: str) -> NotFoundError:
    runs = ws.engine.run("bench_runs")["run_id"].to_pylist()
    known = sorted({*ws.lake.job_ids("collectives"), *ws.lake.job_ids("communicators"), *runs})
    listed = f"they are there for {', '.join(known[:5])}" if known else "they are there for no job"
    return NotFoundError(
        f"there are no collectives of job {job_id!r} in this lake",
        where=ws.place,
        hint=f"{listed}; import some: steptax ingest flight-recorder FOLDER --job {job_id}",
    )


def _calls(columns: dict[str, list[Any]]) -> list[Call]:
    names = (
        *("comm_id", "op", "seq", "rank", "rank_scope", "dtype", "shape", "bytes", "n_ranks"),
        *("enqueued_us", "duration_us"),
    )
    return [
        Call(comm, op, seq, rank, Scope(scope or "global"), *rest)
        for comm, op, seq, rank, scope, *rest in zip(*(columns[n] for n in names), strict=True)
    ]


def _global_ranks(ws: Workspace, job_id: str) -> dict[tuple[str, int], int]:
    """Global rank by host and process, where the job's ranks are known."""
    rows = ws.engine.run("rank_places", job_id=job_id).to_pylist()
    return {
        (row["host"], row["pid"]): row["rank"]
        for row in rows
        if row["host"] is not None and row["pid"] is not None
    }


def _state(row: dict[str, Any], globals_: dict[tuple[str, int], int]) -> GroupState:
    members = row["members"]
    return GroupState(
        row["comm_id"],
        row["rank"],
        Scope(row["rank_scope"] or "global"),
        row["name"],
        frozenset(map(int, members.split(","))) if members else None,
        row["n_ranks"],
        row["last_enqueued"],
        row["last_completed"],
        json.loads(row["op_counts"]) if row["op_counts"] else {},
        row["state"],
        _place(row, globals_),
    )


def _place(row: dict[str, Any], globals_: dict[tuple[str, int], int]) -> str | None:
    known = globals_.get((row["host"], row["pid"]))
    parts = [
        None if known is None or row["rank"] == ALL_RANKS else f"global rank {known}",
        row["host"],
        None if row["pid"] is None else f"process {row['pid']}",
        None if row["device"] is None else f"GPU {row['device']}",
    ]
    return ", ".join(part for part in parts if part) or None


def _bench(row: dict[str, Any]) -> BenchRow:
    return BenchRow(
        row["run_id"],
        row["test"],
        row["size"],
        row["dtype"],
        row["value"],
        row["ranks"],
        row["nodes"],
        row["wrong"],
    )
