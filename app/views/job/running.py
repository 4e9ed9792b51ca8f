"""Which jobs run now: whose numbers change by the second, so that older ones may be told first."""

from __future__ import annotations

import time

from steptax.app.views.job.liveness import goes_on, has_ended, newest_beat
from steptax.app.views.workspace import Workspace


def is_running(ws: Workspace, job_id: str) -> bool:
    """Whether a job runs now, as its recorders say; none does that is not there."""
    job = next((row for row in ws.jobs() if row["job_id"] == job_id), None)
    if job is None or has_ended(job):
        return False
    return goes_on(job, newest_beat(ws.lake.heartbeats(job_id)), time.time_ns() // 1000)


def something_runs(ws: Workspace) -> bool:
    """Whether any job that the reader may see runs now."""
    live = set(ws.lake.live_job_ids())
    known = (str(job["job_id"]) for job in ws.jobs()) if live else ()
    return any(is_running(ws, job_id) for job_id in known if job_id in live)
