"""What the fleet view knows of each job: its hours, its failures, its steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from steptax.app.compute.bill.goodput import GPU_US_PER_HOUR, Denominator, Goodput
from steptax.app.compute.fleet.slow import SlowFact
from steptax.app.compute.fleet.states import FAILED, UNKNOWN_STATE, JobFact
from steptax.app.compute.measure import Level, Measure
from steptax.app.compute.spend.totals import NO_STEPS
from steptax.app.compute.stats.exact import exact_sum
from steptax.app.memory import building
from steptax.app.views.fleet.held_months import Months, months_held
from steptax.app.views.fleet.jobs import every_bill, told_jobs
from steptax.app.views.fleet.record_bills import JobBill
from steptax.app.views.job.jobs import whole_hours
from steptax.app.views.job.step_facts import facts_of
from steptax.app.views.kept import Kept
from steptax.app.views.workspace import Workspace


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
    months: tuple[Months, ...]
    """Where the GPU-hours of each job lie in time, in the order of ``jobs``."""
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
            tuple(self.months[k] for k in places),
            {name: pair for name, pair in self.ettr.items() if name in names},
        )


_facts: Kept[Facts] = Kept(2)


def fleet_facts(ws: Workspace) -> Facts:
    """What is known of every job of the lake; kept by the version of its data."""
    names = ("events", "link_probes", "device_samples")
    key = ws.key, ws.version(), *(ws.lake.version(name) for name in names)
    with building():
        return _facts.get(key, lambda: _made(ws))


def _made(ws: Workspace) -> Facts:
    jobs = ws.jobs()
    slow = {fact.job_id: fact for fact in slow_facts(ws, jobs)}
    told = told_jobs(ws)
    every = every_bill(ws).bills
    bills = {one.job_id: one for one in every if one.job_id in told}
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
        kinds = [kind for kind, _ in bill.stops]
        state = job.get("state") or UNKNOWN_STATE
        gpus = job.get("world_size")
        if gpus is None and own is not None:
            gpus = own.gpus
        count = _failures(state, kinds.count("failure"))
        is_sum = bool(job.get("is_sum"))
        facts.append(JobFact(job_id, state, gpus, hours, count, kinds.count("evict"), is_sum))
    failed = {
        one.job_id: tuple(ranks for kind, ranks in one.stops if kind == "failure")
        for one in every
        if one.stops
    }
    ettr = {name: _ettr(bill) for name, bill in bills.items()}
    months = months_held(jobs, every, [fact.gpu_hours for fact in facts])
    return Facts(tuple(facts), tuple(jobs), tuple(slow.values()), bills, failed, months, ettr)


def _failures(state: str, events: int) -> int | None:
    """How often a job failed: as its events say, and once at least where it ended so."""
    if state == UNKNOWN_STATE:
        return events or None
    return max(events, 1) if state == FAILED else events


def slow_facts(ws: Workspace, jobs: Sequence[dict[str, Any]]) -> list[SlowFact]:
    """What the steps of each job say, for the jobs that have any."""
    found = facts_of(ws, jobs)
    return [found[job["job_id"]].slow for job in jobs if job["job_id"] in found]


def _ettr(one: JobBill) -> tuple[Measure, float | None]:
    bill = one.bill
    if bill is None:
        return Measure.missing("ratio", one.reason), None
    return bill.goodput.measures()["ettr_ratio"], bill.goodput.gpu_hours.value


def fleet_ettr(facts: Facts) -> Measure:
    """ETTR of all jobs together, as the whole bill has it.

    Time of jobs of which nothing but their hours is known may have been in steps or not: it widens
    the interval, and where it is the larger part there is no ratio.
    """
    told = [one.bill.goodput for one in facts.bills.values() if one.bill is not None]
    silent = exact_sum(
        Fraction(fact.gpu_hours) * GPU_US_PER_HOUR
        for fact in facts.jobs
        if fact.job_id not in facts.bills and fact.gpu_hours is not None
    )
    steps = [one.in_steps_gpu_us for one in told if one.in_steps_gpu_us is not None]
    return Goodput(
        Denominator.ALLOCATED,
        exact_sum(one.total_gpu_us for one in told) + silent,
        exact_sum(one.scheduled_gpu_us for one in told) + silent,
        exact_sum(steps) if steps else None,
        None,
        Level.LOG,
        no_steps=next((m.reason for m, _ in facts.ettr.values() if m.reason), NO_STEPS),
        unexplained_gpu_us=exact_sum(one.unexplained_gpu_us for one in told) + silent,
    ).measures()["ettr_ratio"]
