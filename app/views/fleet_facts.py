"""What the fleet view knows of each job: its hours, its failures, its steps."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np

from steptax.app.compute.cause_model import Finding, Scope
from steptax.app.compute.fleet_slow import CAUSE_UNKNOWN, Episode, SlowFact, is_fail_slow
from steptax.app.compute.fleet_states import FAILED, UNKNOWN_STATE, JobFact
from steptax.app.compute.goodput import GPU_US_PER_HOUR
from steptax.app.compute.measure import Measure
from steptax.app.views.causes import build_diagnosis
from steptax.app.views.fleet_jobs import job_bills, told_jobs
from steptax.app.views.jobs import Analysed, analyse_jobs, hours_of_all_steps, steps_of, whole_hours
from steptax.app.views.kept import Kept
from steptax.app.views.record_bills import JobBill
from steptax.app.views.workspace import Workspace

#: Jobs whose steps are in memory together.
_TOGETHER = 64
#: Jobs with steps that are kept: what is kept of each is small.
KEPT = 20_000
_cache: OrderedDict[tuple[str, str, str], SlowFact] = OrderedDict()
_lock = Lock()


@dataclass(frozen=True)
class Facts:
    """All jobs of a lake."""

    jobs: tuple[JobFact, ...]
    rows: tuple[dict[str, Any], ...]
    """The record of each job, in the order of ``jobs``."""
    slow: tuple[SlowFact, ...]
    """Jobs with steps."""
    bills: Mapping[str, JobBill]
    """Of jobs of which more than their record is known."""
    failures: Mapping[str, tuple[str | None, ...]]
    """By job the ranks that each of its failures names."""
    ettr: Mapping[str, tuple[Measure, float | None]]
    """ETTR and GPU-hours of each job of which more than its record is known."""

    def only(self, wanted: Callable[[JobFact, dict[str, Any]], bool]) -> Facts:
        """The facts of the jobs that are ``wanted``, given what is known of them and their row."""
        places = [
            k for k, (f, row) in enumerate(zip(self.jobs, self.rows, strict=True)) if wanted(f, row)
        ]
        jobs = tuple(self.jobs[k] for k in places)
        names = {fact.job_id for fact in jobs}
        return Facts(
            jobs,
            tuple(self.rows[k] for k in places),
            tuple(fact for fact in self.slow if fact.job_id in names),
            {name: bill for name, bill in self.bills.items() if name in names},
            {name: ranks for name, ranks in self.failures.items() if name in names},
            {name: pair for name, pair in self.ettr.items() if name in names},
        )


_facts: Kept[Facts] = Kept(2)


def fleet_facts(ws: Workspace) -> Facts:
    """What is known of every job of the lake; kept by the version of its data."""
    key = ws.key, ws.version(), ws.lake.version("events")
    return _facts.get(key, lambda: _made(ws))


def _made(ws: Workspace) -> Facts:
    jobs = ws.jobs()
    slow = {fact.job_id: fact for fact in slow_facts(ws, jobs)}
    told = told_jobs(ws)
    every = job_bills(ws, jobs)
    bills = {one.job_id: one for one in every if one.job_id in told}
    stops: dict[str, list[tuple[str, str | None]]] = {}
    if ws.lake.segments("events"):
        for row in ws.engine.run("fleet_failures").to_pylist():
            stops.setdefault(row["job_id"], []).append((row["kind"], row["ranks"]))
    facts = []
    for job, bill in zip(jobs, every, strict=True):
        job_id = bill.job_id
        own = slow.get(job_id)
        if bill.held is not None:
            hours: float | None = bill.held.gpu_us / GPU_US_PER_HOUR
        else:
            hours = whole_hours(bill, None).value
            if hours is None and own is not None:
                hours = own.gpu_hours
        kinds = [kind for kind, _ in stops.get(job_id, ())]
        state = job.get("state") or UNKNOWN_STATE
        gpus = job.get("world_size")
        if gpus is None and own is not None:
            gpus = own.gpus
        count = _failures(state, kinds.count("failure"))
        facts.append(JobFact(job_id, state, gpus, hours, count, kinds.count("evict")))
    failed = {
        job_id: tuple(ranks for kind, ranks in own if kind == "failure")
        for job_id, own in stops.items()
    }
    ettr = {name: _ettr(bill) for name, bill in bills.items()}
    return Facts(tuple(facts), tuple(jobs), tuple(slow.values()), bills, failed, ettr)


def _failures(state: str, events: int) -> int | None:
    """How often a job failed: as its events say, and once at least where it ended so."""
    if state == UNKNOWN_STATE:
        return events or None
    return max(events, 1) if state == FAILED else events


def slow_facts(ws: Workspace, jobs: Sequence[dict[str, Any]]) -> list[SlowFact]:
    """What the steps of each job say, for the jobs that have any.

    A job is looked at once per version of its data, so that a second look costs nothing.
    """
    with_steps = ws.job_ids_with_steps()
    asked = [job for job in jobs if job["job_id"] in with_steps]
    keys = {job["job_id"]: _key(ws, job) for job in asked}
    with _lock:
        found = {job_id: _cache[key] for job_id, key in keys.items() if key in _cache}
    missing = [job for job in asked if job["job_id"] not in found]
    for first in range(0, len(missing), _TOGETHER):
        part = missing[first : first + _TOGETHER]
        analysed = analyse_jobs(ws, part)
        job_bills(ws, part, steps_of(analysed))  # while the steps are in memory
        for one in analysed:
            if one is not None:
                fact = _slow_fact(ws, one)
                found[fact.job_id] = fact
    with _lock:
        for job in missing:
            if job["job_id"] in found:
                _cache[keys[job["job_id"]]] = found[job["job_id"]]
        while len(_cache) > KEPT:
            _cache.popitem(last=False)
    return [found[job["job_id"]] for job in asked if job["job_id"] in found]


def _key(ws: Workspace, job: Mapping[str, Any]) -> tuple[str, str, str]:
    record = repr(sorted((k, v) for k, v in job.items() if k != "ingested_at_us"))
    return ws.key, str(job["job_id"]), f"{ws.version(job['job_id'])}-{record}"


def _slow_fact(ws: Workspace, analysed: Analysed) -> SlowFact:
    loaded, result = analysed.loaded, analysed.result
    hours = hours_of_all_steps(analysed).value
    diagnosis = build_diagnosis(ws, loaded, result)
    found = [f for f in diagnosis.findings if is_fail_slow(f)]
    episodes = tuple(_episode(analysed, finding, hours) for finding in found)
    gpus = None if loaded.world_is_unknown else loaded.matrix.world_size
    return SlowFact(
        str(loaded.job["job_id"]),
        gpus,
        hours,
        result.slowdown_ratio,
        result.waste_ratio,
        episodes,
        diagnosis.reason,
    )


def _episode(analysed: Analysed, finding: Finding, hours: float | None) -> Episode:
    loaded = analysed.loaded
    matrix = loaded.matrix
    first, last = np.searchsorted(matrix.steps, [finding.first_step, finding.last_step])
    seconds = None
    if not matrix.time_is_relative:
        longest = np.nanmax(matrix.duration_us[first : last + 1], axis=1, initial=0.0)
        if finding.in_steps is not None:
            # Slow stretches that come and go: the slow steps are the longest ones.
            longest = np.sort(longest)[-finding.in_steps[0] :]
        seconds = float(np.sum(longest)) / 1e6
    lost = finding.lost_ratio
    places = [loaded.places.get(rank, {}) for rank in finding.ranks]
    cause = finding.cause.cause
    return Episode(
        finding.place,
        finding.ranks if finding.scope is Scope.RANKS else (),
        tuple(sorted({str(p["host"]) for p in places if p.get("host")})),
        tuple(sorted({str(p["gpu_uuid"]) for p in places if p.get("gpu_uuid")})),
        CAUSE_UNKNOWN if cause is None else cause.value,
        finding.excess_ratio,
        seconds,
        finding.is_open,
        None if lost is None or hours is None else max(lost, 0.0) * hours,
    )


def _ettr(one: JobBill) -> tuple[Measure, float | None]:
    bill = one.bill
    if bill is None:
        return Measure.missing("ratio", one.reason), None
    return bill.goodput.measures()["ettr_ratio"], bill.goodput.gpu_hours.value
