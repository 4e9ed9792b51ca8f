"""Every job in a line: what it cost, what of it could come back, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from typing import Any

import numpy as np

from steptax.app.compute.bill.ledger import Ledger, step_ledger
from steptax.app.compute.measure import Level, Measure, Ratio
from steptax.app.compute.straggler.analysis import analyse_stragglers
from steptax.app.compute.straggler.result import StragglerResult
from steptax.app.compute.straggler.steps import without_inconsistent
from steptax.app.views.bill.ledger import ledger_lines
from steptax.app.views.fleet.load import load_jobs
from steptax.app.views.fleet.record_bills import NO_DEVICES, JobBill
from steptax.app.views.job.card import dominant_loss
from steptax.app.views.job.links import with_links
from steptax.app.views.job.load import LoadedJob, load_job
from steptax.app.views.job.metrics import job_metrics
from steptax.app.views.job.unread import Unread, unread
from steptax.app.views.kept import NewestOfEach
from steptax.app.views.pricing.given import dollars, price_view
from steptax.app.views.review.executive_models import JobSummary
from steptax.app.views.workspace import Workspace

NO_STEPS = "no per-rank steps are stored for this job"
_NO_TAX = Ratio.missing("ratio", NO_STEPS, level=Level.LOG)
_NO_HOURS_BACK = Measure.missing("GPU-hours", NO_STEPS, level=Level.LOG)
_NO_DOLLARS_BACK = Measure.missing("USD", NO_STEPS, level=Level.LOG)
#: Analyses kept: a finished job is analysed once, not at every look.
KEPT_ANALYSES = 500
#: Of their matrices at most so much: a thousand ranks over a day of steps are hundreds of MB.
KEPT_BYTES = 256 << 20


@dataclass(frozen=True)
class Analysed:
    """A job with steps, analysed over all of them."""

    loaded: LoadedJob
    result: StragglerResult
    ledger: Ledger


def _weight(one: Analysed) -> int:
    """Bytes of the matrices that an analysis holds."""
    matrix = one.loaded.matrix
    values = [getattr(matrix, column.name) for column in fields(matrix)]
    return sum(v.nbytes for v in (*values, *matrix.phases.values()) if isinstance(v, np.ndarray))


_cache = NewestOfEach[Analysed](KEPT_ANALYSES, weigh=_weight, most_bytes=KEPT_BYTES)


def analyse_job(ws: Workspace, job: dict[str, Any]) -> Analysed:
    """Analyse all steps of a job, without money; NotFoundError when it has none.

    Kept by data version, so a job that does not grow is analysed once per process.
    """
    key, version = _key(ws, job)
    known = _cache.find(key, version)
    if known is not None:
        return known
    return _keep(ws, (key, version), load_job(ws, job, last_steps=None))


def analyse_jobs(ws: Workspace, jobs: Sequence[dict[str, Any]]) -> list[Analysed | Unread | None]:
    """One analysis per row of ``jobs``, or why there is none; None for a job without steps."""
    with_steps = ws.job_ids_with_steps()
    found: list[Analysed | Unread | None] = [None] * len(jobs)
    places, keys = [], []
    for place, job in enumerate(jobs):
        if job["job_id"] not in with_steps:
            continue
        key = _key(ws, job)
        found[place] = _cache.find(*key)
        if found[place] is None:
            places.append(place)
            keys.append(key)
    for k, loaded in load_jobs(ws, [jobs[place] for place in places]):
        try:
            found[places[k]] = _keep(ws, keys[k], loaded)
        except Exception as error:  # a fault in one job must not hide all others
            found[places[k]] = unread(jobs[places[k]]["job_id"], error)
    return found


def _key(ws: Workspace, job: dict[str, Any]) -> tuple[tuple[str, str], str]:
    return (ws.key, job["job_id"]), ws.version(job["job_id"])


def _keep(ws: Workspace, key: tuple[tuple[str, str], str], loaded: LoadedJob) -> Analysed:
    sound, _ = without_inconsistent(loaded.matrix)
    result = with_links(ws, loaded, analyse_stragglers(loaded.matrix))
    found = Analysed(loaded, result, step_ledger(sound, None))
    _cache.keep(*key, found)
    return found


def steps_of(analysed: Sequence[Analysed | Unread | None]) -> dict[str, LoadedJob]:
    """The steps that are in memory already, by job: bills need not load them again."""
    return {str(a.loaded.job["job_id"]): a.loaded for a in analysed if isinstance(a, Analysed)}


def whole_hours(bill: JobBill, steps: Measure | None) -> Measure:
    """GPU-hours of a whole job: of its bill, else of all its recorded ``steps``, else unknown."""
    if bill.reason == NO_DEVICES:
        return Measure(0.0, "GPU-hours", level=Level.LOG, inputs=("world_size",))
    hours = bill.gpu_hours
    if hours is not None:
        return hours
    if steps is not None:
        return steps
    return Measure.missing("GPU-hours", bill.reason, level=Level.LOG)


def hours_of_all_steps(analysed: Analysed) -> Measure:
    """GPU-hours of all recorded steps of a job."""
    cost = price_view(None)
    metrics = job_metrics(analysed.loaded, analysed.result, analysed.ledger, cost)
    return metrics["window_gpu_hours"]


def summarise(
    job: dict[str, Any], analysed: Analysed | None, bill: JobBill, *, price: Decimal | None
) -> JobSummary:
    """One job in a line. GPU-hours are of its whole bill, else of its steps, else unknown."""
    cost = price_view(price)
    common = {
        "job_id": job["job_id"],
        "name": job.get("name"),
        "team": job.get("team"),
        "owner": job.get("owner"),
        "state": job.get("state") or "unknown",
        "start_us": job.get("start_us"),
        "end_us": job.get("end_us"),
        "world_size": job.get("world_size"),
    }
    if analysed is None:
        hours = whole_hours(bill, None)
        return JobSummary(
            **common,
            gpu_hours=hours,
            spend_usd=dollars(hours, cost),
            straggler_tax=_NO_TAX,
            recoverable_gpu_hours=_NO_HOURS_BACK,
            recoverable_usd=_NO_DOLLARS_BACK,
            dominant_cause="unknown: " + NO_STEPS,
            coverage="job record only",
        )
    metrics = job_metrics(analysed.loaded, analysed.result, analysed.ledger, cost)
    hours = whole_hours(bill, metrics["window_gpu_hours"])
    relative = analysed.loaded.matrix.time_is_relative or analysed.loaded.world_is_unknown
    found = analysed.result.coverage
    return JobSummary(
        **common
        | {
            "world_size": None
            if analysed.loaded.world_is_unknown
            else analysed.loaded.matrix.world_size
        },
        gpu_hours=hours,
        spend_usd=dollars(hours, cost),
        straggler_tax=analysed.result.tax_ratio,
        recoverable_gpu_hours=metrics["recoverable_gpu_hours"],
        recoverable_usd=metrics["recoverable_usd"],
        dominant_cause=dominant_loss(ledger_lines(analysed.ledger, relative=relative)),
        coverage=f"{found.ranks_used:,} of {found.ranks_expected:,} ranks, "
        f"{found.steps_used:,} of {found.steps_total:,} steps",
    )
