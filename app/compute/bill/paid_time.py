"""Devices over time: who held each of them, and what was paid for and held by nobody."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from steptax.app.compute.bill.attempt_layer import State
from steptax.app.compute.bill.job_events import Finding
from steptax.app.compute.bill.segments import Segments, add_up, cut, one, stack
from steptax.app.compute.bill.timeline import Allocation, Timeline, held
from steptax.app.errors import IntegrityError

#: Sources that give whole seconds may let devices be held that long beyond what was paid.
_SECOND_US = 1_000_000


@dataclass(frozen=True)
class DeviceSpan:
    """One device that a job says it held from start to end."""

    job_id: str
    device: str
    start_us: int
    end_us: int


@dataclass(frozen=True)
class Taken:
    """One device that a job says it held from start to end, while another job had it."""

    job_id: str
    device: str
    start_us: int
    end_us: int
    by_job: str


def resolve_devices(
    spans: Sequence[DeviceSpan],
) -> tuple[dict[str, list[Allocation]], tuple[Finding, ...]]:
    """What each job held, with every device held by one job at a time.

    Where jobs claim the same device, it belongs to the one that got it last: a device that was
    given to another job had been released, whatever the record of the first one says. Of claims
    that start together the one of the job that is later in the alphabet counts. Overlaps are
    reported with their length.
    """
    jobs = sorted({span.job_id for span in spans})
    shares: dict[str, list[tuple[int, int, int]]] = {job: [] for job in jobs}
    for owned in _owners(spans, jobs).values():
        for start, end, job in _rows(owned):
            shares[jobs[job]].append((start, end, 1))
    twice: dict[str, int] = defaultdict(int)
    for taken in taken_devices(spans):
        twice[taken.job_id] += taken.end_us - taken.start_us
    findings = tuple(
        Finding("overlap", f"{us} GPU-us of job {job} count for the job that held them later")
        for job, us in sorted(twice.items())
        if us
    )
    return {
        job: [Allocation(*row) for row in _rows(add_up(parts))] for job, parts in shares.items()
    }, findings


def taken_devices(spans: Sequence[DeviceSpan]) -> tuple[Taken, ...]:
    """What ``resolve_devices`` takes from each job, and which job has it instead."""
    jobs = sorted({span.job_id for span in spans})
    claims: dict[tuple[str, str], list[DeviceSpan]] = defaultdict(list)
    for span in spans:
        claims[span.device, span.job_id].append(span)
    owners = _owners(spans, jobs)
    found = []
    for (device, job), own in sorted(claims.items()):
        claimed = stack([one(s.start_us, s.end_us, 0) for s in own])
        kept, _ = cut(owners[device], claimed)
        found += [
            Taken(job, device, start, end, jobs[by])
            for start, end, by in _rows(kept)
            if jobs[by] != job
        ]
    return tuple(found)


def _owners(spans: Sequence[DeviceSpan], jobs: Sequence[str]) -> dict[str, Segments]:
    """Who holds each device over time, as places in ``jobs``, which are in alphabetical order."""
    number = {job: k for k, job in enumerate(jobs)}
    by_device: dict[str, list[DeviceSpan]] = defaultdict(list)
    for span in spans:
        by_device[span.device].append(span)
    return {
        device: stack(
            [
                one(s.start_us, s.end_us, number[s.job_id])
                for s in sorted(by_device[device], key=lambda s: (s.start_us, s.job_id, s.end_us))
            ]
        )
        for device in sorted(by_device)
    }


def without_taken(
    allocations: Sequence[Allocation], taken: Sequence[Allocation]
) -> list[Allocation]:
    """``allocations`` less the devices that others had; never less than none."""
    spans = [(start, end, gpus) for start, end, gpus in _rows(held(allocations))]
    spans += [(a.start_us, a.end_us, -a.gpus) for a in taken]
    return [Allocation(*row) for row in _rows(add_up(spans)) if row[2] > 0]


def idle_time(paid: Sequence[Allocation], used: Sequence[Segments], name: str) -> Timeline:
    """What was paid for and not held, as a timeline of state UNALLOCATED.

    ``used`` are devices over time, labelled with their number. Where more is held than was paid
    for, it is negative for up to a second of all devices, and refused beyond: never clipped.

    Raises IntegrityError for that, with ``name`` and since when.
    """
    spans = [(a.start_us, a.end_us, a.gpus) for a in paid]
    spans += [(start, end, -gpus) for own in used for start, end, gpus in _rows(own)]
    idle = add_up(spans)
    over = idle.label < 0
    excess = int(((idle.end_us - idle.start_us) * -idle.label)[over].sum())
    if excess > _SECOND_US * max((int(own.label.max()) for own in used if len(own)), default=0):
        raise IntegrityError(
            f"{excess} GPU-us more are held than were paid for, from "
            f"{int(idle.start_us[over][0])} us on",
            where=name,
            hint="the paid devices are incomplete, or several jobs share them",
        )
    state = np.full(len(idle), State.UNALLOCATED, dtype=np.int64)
    return Timeline(idle.start_us, idle.end_us, state, idle.label)


def join(first: Timeline, second: Timeline) -> Timeline:
    """Both, one behind the other."""
    return Timeline(
        np.concatenate([first.start_us, second.start_us]),
        np.concatenate([first.end_us, second.end_us]),
        np.concatenate([first.state, second.state]),
        np.concatenate([first.gpus, second.gpus]),
    )


def _rows(layer: Segments) -> list[tuple[int, int, int]]:
    columns = (layer.start_us.tolist(), layer.end_us.tolist(), layer.label.tolist())
    return list(zip(*columns, strict=True))
