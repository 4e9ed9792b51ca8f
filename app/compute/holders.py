"""Who held which devices when, and so whom a charge can belong to."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from steptax.app.compute.attempt_layer import State
from steptax.app.compute.waterfall_rows import Waterfall
from steptax.app.errors import IntegrityError

_ZERO = Fraction(0)
BY_RESOURCE, BY_JOB_TAG, BY_LABEL = "resource", "job tag", "team or project tag"
MEANS = (BY_RESOURCE, BY_JOB_TAG, BY_LABEL)
UNUSED, UNEXPLAINED = "unused", "unexplained"


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
    gpus: list[dict[str, Fraction]]
    capacity: Fraction

    def shares(self, start_us: int, end_us: int) -> dict[str, Fraction]:
        """Share of time and devices in [start, end) by job."""
        out: dict[str, Fraction] = {}
        k = max(bisect_right(self.start_us, start_us) - 1, 0)
        if k < len(self.end_us) and self.start_us[k] <= start_us and end_us <= self.end_us[k]:
            return {job: gpus / self.capacity for job, gpus in self.gpus[k].items()}
        whole = (end_us - start_us) * self.capacity
        while k < len(self.start_us) and self.start_us[k] < end_us:
            us = min(self.end_us[k], end_us) - max(self.start_us[k], start_us)
            if us > 0:
                for job, gpus in self.gpus[k].items():
                    out[job] = out.get(job, _ZERO) + us * gpus / whole
            k += 1
        return out

    def held_outside(self, spans: list[tuple[int, int]]) -> Fraction:
        """GPU-time that was held outside of ``spans``."""
        merged: list[tuple[int, int]] = []
        for start, end in sorted(spans):
            if merged and start <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((start, end))
        held = sum(
            (e - s) * sum(g.values(), _ZERO)
            for s, e, g in zip(self.start_us, self.end_us, self.gpus, strict=True)
        )
        for start, end in merged:
            held -= sum(self.shares(start, end).values(), _ZERO) * (end - start) * self.capacity
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
        changes: dict[int, dict[str, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
        for place in places:
            changes[place.start_us][place.job_id] += place.gpus
            changes[place.end_us][place.job_id] -= place.gpus
        edges = sorted(changes)
        now: dict[str, Fraction] = {}
        starts, ends, gpus = [], [], []
        for start, end in pairwise(edges):
            for job, change in changes[start].items():
                now[job] = now.get(job, _ZERO) + change
            here = {job: n for job, n in sorted(now.items()) if n}
            if here:
                starts.append(start)
                ends.append(end)
                gpus.append(here)
        most = max((sum(g.values(), _ZERO) for g in gpus), default=_ZERO)
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
        if is_unused(row):
            return UNUSED, {}
        job = row.get("job_id")
        if job is not None and job in self.jobs:
            return BY_JOB_TAG, {job: Fraction(1)}
        if start_us is None or end_us is None:
            return UNEXPLAINED, {}
        place = self.by_resource.get(row.get("resource_id") or "")
        if place is not None:
            return BY_RESOURCE, place.shares(start_us, end_us)
        label = self.by_label.get(row.get("holder") or "")
        if label is not None:
            held = label.shares(start_us, end_us)
            whole = sum(held.values(), _ZERO)
            return BY_LABEL, {name: part / whole for name, part in held.items()}
        return UNEXPLAINED, {}


def is_unused(row: Mapping[str, Any]) -> bool:
    """Whether a charge is for a commitment or a reservation that nobody used."""
    status = row.get("commitment_status"), row.get("reservation_status")
    return bool(row.get("is_unused")) or "Unused" in status


def jobs_of(ledger: Sequence[Waterfall]) -> frozenset[str]:
    """Jobs that a charge can be given to: those that held something."""
    return frozenset(str(bill.labels.job_id) for bill in ledger if bill.total_gpu_us)


def placements_of(bills: Sequence[Waterfall]) -> list[Placement]:
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
