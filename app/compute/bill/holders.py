"""Who held which devices when, and so whom a charge can belong to."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from steptax.app.compute.bill.attempt_layer import State
from steptax.app.compute.bill.timeline import Timeline
from steptax.app.compute.bill.waterfall_rows import Labels, Waterfall
from steptax.app.errors import IntegrityError

_ZERO = Fraction(0)
BY_RESOURCE, BY_JOB_TAG, BY_LABEL = "resource", "job tag", "team or project tag"
MEANS = (BY_RESOURCE, BY_JOB_TAG, BY_LABEL)
UNUSED, UNEXPLAINED = "unused", "unexplained"


@dataclass(frozen=True, eq=False, slots=True)
class Holding:
    """What a job held when, of which nothing else is needed: of tens of thousands no bill is made.

    It has what charges look at of a ``Waterfall``.
    """

    labels: Labels
    timeline: Timeline | None
    total_gpu_us: Fraction
    resources: frozenset[str] = frozenset()


Held = Waterfall | Holding


@dataclass(frozen=True)
class Placement:
    """Devices of one resource that a job held from start to end."""

    job_id: str
    resource_id: str
    start_us: int
    end_us: int
    gpus: Fraction


@dataclass(frozen=True)
class Occupancy:
    """Who held how many devices of one resource: stretches in order, with devices per job."""

    start_us: list[int]
    end_us: list[int]
    gpus: list[dict[str, int | Fraction]]
    """Whole numbers wherever they are, which are added up many times as fast."""
    capacity: Fraction

    def shares(self, start_us: int, end_us: int) -> dict[str, Fraction]:
        """Share of time and devices in [start, end) by job."""
        k = max(bisect_right(self.start_us, start_us) - 1, 0)
        if k < len(self.end_us) and self.start_us[k] <= start_us and end_us <= self.end_us[k]:
            return {job: gpus / self.capacity for job, gpus in self.gpus[k].items()}
        whole = (end_us - start_us) * self.capacity
        held: dict[str, int | Fraction] = {}
        for start, end, gpus in self.within(start_us, end_us):
            for job, own in gpus.items():
                held[job] = held.get(job, 0) + (end - start) * own
        return {job: gpu_us / whole for job, gpu_us in held.items()}

    def within(
        self, start_us: int, end_us: int
    ) -> Iterator[tuple[int, int, Mapping[str, int | Fraction]]]:
        """The parts of stretches that lie in [start, end), in order."""
        k = max(bisect_right(self.start_us, start_us) - 1, 0)
        while k < len(self.start_us) and self.start_us[k] < end_us:
            start, end = max(self.start_us[k], start_us), min(self.end_us[k], end_us)
            if end > start:
                yield start, end, self.gpus[k]
            k += 1

    def held_outside(self, spans: list[tuple[int, int]]) -> Fraction:
        """GPU-time that was held outside of ``spans``."""
        merged: list[tuple[int, int]] = []
        for start, end in sorted(spans):
            if merged and start <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((start, end))
        held: int | Fraction = sum(
            (e - s) * sum(g.values())
            for s, e, g in zip(self.start_us, self.end_us, self.gpus, strict=True)
        )
        for span in merged:
            held -= sum((e - s) * sum(g.values()) for s, e, g in self.within(*span))
        return Fraction(held)


def occupancy_of(
    placed: Sequence[Placement], capacity: Mapping[str, int | Fraction]
) -> dict[str, Occupancy]:
    """Who held each resource; ``capacity`` tells its devices, else as many as were ever held.

    Raises IntegrityError where a resource holds more devices than it has; by name.
    """
    by_resource: dict[str, list[Placement]] = defaultdict(list)
    for place in placed:
        if place.end_us > place.start_us:
            by_resource[place.resource_id].append(place)
    out = {}
    for name in sorted({*by_resource, *capacity}):
        places = by_resource[name]
        changes: dict[int, dict[str, int | Fraction]] = defaultdict(lambda: defaultdict(int))
        for place in places:
            own = place.gpus
            count = own.numerator if own.denominator == 1 else own
            changes[place.start_us][place.job_id] += count
            changes[place.end_us][place.job_id] -= count
        edges = sorted(changes)
        now: dict[str, int | Fraction] = {}
        starts, ends, gpus = [], [], []
        for start, end in pairwise(edges):
            for job, change in changes[start].items():
                here = now.get(job, 0) + change
                if here:
                    now[job] = here
                else:
                    now.pop(job, None)
            if now:
                starts.append(start)
                ends.append(end)
                gpus.append(dict(sorted(now.items())))
        most = Fraction(max((sum(g.values()) for g in gpus), default=0))
        has = Fraction(capacity[name]) if name in capacity else most
        if most > has:
            at = next(s for s, g in zip(starts, gpus, strict=True) if sum(g.values()) > has)
            raise IntegrityError(
                f"jobs hold {float(most):g} devices of {float(has):g} from {at} us on",
                where=name,
                hint="two jobs claim the same devices, or the resource has more",
            )
        out[name] = Occupancy(starts, ends, gpus, has)
    return out


@dataclass(frozen=True)
class Holders:
    """Whom charges can belong to."""

    by_resource: Mapping[str, Occupancy]
    by_label: Mapping[str, Occupancy] = field(default_factory=dict)
    """What the jobs of a team, project, ... held, by the label of a charge's ``holder``."""
    jobs: frozenset[str] = frozenset()
    """Jobs that a tag may name."""

    def shares(
        self, row: Mapping[str, Any], start_us: int | None, end_us: int | None
    ) -> tuple[str, dict[str, Fraction]]:
        """By what a charge in [start, end) belongs to jobs, and the share of each.

        What the shares leave is unallocated, unless the charge is ``UNEXPLAINED``.
        """
        how = self.means(row, is_timed=start_us is not None and end_us is not None)
        if how == BY_JOB_TAG:
            return how, {str(row["job_id"]): Fraction(1)}
        if how == BY_RESOURCE:
            assert start_us is not None
            assert end_us is not None
            return how, self.by_resource[row["resource_id"]].shares(start_us, end_us)
        if how == BY_LABEL:
            assert start_us is not None
            assert end_us is not None
            held = self.by_label[row["holder"]].shares(start_us, end_us)
            whole = sum(held.values(), _ZERO)
            return how, {name: part / whole for name, part in held.items()}
        return how, {}

    def means(self, row: Mapping[str, Any], *, is_timed: bool) -> str:
        """By what a charge belongs to jobs, whoever they are; ``is_timed`` if it has a period."""
        if is_unused(row):
            return UNUSED
        if row.get("job_id") is not None and row["job_id"] in self.jobs:
            return BY_JOB_TAG
        if is_timed and (row.get("resource_id") or "") in self.by_resource:
            return BY_RESOURCE
        if is_timed and (row.get("holder") or "") in self.by_label:
            return BY_LABEL
        return UNEXPLAINED


def is_unused(row: Mapping[str, Any]) -> bool:
    """Whether a charge is for a commitment or a reservation that nobody used."""
    status = row.get("commitment_status"), row.get("reservation_status")
    return bool(row.get("is_unused")) or "Unused" in status


def jobs_of(ledger: Sequence[Held]) -> frozenset[str]:
    """Jobs that a charge can be given to: those that held something."""
    return frozenset(str(bill.labels.job_id) for bill in ledger if bill.total_gpu_us)


def placements_of(bills: Sequence[Held]) -> list[Placement]:
    """Where jobs ran, from their waterfalls; devices are taken as even over their resources."""
    found = []
    for bill in bills:
        if bill.timeline is None or not bill.resources:
            continue
        line = bill.timeline
        job = str(bill.labels.job_id)
        for k in np.flatnonzero(line.state != State.UNALLOCATED):
            gpus = Fraction(int(line.gpus[k]), len(bill.resources))
            span = int(line.start_us[k]), int(line.end_us[k])
            found += [Placement(job, name, *span, gpus) for name in sorted(bill.resources)]
    return found
