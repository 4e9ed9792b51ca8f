"""What steps a job has, and when: of a small job from its rows, of a big one from its roll-ups.

Of a job whose old rows retention dropped, too: its roll-ups tell of them still.

Both say the same; the rows of a small job are read sooner than its many segments are summed up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from steptax.app.lake.kept import dropped
from steptax.app.views.workspace import Workspace

#: Rows of a job beyond which its roll-ups answer.
BIG_ROWS = 1_000_000
#: Fewer jobs than this are read one by one: each has folders of its own to read.
FEW_JOBS = 8
#: The same of a job that is asked about together with others: all of theirs are read at once.
LARGE_JOB_ROWS = 200_000


def is_big(ws: Workspace, job_id: str) -> bool:
    """Whether its roll-ups are to be read: for its many rows, or for those that were dropped."""
    rows = sum(segment.rows for segment in ws.lake.segments("steps", job_id))
    return rows > BIG_ROWS or dropped(ws.lake, "steps", job_id) is not None


def step_span(ws: Workspace, job_id: str) -> dict[str, Any]:
    """First and last step, ranks, rows, newest moment of a job; see the query ``step_span``."""
    rows = _asked(ws, job_id, "step_span", "history_span").to_pylist()
    return dict(rows[0])


def step_numbers(ws: Workspace, job_id: str) -> pa.Table:
    """Numbers of the steps that a job has, ascending."""
    return _asked(ws, job_id, "step_numbers", "history_numbers")


def step_summary(ws: Workspace, job_id: str) -> pa.Table:
    """Start and longest duration of every executed step of every attempt."""
    return _asked(ws, job_id, "step_summary", "history_summary")


def step_summaries(ws: Workspace, job_ids: Sequence[str]) -> dict[str, pa.Table]:
    """``step_summary`` of each of many jobs that has any; with its ``job_id`` or without."""
    if len(job_ids) < FEW_JOBS:
        return {job_id: step_summary(ws, job_id) for job_id in job_ids}
    rows = rows_of_jobs(ws)
    large = [
        job_id
        for job_id in job_ids
        if rows.get(job_id, 0) > LARGE_JOB_ROWS or dropped(ws.lake, "steps", job_id) is not None
    ]
    small = sorted({*job_ids} - {*large})
    found = by_job(ws.engine.run("fleet_step_summary", jobs=small)) if small else {}
    if large:
        found |= by_job(ws.engine.run("fleet_history_summary", jobs=large))
    return found


def rows_of_jobs(ws: Workspace, job_ids: Sequence[str] | None = None) -> dict[str, int]:
    """Rows of steps of each job that has some, of these or of all: its segments' names tell."""
    parts = [None] if job_ids is None else job_ids
    found: dict[str, int] = {}
    for segment in (s for part in parts for s in ws.lake.segments("steps", part)):
        job_id = str(segment.job_id)
        found[job_id] = found.get(job_id, 0) + segment.rows
    return found


def by_job(rows: pa.Table) -> dict[str, pa.Table]:
    """``rows``, in the order of their ``job_id``, cut into one table per job."""
    if not rows.num_rows:
        return {}
    runs = pc.run_end_encode(rows["job_id"].combine_chunks())
    ends = runs.run_ends.to_pylist()  # to_numpy would import pandas first
    starts = [0, *ends[:-1]]
    names = runs.values.to_pylist()
    return {
        str(name): rows.slice(start, end - start)
        for name, start, end in zip(names, starts, ends, strict=True)
    }


def loss_by_step(ws: Workspace, job_id: str) -> pa.Table:
    """Mean loss of every executed step of every attempt, and when it was."""
    return _asked(ws, job_id, "loss_by_step", "history_loss")


def _asked(ws: Workspace, job_id: str, of_rows: str, of_rollups: str) -> pa.Table:
    return ws.engine.run(of_rollups if is_big(ws, job_id) else of_rows, job_id=job_id)
