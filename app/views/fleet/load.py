"""The steps of many jobs: small ones together, a few queries for all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from steptax.app.errors import NotFoundError
from steptax.app.queries.arrays import arrays_of
from steptax.app.views.job.extent import FEW_JOBS, LARGE_JOB_ROWS, by_job, rows_of_jobs
from steptax.app.views.job.load import LoadedJob, from_rows, load_job
from steptax.app.views.models import Window
from steptax.app.views.workspace import Workspace

#: Rank rows that one query for several jobs may return.
BATCH_ROWS = 1_000_000


def load_jobs(ws: Workspace, jobs: Sequence[dict[str, Any]]) -> Iterator[tuple[int, LoadedJob]]:
    """All steps of each of ``jobs`` (rows of ``ws.jobs()``), with its place in ``jobs``.

    They come in no particular order, and jobs without steps are left out. What was handed over is
    not kept, so that matrices of a large fleet need not fit into memory together.
    """
    left = list(range(len(jobs)))
    if len(jobs) >= FEW_JOBS:
        rows = rows_of_jobs(ws)
        small = [k for k in left if 0 < rows.get(jobs[k]["job_id"], 0) <= LARGE_JOB_ROWS]
        if len(small) >= FEW_JOBS:
            left = sorted(set(left) - set(small))
            yield from _load_small(ws, jobs, small)
    for k in left:
        try:
            yield k, load_job(ws, jobs[k], last_steps=None)
        except NotFoundError:  # its folder is there, its first segment not yet
            continue


def _load_small(
    ws: Workspace,
    jobs: Sequence[dict[str, Any]],
    small: Sequence[int],
) -> Iterator[tuple[int, LoadedJob]]:
    wanted = {jobs[k]["job_id"]: k for k in small}
    told = ws.engine.run("fleet_step_spans", jobs=wanted)
    spans = {row["job_id"]: row for row in told.to_pylist()}
    rows = ws.engine.run("fleet_places", jobs=wanted).to_pylist()
    places = {
        job_id: {row["rank"]: {k: v for k, v in row.items() if k != "job_id"} for row in own}
        for job_id, own in groupby(rows, lambda row: row["job_id"])
    }
    for batch in _batches(spans):
        found = ws.engine.run("fleet_step_rows", first_job=batch[0], last_job=batch[-1], jobs=batch)
        for job_id, own in by_job(found).items():
            place, span = wanted[job_id], spans[job_id]
            first, last = int(span["first_step"]), int(span["last_step"])
            window = Window(first, last, first, last)
            cells = arrays_of(own.drop_columns("job_id"))
            yield place, from_rows(jobs[place], cells, places.get(job_id, {}), span, window)


def _batches(spans: Mapping[str, dict[str, Any]]) -> Iterator[list[str]]:
    """Jobs in their order, so many that their rows fit into memory together."""
    batch: list[str] = []
    held = 0
    for job_id in sorted(spans):
        rows = int(spans[job_id]["row_count"])
        if batch and held + rows > BATCH_ROWS:
            yield batch
            batch, held = [], 0
        batch.append(job_id)
        held += rows
    if batch:
        yield batch
