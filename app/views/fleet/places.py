"""Hosts and devices at which more fails, slows down or errs than chance would have it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from steptax.app.compute.causes.xid import xid_meaning
from steptax.app.compute.fleet.offenders import (
    Exposures,
    Offender,
    Placed,
    offenders,
    worst_places,
)
from steptax.app.compute.fleet.states import size_class
from steptax.app.compute.stats.rows import Floats, Ints
from steptax.app.views.fleet.facts import Facts
from steptax.app.views.fleet.models import PlaceRow, Places
from steptax.app.views.kept import Kept
from steptax.app.views.stored import stored_rows
from steptax.app.views.workspace import Workspace

HOST, DEVICE = "host", "device"
FAILURES, FAIL_SLOW, XIDS = "failures", "fail-slow", "Xids"
NO_PLACES = {
    HOST: "no source tells on which hosts jobs ran (ranks with a host, a scheduler's list of them)",
    DEVICE: "no source tells on which devices jobs ran (ranks with a device)",
}
NO_SAMPLES = "no samples of devices are connected, so that their Xids are unknown"


@dataclass(frozen=True, eq=False)
class Where:
    """The part of the ranks of each job at each place, as rows [N]; those of a job add up to 1."""

    rows: Mapping[str, tuple[int, int]]
    """First row of each job, and the one after its last."""
    place: Ints
    """[N] place in ``names``."""
    share: Floats
    names: Sequence[str]

    def of(self, job_id: str) -> dict[str, float]:
        """The places of one job; empty where nobody knows them."""
        first, end = self.rows.get(job_id, (0, 0))
        places = (self.names[k] for k in self.place[first:end].tolist())
        return dict(zip(places, self.share[first:end].tolist(), strict=True))


def repeat_offenders(ws: Workspace, facts: Facts) -> tuple[Places, ...]:
    """Failures and fail-slow by host and by device, and Xids by host."""
    key = ws.key, ws.lake.version("ranks"), ws.lake.version("jobs")
    hosts, devices = _kept.get(key, lambda: _places(ws))
    named = _named_places(ws, facts)
    return (
        _failures(HOST, hosts, facts, named),
        _fail_slow(HOST, hosts, facts),
        _xids(ws),
        _with_hosts(ws, devices, _failures(DEVICE, devices, facts, named)),
        _with_hosts(ws, devices, _fail_slow(DEVICE, devices, facts)),
    )


def _with_hosts(ws: Workspace, devices: Where, places: Places) -> Places:
    """``places`` with the host of each device that is named: nobody finds it by its identity."""
    hosts = {row.name: _host_of(ws, devices, row.name) for row in places.rows if row.is_named}
    rows = (replace(row, **hosts.get(row.name, {})) for row in places.rows)
    return replace(places, rows=tuple(rows))


def _host_of(ws: Workspace, devices: Where, uuid: str) -> dict[str, Any]:
    """Host of a device and its number there; nothing where no job tells."""
    at = np.flatnonzero(devices.place == list(devices.names).index(uuid))
    held = (job for job, (first, end) in devices.rows.items() if ((at >= first) & (at < end)).any())
    for job_id in held:
        rows = ws.engine.run("rank_places", job_id=job_id).to_pylist()
        for row in rows:
            if row["gpu_uuid"] == uuid and row["host"]:
                return {"host": row["host"], "gpu_index": row["gpu_index"]}
    return {}


#: Where the ranks of all jobs ran: a file per job to read.
_kept: Kept[tuple[Where, Where]] = Kept(2)


def _places(ws: Workspace) -> tuple[Where, Where]:
    """Ranks by job and host, as they say or as the scheduler does, and by job and device."""
    hosts = stored_rows(ws, "fleet_hosts", ("ranks", "jobs"))
    devices = stored_rows(ws, "fleet_job_devices", ("ranks",))
    return _where(hosts, "host"), _where(devices, "gpu_uuid")


def _where(rows: pa.Table, column: str) -> Where:
    """``rows`` have a job, a place and how many of its ranks are there."""
    rows = rows.filter(pc.is_valid(rows[column]))
    added = rows.group_by(["job_id", column], use_threads=False).aggregate([("rank_count", "sum")])
    # Of more than some hundred groups Arrow keeps no order.
    added = added.sort_by([("job_id", "ascending"), (column, "ascending")])
    jobs = pc.run_end_encode(added["job_id"].combine_chunks())
    ends = jobs.run_ends.to_numpy()
    first = np.append(0, ends[:-1]) if len(ends) else ends
    ranks = added["rank_count_sum"].to_numpy().astype(np.float64)
    whole = np.add.reduceat(ranks, first) if len(ends) else ranks
    coded = added[column].combine_chunks().dictionary_encode()
    return Where(
        dict(
            zip(
                jobs.values.to_pylist(),
                zip(first.tolist(), ends.tolist(), strict=True),
                strict=True,
            )
        ),
        coded.indices.to_numpy().astype(np.int64),
        ranks / np.repeat(whole, ends - first),
        coded.dictionary.to_pylist(),
    )


def _named_places(ws: Workspace, facts: Facts) -> dict[str, list[list[dict[str, Any]]]]:
    """By job the places of the ranks that each of its failures names, where it names any."""
    found: dict[str, list[list[dict[str, Any]]]] = {}
    for job_id, failures in facts.failures.items():
        texts = [ranks for ranks in failures if ranks]
        if not texts:
            continue
        rows = ws.engine.run("rank_places", job_id=job_id).to_pylist()
        by_rank = {str(row["rank"]): row for row in rows}
        wanted = [[by_rank.get(rank.strip(), {}) for rank in t.split(",")] for t in texts]
        found[job_id] = wanted
    return found


def _failures(
    kind: str,
    where: Where,
    facts: Facts,
    named: Mapping[str, list[list[dict[str, Any]]]],
) -> Places:
    if not where.rows:
        return Places(kind, FAILURES, (), 0, NO_PLACES[kind])
    used = [
        (fact, where.rows[fact.job_id])
        for fact in facts.jobs
        if fact.gpu_hours and fact.failures is not None and fact.job_id in where.rows
    ]
    if not used:
        reason = "of no job with known places it is known whether it failed, and its GPU-hours"
        return Places(kind, FAILURES, (), 0, reason)
    first = np.array([rows[0] for _, rows in used], dtype=np.int64)
    count = np.array([rows[1] for _, rows in used], dtype=np.int64) - first
    start = np.cumsum(count) - count
    row = np.arange(int(count.sum())) - np.repeat(start - first, count)
    shared = np.array([fact.failures for fact, _ in used], dtype=np.int64)
    at = np.zeros(len(row), dtype=np.int64)
    codes: dict[str, int] = {}
    if named:
        column = "host" if kind == HOST else "gpu_uuid"
        for k, (fact, _) in enumerate(used):
            if fact.job_id in named:
                own = where.of(fact.job_id)
                told, found = _told(named[fact.job_id], column, own)
                shared[k] -= min(told, int(shared[k]))
                at[start[k] : start[k] + count[k]] = [found[place] for place in own]
    exposures = Exposures(
        np.array(
            [codes.setdefault(size_class(f.gpus), len(codes)) for f, _ in used], dtype=np.int64
        ),
        np.array([fact.gpu_hours for fact, _ in used], dtype=np.float64),
        shared,
        np.repeat(np.arange(len(used)), count),
        where.place[row],
        where.share[row],
        at,
        where.names,
    )
    return _rows(kind, FAILURES, worst_places(exposures), "GPU-hours", {})


def _told(
    failed: Sequence[Sequence[Mapping[str, Any]]], column: str, own: Mapping[str, float]
) -> tuple[int, Counter[str]]:
    """How many failures name where they were, and how often each place of a job is named."""
    at: Counter[str] = Counter()
    told = 0
    for places in failed:
        at_once = {str(p[column]) for p in places if p.get(column)} & own.keys()
        at.update(at_once)
        told += bool(at_once)
    return told, at


def _fail_slow(kind: str, where: Where, facts: Facts) -> Places:
    told = [f for f in facts.slow if f.reason is None]
    if not told:
        reasons = Counter(f.reason for f in facts.slow if f.reason).most_common(1)
        reason = reasons[0][0] if reasons else "no job has per-rank steps"
        return Places(kind, FAIL_SLOW, (), 0, reason)
    if not where.rows:
        return Places(kind, FAIL_SLOW, (), 0, NO_PLACES[kind])
    placed = []
    for fact in told:
        own = where.of(fact.job_id)
        if own and fact.gpu_hours:
            slow = [set(e.hosts if kind == HOST else e.devices) for e in fact.episodes if e.ranks]
            at = Counter(place for places in slow for place in places)
            placed.append(Placed(size_class(fact.gpus), fact.gpu_hours, own, at=dict(at)))
    if not placed:
        return Places(kind, FAIL_SLOW, (), 0, NO_PLACES[kind])
    causes = _causes(kind, facts)
    return _rows(kind, FAIL_SLOW, offenders(placed), "GPU-hours", causes)


def _causes(kind: str, facts: Facts) -> dict[str, str]:
    """What was slow about each place."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for episode in (e for f in facts.slow for e in f.episodes):
        for place in episode.hosts if kind == HOST else episode.devices:
            found[place][episode.cause] += 1
    return {
        place: ", ".join(f"{cause} {n}" for cause, n in own.most_common(3))
        for place, own in found.items()
    }


def _xids(ws: Workspace) -> Places:
    rows = ws.engine.run("fleet_xids").to_pylist() if ws.lake.segments("device_samples") else []
    told = [row for row in rows if row["xid"] is not None]
    if not told:
        reason = NO_SAMPLES if not rows else "the samples of devices do not tell Xids"
        return Places(HOST, XIDS, (), 0, reason)
    # A code stays until the driver is loaded anew: a device counts once for each of its codes.
    days: Counter[tuple[str, str, str]] = Counter()
    codes: dict[tuple[str, str, str], set[int]] = defaultdict(set)
    models = {(r["host"], r["gpu_uuid"]): r["gpu_model"] for r in told if r["gpu_model"]}
    for row in told:
        device = row["host"], row["gpu_uuid"], models.get((row["host"], row["gpu_uuid"]), "")
        days[device] += row["days"]
        if row["xid"]:
            codes[device].add(int(row["xid"]))
    placed = [
        Placed(model, float(count), {host: 1.0}, shared=len(codes[host, uuid, model]))
        for (host, uuid, model), count in days.items()
    ]
    by_host: dict[str, Counter[int]] = defaultdict(Counter)
    for (host, _, _), own in codes.items():
        by_host[host].update(own)
    details = {host: _xid_text(own) for host, own in by_host.items()}
    return _rows(HOST, XIDS, offenders(placed), "device-days", details)


def _xid_text(codes: Mapping[int, int]) -> str:
    return ", ".join(
        f"Xid {code}{f' on {n} devices' if n > 1 else ''} ({xid_meaning(code).action})"
        for code, n in sorted(codes.items())
    )


def _rows(
    kind: str, what: str, found: Sequence[Offender], unit: str, details: Mapping[str, str]
) -> Places:
    rows = tuple(
        PlaceRow(
            kind,
            what,
            one.name,
            one.count,
            one.expected,
            one.times,
            one.chance,
            one.exposure,
            unit,
            one.is_named,
            details.get(one.name, ""),
        )
        for one in found
        if one.count
    )
    return Places(kind, what, rows, len(found))
