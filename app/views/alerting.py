"""What the jobs that run now say, for the rules of alerts."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal

from steptax.app.alerts.rules import SILENT_S, STOPPED_RANKS
from steptax.app.compute.measure import Measure
from steptax.app.views.job import job_view
from steptax.app.views.job_models import JobView
from steptax.app.views.unread import unread
from steptax.app.views.workspace import Workspace

#: A job whose newest rows are older than this does not run any more, whatever its record says.
LIVE_S = 3600.0


@dataclass(frozen=True)
class Reading:
    """What one job says at one moment. ``values`` are by metric id; a missing one says why."""

    job_id: str
    values: Mapping[str, Measure]
    sentence: str
    """What the job's card says."""
    problem: str | None = None
    """Why the job could not be read; then it has no values."""


def readings(
    ws: Workspace, *, price: Decimal | None = None, now_us: int | None = None
) -> Iterator[Reading]:
    """One reading of every job that runs: it has signs of life, or rows of the last hour."""
    now = time.time_ns() // 1000 if now_us is None else now_us
    for job_id in running_jobs(ws, now):
        try:
            view = job_view(ws, job_id, price=price, now_us=now)
        except Exception as error:  # the rules of all other jobs hold on
            yield Reading(job_id, {}, "", unread(job_id, error).reason)
            continue
        if view.header.state in (None, "running") and _is_fresh(view):
            yield _reading(view)


def running_jobs(ws: Workspace, now_us: int) -> tuple[str, ...]:
    """Jobs that may run: with signs of life, or with rows that came within the hour."""
    since_us = now_us - int(LIVE_S * 1e6)
    fresh = {
        job_id
        for commit in ws.ingests()
        if commit.created_us >= since_us
        for job_id in commit.detail.get("job_ids", ())
    }
    with_steps = ws.job_ids_with_steps()
    return tuple(sorted((fresh | set(ws.lake.live_job_ids())) & with_steps))


def _is_fresh(view: JobView) -> bool:
    age_s = view.coverage.newest_age_s
    return view.coverage.is_live or (age_s is not None and age_s < LIVE_S)


def _reading(view: JobView) -> Reading:
    age_s = view.coverage.newest_age_s
    values = dict(view.metrics) | {
        SILENT_S: Measure.missing("s", "no row has a time")
        if age_s is None
        else Measure(age_s, "s"),
        STOPPED_RANKS: Measure(float(len(view.coverage.stopped)), ""),
    }
    return Reading(view.header.job_id, values, view.card.sentence)
