"""``steptax ledger``: the whole bill of the fleet, by any label or by time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Annotated

import typer

from steptax.app.commands.options import (
    BillRulesFlag,
    JsonFlag,
    LakeFlag,
    PriceFlag,
    lake_root,
    price_of,
)
from steptax.app.commands.output import console, print_wide, show, table_of
from steptax.app.compute.measure import Measure
from steptax.app.errors import UserError
from steptax.app.format import (
    format_count,
    format_hours,
    format_interval,
    format_share,
    format_value,
)
from steptax.app.views.bill.rules import amounts_of, read_rules, with_options
from steptax.app.views.fleet.bill import fleet_bill
from steptax.app.views.fleet.bill_models import (
    DENOMINATORS,
    LEVELS,
    FleetBill,
    FleetGroup,
    Invoice,
)
from steptax.app.views.fleet.groups import cost_text
from steptax.app.views.pricing.offers import OfferFilter
from steptax.app.views.workspace import open_workspace
from steptax.app.words import count_text

S_PER_HOUR = 3600.0
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
    rules: BillRulesFlag = None,
    tags: Annotated[
        list[str] | None,
        typer.Option("--tag", metavar="WHAT=TAG", help="tag that names a job, team, project, ..."),
    ] = None,
    resources: Annotated[
        list[str] | None,
        typer.Option("--resource", metavar="ID=HOST", help="host that a resource of the bill is"),
    ] = None,
    rates: Annotated[
        list[str] | None,
        typer.Option("--rate", metavar="CURRENCY=USD", help="USD for one of it: --rate EUR=1.08"),
    ] = None,
    invoiced: Annotated[
        list[str] | None,
        typer.Option("--invoiced", metavar="INVOICE=AMOUNT", help="what an invoice is about"),
    ] = None,
    provider: Annotated[
        str | None, typer.Option("--provider", help="connected prices of this seller only")
    ] = None,
    term: Annotated[str | None, typer.Option("--term", help="of this term: on-demand, 1y")] = None,
    region: Annotated[str | None, typer.Option("--region", help="of this region only")] = None,
    segment: Annotated[str | None, typer.Option("--segment", help="of this segment only")] = None,
    lake: LakeFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """Every GPU-second and dollar of all jobs in one bucket: by team, project, day, month."""
    ws = open_workspace(lake_root(lake))
    view = fleet_bill(
        ws,
        by=by,
        denominator=denominator,
        tz=tz,
        price=price_of(price),
        first=day_of(first, "--from"),
        last=day_of(last, "--to"),
        job_ids=jobs or (),
        rules=with_options(
            read_rules(rules or ws.settings.bill_rules),
            tags=tags or (),
            resources=resources or (),
            rates=rates or (),
        ),
        invoiced=amounts_of(invoiced or (), "--invoiced"),
        offers=OfferFilter(provider, segment, term, region),
    )
    show(view.as_json(), as_json=as_json, text=lambda: print_bill(view), warnings=view.warnings)


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
    console.print(view.sentence)
    console.print(f"{view.period} · percentages of {view.denominator_text}")
    console.print(f"cost: {view.cost_basis}")
    for one in view.prices:
        console.print(f"  {one.badge} ({count_text(one.jobs, 'job')}, {one.offer.source})")
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


def _print_groups(view: FleetBill, total: FleetGroup) -> None:
    shown = (*view.groups[:LISTED], total)
    # A column without any value would say "unknown" in every row: its reason is said once.
    factors = [f for f in _FACTORS if any(g.metrics[f[0]].value is not None for g in shown)]
    rows = [
        [
            group.name,
            format_count(group.jobs),
            format_hours(group.gpu_hours),
            format_share(group.gpu_hours_share),
            *([cost_text(group.cost, view.currency)] if total.cost is not None else []),
            *(_factor(group.metrics[name], unit) for name, _, unit in factors),
        ]
        for group in shown
    ]
    cost = ("cost",) if total.cost is not None else ()
    names = (view.by, "jobs", "GPU-hours", "of all", *cost, *(title for _, title, _ in factors))
    print_wide(table_of(f"By {view.by}; ratios of {view.denominator} time", names, rows))
    if len(view.groups) > LISTED:
        console.print(f"... and {len(view.groups) - LISTED:,} more groups; --json prints all")
    for group in shown:
        if group.cost_note:
            console.print(f"{group.name}: cost {group.cost_note}")
    said: dict[str, list[str]] = {}
    for name, title, _ in _FACTORS:
        measure = total.metrics[name]
        for text in (*([measure.reason] if measure.reason else []), *measure.warnings):
            said.setdefault(text, []).append(title)
    for text, titles in said.items():
        console.print(f"{', '.join(titles)}: {text}")


def _factor(measure: Measure, unit: str) -> str:
    """A value with its interval; the unit of GPU-hours stands in the heading."""
    text = format_value(measure.value, unit)
    interval = format_interval(measure)
    return text if interval is None else f"{text} ({interval})"


def _print_buckets(view: FleetBill, total: FleetGroup) -> None:
    beside = view.groups if 1 < len(view.groups) <= SIDE_BY_SIDE else ()
    shares = {group.name: {line.bucket: line.share for line in group.lines} for group in beside}
    rows = [
        [
            line.number,
            line.title,
            format_hours(line.gpu_seconds / S_PER_HOUR),
            format_share(line.share),
            *([cost_text(line.cost, view.currency)] if total.cost is not None else []),
            *(format_share(own.get(line.bucket)) for own in shares.values()),
        ]
        for line in total.lines
        if line.gpu_seconds is not None
    ]
    cost = ("cost",) if total.cost is not None else ()
    names = ("no.", "bucket", "GPU-hours", f"of {view.denominator}", *cost, *shares)
    print_wide(table_of(f"Every bucket; shares of {view.denominator} time", names, rows))
    said: dict[str, list[str]] = {}
    for line in total.lines:
        if line.note:
            unknown = "" if line.gpu_seconds is not None else " unknown"
            said.setdefault(line.note, []).append(f"{line.number}{unknown}")
    for note, numbers in said.items():
        console.print(f"{', '.join(numbers)}: {note}")


def _print_reconciliation(view: FleetBill) -> None:
    found = view.reconciliation
    if found.effective_cost is None:
        console.print(f"Not reconciled: {found.reason}")
        return
    rows = [
        [title, cost_text(cost, found.currency)]
        for title, cost in (
            ("billed, as invoiced", found.billed_cost),
            ("effective cost", found.effective_cost),
            ("  jobs", found.jobs_cost),
            *((f"    by {means}", cost) for means, cost in found.by_means.items()),
            ("  unallocated", found.unallocated_cost),
            ("  unexplained", found.unexplained_cost),
        )
    ]
    print_wide(table_of("Against the bill", ("", "cost"), rows))
    console.print(f"unexplained: {format_share(found.unexplained.value)} of the effective cost")
    if found.uncharged_gpu_hours:
        console.print(
            f"{format_hours(found.uncharged_gpu_hours)} GPU-hours of jobs are in no charge"
        )
    for note in found.notes:
        console.print(note)
    _print_invoices(found.invoices)


def _print_invoices(invoices: Sequence[Invoice]) -> None:
    told = any(one.stated is not None for one in invoices)
    rows = [
        [
            one.provider,
            one.name,
            f"{one.charges:,}",
            *(
                cost_text(cost, one.currency)
                for cost in (
                    one.billed_cost,
                    one.effective_cost,
                    one.contracted_cost,
                    one.list_cost,
                    *((one.stated, one.difference) if told else ()),
                )
            ),
        ]
        for one in invoices[:LISTED]
    ]
    stated = ("invoiced", "difference") if told else ()
    names = ("provider", "invoice", "charges", "billed", "effective", "contracted", "list", *stated)
    print_wide(table_of("Invoices, whole, each in its own currency", names, rows))
    if len(invoices) > LISTED:
        console.print(f"... and {len(invoices) - LISTED:,} more invoices; --json prints all")


def _print_not_billed(view: FleetBill) -> None:
    if not view.not_billed:
        return
    listed = view.not_billed[:LISTED]
    rows = [[one.job_id, one.reason] for one in listed]
    print_wide(
        table_of(f"{count_text(len(view.not_billed), 'job')} without a bill", ("job", "why"), rows)
    )
    if len(view.not_billed) > len(listed):
        console.print(f"... and {len(view.not_billed) - len(listed):,} more; --json prints all")
