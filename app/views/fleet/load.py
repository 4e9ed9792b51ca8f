"""The steps of many jobs: small ones together, a few queries for all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from steptax.app.errors import NotFoundError
from steptax.app.views.job.load import LoadedJob, from_rows, load_job
from steptax.app.views.models import Window
from steptax.app.views.workspace import Workspace

#: Fewer jobs than this are loaded one by one: each has folders of its own to read.
FEW_JOBS = 8
#: Rank rows of a job that is loaded alone: one query costs little beside as many rows.
LARGE_JOB_ROWS = 200_000
#: Rank rows that one query for several jobs may return.
BATCH_ROWS = 1_000_000


def load_jobs(ws: Workspace, jobs: Sequence[dict[str, Any]]) -> Iterator[tuple[int, LoadedJob]]:
    """All steps of each of ``jobs`` (rows of ``ws.jobs()``), with its place in ``jobs``.

    They come in no particular order, and jobs without steps are left out. What was handed over is
    not kept, so that matrices of a large fleet need not fit into memory together.
    """
    left = list(range(len(jobs)))
    if len(jobs) >= FEW_JOBS:
        spans = {row["job_id"]: row for row in ws.engine.run("fleet_step_spans").to_pylist()}
        small = [
            k
            for k in left
            if 0 < spans.get(jobs[k]["job_id"], {}).get("row_count", 0) <= LARGE_JOB_ROWS
        ]
        if len(small) >= FEW_JOBS:
            left = sorted(set(left) - set(small))
            yield from _load_small(ws, jobs, small, spans)
    for k in left:
        try:
            yield k, load_job(ws, jobs[k], last_steps=None)
        except NotFoundError:  # its folder is there, its first segment not yet
            continue


def _load_small(
    ws: Workspace,
    jobs: Sequence[dict[str, Any]],
    small: Sequence[int],
    spans: Mapping[str, dict[str, Any]],
) -> Iterator[tuple[int, LoadedJob]]:
    wanted = {jobs[k]["job_id"]: k for k in small}
    rows = ws.engine.run("fleet_places").to_pylist()
    places = {
        job_id: {row["rank"]: {k: v for k, v in row.items() if k != "job_id"} for row in own}
        for job_id, own in groupby(rows, lambda row: row["job_id"])
        if job_id in wanted
    }
    for batch in _batches(wanted, spans):
        found = ws.engine.run("fleet_step_rows", first_job=batch[0], last_job=batch[-1])
        for job_id, own in by_job(found).items():
            if job_id in wanted:
                place, span = wanted[job_id], spans[job_id]
                first, last = int(span["first_step"]), int(span["last_step"])
                window = Window(first, last, first, last)
                yield place, from_rows(jobs[place], own, places.get(job_id, {}), span, window)


def _batches(wanted: Mapping[str, int], spans: Mapping[str, dict[str, Any]]) -> Iterator[list[str]]:
    """Wanted jobs that follow each other closely: what lies between them is read with them."""
    batch: list[str] = []
    held = 0
    for job_id in sorted(spans):
        rows = int(spans[job_id]["row_count"])
        if batch and held + rows > BATCH_ROWS:
            yield batch
            batch, held = [], 0
        if job_id in wanted:
            batch.append(job_id)
        if batch:
            held += rows
    if batch:
        yield batch


def by_job(rows: pa.Table) -> dict[str, pa.Table]:
    """``rows``, in the order of their ``job_id``, cut into one table per job."""
    if not rows.num_rows:
        return {}
    runs = pc.run_end_encode(rows["job_id"].combine_chunks())
    ends = runs.run_ends.to_numpy()
    starts = np.append(0, ends[:-1])
    names = runs.values.to_pylist()
    return {
        str(name): rows.slice(int(start), int(end - start))
        for name, start, end in zip(names, starts, ends, strict=True)
    }
