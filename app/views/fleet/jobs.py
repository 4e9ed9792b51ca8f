"""The unpriced bill of each job of a fleet, or the reason why it has none."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import pyarrow as pa

from steptax.app.compute.bill.attempt_layer import State
from steptax.app.compute.bill.goodput import Denominator
from steptax.app.compute.bill.job_events import Finding
from steptax.app.compute.bill.timeline import Timeline
from steptax.app.compute.bill.waterfall import make_waterfall
from steptax.app.compute.bill.waterfall_rows import Labels, Source, Waterfall, WaterfallRow
from steptax.app.compute.devices.claims import Lost, lost_devices
from steptax.app.compute.measure import Level, Measure
from steptax.app.errors import IntegrityError, UserError
from steptax.app.lake.kept import dropped
from steptax.app.views.bill.events import kept_saves, stops
from steptax.app.views.bill.sharing import claims_in, may_overlap
from steptax.app.views.bill.view import NO_STARTS, has_starts, job_waterfall
from steptax.app.views.fleet.load import load_jobs
from steptax.app.views.fleet.record_bills import (
    JobBill,
    record_bill,
    too_long,
    until_its_record,
)
from steptax.app.views.job.extent import FEW_JOBS, by_job, step_summaries
from steptax.app.views.job.load import LoadedJob
from steptax.app.views.kept import Kept, NewestOfEach
from steptax.app.views.pricing.given import NO_WORLD, RELATIVE_TIME
from steptax.app.views.stored import Stored, job_versions, record_text, to_store
from steptax.app.views.stored_codec import Codec
from steptax.app.views.workspace import Workspace

#: Bills kept: they hold no steps, so many fit.
KEPT_BILLS = 20_000
_ROWS = ("steps", "ops", "ranks", "events")

_cache = NewestOfEach[JobBill](KEPT_BILLS)
#: By lake the record of each job and the bill that is made after it alone.
_of_records: OrderedDict[str, dict[str, tuple[dict[str, Any], JobBill]]] = OrderedDict()
_KEPT_LAKES = 4
#: By the version of a lake's rows the bills that were asked for, by job and what it lost.
_BILL = (JobBill, Waterfall, WaterfallRow, Labels, Source, Timeline, Finding, Lost, Measure)
_stored: Stored[JobBill] = Stored("bills", Codec(*_BILL, Denominator, Level, State))
_unchanged: Kept[dict[tuple[str, tuple[Lost, ...]], tuple[dict[str, Any], JobBill]]] = Kept(4)
#: The bills of all jobs of the lakes looked at last.
_every: Kept[EveryBill] = Kept(2)
_lock = Lock()


@dataclass(frozen=True, eq=False)
class EveryBill:
    """The bill of each job of a lake, in the order of ``ws.jobs()``."""

    bills: tuple[JobBill, ...]


def every_bill(ws: Workspace) -> EveryBill:
    """The bills of all jobs, kept by the version of all that they rest on."""
    key = ws.key, *(ws.lake.version(name) for name in ("jobs", *_ROWS))
    return _every.get(key, lambda: EveryBill(tuple(job_bills(ws, ws.jobs()))))


def job_bills(
    ws: Workspace,
    jobs: Sequence[dict[str, Any]],
    loaded: Mapping[str, LoadedJob] | None = None,
) -> list[JobBill]:
    """One bill per row of ``jobs``, in their order; every GPU-second is in one bill at most.

    A device that several jobs name at once is in the bill of the one that got it last, whether that
    is one of ``jobs`` or another one of the lake.

    ``loaded`` are jobs whose steps are in memory already, over all of their steps. A bill is kept
    by the version of its job's data, so that a job that does not grow is billed once per process.
    """
    alone = _each_alone(ws, jobs, loaded or {})
    lost = _lost(ws, jobs, alone)
    again = [job for job in jobs if job["job_id"] in lost]
    if not again:
        return alone
    shared = {one.job_id: one for one in _each_alone(ws, again, loaded or {}, lost)}
    return [shared.get(one.job_id, one) for one in alone]


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
    claiming = {claim.job_id for claim in claims.known}
    if not claiming:
        return {}
    spans = {o.job_id: s for o in alone if o.job_id in claiming and (s := o.span) is not None}
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
            if one.span is not None:
                spans[one.job_id] = one.span
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
    # While nothing in the lake changes, no bill does: thousands of keys need not be made.
    versions = tuple(ws.lake.version(name) for name in _ROWS) if told else ()
    same = _unchanged.get((ws.key, versions), dict)
    found = {
        job["job_id"]: known[1]
        for job in told
        if (known := same.get((job["job_id"], lost.get(job["job_id"], ())))) and known[0] is job
    }
    asked = [job for job in told if job["job_id"] not in found]
    versions_of = _versions(ws, asked, folders)
    keys = {job["job_id"]: _key(ws, job, versions_of, lost) for job in asked}
    for job_id, key in keys.items():
        if (kept := _cache.find(key[:2], key[2])) is not None:
            found[job_id] = kept
    missing = [job for job in asked if job["job_id"] not in found]
    if missing:
        made = _stored_or_made(ws, missing, keys, loaded, lost)
        found |= made
        for job_id, one in made.items():
            _cache.keep(keys[job_id][:2], keys[job_id][2], one)
    for job in asked:
        same[job["job_id"], lost.get(job["job_id"], ())] = job, found[job["job_id"]]
    of_record = _record_bills(ws)
    bills = []
    for job in jobs:
        job_id = job["job_id"]
        told_bill = found.get(job_id)
        own = lost.get(job_id)
        if told_bill is not None:
            bills.append(told_bill)
        else:
            bills.append(_bill(job, {}, {}, None, own) if own else _kept(of_record, job))
    return bills


def _record_bills(ws: Workspace) -> dict[str, tuple[dict[str, Any], JobBill]]:
    with _lock:
        found = _of_records.setdefault(ws.key, {})
        _of_records.move_to_end(ws.key)
        while len(_of_records) > _KEPT_LAKES:
            _of_records.popitem(last=False)
        return found


def _kept(kept: dict[str, tuple[dict[str, Any], JobBill]], job: dict[str, Any]) -> JobBill:
    """The bill after the record alone; rows of one version of the jobs are the same objects."""
    known = kept.get(job["job_id"])
    if known is not None and known[0] is job:
        return known[1]
    made = record_bill(job)
    kept[job["job_id"]] = job, made
    return made


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


def _versions(
    ws: Workspace, jobs: Sequence[Mapping[str, Any]], folders: Mapping[str, set[str]]
) -> Callable[[str], list[str]]:
    """Versions of the rows of each of ``jobs``."""
    if len(jobs) >= FEW_JOBS:
        every = [job_versions(ws.lake, name) for name in _ROWS]
        return lambda job_id: [version(job_id) for version in every]
    return lambda job_id: [
        ws.lake.version(name, job_id) if job_id in folders[name] else "-" for name in _ROWS
    ]


def _key(
    ws: Workspace,
    job: Mapping[str, Any],
    versions: Callable[[str], list[str]],
    lost: Mapping[str, tuple[Lost, ...]],
) -> tuple[str, str, str]:
    """Changes when the bill may have: with the job's record, its rows and what others hold."""
    job_id = str(job["job_id"])
    told = [record_text(job), *versions(job_id), repr(lost.get(job_id, ()))]
    return ws.key, job_id, "-".join(told)


def _stored_or_made(
    ws: Workspace,
    jobs: Sequence[dict[str, Any]],
    keys: Mapping[str, tuple[str, str, str]],
    loaded: Mapping[str, LoadedJob],
    lost: Mapping[str, tuple[Lost, ...]],
) -> dict[str, JobBill]:
    """Bills that are stored beside the lake, and the others, some of which then are too."""
    of_job = {job["job_id"]: keys[job["job_id"]][2] for job in to_store(ws, jobs)}
    found = _stored.find(ws, of_job)
    rest = [job for job in jobs if job["job_id"] not in found]
    if rest:
        made = _make(ws, rest, loaded, lost)
        kept = {name: (of_job[name], bill) for name, bill in made.items() if name in of_job}
        _stored.keep(ws, kept)
        found |= made
    return found


def _make(
    ws: Workspace,
    jobs: Sequence[dict[str, Any]],
    loaded: Mapping[str, LoadedJob],
    lost: Mapping[str, tuple[Lost, ...]],
) -> dict[str, JobBill]:
    job_ids = [job["job_id"] for job in jobs]
    steps = step_summaries(ws, job_ids)
    events = {name: rows.to_pylist() for name, rows in _events(ws, job_ids).items()}
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
        one_bill = _bill(job, events, steps, None, lost.get(job["job_id"], ()))
        gone = dropped(ws.lake, "steps", job["job_id"])
        if gone is not None and one_bill.made is not None:
            one_bill = replace(one_bill, made=replace(one_bill.made, no_useful=gone.sentence))
        made[job["job_id"]] = one_bill
    return made


def _events(ws: Workspace, job_ids: Sequence[str]) -> dict[str, pa.Table]:
    """The events of each job; of a few jobs each from its own folder."""
    if len(job_ids) >= FEW_JOBS:
        return by_job(ws.engine.run("fleet_events", jobs=job_ids))
    return {job_id: ws.engine.run("fleet_events", job_id=job_id) for job_id in job_ids}


def _bill(
    job: dict[str, Any],
    events: Mapping[str, list[dict[str, Any]]],
    steps: Mapping[str, pa.Table],
    loaded: LoadedJob | None,
    lost: Sequence[Lost] = (),
) -> JobBill:
    told = events.get(str(job["job_id"]), [])
    one = _of_rows(job, told, steps.get(str(job["job_id"])), loaded, lost)
    return replace(one, stops=stops(told), saves_us=kept_saves(one.made, told)) if told else one


def _of_rows(
    job: dict[str, Any],
    told: Sequence[dict[str, Any]],
    executed: pa.Table | None,
    loaded: LoadedJob | None,
    lost: Sequence[Lost],
) -> JobBill:
    job_id = str(job["job_id"])
    unplaced = ""
    if loaded is not None and loaded.matrix.time_is_relative:
        return JobBill(job_id, reason=RELATIVE_TIME)
    if loaded is not None and loaded.world_is_unknown:
        return JobBill(job_id, reason=NO_WORLD)
    if executed is None or not has_starts(executed):
        # The record alone still tells how long devices were held.
        unplaced = NO_STARTS if loaded is not None else ""
        executed, loaded = None, None
    undated = ""
    if reason := too_long(job):
        return JobBill(job_id, reason=reason)
    if executed is None:
        job = until_its_record(job)
    if executed is None and not told:
        alone = record_bill(job)
        if alone.held is None:
            return JobBill(job_id, reason=unplaced or alone.reason)
        held, undated = alone.held, alone.undated
        span = {"start_us": held.start_us, "end_us": held.end_us, "world_size": held.gpus}
        job = {**job, **span, "state": None}
    try:
        bill, _ = job_waterfall(job, told, executed, loaded, lost)
    except (UserError, IntegrityError) as error:
        reason = f"{error.message} ({error.hint})" if error.hint else error.message
        return JobBill(job_id, reason=reason)
    if unplaced:
        bill = replace(bill, no_useful=unplaced)
    return JobBill(job_id, bill, undated=undated, lost=tuple(lost))


def told_jobs(ws: Workspace) -> set[str]:
    """Jobs of which more than their record is known: only those can share devices or have steps."""
    return set().union(*(ws.lake.job_ids(name) for name in _ROWS))
