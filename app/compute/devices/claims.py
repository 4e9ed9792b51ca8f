"""Which device each rank holds, as far as its record tells, and which jobs hold the same ones."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np

from steptax.app.compute.bill.goodput import GPU_US_PER_HOUR
from steptax.app.compute.bill.paid_time import DeviceSpan, taken_devices

#: From when to when a job held its devices, in microseconds.
Span = tuple[int, int]
#: What stands where a source does not know the device.
NO_UUID = frozenset({"", "unknown", "all", "none", "null", "n/a", "na"})
#: An identity of its own; anything shorter tells devices of one host apart.
GLOBAL_UUID = re.compile(r"(GPU|MIG)-[0-9a-f]{8}.*|.{16,}", re.IGNORECASE)


@dataclass(frozen=True)
class Place:
    """``ranks`` ranks of a job whose record says the same of their device."""

    job_id: str
    host: str | None
    gpu_uuid: str | None
    gpu_index: int | None
    ranks: int = 1


@dataclass(frozen=True)
class Claim:
    """A device that ``ranks`` ranks of a job hold as long as it runs."""

    job_id: str
    device: str
    host: str | None
    ranks: int


@dataclass(frozen=True)
class Lost:
    """Devices of a job that are in the bill of another one for a while."""

    host: str | None
    start_us: int
    end_us: int
    gpus: int
    by_job: str


@dataclass(frozen=True)
class Claims:
    """Devices by the job that names them, and ranks whose device is not known."""

    known: tuple[Claim, ...]
    kinds: Mapping[str, Mapping[str, Mapping[str, int]]]
    """Ranks by host, job and what tells their device: ``uuid``, ``index`` or ``nothing``."""

    def sharing(self, job_ids: Iterable[str]) -> set[str]:
        """These jobs and others that name one of their devices; empty where none does."""
        chosen = set(job_ids)
        by_device: dict[str, set[str]] = defaultdict(set)
        for claim in self.known:
            by_device[claim.device].add(claim.job_id)
        found: set[str] = set()
        for jobs in by_device.values():
            if len(jobs) > 1 and jobs & chosen:
                found |= jobs
        return found


def claims_of(places: Sequence[Place]) -> Claims:
    """The devices that ``places`` name.

    A device is known by its uuid, else by its index on its host. An index that several ranks of a
    job give on one host counts what each of them can see, and tells devices apart from nothing.
    """
    uuid_at: dict[tuple[str, int], set[str]] = defaultdict(set)
    index_ranks: Counter[tuple[str, str, int]] = Counter()
    for p in places:
        if p.host is None or p.gpu_index is None:
            continue
        index_ranks[p.job_id, p.host, p.gpu_index] += p.ranks
        if (uuid := _uuid(p)) is not None:
            uuid_at[p.host, p.gpu_index].add(uuid)
    relative = {(job, host) for (job, host, _), ranks in index_ranks.items() if ranks > 1}
    found: Counter[tuple[str, str, str | None]] = Counter()
    kinds: dict[str, dict[str, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
    for p in places:
        device, kind = _uuid(p), "uuid"
        if device is None and p.host is not None and p.gpu_index is not None:
            same = uuid_at[p.host, p.gpu_index]
            if (p.job_id, p.host) in relative:
                kind = "nothing"
            elif len(same) == 1:
                device = next(iter(same))
            else:
                device, kind = f"{p.host} GPU {p.gpu_index}", "index"
        elif device is None:
            kind = "nothing"
        if device is not None:
            found[p.job_id, device, p.host] += p.ranks
        if p.host is not None:
            own = kinds[p.host][p.job_id]
            own[kind] = own.get(kind, 0) + p.ranks
    claims = tuple(Claim(job, device, host, n) for (job, device, host), n in found.items())
    return Claims(claims, kinds)


def _uuid(place: Place) -> str | None:
    uuid = (place.gpu_uuid or "").strip()
    if uuid.lower() in NO_UUID:
        return None
    return uuid if GLOBAL_UUID.fullmatch(uuid) else f"{place.host} {uuid}"


def lost_devices(claims: Claims, spans: Mapping[str, Span]) -> dict[str, tuple[Lost, ...]]:
    """What each job says it held while another one had it, by the spans of the jobs.

    Every device is held by one job at a time: the one that got it last (``resolve_devices``).
    """
    mine = [
        c for c in claims.known if c.job_id in spans and spans[c.job_id][1] > spans[c.job_id][0]
    ]
    contested = _contested(mine, spans)
    mine = [claim for claim in mine if claim.device in contested]
    at = {(c.job_id, c.device): c for c in mine}
    found: dict[str, Counter[tuple[str | None, int, int, str]]] = defaultdict(Counter)
    for t in taken_devices([DeviceSpan(c.job_id, c.device, *spans[c.job_id]) for c in mine]):
        claim = at[t.job_id, t.device]
        found[t.job_id][claim.host, t.start_us, t.end_us, t.by_job] += claim.ranks
    return {
        job: tuple(
            Lost(host, start, end, gpus, by)
            for (host, start, end, by), gpus in sorted(
                own.items(), key=lambda item: (item[0][1:], item[0][0] or "")
            )
        )
        for job, own in found.items()
    }


def _contested(claims: Sequence[Claim], spans: Mapping[str, Span]) -> set[str]:
    """Devices that two jobs claim at once: a sweep over all devices together."""
    if not claims:
        return set()
    names, device = np.unique([c.device for c in claims], return_inverse=True)
    start = np.array([spans[c.job_id][0] for c in claims], dtype=np.int64)
    end = np.array([spans[c.job_id][1] for c in claims], dtype=np.int64)
    order = np.lexsort((end, start, device))
    device, start, end = device[order], start[order], end[order]
    moments, rank = np.unique(end, return_inverse=True)
    latest = np.maximum.accumulate(device.astype(np.int64) * len(moments) + rank) % len(moments)
    hits = (device[1:] == device[:-1]) & (start[1:] < moments[latest[:-1]])
    return {str(names[k]) for k in device[1:][hits].tolist()}


@dataclass(frozen=True)
class Unplaced:
    """Jobs that ran on a host at once, while it is not known on which of its devices."""

    host: str
    job_ids: tuple[str, ...]
    gpu_hours: Fraction
    """Beyond those of the largest job: what counts twice at most."""
    gpus: int
    """Devices that they say they held at once, at the most."""


def unplaced(claims: Claims, spans: Mapping[str, Span]) -> list[Unplaced]:
    """Where jobs may have shared devices without anything that tells."""
    found = []
    for host, jobs in sorted(claims.kinds.items()):
        own = {job: kinds for job, kinds in jobs.items() if job in spans}
        if len(own) > 1 and (one := _unplaced(host, own, spans)) is not None:
            found.append(one)
    return found


def _unplaced(
    host: str, jobs: Mapping[str, Mapping[str, int]], spans: Mapping[str, Span]
) -> Unplaced | None:
    names: set[str] = set()
    twice, most = Fraction(0), 0
    edges = sorted({t for job in jobs for t in spans[job]})
    starts: dict[int, list[str]] = defaultdict(list)
    ends: dict[int, list[str]] = defaultdict(list)
    for job in jobs:
        starts[spans[job][0]].append(job)
        ends[spans[job][1]].append(job)
    here: set[str] = set()
    for start, end in pairwise(edges):
        here |= set(starts[start])
        here -= set(ends[start])
        if len(here) < 2 or _told_apart([jobs[job] for job in here]):
            continue
        ranks = [sum(jobs[job].values()) for job in here]
        names |= here
        twice += Fraction(sum(ranks) - max(ranks)) * (end - start) / GPU_US_PER_HOUR
        most = max(most, sum(ranks))
    return Unplaced(host, tuple(sorted(names)), twice, most) if names else None


def _told_apart(kinds: Sequence[Mapping[str, int]]) -> bool:
    """Whether all ranks name their devices in the same way, so that equal ones are seen."""
    said = {kind for own in kinds for kind in own}
    return said in ({"uuid"}, {"index"})
