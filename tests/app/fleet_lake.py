"""Small fleets in a lake of the test's own."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from steptax.app.compute.bill.apportion import to_us
from steptax.app.lake import Lake
from steptax.app.views.workspace import Workspace, open_workspace

S = 1_000_000
HOUR = 3600 * S
RANKS = 4


def us(*moment: int) -> int:
    """A moment in UTC."""
    return to_us(datetime(*moment, tzinfo=UTC))  # type: ignore[misc, arg-type]


def rows(records: Sequence[dict[str, Any]]) -> pa.Table:
    """Records that need not have the same fields."""
    names = list(dict.fromkeys(name for record in records for name in record))
    return pa.Table.from_pylist([{name: r.get(name) for name in names} for r in records])


def job(job_id: str, start: int | None, end: int | None, **more: Any) -> dict[str, Any]:
    """A row of the jobs table."""
    return {
        "job_id": job_id,
        "state": "completed",
        "world_size": RANKS,
        "start_us": start,
        "end_us": end,
    } | more


def event(
    job_id: str, kind: str, start: int, end: int | None = None, attempt: int = 0
) -> dict[str, Any]:
    """A row of the events table."""
    return {"job_id": job_id, "attempt": attempt, "kind": kind, "start_us": start, "end_us": end}


def steps(
    job_id: str,
    start: int,
    count: int,
    *,
    length: int = 60 * S,
    attempt: int = 0,
    first: int = 0,
    slow_us: int = 0,
    **phases: int,
) -> list[dict[str, Any]]:
    """Steps one behind the other; rank 0 computes ``slow_us`` longer and waits less for it."""
    parts = {"compute_us": length * 6 // 10, "comm_us": length * 3 // 10} | phases
    return [
        {
            "job_id": job_id,
            "attempt": attempt,
            "step": first + i,
            "rank": rank,
            "start_us": start + i * length,
            "duration_us": length,
            **parts,
            "compute_us": parts["compute_us"] + (slow_us if rank == 0 else 0),
            "comm_us": parts["comm_us"] - (slow_us if rank == 0 else 0),
        }
        for i in range(count)
        for rank in range(RANKS)
    ]


def charge(line: str, start: int, end: int, cost: str, resource: str | None, **more: Any) -> Any:
    """A row of the charges table."""
    return {
        "provider": "p",
        "invoice": "2026",
        "line": line,
        "charge_start_us": start,
        "charge_end_us": end,
        "effective_cost": Decimal(cost),
        "billed_cost": Decimal(cost),
        "currency": "USD",
        "resource_id": resource,
    } | more


def on(job_id: str, *hosts: str) -> list[dict[str, Any]]:
    """Rows of the ranks table: as many ranks on each of the hosts."""
    share = RANKS // len(hosts)
    return [{"job_id": job_id, "rank": r, "host": hosts[r // share]} for r in range(RANKS)]


def lake_of(root: Path, **tables: Sequence[dict[str, Any]]) -> Workspace:
    """A lake with these rows, opened."""
    lake = Lake(root, create=True)
    for name, records in tables.items():
        if records:
            lake.append(name, rows(records), source="test")
    return open_workspace(root)
