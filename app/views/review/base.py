"""What the cost review rests on: every job's bill by day, and what its steps say; no prices."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steptax.app.compute.bill.attempt_layer import State
from steptax.app.compute.bill.job_days import DAY_US, JobDays, Stretches, job_days
from steptax.app.compute.stats.exact import int_sums
from steptax.app.compute.stats.rows import Flags, Floats, Ints
from steptax.app.memory import building
from steptax.app.views.fleet.jobs import every_bill
from steptax.app.views.fleet.record_bills import NO_DEVICES, JobBill
from steptax.app.views.job.step_facts import facts_of, unread_jobs
from steptax.app.views.review.facts import StepFacts
from steptax.app.views.workspace import Workspace

#: Reviews kept; one holds two hundred bytes or so per job and day.
KEPT = 4
_ROWS = (
    "steps",
    "ops",
    "events",
    "ranks",
    "jobs",
    "printed_metrics",
    "reported_scores",
    "link_probes",
    "device_samples",
)


@dataclass(frozen=True, eq=False)
class ReviewBase:
    """Jobs [J] in the order of ``ws.jobs()``, and their days."""

    jobs: Sequence[dict[str, Any]]
    bills: Sequence[JobBill]
    steps: Mapping[int, StepFacts]
    """By place of the job, of those with steps."""
    days: JobDays
    held: Stretches
    """The time of all jobs whose time is known, of which ``days`` are the sums."""
    undated_us: Ints
    """[J] GPU-microseconds of jobs without a bill, whose recorded steps tell how long they ran."""
    hours_known: Flags
    """[J]"""
    save_job: Ints
    """[S] checkpoints kept: their job, and their day."""
    save_day: Ints
    version: str
    """Of what it rests on."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """By job id why its steps could not be analysed."""

    @cached_property
    def held_us(self) -> NDArray[Any]:
        """[J] GPU-microseconds, 0 where they are not known; Python ints where one is that large."""
        held = int_sums(self.days.job, self.days.held_us, len(self.jobs))
        return np.asarray(held + self.undated_us)

    @cached_property
    def kept_ratio(self) -> Floats:
        """[J] share of the steps on record that were not rolled back for good."""
        made = ((k, one.made) for k, one in enumerate(self.bills) if one.made is not None)
        found = np.ones(len(self.jobs))
        for k, bill in made:
            if bill.steps_on_record:
                found[k] = 1 - bill.undone_steps / bill.steps_on_record
        return found

    @cached_property
    def _codes(self) -> dict[str, tuple[Ints, list[str]]]:
        return {}

    def groups(self, label: str) -> tuple[Ints, list[str]]:
        """[J] the group of each job by one of its labels, and the names of the groups.

        A job that does not state it is in the group without a name.
        """
        if label not in self._codes:
            names = [str(job.get(label) or "") for job in self.jobs]
            place: dict[str, int] = {}
            codes = np.fromiter((place.setdefault(n, len(place)) for n in names), np.int64)
            self._codes[label] = codes, list(place)
        return self._codes[label]

    @cached_property
    def ids(self) -> NDArray[np.str_]:
        """[J] the jobs' ids."""
        return np.array([str(job["job_id"]) for job in self.jobs], dtype=np.str_)

    @cached_property
    def place(self) -> dict[str, int]:
        """Of each job."""
        return {str(job["job_id"]): k for k, job in enumerate(self.jobs)}


_cache: OrderedDict[str, tuple[str, ReviewBase]] = OrderedDict()
_lock = Lock()
_making = Lock()


def base_version(ws: Workspace) -> str:
    """Changes when the base may."""
    return "-".join(ws.lake.version(name) for name in _ROWS)


def review_base(ws: Workspace) -> ReviewBase:
    """The base of ``ws``, kept by the version of what it rests on."""
    version = base_version(ws)
    if (known := _known(ws, version)) is not None:
        return known
    with _making:  # who comes meanwhile waits for it, as making two takes longer than one
        if (known := _known(ws, version)) is not None:
            return known
        with building():
            made = _make(ws, version)
        with _lock:
            _cache[ws.key] = version, made
            _cache.move_to_end(ws.key)
            while len(_cache) > KEPT:
                _cache.popitem(last=False)
    return made


def _known(ws: Workspace, version: str) -> ReviewBase | None:
    with _lock:
        known = _cache.get(ws.key)
        if known is None or known[0] != version:
            return None
        _cache.move_to_end(ws.key)
        return known[1]


def _make(ws: Workspace, version: str) -> ReviewBase:
    jobs = ws.jobs()
    own = facts_of(ws, jobs)
    unread = unread_jobs(ws)
    bills = every_bill(ws).bills
    facts = {k: own[job["job_id"]] for k, job in enumerate(jobs) if job["job_id"] in own}
    undated_us = np.zeros(len(jobs), dtype=np.int64)
    known = np.array([b.is_known or b.reason == NO_DEVICES for b in bills], dtype=np.bool_)
    for k, told in facts.items():
        if not known[k] and told.is_timed:
            known[k], undated_us[k] = True, round(told.recorded_us)
    held, undated = _stretches(bills)
    days = job_days(held, undated)
    if len(undated):
        dated = ~np.isin(held.job, undated)
        columns = (held.job, held.start_us, held.end_us, held.gpus, held.state)
        held = Stretches(*(column[dated] for column in columns))
    saves = _saves(bills)
    return ReviewBase(jobs, bills, facts, days, held, undated_us, known, *saves, version, unread)


def _stretches(bills: Sequence[JobBill]) -> tuple[Stretches, Ints]:
    """The time of all bills, and the places of those of which it is not known when it was."""
    undated = np.array([k for k, one in enumerate(bills) if one.undated], dtype=np.int64)
    places = [k for k, one in enumerate(bills) if one.held is not None]
    held = [one.held for one in bills if one.held is not None]
    lines = [
        (k, one.made.timeline)
        for k, one in enumerate(bills)
        if one.held is None and one.made is not None and one.made.timeline is not None
    ]
    owner = np.repeat(
        np.array([k for k, _ in lines], dtype=np.int64), [len(line.start_us) for _, line in lines]
    )

    def column(name: str, plain: Iterable[int]) -> Ints:
        of_records = np.fromiter(plain, np.int64, len(held))
        return np.concatenate([of_records, *(getattr(line, name) for _, line in lines)])

    return Stretches(
        np.concatenate([np.array(places, dtype=np.int64), owner]),
        column("start_us", (h.start_us for h in held)),
        column("end_us", (h.end_us for h in held)),
        column("gpus", (h.gpus for h in held)),
        column("state", repeat(int(State.UNEXPLAINED))),
    ), undated


def _saves(bills: Sequence[JobBill]) -> tuple[Ints, Ints]:
    """Checkpoints that were kept: the place of the job of each, and its day."""
    found = [(k, us) for k, one in enumerate(bills) for us in one.saves_us]
    job = np.array([k for k, _ in found], dtype=np.int64)
    return job, np.array([us for _, us in found], dtype=np.int64) // DAY_US
