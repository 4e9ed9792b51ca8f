"""Hosts and devices at which more fails, slows down or errs than chance would have it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from steptax.app.compute.fleet_offenders import Offender, Placed, offenders
from steptax.app.compute.fleet_states import size_class
from steptax.app.compute.xid import xid_meaning
from steptax.app.queries.python_rows import python_rows
from steptax.app.views.fleet_facts import Facts
from steptax.app.views.fleet_models import PlaceRow, Places
from steptax.app.views.kept import Kept
from steptax.app.views.workspace import Workspace

HOST, DEVICE = "host", "device"
FAILURES, FAIL_SLOW, XIDS = "failures", "fail-slow", "Xids"
NO_PLACES = {
    HOST: "no source tells on which hosts jobs ran (ranks with a host, a scheduler's list of them)",
    DEVICE: "no source tells on which devices jobs ran (ranks with a device)",
}
NO_SAMPLES = "no samples of devices are connected, so that their Xids are unknown"

#: By job the part of its ranks at each place.
Shares = Mapping[str, Mapping[str, float]]


def repeat_offenders(ws: Workspace, facts: Facts) -> tuple[Places, ...]:
    """Failures and fail-slow by host and by device, and Xids by host."""
    key = ws.key, ws.lake.version("ranks"), ws.lake.version("jobs")
    hosts, devices = _kept.get(key, lambda: _places(ws))
    named = _named_places(ws, facts)
    return (
        _failures(HOST, hosts, facts, named),
        _fail_slow(HOST, hosts, facts),
        _xids(ws),
        _failures(DEVICE, devices, facts, named),
        _fail_slow(DEVICE, devices, facts),
    )


#: Where the ranks of all jobs ran: a file per job to read.
_kept: Kept[tuple[Shares, Shares]] = Kept(2)


def _places(ws: Workspace) -> tuple[Shares, Shares]:
    """Ranks by job and host, as they say or as the scheduler does, and by job and device."""
    hosts = python_rows(ws.engine.run("fleet_hosts"))
    rows = python_rows(ws.engine.run("fleet_job_devices")) if ws.lake.segments("ranks") else []
    return _shares(hosts, "host"), _shares(rows, "gpu_uuid")


def _shares(rows: Iterable[Mapping[str, Any]], column: str) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for row in rows:
        if row[column] is None:
            continue
        own = found[row["job_id"]]
        own[row[column]] = own.get(row[column], 0.0) + row["rank_count"]
    for own in found.values():
        whole = sum(own.values())
        for place, count in own.items():
            own[place] = count / whole
    return found


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
    ranks: Shares,
    facts: Facts,
    named: Mapping[str, list[list[dict[str, Any]]]],
) -> Places:
    if not ranks:
        return Places(kind, FAILURES, (), 0, NO_PLACES[kind])
    column = "host" if kind == HOST else "gpu_uuid"
    placed = []
    for fact in facts.jobs:
        own = ranks.get(fact.job_id)
        if not own or not fact.gpu_hours or fact.failures is None:
            continue
        failed = named.get(fact.job_id)
        if failed is None:
            placed.append(Placed(size_class(fact.gpus), fact.gpu_hours, own, fact.failures))
            continue
        at: Counter[str] = Counter()
        told = 0
        for places in failed:
            at_once = {str(p[column]) for p in places if p.get(column)} & own.keys()
            at.update(at_once)
            told += bool(at_once)
        shared = fact.failures - min(told, fact.failures)
        placed.append(Placed(size_class(fact.gpus), fact.gpu_hours, own, shared, at))
    if not placed:
        reason = "of no job with known places it is known whether it failed, and its GPU-hours"
        return Places(kind, FAILURES, (), 0, reason)
    return _rows(kind, FAILURES, offenders(placed), "GPU-hours", {})


def _fail_slow(kind: str, ranks: Shares, facts: Facts) -> Places:
    told = [f for f in facts.slow if f.reason is None]
    if not told:
        reasons = Counter(f.reason for f in facts.slow if f.reason).most_common(1)
        reason = reasons[0][0] if reasons else "no job has per-rank steps"
        return Places(kind, FAIL_SLOW, (), 0, reason)
    if not ranks:
        return Places(kind, FAIL_SLOW, (), 0, NO_PLACES[kind])
    placed = []
    for fact in told:
        own = ranks.get(fact.job_id)
        if own and fact.gpu_hours:
            where = [set(e.hosts if kind == HOST else e.devices) for e in fact.episodes if e.ranks]
            at = Counter(place for places in where for place in places)
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
