"""``steptax profile``: where the time of each rank's device goes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from steptax.app.commands.options import JsonFlag, LakeFlag, lake_root
from steptax.app.commands.output import console, show, table_of
from steptax.app.compute.trace.breakdown import Work
from steptax.app.compute.trace.idle import IdleCauses
from steptax.app.errors import UserError
from steptax.app.format import UNKNOWN, format_share, format_value
from steptax.app.views.profile.models import ProfileView, RankProfile
from steptax.app.views.profile.view import profile_files, profile_job

#: Kernels that are listed of each rank, and characters of their names in a terminal.
TOP = 10
_NAME = 56
_KINDS = {Work.COMPUTE: "compute", Work.COMMUNICATION: "comm", Work.COPY: "copy"}
#: What the shares are of: not what "idle" is of where whole steps are split.
WINDOW = (
    "Shares of the window from the first device operation looked at to the last; steptax ingest "
    "and steptax job take whole steps, from mark to mark, of which the device idles longer."
)
#: Ranks whose kernels are listed in a terminal.
_RANKS = 4


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command("profile")(profile_command)


def profile_command(
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="traces of the PyTorch profiler, one per rank, or their folder"),
    ] = None,
    job: Annotated[str | None, typer.Option("--job", help="a job of the lake instead")] = None,
    top: Annotated[int, typer.Option("--top", min=0, help="kernels to list of each rank")] = TOP,
    kernel_wait_us: Annotated[
        float, typer.Option("--kernel-wait-us", min=0, help="shorter gaps are kernel launches")
    ] = 30.0,
    like_hta: Annotated[
        bool, typer.Option("--like-hta", help="what HolisticTraceAnalysis looks at, to compare")
    ] = False,
    lake: LakeFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """Computing, exposed communication and idle time of each rank's device, and why it is idle.

    From trace files (FILES), or from what steptax ingest kineto stored of a job (--job).
    """
    view = _view(files or [], job, lake, like_hta, round(kernel_wait_us * 1000))
    data = {
        "job_id": view.job_id,
        "basis": view.basis,
        "ranks": [_rank(profile, top) for profile in view.ranks],
    }
    show(data, as_json=as_json, text=lambda: _print(view, top), warnings=view.warnings)


def _view(
    files: list[Path], job: str | None, lake: Path | None, like_hta: bool, kernel_wait_ns: int
) -> ProfileView:
    if bool(files) == (job is not None):
        raise UserError(
            "expected trace files or a job" + (", found both" if files else ", found neither"),
            where="FILES, --job",
            hint="steptax profile rank*.json.gz, or steptax profile --job ID",
        )
    if job is None:
        files = [path for named in files for path in _traces(named)]
        return profile_files(files, like_hta=like_hta, kernel_wait_ns=kernel_wait_ns)
    if like_hta:
        raise UserError(
            "is for trace files: a job's rows do not tell what HolisticTraceAnalysis leaves out",
            where="--like-hta",
            hint="steptax profile FILES --like-hta",
        )
    from steptax.app.views.workspace import open_workspace

    return profile_job(open_workspace(lake_root(lake)), job)


def _traces(named: Path) -> list[Path]:
    """The traces that a person names: a file, or those of a folder."""
    if not named.is_dir():
        return [named]
    from steptax.app.ingest import files_in  # a file needs no other connectors, and no lake

    return files_in("kineto", named)


def _us(ns: float) -> float:
    return ns / 1000


def _rank(found: RankProfile, top: int) -> dict[str, Any]:
    """One rank, all times in microseconds."""
    parts = found.breakdown
    out: dict[str, Any] = {
        "rank": found.rank,
        "source": found.source,
        "steps": found.steps,
        "operations": found.operations,
        "reason": found.reason,
        "breakdown": None,
        "overlap_ratio": None,
        "overlap_reason": None if parts is None or parts.communication_ns else "no communication",
        "kernels": [
            {
                "name": k.name,
                "kind": k.kind.name.lower(),
                "count": k.count,
                "total_us": _us(k.total_ns),
                "mean_us": _us(k.mean_ns),
                "min_us": _us(k.min_ns),
                "max_us": _us(k.max_ns),
                "deviation_us": _us(k.deviation_ns),
                "share_ratio": k.share_ratio,
            }
            for k in found.kernels[:top]
        ],
        "kernels_in_all": len(found.kernels),
        "streams": [
            {
                "stream": s.stream,
                "operations": s.operations,
                "busy_us": _us(s.busy_ns),
                "compute_us": _us(s.compute_ns),
                "communication_us": _us(s.communication_ns),
                "copy_us": _us(s.copy_ns),
            }
            for s in found.streams
        ],
        "idle_causes": None if found.idle is None else _causes(found.idle),
        "idle_causes_by_stream": [_causes(c) for c in found.idle_by_stream],
        "idle_reason": found.idle_reason,
    }
    if parts is not None:
        names = (
            *("window", "compute", "non_compute", "idle", "communication", "overlap", "copy"),
            *("exposed_communication", "exposed_copy"),
        )
        times = {name: getattr(parts, f"{name}_ns") for name in names}
        out["breakdown"] = {f"{name}_us": _us(ns) for name, ns in times.items()} | {
            f"{name}_ratio": parts.share(times[name])
            for name in ("compute", "non_compute", "idle", "exposed_communication", "exposed_copy")
        }
        out["overlap_ratio"] = parts.overlap_ratio
    return out


def _causes(found: IdleCauses) -> dict[str, Any]:
    return {
        "stream": found.stream,
        "host_wait_us": _us(found.host_wait_ns),
        "kernel_wait_us": _us(found.kernel_wait_ns),
        "other_us": _us(found.other_ns),
        "gaps": found.gaps,
        "operations_without_launch": found.unlinked,
    }


def _print(view: ProfileView, top: int) -> None:
    console.print(f"Basis: {view.basis}")
    _print_times(view)
    _print_idle(view)
    known = [p for p in view.ranks if p.kernels]
    for found in known[:_RANKS] if top else ():
        _print_kernels(found, top)
    if top and len(known) > _RANKS:
        console.print(f"... kernels of {len(known) - _RANKS:,} more ranks: --json prints all")
    for found in view.ranks:
        if found.reason is not None:
            console.print(f"{found.label}: {found.reason}")


def _print_times(view: ProfileView) -> None:
    rows = []
    for found in view.ranks:
        parts = found.breakdown
        if parts is None:
            continue
        hidden = parts.overlap_ratio
        rows.append(
            [
                found.label,
                format_value(_us(parts.window_ns), "us"),
                format_share(parts.share(parts.compute_ns)),
                format_share(parts.share(parts.exposed_communication_ns)),
                format_share(parts.share(parts.exposed_copy_ns)),
                format_share(parts.share(parts.idle_ns)),
                format_value(_us(parts.communication_ns), "us"),
                "none" if hidden is None else format_share(hidden),
            ]
        )
    names = (
        *("rank", "window", "compute", "exposed comm", "exposed copies", "idle"),
        *("comm in all", "of it hidden"),
    )
    if rows:
        _table("What the device does", names, rows)
        console.print(WINDOW)


def _print_idle(view: ProfileView) -> None:
    rows: list[list[str]] = []
    reasons: dict[str | None, None] = {}
    for found in view.ranks:
        if found.breakdown is None:
            continue
        if found.idle is None:
            reasons[found.idle_reason] = None
            continue
        for cause in (found.idle, *found.idle_by_stream):
            total = cause.total_ns
            parts = (cause.host_wait_ns, cause.kernel_wait_ns, cause.other_ns)
            shares = [format_share(ns / total) if total else "none" for ns in parts]
            where = "device" if cause.stream is None else f"stream {cause.stream}"
            rows.append([found.label, where, format_value(_us(total), "us"), *shares])
    if rows:
        names = ("rank", "where", "idle", "host wait", "kernel wait", "other")
        _table("Why it is idle", names, rows)
    for reason in reasons:
        console.print(f"Why it is idle is {UNKNOWN}: {reason}")


def _print_kernels(found: RankProfile, top: int) -> None:
    parts = found.breakdown
    rows = [
        [
            format_value(_us(k.total_ns), "us"),
            UNKNOWN if parts is None else format_share(parts.share(k.total_ns)),
            f"{k.count:,}",
            format_value(_us(k.mean_ns), "us"),
            format_value(_us(k.max_ns), "us"),
            _KINDS[k.kind],
            _shorter(k.name),
        ]
        for k in found.kernels[:top]
    ]
    names = ("total", "of window", "count", "mean", "longest", "kind", "kernel")
    of = f"{len(rows)} of {len(found.kernels):,}"
    _table(f"Kernels of {found.label}, {of}", names, rows)


def _shorter(name: str) -> str:
    name = name.removeprefix("void ")
    return name if len(name) <= _NAME else name[: _NAME - 3] + "..."


def _table(title: str, columns: tuple[str, ...], rows: list[list[str]]) -> None:
    console.print(table_of(title, columns, rows))
