"""``steptax fleet``: what breaks most and what it costs, how often, where."""

from __future__ import annotations

from typing import Annotated

import typer

from steptax.app.commands.ledger import day_of
from steptax.app.commands.options import JsonFlag, LakeFlag, PriceFlag, lake_root, price_of
from steptax.app.commands.output import console, print_wide, show, table_of
from steptax.app.commands.progress import counting
from steptax.app.format import UNKNOWN, format_count, format_measure, format_share, format_value
from steptax.app.metrics import METRICS
from steptax.app.views.fleet.filter import FleetFilter
from steptax.app.views.fleet.models import FleetView
from steptax.app.views.fleet.view import fleet_view
from steptax.app.views.review.burn_words import burn_text, hours_text
from steptax.app.views.workspace import open_workspace

#: Hosts and devices that are listed in a terminal.
LISTED_PLACES = 10
#: Teams, projects, clusters and months that are.
LISTED_GROUPS = 12


TeamFlag = Annotated[list[str] | None, typer.Option("--team", help="jobs of it; repeat it")]
ProjectFlag = Annotated[list[str] | None, typer.Option("--project", help="jobs of it; repeat it")]
ClusterFlag = Annotated[list[str] | None, typer.Option("--cluster", help="jobs on it; repeat it")]
StateFlag = Annotated[
    list[str] | None, typer.Option("--state", help="failed, completed, ...; repeat it")
]
SizeFlag = Annotated[
    list[str] | None, typer.Option("--size", help="GPUs of a job: 1, 2-7, 8-15, ...; repeat it")
]
FirstFlag = Annotated[
    str | None, typer.Option("--from", metavar="DATE", help="first day of start, 2026-11-01")
]
LastFlag = Annotated[
    str | None, typer.Option("--to", metavar="DATE", help="last day of start, included")
]


def filter_of(
    team: list[str] | None,
    project: list[str] | None,
    cluster: list[str] | None,
    state: list[str] | None,
    size: list[str] | None,
    first: str | None,
    last: str | None,
) -> FleetFilter:
    """The jobs that these flags choose; UserError for a day that is none."""
    return FleetFilter(
        tuple(team or ()),
        tuple(project or ()),
        tuple(cluster or ()),
        tuple(state or ()),
        tuple(size or ()),
        day_of(first, "--from"),
        day_of(last, "--to"),
    )


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command("fleet")(fleet_command)


def fleet_command(
    team: TeamFlag = None,
    project: ProjectFlag = None,
    cluster: ClusterFlag = None,
    state: StateFlag = None,
    size: SizeFlag = None,
    first: FirstFlag = None,
    last: LastFlag = None,
    price: PriceFlag = None,
    lake: LakeFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """What breaks most and what it costs: failures, fail-slow, repeat offenders, idle capacity.

    Without a choice it is of all jobs. What no job states is chosen by its name in the tables:
    "no team stated", "unknown", "not stated".
    """
    only = filter_of(team, project, cluster, state, size, first, last)
    ws = open_workspace(lake_root(lake))
    with counting("Analysing the steps of jobs"):
        view = fleet_view(ws, price=price_of(price), only=only)
    show(view.as_json(), as_json=as_json, text=lambda: _print(view), warnings=view.warnings)


def _print(view: FleetView) -> None:
    console.print(view.sentence)
    if view.only:
        console.print(f"Only jobs of: {view.only}")
    console.print(view.coverage)
    for name, measure in view.metrics.items():
        base = f", {view.bases[name]}" if name in view.bases else ""
        console.print(f"  {METRICS[name].title}: {format_measure(measure)}{base}")
    losses = [
        (
            row.what,
            format_value(row.gpu_hours.value, ""),
            format_share(row.share.value),
            format_value(row.usd.value, "USD"),
            row.note if row.gpu_hours.value is not None else row.gpu_hours.reason or "",
        )
        for row in view.losses
    ]
    names = ("what", "GPU-hours", "of all", "cost", "what that is, or why it is unknown")
    print_wide(table_of("What breaks", names, losses))
    _print_sizes(view)
    _print_places(view)
    _print_slow(view)
    _print_capacity(view)


def _print_sizes(view: FleetView) -> None:
    states = [
        (row.state, format_count(row.jobs), format_share(row.jobs_share),
         format_value(row.gpu_hours.value, ""),
         format_value(row.gpu_hours_share.value, "ratio"),
         format_value(view.costs["state"][row.state].value, "USD"))
        for row in view.states
    ]  # fmt: skip
    names = ("state", "jobs", "of jobs", "GPU-hours", "of GPU-hours", "cost")
    print_wide(table_of("States", names, states))
    sizes = [
        (
            row.size,
            format_count(row.jobs),
            format_value(row.gpu_hours.value, ""),
            format_value(row.failed_jobs.value, "ratio"),
            format_value(row.failed_gpu_hours.value, "ratio"),
        )
        for row in view.sizes
    ]
    columns = ("GPUs", "jobs", "GPU-hours", "failed, of jobs", "failed, of GPU-hours")
    print_wide(table_of("Sizes", columns, sizes))
    for title, groups in view.groups.items():
        told = [
            (
                row.name,
                format_count(row.jobs),
                format_value(row.gpu_hours.value, ""),
                format_value(row.failed_jobs.value, "ratio"),
                format_value(row.failed_gpu_hours.value, "ratio"),
                format_value(view.costs[title][row.name].value, "USD"),
            )
            for row in groups[:LISTED_GROUPS]
        ]
        print_wide(table_of(f"By {title}", (title, *columns[1:], "cost"), told))
        if len(groups) > LISTED_GROUPS:
            console.print(f"  and {len(groups) - LISTED_GROUPS:,} more; --json prints all")
    rates = [
        (
            row.size,
            f"{row.failures:,}",
            f"{row.expected:,.1f}",
            format_measure(row.over_expected),
            format_measure(row.mtbf_h),
            "no" if row.off_model else "yes",
        )
        for row in view.rate.sizes
    ]
    checked = ("GPUs", "failures", "by 1/N", "observed / expected", "MTBF", "goes with 1/N")
    if rates:
        print_wide(table_of("Failures against 1/N", checked, rates))
    for text in view.rate.limits:
        console.print(f"  {text}")


def _print_places(view: FleetView) -> None:
    rows = [row for one in view.places for row in one.rows]
    rows.sort(key=lambda row: (not row.is_named, row.chance))
    lines = [
        (
            row.name,
            row.kind,
            row.what,
            f"{row.count:,}",
            f"{row.expected:.3g}",
            f"{row.chance:.2g}",
            "yes" if row.is_named else "no",
            row.detail,
        )
        for row in rows[:LISTED_PLACES]
    ]
    names = ("where", "kind", "what", "count", "by chance", "chance", "stands out", "detail")
    if lines:
        print_wide(table_of("Repeat offenders", names, lines))
    for one in view.places:
        if one.reason:
            console.print(f"  {one.what} by {one.kind}: unknown, {one.reason}")


def _print_slow(view: FleetView) -> None:
    rows = [
        (row.size, f"{row.affected:,} of {row.jobs:,}", format_measure(row.share),
         f"{row.episodes:,}", format_measure(row.median_s), format_measure(row.lost_gpu_hours))
        for row in view.fail_slow
    ]  # fmt: skip
    names = ("GPUs", "jobs", "share", "episodes", "median length", "GPU-hours lost")
    print_wide(table_of("Fail-slow", names, rows))
    spreads = [
        (title, f"p{100 * q:.0f}", format_measure(of_jobs), format_measure(of_hours))
        for title, spread in (("waste", view.waste), ("ETTR", view.ettr))
        for q, of_jobs, of_hours in spread.quantiles
    ]
    columns = ("what", "quantile", "of jobs", "of GPU-hours")
    print_wide(table_of("How slow jobs are", columns, spreads))
    text = f"  GPU-hours of jobs slower by 10 % or more: {format_measure(view.slow_gpu_hours)}"
    console.print(text)


def _print_capacity(view: FleetView) -> None:
    capacity = view.capacity
    for title, measure in (
        ("unallocated", capacity.unallocated_gpu_hours),
        ("its cost", capacity.unallocated_usd),
        ("idle samples", capacity.idle),
    ):
        console.print(f"  {title}: {format_measure(measure)}")
    listed = [
        (row.cluster, row.gpu_model or UNKNOWN, f"{row.nodes:,}", f"{row.devices:,}")
        for row in capacity.inventory
    ]
    if listed:
        print_wide(table_of("Inventory", ("cluster", "device", "nodes", "devices"), listed))
    for row in view.burn:
        console.print(
            f"  error budget of {row.scope}, {row.period}: burn "
            + ", ".join(f"{burn_text(b)} over {hours_text(b.window.hours)}" for b in row.burns)
            + f", {format_measure(row.week_burn)} over 7 days",
        )
    if view.burn_reason:
        console.print(f"  error budgets: {view.burn_reason}")
