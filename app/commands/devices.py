"""``steptax devices``: what the GPU of each rank of a job did, beside its peers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from steptax.app.commands.options import JsonFlag, LakeFlag, lake_root
from steptax.app.commands.output import console, print_wide, show, table_of
from steptax.app.compute.devices.facts import DeviceFacts
from steptax.app.compute.measure import Measure
from steptax.app.format import UNKNOWN, format_share, format_value
from steptax.app.views.devices.text import by_rank, coverage, finding_text, lines, notes, verdict
from steptax.app.views.devices.view import DevicesView, devices_view
from steptax.app.views.workspace import open_workspace

#: Lines of a table in a terminal.
LISTED = 40


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command("devices")(devices_command)


def devices_command(
    job_id: Annotated[str, typer.Argument(metavar="ID", help="job, as steptax jobs lists it")],
    window: Annotated[
        int | None, typer.Option("--window", min=1, help="last steps only; else all of them")
    ] = None,
    lake: LakeFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """Clock, throttling, power, temperature and errors of each rank's GPU, beside its peers.

    Reads what steptax watch nvml, or ingest of dcgm, prometheus, nvidia-smi and rocm-smi stored.
    """
    view = devices_view(open_workspace(lake_root(lake)), job_id, last_steps=window)
    data: dict[str, Any] = {
        "job_id": view.job_id,
        "verdict": verdict(view),
        "coverage": coverage(view),
        "window_us": view.window_us,
        "window_basis": view.window_basis,
        "findings": [
            {
                "rank": f.facts.rank,
                "kind": f.kind.value,
                "size": f.size,
                "text": finding_text(f),
            }
            for f in view.findings
        ],
        "ranks": [_rank(facts) for facts in view.facts],
    }
    show(data, as_json=as_json, text=lambda: _print(view), warnings=notes(view))


def _rank(facts: DeviceFacts) -> dict[str, Any]:
    return {
        "rank": facts.rank,
        "host": facts.host,
        "gpu_uuid": facts.gpu_uuid,
        "gpu_model": facts.gpu_model,
        "monitors": facts.monitors,
        "reason": facts.reason,
        "samples": facts.samples,
        "newest_us": facts.newest_us,
        "observed_ratio": facts.observed,
        "stale_ratio": facts.stale,
        "at_work_ratio": facts.at_work,
        "figures": {
            name: {"own": found.own, "peers": found.peers} for name, found in facts.figures.items()
        },
        "totals": facts.totals,
        "throttled_by": facts.throttled_by,
        "clock_held_by": facts.clock_held_by,
        "xids": [asdict(xid) for xid in facts.xids],
        "xid_reason": facts.xid_reason,
        "health": facts.health,
        "has_mig": facts.has_mig,
    }


def _print(view: DevicesView) -> None:
    _say(verdict(view), style="bold")
    _say(coverage(view))
    for line in lines(view)[:LISTED]:
        _say(f"  {line}")
    found = by_rank(view)
    rows = [
        [
            f"{facts.rank:,}",
            facts.host or UNKNOWN,
            _text(facts["sm_clock_mhz"].own),
            _text(facts["sm_clock_mhz"].peers),
            format_share(facts.value("throttled_ratio")),
            _text(facts["power_w"].own),
            _text(facts["temperature_max_c"].own),
            format_share(facts.observed.value),
            ", ".join(f.kind.value for f in found.get(facts.rank, ()))
            or ("" if facts.reason is None else "not known"),
        ]
        for facts in view.facts[:LISTED]
    ]
    names = ("rank", "node", "clock", "peers", "held back", "power", "highest", "observed", "note")
    print_wide(table_of("Devices", names, rows))
    if len(view.facts) > LISTED:
        _say(f"... and {len(view.facts) - LISTED:,} more; --json prints all")


def _text(measure: Measure) -> str:
    return format_value(measure.value, measure.unit.replace("degC", "°C"))


def _say(text: str, style: str | None = None) -> None:
    """Print a text in which names of a file may stand: no bracket in it is a style."""
    console.print(text, style=style)
