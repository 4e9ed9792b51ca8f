"""Devices that several jobs name: which of them the bill of which job holds."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from typing import Any

from steptax.app.compute.bill.goodput import GPU_US_PER_HOUR
from steptax.app.compute.bill.job_events import Finding
from steptax.app.compute.devices.claims import Claims, Lost, Place, Unplaced, claims_of
from steptax.app.format import format_value
from steptax.app.views.stored import stored_rows
from steptax.app.views.workspace import Workspace

#: Lakes whose devices are kept.
_KEPT = 8
#: Hosts and jobs that a warning names.
_NAMED = 3
_cache: OrderedDict[tuple[str, str], Claims] = OrderedDict()
_lock = Lock()


def claims_in(ws: Workspace) -> Claims:
    """The devices that more than one job names, or that are on a host that more than one names."""
    key = ws.key, ws.lake.version("ranks")
    with _lock:
        if key in _cache:
            _cache.move_to_end(key)
            return _cache[key]
    rows = stored_rows(ws, "fleet_devices", ("ranks",)).to_pylist()
    found = claims_of(
        [
            Place(r["job_id"], r["host"], r["gpu_uuid"], r["gpu_index"], int(r["rank_count"]))
            for r in rows
        ]
    )
    with _lock:
        _cache[key] = found
        while len(_cache) > _KEPT:
            _cache.popitem(last=False)
    return found


def neighbours_version(ws: Workspace, job_id: str) -> str:
    """Changes when what other jobs hold of the devices of ``job_id`` may have."""
    others = sorted(claims_in(ws).sharing([job_id]) - {job_id})
    names = ("ranks", "steps", "ops", "events")
    return "-".join(ws.lake.version(name, other) for other in others for name in names)


def may_overlap(job: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two jobs can have run at once, as far as their records tell."""
    return _begins_before_end(job, other) and _begins_before_end(other, job)


def _begins_before_end(job: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    start, end = job.get("start_us"), other.get("end_us")
    # The end of a running job is that of an attempt before.
    return start is None or end is None or other.get("state") == "running" or start < end


def lost_findings(lost: Sequence[Lost]) -> tuple[Finding, ...]:
    """What is not in the bill of a job because another one's holds it, one per such job."""
    held: dict[str, int] = {}
    for one in lost:
        us = (one.end_us - one.start_us) * one.gpus
        held[one.by_job] = held.get(one.by_job, 0) + us
    return tuple(
        Finding(
            "shared",
            f"{us / 1e6:,.6g} GPU-seconds ({_hours(us)}) are in the bill of job {job} and not in "
            "this one: both name the same devices, and that job got them last",
        )
        for job, us in sorted(held.items())
    )


def lost_warning(lost: Mapping[str, Sequence[Lost]]) -> str:
    """What is counted once although two jobs name it; empty where nothing is."""
    us = sum((o.end_us - o.start_us) * o.gpus for own in lost.values() for o in own)
    if not us:
        return ""
    pairs = sorted({(job, o.by_job) for job, own in lost.items() for o in own})
    named = _named([f"of {by} and not of {job}" for job, by in pairs])
    return (
        f"{_hours(us)} that two jobs name on the same devices count once, for the job that got "
        f"them last: in the bill {named}"
    )


def unplaced_warnings(ws: Workspace, found: Iterable[Unplaced]) -> tuple[str, ...]:
    """Jobs that ran on one host at once, where it is not known whether they shared devices."""
    hosts = list(found)
    if not hosts:
        return ()
    counts: dict[str, int] = {}
    if ws.lake.segments("device_samples"):
        rows = ws.engine.run("fleet_host_devices").to_pylist()
        counts = {row["host"]: int(row["device_count"]) for row in rows}
    over = [u for u in hosts if u.host in counts and u.gpus > counts[u.host]]
    open_ = [u for u in hosts if u.host not in counts]
    said = []
    if over:
        named = _named([f"{u.gpus} of {counts[u.host]} on {u.host} ({_jobs(u)})" for u in over])
        said.append(
            f"jobs say that they held more devices at once than have been seen: {named}; their "
            "records do not say which, so what they shared counts twice"
        )
    if open_:
        named = _named([f"{u.host} ({_jobs(u)})" for u in open_])
        most = format_value(float(sum(u.gpu_hours for u in open_)), "GPU-hours")
        said.append(
            f"jobs ran at once on {named}, and their records do not say on which devices "
            f"(gpu_uuid): if they shared them, up to {most} count twice"
        )
    return tuple(said)


def _jobs(found: Unplaced) -> str:
    return _named(list(found.job_ids))


def _named(texts: Sequence[str]) -> str:
    more = [f"{len(texts) - _NAMED:,} more"] if len(texts) > _NAMED else []
    return ", ".join([*texts[:_NAMED], *more])


def _hours(us: int) -> str:
    return format_value(us / GPU_US_PER_HOUR, "GPU-hours")
