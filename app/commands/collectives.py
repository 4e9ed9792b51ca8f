"""``steptax collectives``: who comes last, who holds up a hang, bandwidth by size."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import asdict
from typing import Annotated, Any

import typer

from steptax.app.commands.options import JsonFlag, LakeFlag, lake_root
from steptax.app.commands.output import console, print_wide, show, table_of
from steptax.app.compute.collectives.arrivals import CollectiveArrivals
from steptax.app.compute.collectives.recorded_bandwidth import BenchSweep, SizeBandwidth, SweepPoint
from steptax.app.compute.hang.holders import Hang
from steptax.app.format import UNKNOWN, format_count, format_measure, format_share, format_value
from steptax.app.views.collectives.view import CollectivesView, collectives_view
from steptax.app.views.workspace import open_workspace

#: Lines of a table in a terminal.
LISTED = 40


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command("collectives")(collectives_command)


def collectives_command(
    job: Annotated[str, typer.Option("--job", help="job or benchmark run")],
    lake: LakeFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """Who comes last to collectives, who holds up a hang, and bandwidth by size.

    Reads what steptax ingest stored of flight-recorder, nccl-inspector, nccl-ras and nccl-tests.
    """
    view = collectives_view(open_workspace(lake_root(lake)), job)
    data: dict[str, Any] = {
        "job_id": view.job_id,
        "operations": view.operations,
        "hang": _hang(view.hang),
        "arrivals": [_arrivals(view, a) for a in view.arrivals],
        "bandwidth": [
            _bandwidth(view, b) | {"share_of_best_ratio": share}
            for b, share in zip(view.bandwidth, view.shares_of_best, strict=True)
        ],
        "sweeps": [_sweep(s) for s in view.sweeps],
        "gauges": list(view.gauges),
    }
    show(data, as_json=as_json, text=lambda: _print(view), warnings=view.warnings)


def _hang(hang: Hang) -> dict[str, Any]:
    return asdict(hang) | {
        "suspects": [asdict(s) | {"label": s.label} for s in hang.suspects],
        "ranks": [s.rank for s in hang.suspects],
    }


def _arrivals(view: CollectivesView, found: CollectiveArrivals) -> dict[str, Any]:
    late = found.late_rank
    return {
        "comm_id": found.comm_id,
        "name": view.names.get(found.comm_id, found.comm_id),
        "op": found.op,
        "rank_scope": found.scope,
        "basis": found.basis,
        "recorded_ranks": found.ranks,
        "absent_ranks": found.absent,
        "n_ranks": found.n_ranks,
        "operations": found.operations,
        "joined": found.joined,
        "last_share": dict(found.last_share),
        "late_rank": late,
        "late_place": None if late is None else view.place(found.comm_id, late),
        "persistence_ratio": found.persistence,
        "lateness_us": found.lateness,
        "waiting_us": found.waiting,
        "newest_seq": dict(found.newest_seq),
        "verdict": found.verdict,
        "reason": found.reason,
        "warnings": found.warnings,
    }


def _bandwidth(view: CollectivesView, found: SizeBandwidth) -> dict[str, Any]:
    return {
        "comm_id": found.comm_id,
        "name": view.names.get(found.comm_id, found.comm_id),
        "op": found.op,
        "bytes": found.bytes,
        "n_ranks": found.n_ranks,
        "operations": found.operations,
        "busbw_gb_per_s": found.busbw,
        "busbw_with_waiting_gb_per_s": found.busbw_with_waiting,
    }


def _sweep(found: BenchSweep) -> dict[str, Any]:
    return {
        "run_id": found.run_id,
        "test": found.test,
        "dtype": found.dtype,
        "ranks": found.ranks,
        "nodes": found.nodes,
        "busbw_gb_per_s": found.busbw,
        "algbw_gb_per_s": found.algbw,
        "points": [_point(p) for p in found.points],
        "warnings": found.warnings,
    }


def _point(point: SweepPoint) -> dict[str, Any]:
    return {
        "bytes": point.bytes,
        "time_us": point.time_us,
        "algbw_gb_per_s": point.algbw,
        "busbw_gb_per_s": point.busbw,
        "busbw_recomputed_gb_per_s": point.busbw_recomputed,
        "agrees": point.agrees,
        "wrong": point.wrong,
    }


def _print(view: CollectivesView) -> None:
    if view.hang.reason is None:
        _print_hang(view.hang)
    _print_arrivals(view)
    _print_bandwidth(view)
    for sweep in view.sweeps:
        _print_sweep(sweep)
    if view.gauges:
        rows = [
            [g["host"], g["gpu_uuid"], g["test"], g["size"], format_value(g["value"], g["unit"])]
            for g in view.gauges[:LISTED]
        ]
        _table("Gauges", ("host", "GPU", "figure", "size", "value"), rows)
        _more(len(view.gauges))


def _print_hang(hang: Hang) -> None:
    _say(hang.verdict, style="bold")
    for suspect in hang.suspects:
        _say(f"  {suspect.label}: {', '.join(suspect.kinds)}")
        for text in suspect.evidence:
            _say(f"    {text}")
    for mismatch in hang.mismatches:
        _say(f"  {mismatch.text}")
    if hang.recorded_ranks:
        of = "" if hang.expected_ranks is None else f" of {hang.expected_ranks:,}"
        _say(f"  {hang.recorded_ranks:,}{of} ranks are recorded")
    for assumption in hang.assumptions:
        _say(f"  assumed: {assumption}")


def _print_arrivals(view: CollectivesView) -> None:
    named = [a for a in view.arrivals if a.late_rank is not None]
    for found in named:
        place = view.place(found.comm_id, found.late_rank or 0)
        where = view.names.get(found.comm_id, found.comm_id)
        _say(f"{where}: {found.verdict}" + (f" It is {place}." if place else ""))
        for warning in found.warnings:
            _say(f"  {warning}")
    rows = [
        [
            view.names.get(a.comm_id, a.comm_id),
            a.op,
            f"{a.joined:,} of {a.operations:,}",
            ", ".join(f"{rank}: {format_share(s)}" for rank, s in a.last_share[:3]) or UNKNOWN,
            UNKNOWN if a.late_rank is None else f"rank {a.late_rank}",
            "" if a.late_rank is None else format_measure(a.lateness),
        ]
        for a in view.arrivals[:LISTED]
    ]
    if rows:
        names = ("communicator", "operation", "on every rank", "last, by rank", "named", "late by")
        _table("Arrivals", names, rows)
        _more(len(view.arrivals))
        reasons = Counter(re.sub(r"[\d,]+", "N", a.reason) for a in view.arrivals if a.reason)
        for a in view.arrivals:
            # One example of each kind of reason.
            kind = re.sub(r"[\d,]+", "N", a.reason or "")
            if reasons.pop(kind, 0):
                _say(f"  {view.names.get(a.comm_id, a.comm_id)}, {a.op}: {a.reason}")


def _print_bandwidth(view: CollectivesView) -> None:
    rows = [
        [
            view.names.get(b.comm_id, b.comm_id),
            b.op,
            f"{b.bytes:,}",
            format_count(b.n_ranks),
            f"{b.operations:,}",
            format_measure(b.busbw),
            format_measure(b.busbw_with_waiting),
        ]
        for b in view.bandwidth[:LISTED]
    ]
    if rows:
        names = ("communicator", "operation", "bytes", "ranks", "times", "busbw", "with waiting")
        _table("Bandwidth by size", names, rows)
        _more(len(view.bandwidth))


def _print_sweep(sweep: BenchSweep) -> None:
    nodes = f" on {format_count(sweep.nodes)} nodes" if sweep.nodes else ""
    title = f"{sweep.run_id}: {sweep.test}, {format_count(sweep.ranks)} ranks{nodes}, {sweep.dtype}"
    rows = [
        [
            f"{p.bytes:,}",
            format_value(p.time_us, "us"),
            UNKNOWN if p.algbw is None else f"{p.algbw:,.2f}",
            UNKNOWN if p.busbw is None else f"{p.busbw:,.2f}",
            format_measure(p.busbw_recomputed),
            "not checked" if p.wrong is None else f"{p.wrong:,}",
        ]
        for p in sweep.points
    ]
    names = ("bytes", "time", "algbw GB/s", "busbw GB/s", "busbw recomputed", "wrong")
    _table(title, names, rows)
    _say(f"  bus bandwidth at the largest size: {format_measure(sweep.busbw)}")
    for warning in (*sweep.busbw.warnings, *sweep.warnings):
        _say(f"  {warning}")


def _more(count: int) -> None:
    if count > LISTED:
        _say(f"... and {count - LISTED:,} more; --json prints all")


def _say(text: str, style: str | None = None) -> None:
    """Print a text in which names of a file may stand: no bracket in it is a style."""
    console.print(text, style=style)


def _table(title: str, columns: tuple[str, ...], rows: list[list[str]]) -> None:
    print_wide(table_of(title, columns, rows))
