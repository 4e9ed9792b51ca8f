"""``steptax ledger``: the whole bill of the fleet, by any label or by time."""

from __future__ import annotations

from datetime import date
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from steptax.app.commands.options import JsonFlag, LakeFlag, PriceFlag, lake_root, price_of
from steptax.app.commands.output import console, show, table_of
from steptax.app.errors import UserError
from steptax.app.format import format_share, format_value
from steptax.app.views.fleet_bill import fleet_bill
from steptax.app.views.fleet_bill_models import (
    DENOMINATORS,
    LEVELS,
    FleetBill,
    FleetGroup,
    jobs_text,
)
from steptax.app.views.fleet_groups import cost_text
from steptax.app.views.workspace import open_workspace

S_PER_HOUR = 3600.0
MAX_WIDTH = 240
#: Groups and jobs without a bill that are listed in a terminal.
LISTED = 50
#: Groups whose buckets stand side by side in a terminal.
SIDE_BY_SIDE = 4

ByFlag = Annotated[str, typer.Option("--by", metavar="LEVEL", help=f"one of {', '.join(LEVELS)}")]
DenominatorFlag = Annotated[
    str,
    typer.Option(
        "--denominator", metavar="TIME", help=f"shares of {' or '.join(DENOMINATORS)} GPU-time"
    ),
]
ZoneFlag = Annotated[
    str, typer.Option("--tz", metavar="ZONE", help="zone of days and months, e.g. Europe/Berlin")
]


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command("ledger")(ledger_command)


def ledger_command(
    by: ByFlag = "team",
    denominator: DenominatorFlag = "paid",
    tz: ZoneFlag = "UTC",
    price: PriceFlag = None,
    first: Annotated[
        str | None, typer.Option("--from", metavar="DATE", help="first day, 2026-11-01")
    ] = None,
    last: Annotated[
        str | None, typer.Option("--to", metavar="DATE", help="last day, included")
    ] = None,
    jobs: Annotated[
        list[str] | None, typer.Option("--job", metavar="ID", help="this job only; may be repeated")
    ] = None,
    lake: LakeFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """Every GPU-second and dollar of all jobs in one bucket: by team, project, day, month."""
    view = fleet_bill(
        open_workspace(lake_root(lake)),
        by=by,
        denominator=denominator,
        tz=tz,
        price=price_of(price),
        first=day_of(first, "--from"),
        last=day_of(last, "--to"),
        job_ids=jobs or (),
    )
    show(view.as_json(), as_json=as_json, text=lambda: print_bill(view), warnings=view.warnings)


def _print_table(table: Table) -> None:
    """At its own width: a terminal that is narrower breaks lines, never numbers."""
    Console(highlight=False, width=MAX_WIDTH).print(table)


def day_of(text: str | None, flag: str) -> date | None:
    """A day as 2026-11-29; UserError names the flag."""
    if text is None:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise UserError(f"expected a day as 2026-11-29, found {text!r}", where=flag) from None


def print_bill(view: FleetBill) -> None:
    """The whole bill as tables for a terminal."""
    console.print(view.sentence, markup=False)
    console.print(f"{view.period} · percentages of {view.denominator_text}", markup=False)
    console.print(f"cost: {view.cost_basis}", markup=False)
    if view.total is not None:
        console.print("")
        _print_groups(view, view.total)
        console.print("")
        _print_buckets(view, view.total)
    console.print("")
    _print_reconciliation(view)
    _print_not_billed(view)


#: Metric, heading and unit of the columns of the table of groups.
_FACTORS = (
    ("goodput_ratio", "goodput", "ratio"),
    ("scheduling_ratio", "SG", "ratio"),
    ("ettr_ratio", "ETTR", "ratio"),
    ("mfu_ratio", "MFU", "ratio"),
    ("effective_mfu_ratio", "eff. MFU", "ratio"),
    ("at_risk_gpu_hours", "at risk, h", ""),
)


def _hours(hours: float) -> str:
    """GPU-hours; of a short job as many digits as tell it from nothing."""
    return f"{hours:,.2f}" if hours >= 10 or not hours else f"{hours:.4g}"


def _print_groups(view: FleetBill, total: FleetGroup) -> None:
    shown = (*view.groups[:LISTED], total)
    # A column without any value would say "unknown" in every row: its reason is said once.
    factors = [f for f in _FACTORS if any(g.metrics[f[0]].value is not None for g in shown)]
    rows = [
        [
            group.name,
            f"{group.jobs:,}",
            _hours(group.gpu_hours),
            format_share(group.gpu_hours_share),
            *([cost_text(group.cost, view.currency)] if total.cost is not None else []),
            *(format_value(group.metrics[name].value, unit) for name, _, unit in factors),
        ]
        for group in shown
    ]
    cost = ("cost",) if total.cost is not None else ()
    names = (view.by, "jobs", "GPU-hours", "of all", *cost, *(title for _, title, _ in factors))
    _print_table(table_of(f"By {view.by}; ratios of {view.denominator} time", names, rows))
    if len(view.groups) > LISTED:
        console.print(f"... and {len(view.groups) - LISTED:,} more groups; --json prints all")
    for group in shown:
        if group.cost_note:
            console.print(f"{group.name}: cost {group.cost_note}", markup=False)
    said: dict[str, list[str]] = {}
    for name, title, _ in _FACTORS:
        measure = total.metrics[name]
        for text in (*([measure.reason] if measure.reason else []), *measure.warnings):
            said.setdefault(text, []).append(title)
    for text, titles in said.items():
        console.print(f"{', '.join(titles)}: {text}", markup=False)


def _print_buckets(view: FleetBill, total: FleetGroup) -> None:
    beside = view.groups if 1 < len(view.groups) <= SIDE_BY_SIDE else ()
    shares = {group.name: {line.bucket: line.share for line in group.lines} for group in beside}
    rows = [
        [
            line.number,
            line.title,
            _hours(line.gpu_seconds / S_PER_HOUR),
            format_share(line.share),
            *([cost_text(line.cost, view.currency)] if total.cost is not None else []),
            *(format_share(own.get(line.bucket)) for own in shares.values()),
        ]
        for line in total.lines
        if line.gpu_seconds is not None
    ]
    cost = ("cost",) if total.cost is not None else ()
    names = ("no.", "bucket", "GPU-hours", f"of {view.denominator}", *cost, *shares)
    _print_table(table_of(f"Every bucket; shares of {view.denominator} time", names, rows))
    said: dict[str, list[str]] = {}
    for line in total.lines:
        if line.note:
            unknown = "" if line.gpu_seconds is not None else " unknown"
            said.setdefault(line.note, []).append(f"{line.number}{unknown}")
    for note, numbers in said.items():
        console.print(f"{', '.join(numbers)}: {note}", markup=False)


def _print_reconciliation(view: FleetBill) -> None:
    found = view.reconciliation
    if found.effective_cost is None:
        console.print(f"Not reconciled: {found.reason}", markup=False)
        return
    rows = [
        [title, cost_text(cost, found.currency)]
        for title, cost in (
            ("billed, as invoiced", found.billed_cost),
            ("effective cost", found.effective_cost),
            ("  jobs", found.jobs_cost),
            ("  unallocated", found.unallocated_cost),
            ("  unexplained", found.unexplained_cost),
        )
    ]
    _print_table(table_of("Against the bill", ("", "cost"), rows))
    console.print(f"unexplained: {format_share(found.unexplained.value)} of the effective cost")
    if found.uncharged_gpu_hours:
        console.print(f"{_hours(found.uncharged_gpu_hours)} GPU-hours of jobs are in no charge")
    for note in found.notes:
        console.print(note, markup=False)


def _print_not_billed(view: FleetBill) -> None:
    if not view.not_billed:
        return
    listed = view.not_billed[:LISTED]
    rows = [[one.job_id, one.reason] for one in listed]
    _print_table(
        table_of(f"{jobs_text(len(view.not_billed))} without a bill", ("job", "why"), rows)
    )
    if len(view.not_billed) > len(listed):
        console.print(f"... and {len(view.not_billed) - len(listed):,} more; --json prints all")
