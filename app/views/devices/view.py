"""Devices of a job: what the device of each rank did while the job's steps ran."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from steptax.app.compute.devices.facts import DeviceFacts, device_facts
from steptax.app.compute.devices.findings import DeviceFinding, device_findings
from steptax.app.compute.devices.join import RankDevice, join_devices
from steptax.app.compute.devices.series import NO_MASK, DeviceSeries, SeriesName, build_series
from steptax.app.compute.devices.sums import COLUMNS
from steptax.app.errors import NotFoundError
from steptax.app.views.job.extent import step_numbers
from steptax.app.views.workspace import Workspace

Span = tuple[int, int]

#: Samples that one view loads; beyond it the older part of the window is left out, and it says so.
MAX_SAMPLES = 1_000_000


@dataclass(frozen=True)
class DevicesView:
    """Facts of the devices of a job's ranks in a window of time."""

    job_id: str
    window_us: Span
    window_basis: str
    """Of what the window is the time, for people."""
    facts: tuple[DeviceFacts, ...]
    """One per rank: those out of line first, worst first, then by rank; unknown ones last."""
    findings: tuple[DeviceFinding, ...]
    """What is out of line, worst first."""
    warnings: tuple[str, ...]

    @property
    def known(self) -> int:
        """Ranks of whose device something is known."""
        return sum(one.reason is None for one in self.facts)


def has_devices(ws: Workspace, job_id: str) -> bool:
    """Whether devices were sampled at all and the ranks of the job have a record; cheap."""
    return bool(ws.lake.segments("device_samples") and ws.lake.segments("ranks", job_id))


def devices_view(ws: Workspace, job_id: str, *, last_steps: int | None = None) -> DevicesView:
    """What is known of the devices of ``job_id`` over its last ``last_steps`` steps (None: all).

    Without steps in real time the window is that of the job's record. Raises NotFoundError for an
    unknown job, one whose time is not known, and one of whose ranks there is no record.
    """
    job = ws.job(job_id)
    places = ws.engine.run("rank_places", job_id=job_id).to_pylist()
    if not places:
        raise NotFoundError(
            f"of the ranks of job {job_id!r} there is no record, so none has a device",
            where=ws.place,
            hint="import steps with columns host and gpu_uuid, or record with steptax",
        )
    window_us, basis = job_window(ws, job, last_steps)
    ranks = [RankDevice(p["rank"], p["host"], p["gpu_uuid"], p["gpu_index"]) for p in places]
    window_us, samples, warnings = load_samples(ws, ranks, window_us)
    facts = device_facts(ranks, samples, window_us)
    findings = device_findings(facts)
    worst: dict[int, int] = {}
    for place, finding in enumerate(findings):
        worst.setdefault(finding.facts.rank, place)
    ordered = sorted(
        facts, key=lambda f: (worst.get(f.rank, len(findings)), f.reason is not None, f.rank)
    )
    missing = int(job.get("world_size") or 0) - len(places)
    if missing > 0:
        who = "1 rank has" if missing == 1 else f"{missing:,} ranks have"
        warnings.append(f"{who} no record of where they run")
    return DevicesView(job_id, window_us, basis, tuple(ordered), findings, tuple(warnings))


def load_samples(
    ws: Workspace, ranks: Sequence[RankDevice], window_us: Span
) -> tuple[Span, DeviceSeries, list[str]]:
    """Samples of the devices of ``ranks``, the window that they are of, and what was left out."""
    start_us, end_us = window_us
    seen = ws.engine.run("device_series", first_us=start_us, last_us=end_us).to_pylist()
    names = [
        SeriesName(row["host"], row["gpu_uuid"], row["monitor"], row["gpu_model"]) for row in seen
    ]
    own = {place for one in join_devices(ranks, names) for place in one.series}
    uuids = sorted({names[place].gpu_uuid for place in own})
    count = sum(int(row["sample_count"]) for row in seen if row["gpu_uuid"] in set(uuids))
    warnings = []
    if count > MAX_SAMPLES:
        start_us = end_us - (end_us - start_us) * MAX_SAMPLES // count
        warnings.append(
            f"only the newest part of the window is looked at: all of it has {count:,} samples, "
            f"more than {MAX_SAMPLES:,}"
        )
    rows = ws.engine.run("device_rows", first_us=start_us, last_us=end_us, gpu_uuids=uuids)
    return (start_us, end_us), _series(rows, tuple(names), end_us), warnings


def _series(rows: pa.Table, names: tuple[SeriesName, ...], end_us: int) -> DeviceSeries:
    """Arrow rows as columns by series; all of ``names`` stay, those without a row too."""
    place = {(name.host, name.gpu_uuid, name.monitor): i for i, name in enumerate(names)}
    key = pc.binary_join_element_wise(rows["host"], rows["gpu_uuid"], rows["monitor"], "\x1f")
    told = pc.dictionary_encode(key).combine_chunks()
    of_code = [place[host, uuid, by] for host, uuid, by in map(_parts, told.dictionary.to_pylist())]
    codes = np.array(of_code, dtype=np.int64)
    series = codes[told.indices.to_numpy(zero_copy_only=False)] if rows.num_rows else codes
    masks = pc.fill_null(rows["throttle_reasons"], NO_MASK)
    return build_series(
        names,
        series,
        rows["ts_us"].to_numpy(),
        {name: rows[name].cast(pa.float64()).to_numpy() for name in COLUMNS},
        masks=masks.to_numpy(),
        health=rows["health"].to_numpy(),
        end_us=end_us,
    )


def _parts(key: str) -> tuple[str, str, str]:
    host, uuid, monitor = key.split("\x1f")
    return host, uuid, monitor


def samples_version(ws: Workspace, window_us: Span) -> str:
    """Changes when samples of the window may have: those of other moments do not count."""
    found = ws.lake.segments("device_samples", first_step=window_us[0], last_step=window_us[1])
    names = "\n".join(segment.path.name for segment in found)
    return hashlib.sha256(names.encode()).hexdigest()[:16]


def job_window(ws: Workspace, job: dict[str, Any], last_steps: int | None) -> tuple[Span, str]:
    """When the last steps of ``job``, a row of ``ws.jobs()``, ran, and of what that is the time.

    Without steps in real time it is that of its record. NotFoundError where neither is known.
    """
    job_id = job["job_id"]
    if job.get("time_basis") != "relative" and ws.lake.segments("steps", job_id):
        numbers = step_numbers(ws, job_id)["step"].to_numpy()
        if len(numbers):
            first = int(numbers[0 if last_steps is None else max(0, len(numbers) - last_steps)])
            last = int(numbers[-1])
            (row,) = ws.engine.run(
                "step_times", job_id=job_id, first_step=first, last_step=last
            ).to_pylist()
            if row["start_us"] is not None:
                return (int(row["start_us"]), int(row["end_us"])), f"steps {first:,} to {last:,}"
    start, end = job.get("start_us"), job.get("end_us")
    if start is not None and end is not None and end > start:
        return (int(start), int(end)), "the job, as its record has it"
    raise NotFoundError(
        f"when job {job_id!r} ran is not known, so no sample can be of it",
        where=ws.place,
        hint="import steps that have start times, or the job's record: steptax ingest sacct FILE",
    )
