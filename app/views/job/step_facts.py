"""What the steps of each job of a lake say: looked up where it is known, else worked out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any

import numpy as np

from steptax.app.compute.bill.ledger import Ledger, LedgerRow
from steptax.app.compute.fleet.slow import Episode, SlowFact
from steptax.app.compute.measure import Level, Measure, Ratio
from steptax.app.compute.straggler.arrival import Basis, BasisChoice
from steptax.app.views.far import come
from steptax.app.views.fleet.jobs import job_bills
from steptax.app.views.job.causes import build_diagnosis
from steptax.app.views.job.jobs import Analysed, analyse_jobs, steps_of
from steptax.app.views.job.unread import Unread, unread
from steptax.app.views.kept import NewestOfEach
from steptax.app.views.review.executive_models import JobSummary
from steptax.app.views.review.facts import StepFacts, step_facts
from steptax.app.views.stored import Stored, job_versions, record_text, to_store
from steptax.app.views.stored_codec import Codec
from steptax.app.views.workspace import Workspace

#: Jobs whose steps are in memory together.
_TOGETHER = 64
#: Jobs with steps that are kept: what is kept of each is small.
KEPT = 20_000
_ROWS = ("steps", "ops", "ranks", "printed_metrics", "reported_scores", "link_probes")
_FACTS = (StepFacts, JobSummary, Ledger, LedgerRow, BasisChoice, Basis, SlowFact, Episode)

_stored: Stored[StepFacts] = Stored("steps", Codec(*_FACTS, Measure, Ratio, Level))
_cache = NewestOfEach[StepFacts](KEPT)
_failed: dict[tuple[str, str], Unread] = {}
"""By lake and job why it could not be analysed."""
_lock = Lock()


def facts_of(ws: Workspace, jobs: Sequence[dict[str, Any]]) -> dict[str, StepFacts]:
    """By job the facts of those of ``jobs``, rows of ``ws.jobs()``, that have steps.

    A job is looked at once per version of its data; what is known of one that has ended, or that
    is large, is stored.
    """
    with_steps = ws.job_ids_with_steps()
    asked = [job for job in jobs if job["job_id"] in with_steps]
    keys = _keys(ws, asked)
    found = {
        name: known
        for name, key in keys.items()
        if (known := _cache.find((ws.key, name), key)) is not None
    }
    missing = [job for job in asked if job["job_id"] not in found]
    failed: dict[str, Unread] = {}
    wanted = {job["job_id"]: keys[job["job_id"]] for job in to_store(ws, missing)}
    new = _stored.find(ws, wanted)
    missing = [job for job in missing if job["job_id"] not in new]
    for first in range(0, len(missing), _TOGETHER):
        come(first, len(missing))
        part = missing[first : first + _TOGETHER]
        analysed = analyse_jobs(ws, part)
        job_bills(ws, part, steps_of(analysed))  # while the steps are in memory
        made = {}
        for place, (job, one) in enumerate(zip(part, analysed, strict=True), start=first):
            come(place, len(missing))
            name = str(job["job_id"])
            told = _told(ws, job, one)
            if isinstance(one, Analysed) and isinstance(told, StepFacts):
                made[name] = one, told
            elif isinstance(told, Unread):
                failed[name] = told
        new |= {name: facts for name, (_, facts) in made.items()}
        kept = {
            name: (keys[name], facts)
            for name, (one, facts) in made.items()
            if name in wanted and _inside(one)
        }
        _stored.keep(ws, kept)
    for name, facts in new.items():
        _cache.keep((ws.key, name), keys[name], facts)
    with _lock:
        for job in asked:
            _failed.pop((ws.key, job["job_id"]), None)
        for name, why in failed.items():
            _failed[ws.key, name] = why
    found |= new
    return found


def unread_jobs(ws: Workspace) -> dict[str, str]:
    """By job why its steps could not be analysed when they were last looked at."""
    with _lock:
        return {name: why.reason for (key, name), why in _failed.items() if key == ws.key}


def _told(
    ws: Workspace, job: dict[str, Any], one: Analysed | Unread | None
) -> StepFacts | Unread | None:
    """The facts of one job, or why there are none; None without steps."""
    if not isinstance(one, Analysed):
        return one
    try:
        return step_facts(job, one, build_diagnosis(ws, one.loaded, one.result))
    except Exception as error:  # a fault in one job must not hide all others
        return unread(job["job_id"], error)


def _keys(ws: Workspace, jobs: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """By job what its facts rest on: its record, its rows and the samples of its devices."""
    versions = [job_versions(ws.lake, name) for name in _ROWS]
    sampled = bool(ws.lake.segments("device_samples"))
    found = {}
    for job in jobs:
        name = str(job["job_id"])
        devices = _samples(ws, job) if sampled else ""
        told = [record_text(job), *(version(name) for version in versions), devices]
        found[name] = "-".join(told)
    return found


def _samples(ws: Workspace, job: Mapping[str, Any]) -> str:
    """The segments of samples of the time that the job's record states."""
    start, end = job.get("start_us"), job.get("end_us")
    found = ws.lake.segments("device_samples", first_step=start, last_step=end)
    return ",".join(segment.path.name for segment in found)


def _inside(analysed: Analysed) -> bool:
    """Whether no step lies outside of the time of the record, whose samples a key holds.

    A record that does not say when the job began, or ended, leaves out no samples there.
    """
    job, matrix = analysed.loaded.job, analysed.loaded.matrix
    start, end = job.get("start_us"), job.get("end_us")
    if matrix.start_us is None or np.isnan(matrix.start_us).all():
        return True
    first = float(np.nanmin(matrix.start_us))
    last = float(np.nanmax(matrix.start_us + matrix.duration_us))
    return (start is None or start <= first) and (end is None or last <= end)
