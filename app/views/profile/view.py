"""Where the time of each rank's device goes: from trace files, or a job's stored operations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from steptax.app.compute.trace.breakdown import (
    DeviceWork,
    stream_use,
    time_breakdown,
    without_last_step,
)
from steptax.app.compute.trace.idle import KERNEL_WAIT_NS, idle_causes
from steptax.app.compute.trace.kernels import kernel_table
from steptax.app.errors import InputError, NotFoundError
from steptax.app.views.profile.load import RankWork, work_of_file
from steptax.app.views.profile.models import ProfileView, RankProfile

if TYPE_CHECKING:  # a file needs no lake
    from steptax.app.views.workspace import Workspace

EXACT = "all device work of the profiled steps, to the nanosecond"
LIKE_HTA = (
    "as HolisticTraceAnalysis by default: without the last profiled step where there are several, "
    "each operation cut to whole microseconds"
)
_NO_DEVICE = "no device in this trace: nothing ran on a GPU, or its activity was not profiled"
_NO_LAUNCHES = "the trace links no operation to its launch"


def profile_files(
    paths: Sequence[Path], *, like_hta: bool = False, kernel_wait_ns: int = KERNEL_WAIT_NS
) -> ProfileView:
    """Each of the profiler traces ``paths`` by itself.

    ``like_hta`` looks at what Holistic Trace Analysis looks at, for comparing with it. What cannot
    be read is a warning, so that one rank does not hide the others; InputError where none can.
    """
    found: list[RankProfile] = []
    unread: list[InputError] = []
    for path in paths:
        # One after the other, so that no more than one trace is held.
        try:
            found.append(_profile(work_of_file(path), like_hta, kernel_wait_ns))
        except InputError as error:
            unread.append(error)
    if not found:
        raise unread[0]
    return _view(None, found, like_hta, [f"not read: {error}" for error in unread])


def profile_job(ws: Workspace, job_id: str) -> ProfileView:
    """Each rank of the job from its stored operations.

    NotFoundError for an unknown job, or one of which no operations of a device are stored.
    """
    from steptax.app.views.profile.ops import work_of_job

    works = work_of_job(ws, job_id)
    if not any(len(work.device) for work in works):
        raise NotFoundError(
            f"no operations of a device are stored of job {job_id!r}",
            where=ws.place,
            hint=f"import profiler traces: steptax ingest kineto FILES --job {job_id}",
        )
    return _view(job_id, [_profile(work, False, KERNEL_WAIT_NS) for work in works], False)


def _profile(work: RankWork, like_hta: bool, kernel_wait_ns: int) -> RankProfile:
    device = _looked_at(work, like_hta)
    idle = idle_causes(device, kernel_wait_ns=kernel_wait_ns)
    whole, by_stream = idle if idle is not None else (None, ())
    if whole is not None and whole.unlinked == len(device):
        whole, by_stream = None, ()
    missing = None if whole is not None else (work.no_launches or _NO_LAUNCHES)
    return RankProfile(
        label=work.source if work.rank is None else f"rank {work.rank}",
        rank=work.rank,
        source=work.source,
        steps=work.steps,
        operations=len(device),
        breakdown=time_breakdown(device),
        reason=None if len(device) else _NO_DEVICE,
        kernels=kernel_table(device),
        streams=stream_use(device),
        idle=whole,
        idle_by_stream=by_stream,
        idle_reason=missing if len(device) else _NO_DEVICE,
        notes=work.notes,
    )


def _looked_at(work: RankWork, like_hta: bool) -> DeviceWork:
    """The operations that numbers are about."""
    if like_hta:
        return without_last_step(work.device, work.step_starts_ns).in_whole_us()
    return work.device.only(work.device.step >= 0) if work.steps else work.device


def _view(
    job_id: str | None,
    found: list[RankProfile],
    like_hta: bool,
    said: Sequence[str] = (),
) -> ProfileView:
    found.sort(key=lambda p: (p.rank is None, p.rank or 0, p.source))
    sources: dict[int, list[str]] = defaultdict(list)
    for profile in found:
        if profile.rank is not None:
            sources[profile.rank].append(profile.source)
    found = [
        replace(p, label=f"rank {p.rank} ({p.source})")
        if p.rank is not None and len(sources[p.rank]) > 1
        else p
        for p in found
    ]
    warnings = [*said, *(f"{p.label}: {note}" for p in found for note in p.notes)]
    warnings += [
        f"rank {rank} is in {len(files)} files, each shown by itself: {', '.join(files)}"
        for rank, files in sources.items()
        if len(files) > 1
    ]
    return ProfileView(job_id, LIKE_HTA if like_hta else EXACT, tuple(found), tuple(warnings))
