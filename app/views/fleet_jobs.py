"""The unpriced bill of each job of a fleet, or the reason why it has none."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa

from steptax.app.compute.attempt_layer import State
from steptax.app.compute.device_claims import Lost, Span, lost_devices
from steptax.app.compute.goodput import GPU_US_PER_HOUR, Denominator
from steptax.app.compute.measure import Level, Measure
from steptax.app.compute.timeline import Timeline
from steptax.app.compute.waterfall import make_waterfall
from steptax.app.compute.waterfall_rows import Labels, Waterfall
from steptax.app.errors import IntegrityError, UserError
from steptax.app.views.bill import NO_STARTS, has_starts, job_waterfall
from steptax.app.views.fleet_load import FEW_JOBS, by_job, load_jobs
from steptax.app.views.load import LoadedJob
from steptax.app.views.price import NO_WORLD, RELATIVE_TIME
from steptax.app.views.sharing import claims_in, may_overlap
from steptax.app.views.workspace import Workspace

#: Bills kept: they hold no steps, so many fit.
KEPT_BILLS = 20_000
NOT_STARTED = "it has not started"
NO_DEVICES = "it held no devices"
NO_TIMES = "its record has neither start and end nor GPU-hours"
NO_GPUS = "its record does not say how many devices it held"
NO_END = "it has no end on record, and no steps or events tell until when it ran"
#: Nothing holds devices for longer: a start or an end of zero, or of the year 9999, is a blank.
LONGEST_US = 10 * 366 * 24 * GPU_US_PER_HOUR
_LABELS = ("team", "project", "cluster", "owner")
_ROWS = ("steps", "ops", "ranks", "events")


@dataclass(frozen=True)
class JobBill:
    """A job's bill over its whole life, or why there is none."""

    job_id: str
    bill: Waterfall | None
    reason: str = ""
    undated: str = ""
    """Why its hours cannot be placed in time, though they are known; empty if they can."""
    lost: tuple[Lost, ...] = ()
    """Devices that its record claims and the bill of another job holds."""


_cache: OrderedDict[tuple[str, str, str], JobBill] = OrderedDict()
_lock = Lock()


def job_bills(
    ws: Workspace,
    jobs: Sequence[dict[str, Any]],
    loaded: Mapping[str, LoadedJob] | None = None,
) -> list[JobBill]:
    """One bill per row of ``jobs``, in their order; every GPU-second is in one bill at most.

    A device that several jobs name at once is in the bill of the one that got it last, whether that
    is one of ``jobs`` or another one of the lake.

    ``loaded`` are jobs whose steps are in memory already, over all of their steps. A bill is kept
    by the version of its job's data, so that a job that does not grow is billed once per process;
    one that rests on the job's record alone is made in no time and is not kept.
    """
    alone = _each_alone(ws, jobs, loaded or {})
    lost = _lost(ws, jobs, alone)
    again = [job for job in jobs if job["job_id"] in lost]
    if not again:
        return alone
    shared = {one.job_id: one for one in _each_alone(ws, again, loaded or {}, lost)}
    return [shared.get(one.job_id, one) for one in alone]


def held_span(one: JobBill) -> Span | None:
    """From when to when a job held devices; None where that is not known."""
    if one.bill is None or one.undated or one.bill.timeline is None:
        return None
    start, end = one.bill.timeline.span_us
    return (start, end) if end > start else None


def devices_lost(ws: Workspace, job: dict[str, Any]) -> tuple[Lost, ...]:
    """What ``job``, a row of ``ws.jobs()``, claims and the bill of another job holds."""
    claims = claims_in(ws)
    near = claims.sharing([job["job_id"]]) - {job["job_id"]}
    if not near or not any(may_overlap(job, o) for o in ws.jobs() if o["job_id"] in near):
        return ()
    return job_bills(ws, [job])[0].lost


def _lost(
    ws: Workspace, jobs: Sequence[dict[str, Any]], alone: Sequence[JobBill]
) -> dict[str, tuple[Lost, ...]]:
    """What others hold of the devices of ``jobs``, whose bills so far are ``alone``."""
    claims = claims_in(ws)
    spans = {one.job_id: span for one in alone if (span := held_span(one)) is not None}
    near = claims.sharing(spans)
    if not near:
        return {}
    chosen = {job["job_id"] for job in jobs}
    if near - chosen:
        mine = [job for job in jobs if job["job_id"] in near]
        others = [
            other
            for other in ws.jobs()
            if other["job_id"] in near - chosen and any(may_overlap(other, job) for job in mine)
        ]
        for one in _each_alone(ws, others, {}):
            if (span := held_span(one)) is not None:
                spans[one.job_id] = span
    return lost_devices(claims, {job: spans[job] for job in near if job in spans})


def _each_alone(
    ws: Workspace,
    jobs: Sequence[dict[str, Any]],
    loaded: Mapping[str, LoadedJob],
    lost: Mapping[str, tuple[Lost, ...]] | None = None,
) -> list[JobBill]:
    """The bills of ``jobs`` by their own records, less what is ``lost`` to others."""
    lost = lost or {}
    folders = {name: set(ws.lake.job_ids(name)) for name in _ROWS}
    rich = set().union(*(folders[name] for name in ("steps", "ops", "events")))
    told = [job for job in jobs if job["job_id"] in rich]
    keys = {job["job_id"]: _key(ws, job, folders, lost) for job in told}
    found: dict[str, JobBill] = {}
    with _lock:
        for job_id, key in keys.items():
            if key in _cache:
                _cache.move_to_end(key)
                found[job_id] = _cache[key]
    missing = [job for job in told if job["job_id"] not in found]
    if missing:
        made = _make(ws, missing, loaded, lost)
        found |= made
        with _lock:
            for job_id, one in made.items():
                _cache[keys[job_id]] = one
            while len(_cache) > KEPT_BILLS:
                _cache.popitem(last=False)
    of_record = _RecordBills()
    return [
        found.get(job["job_id"]) or of_record.bill(job, lost.get(job["job_id"], ())) for job in jobs
    ]


def of_allocated(bill: Waterfall) -> Waterfall:
    """The same bill of what the job held, whatever was paid for."""
    assert bill.source is not None
    assert bill.timeline is not None
    missing = {
        **bill.source.missing,
        "unallocated": "not part of the denominator: allocated time",
    }
    frame = replace(bill, denominator=Denominator.ALLOCATED)
    return make_waterfall(replace(bill.source, missing=missing), bill.timeline, frame)


def _key(
    ws: Workspace,
    job: Mapping[str, Any],
    folders: Mapping[str, set[str]],
    lost: Mapping[str, tuple[Lost, ...]],
) -> tuple[str, str, str]:
    """Changes when the bill may have: with the job's record, its rows and what others hold."""
    job_id = str(job["job_id"])
    record = repr(sorted((k, v) for k, v in job.items() if k != "ingested_at_us"))
    versions = [ws.lake.version(name, job_id) if job_id in folders[name] else "-" for name in _ROWS]
    return str(ws.root), job_id, "-".join([record, *versions, repr(lost.get(job_id, ()))])


class _RecordBills:
    """Bills of jobs of which nothing but their record is known.

    They differ by whose they are, when and how many devices, and by nothing else: all is made
    after the first one, which a fleet of a hundred thousand jobs of a scheduler's log needs.
    """

    def __init__(self) -> None:
        self._first: Waterfall | None = None

    def bill(self, job: dict[str, Any], lost: Sequence[Lost] = ()) -> JobBill:
        """The bill of one job."""
        if lost:
            return _bill(job, {}, {}, None, lost)
        made = _plan(job)
        if made.reason:
            return JobBill(made.job_id, None, made.reason)
        start, end, gpus = (int(made.record[key]) for key in ("start_us", "end_us", "world_size"))
        first = self._first
        if first is None or first.source is None or end <= start:
            one = _bill(job, {}, {}, None)
            if one.bill is not None and end > start:
                self._first = one.bill
            return one
        line = Timeline(*(np.array([v]) for v in (start, end, State.UNEXPLAINED, gpus)))
        labels = Labels(made.job_id, *(job.get(name) for name in _LABELS))
        bill = make_waterfall(
            replace(first.source, timeline=line), line, replace(first, labels=labels)
        )
        return JobBill(made.job_id, bill, undated=made.undated)


def _make(
    ws: Workspace,
    jobs: Sequence[dict[str, Any]],
    loaded: Mapping[str, LoadedJob],
    lost: Mapping[str, tuple[Lost, ...]],
) -> dict[str, JobBill]:
    job_ids = [job["job_id"] for job in jobs]
    steps = _tables(ws, "fleet_step_summary", job_ids)
    events = {name: rows.to_pylist() for name, rows in _tables(ws, "fleet_events", job_ids).items()}
    made: dict[str, JobBill] = {}
    with_steps = ws.job_ids_with_steps()
    alone = []
    to_load = []
    for job in jobs:
        job_id = job["job_id"]
        if job_id in loaded:
            made[job_id] = _bill(job, events, steps, loaded[job_id], lost.get(job_id, ()))
        elif job_id in with_steps:
            to_load.append(job)
        else:
            alone.append(job)
    for place, one in load_jobs(ws, to_load):
        job = to_load[place]
        made[job["job_id"]] = _bill(job, events, steps, one, lost.get(job["job_id"], ()))
    for job in [*alone, *(job for job in to_load if job["job_id"] not in made)]:
        made[job["job_id"]] = _bill(job, events, steps, None, lost.get(job["job_id"], ()))
    return made


def _tables(ws: Workspace, query: str, job_ids: Sequence[str]) -> dict[str, pa.Table]:
    """The rows of each job; of a few jobs each from its own folder."""
    if len(job_ids) >= FEW_JOBS:
        return by_job(ws.engine.run(query))
    return {job_id: ws.engine.run(query, job_id=job_id) for job_id in job_ids}


def _bill(
    job: dict[str, Any],
    events: Mapping[str, list[dict[str, Any]]],
    steps: Mapping[str, pa.Table],
    loaded: LoadedJob | None,
    lost: Sequence[Lost] = (),
) -> JobBill:
    job_id = str(job["job_id"])
    told = events.get(job_id, [])
    executed = steps.get(job_id)
    unplaced = ""
    if loaded is not None and loaded.matrix.time_is_relative:
        return JobBill(job_id, None, RELATIVE_TIME)
    if loaded is not None and loaded.world_is_unknown:
        return JobBill(job_id, None, NO_WORLD)
    if executed is None or not has_starts(executed):
        # The record alone still tells how long devices were held.
        unplaced = NO_STARTS if loaded is not None else ""
        executed, loaded = None, None
    undated = ""
    if reason := _too_long(job):
        return JobBill(job_id, None, reason)
    if executed is None:
        job = _until_its_record(job)
    if executed is None and not told:
        plan = _plan(job)
        job, undated = plan.record, plan.undated
        if plan.reason:
            return JobBill(job_id, None, unplaced or plan.reason)
    try:
        bill, _ = job_waterfall(job, told, executed, loaded, lost)
    except (UserError, IntegrityError) as error:
        reason = f"{error.message} ({error.hint})" if error.hint else error.message
        return JobBill(job_id, None, reason)
    if unplaced:
        bill = replace(bill, no_useful=unplaced)
    return JobBill(job_id, bill, undated=undated, lost=tuple(lost))


def _too_long(job: Mapping[str, Any]) -> str:
    """Why a job cannot have held devices for as long as its record says; empty if it can."""
    start, end = job.get("start_us"), job.get("end_us")
    if start is None or end is None or end - start <= LONGEST_US:
        return ""
    years = (end - start) / (365.25 * 24 * GPU_US_PER_HOUR)
    return f"its record says that it ran for {years:,.0f} years: its start or its end is wrong"


def _until_its_record(job: dict[str, Any]) -> dict[str, Any]:
    """A job that ran when its record was written ends, for its bill, where the record leaves it.

    The record says so by the GPU-hours that it states for the devices that the job held.
    """
    start, end, gpus = job.get("start_us"), job.get("end_us"), job.get("world_size")
    hours = job.get("gpu_hours")
    if start is None or end is not None or not gpus or not hours:
        return job
    end_us = start + round(hours * GPU_US_PER_HOUR / gpus)
    return {**job, "end_us": end_us, "state": None}  # of a job that runs an end would not count


@dataclass(frozen=True)
class _Plan:
    """How a job of which only the record is known can be billed."""

    job_id: str
    record: dict[str, Any]
    undated: str = ""
    reason: str = ""
    """Why it cannot."""


def _plan(job: dict[str, Any]) -> _Plan:
    """What a job's record alone is worth.

    GPU-hours that a record states without dates, or without devices, still are hours that were
    held: they count as one device for that long, and in no month.
    """
    job = _until_its_record(job)
    job_id = str(job["job_id"])
    start, end, gpus = job.get("start_us"), job.get("end_us"), job.get("world_size")
    if job.get("time_basis") == "relative":
        return _Plan(job_id, job, reason=RELATIVE_TIME)
    if gpus == 0:
        return _Plan(job_id, job, reason=NO_DEVICES)
    if reason := _too_long(job):
        return _Plan(job_id, job, reason=reason)
    if start is not None and end is not None and gpus:
        return _Plan(job_id, job)
    hours = job.get("gpu_hours")
    if hours:
        lacks = "start and end" if start is None or end is None else "how many devices it held"
        undated = f"its record states {hours:,.6g} GPU-hours, but not {lacks}"
        end = round(hours * GPU_US_PER_HOUR)
        span = {"start_us": 0, "end_us": end, "world_size": 1, "state": None}
        return _Plan(job_id, {**job, **span}, undated)
    if hours == 0:
        return _Plan(job_id, job, reason=NO_DEVICES)
    if start is None:
        pending = job.get("state") == "pending"
        return _Plan(job_id, job, reason=NOT_STARTED if pending else NO_TIMES)
    return _Plan(job_id, job, reason=NO_END if end is None else NO_GPUS)


def record_hours(job: dict[str, Any]) -> Measure:
    """GPU-hours of a job of which only the record is known: those of its bill, which is not made.

    ``job`` is a row of ``Workspace.jobs()``. A hundred thousand of them take half a second.
    """
    made = _plan(job)
    if made.reason == NO_DEVICES:
        return Measure(0.0, "GPU-hours", level=Level.LOG)
    if made.reason:
        return Measure.missing("GPU-hours", made.reason, level=Level.LOG)
    start, end, gpus = (int(made.record[key]) for key in ("start_us", "end_us", "world_size"))
    hours = max(end - start, 0) * gpus / GPU_US_PER_HOUR
    return Measure(hours, "GPU-hours", level=Level.LOG)


def told_jobs(ws: Workspace) -> set[str]:
    """Jobs of which more than their record is known: only those can share devices or have steps."""
    return set().union(*(ws.lake.job_ids(name) for name in _ROWS))
