"""The whole bill of a fleet as stacked bars, one bar per group or period, and its tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Literal

import plotly.graph_objects as go

from steptax.app.charts.style import MAX_POINTS, blank, pattern
from steptax.app.charts.tables import Column, Table, table, total_text
from steptax.app.compute.bill.buckets import BUCKETS, OPEN
from steptax.app.format import format_range, format_share, format_value
from steptax.app.metrics import METRICS
from steptax.app.theme import BLUE, ORANGE, PURPLE, SKY, VERMILLION, YELLOW, Palette
from steptax.app.views.fleet.bill_models import FleetBill, FleetGroup
from steptax.app.views.fleet.groups import GROUP_METRICS, cost_text

BillUnit = Literal["cost", "%", "GPU-hours"]

#: Bars of a chart by label; the groups beyond them are drawn as one.
MAX_BARS = 20
_S_PER_HOUR = 3600.0
_PERIODS = ("month", "day")
#: Ratios that time of which nobody knows what happened may have belonged to.
_WITH_RANGE = ("scheduling_ratio", "ettr_ratio", "goodput_ratio", "effective_mfu_ratio")
_RANGE_HELP = "time of which nobody knows what happened may have belonged to it, or not"
NUMBER_HELP = (
    "where on the way of a paid GPU-second: 0 held by no job, 1 to 3 before the steps, 4 to 6 "
    "between them, 7 to 13 within them; several at once where nothing tells them apart"
)

# A colour for each kind of loss, a pattern for each bucket inside of it.
_LOOKS: dict[str, tuple[str, str]] = {
    "unallocated": ("neutral", "."),
    "pending": ("neutral", "/"),
    "pending_and_startup": ("neutral", "x"),
    "startup": (YELLOW, ""),
    "recovery": (YELLOW, "/"),
    "lost_work": (VERMILLION, ""),
    "checkpoint": (ORANGE, ""),
    "other_blocking": (ORANGE, "/"),
    "input": (PURPLE, ""),
    "exposed_comm": (BLUE, ""),
    "comm_and_bubble": (BLUE, "x"),
    "pipeline_bubble": (BLUE, "/"),
    "straggler_wait": (VERMILLION, "/"),
    "host_gaps": (PURPLE, "/"),
    "comm_and_gaps": (BLUE, "."),
    "kernel_inefficiency": (SKY, ""),
    "kernel_and_recompute": (SKY, "x"),
    "recompute": (SKY, "/"),
    "compute": (SKY, "."),
    "useful": ("gain", ""),
}


def bill_units(view: FleetBill) -> tuple[BillUnit, ...]:
    """The units in which the whole bill is known."""
    cost: tuple[BillUnit, ...] = ()
    if view.total is not None and view.total.cost is not None:
        cost = ("cost",)
    return (*cost, "GPU-hours", "%")


def bill_figure(view: FleetBill, unit: BillUnit, palette: Palette) -> go.Figure:
    """One bar per group, one part per bucket; days and months stand side by side in their order.

    Buckets that hold nothing anywhere are left out of the picture; the table lists them.
    """
    is_time = view.by in _PERIODS
    groups, names = _drawn(view, is_time=is_time)
    figure = blank(420 if is_time else 110 + 34 * len(names), legend=True)
    for bucket in BUCKETS:
        parts = [_amounts(bucket, own, unit) for own in groups]
        if not any(value for value, _ in parts):
            continue
        colour, shape = _look(bucket, palette)
        values = [value for value, _ in parts]
        said = [text for _, text in parts]
        line = next(x for own in groups for g in own for x in g.lines if x.bucket == bucket)
        title = line.title
        figure.add_trace(
            go.Bar(
                x=names if is_time else values,
                y=values if is_time else names,
                orientation="v" if is_time else "h",
                name=title,
                customdata=said,
                marker={"color": colour, "pattern": pattern(shape, palette)},
                hovertemplate=f"%{{{'x' if is_time else 'y'}}}<br>{title}<br>%{{customdata}}"
                "<extra></extra>",
            )
        )
    figure.update_layout(barmode="relative", bargap=0.25, dragmode=False)
    title = {"cost": view.currency or "cost", "%": f"% of {view.denominator} time"}.get(unit, unit)
    if is_time:
        figure.update_xaxes(type="category", fixedrange=True)
        figure.update_yaxes(title={"text": title}, fixedrange=True)
    else:
        figure.update_xaxes(title={"text": title}, fixedrange=True)
        figure.update_yaxes(type="category", autorange="reversed", fixedrange=True)
    # Under the plot: there are more buckets than fit above it.
    figure.update_layout(legend={"yref": "container", "y": 0, "yanchor": "bottom"})
    figure.update_layout(height=figure.layout.height + 130)
    return figure


def _drawn(view: FleetBill, *, is_time: bool) -> tuple[list[list[FleetGroup]], list[str]]:
    """The groups of each bar, and its name."""
    if is_time:
        kept = view.groups[-(MAX_POINTS // len(BUCKETS)) :]
        return [[group] for group in kept], [group.name for group in kept]
    groups = [[group] for group in view.groups[:MAX_BARS]]
    names = [group.name for group in view.groups[:MAX_BARS]]
    if len(view.groups) > MAX_BARS and view.total is not None:
        groups.append([_rest(view.total, view.groups[:MAX_BARS])])
        names.append(f"the other {len(view.groups) - MAX_BARS:,}")
    return groups, names


def _rest(total: FleetGroup, shown: Sequence[FleetGroup]) -> FleetGroup:
    """What is left of the total without the groups that have bars of their own."""
    seconds: dict[str, float] = defaultdict(float)
    costs: dict[str, Decimal] = defaultdict(Decimal)
    for line in (line for group in shown for line in group.lines):
        seconds[line.bucket] += line.gpu_seconds or 0.0
        costs[line.bucket] += line.cost or Decimal(0)
    lines = tuple(
        replace(
            line,
            gpu_seconds=None
            if line.gpu_seconds is None
            else _left(line.gpu_seconds, seconds[line.bucket]),
            cost=None if line.cost is None else line.cost - costs[line.bucket],
        )
        for line in total.lines
    )
    hours = _left(total.gpu_hours, sum(group.gpu_hours for group in shown))
    return replace(total, gpu_hours=hours, lines=lines)


def _left(whole: float, part: float) -> float:
    """The difference; none where it is but what rounding left."""
    left = whole - part
    return 0.0 if abs(left) < 1e-9 * abs(whole) else left


def _amounts(bucket: str, groups: Sequence[FleetGroup], unit: BillUnit) -> tuple[float, str]:
    """What a bucket holds in ``groups`` together, and that in words."""
    lines = [line for group in groups for line in group.lines if line.bucket == bucket]
    hours = sum(line.gpu_seconds or 0.0 for line in lines) / _S_PER_HOUR
    whole = sum(group.gpu_hours for group in groups)
    share = hours / whole if whole else 0.0
    cost = sum((line.cost or Decimal(0) for line in lines), Decimal(0))
    text = f"{format_value(hours, 'GPU-hours')} · {format_share(share)}"
    if any(line.cost is not None for line in lines):
        text += f" · {cost:,.2f}"
    value = {"cost": float(cost), "%": 100.0 * share}.get(unit, hours)
    return value, text


def _look(bucket: str, palette: Palette) -> tuple[str, str]:
    if bucket in OPEN:
        return palette.unmeasured, ("" if bucket == "unexplained" else "x")
    colour, shape = _LOOKS[bucket]
    return {"neutral": palette.neutral, "gain": palette.gain}.get(colour, colour), shape


def bill_table(view: FleetBill) -> Table:
    """Every group with every bucket, one row each: the unknown ones too, with their reason."""
    columns = (
        Column("group", view.by, "text"),
        Column("number", "place", "text", NUMBER_HELP),
        Column("bucket", "bucket", "text"),
        Column("gpu_hours", "GPU-hours", "number"),
        Column("share", f"of {view.denominator}", "ratio", f"share of {view.denominator_text}"),
        Column("cost", f"cost, {view.currency}" if view.currency else "cost", _cost_kind(view)),
        Column("note", "note", "text"),
    )
    rows = [
        (
            group.name,
            line.number,
            line.title,
            None if line.gpu_seconds is None else line.gpu_seconds / _S_PER_HOUR,
            line.share,
            line.cost,
            line.note,
        )
        for group in view.groups
        for line in group.lines
    ]
    made = table(columns, rows)
    return Table(columns, made.rows, _totals(view), f"shares of {view.denominator_text}")


def groups_table(view: FleetBill, most: int | None = None) -> Table:
    """One line per group, the first ``most``: hours, cost and the factors of goodput."""
    factors = [name for name in GROUP_METRICS if name not in ("gpu_hours", "spend_usd")]
    columns = (
        Column("name", view.by, "text"),
        Column("jobs", "jobs", "count"),
        Column("gpu_hours", "GPU-hours", "number"),
        Column("gpu_hours_share", "of all", "ratio"),
        Column("cost", f"cost, {view.currency}" if view.currency else "cost", _cost_kind(view)),
        *(column for name in factors for column in _factor_columns(name)),
        Column("note", "note", "text"),
    )
    rows = [
        (
            group.name,
            group.jobs,
            group.gpu_hours,
            group.gpu_hours_share,
            group.cost,
            *(cell for name in factors for cell in _factor_cells(name, group)),
            _group_note(group),
        )
        for group in view.groups[: len(view.groups) if most is None else most]
    ]
    return Table(columns, tuple(rows), _totals(view), f"ratios of {view.denominator_text}")


def _factor_columns(name: str) -> list[Column]:
    """The column of a factor, and that of its interval where time nobody explained may add to it.

    They are there whether or not a group has one: the row of the total has the same columns.
    """
    metric = METRICS[name]
    kind: Literal["ratio", "number"] = "ratio" if metric.unit == "ratio" else "number"
    found = [Column(name, metric.title, kind, metric.formula)]
    if name in _WITH_RANGE:
        found.append(Column(range_key(name), f"{metric.title}, interval", "text", _RANGE_HELP))
    return found


def _factor_cells(name: str, group: FleetGroup) -> list[object]:
    measure = group.metrics[name]
    return [measure.value, *([format_range(measure)] if name in _WITH_RANGE else [])]


def range_key(name: str) -> str:
    """The key of the column with the interval of ``name``."""
    return f"{name}_range"


def _group_note(group: FleetGroup) -> str:
    """Why a cost or the goodput is not known."""
    goodput = group.metrics["goodput_ratio"]
    said = [f"cost {group.cost_note}"] if group.cost_note else []
    return "; ".join([*said, *([f"goodput: {goodput.reason}"] if goodput.reason else [])])


def _totals(view: FleetBill) -> tuple[str, ...]:
    if view.total is None:
        return ()
    said = [total_text(view.total.gpu_hours, "GPU-hours")]
    if view.total.cost is not None:
        said.append(cost_text(view.total.cost, view.currency))
    return tuple(said)


def _cost_kind(view: FleetBill) -> Literal["usd", "number"]:
    return "usd" if view.currency == "USD" else "number"


def reconciliation_table(view: FleetBill) -> Table:
    """The provider's bill, and who or what it belongs to."""
    found = view.reconciliation
    columns = (
        Column("part", "part", "text"),
        Column("cost", found.currency or "cost", "usd" if found.currency == "USD" else "number"),
        Column("meaning", "meaning", "text"),
    )
    rows = (
        ("billed", found.billed_cost, "as invoiced"),
        ("effective", found.effective_cost, "amortised = jobs + unallocated + unexplained"),
        ("jobs", found.jobs_cost, "of what jobs held, or what tags name"),
        *((f"jobs, by {how}", cost, "part of it") for how, cost in found.by_means.items()),
        ("unallocated", found.unallocated_cost, "held by no job, or a commitment not used"),
        ("unexplained", found.unexplained_cost, "of resources that no job is known to run on"),
    )
    share = found.unexplained.value
    note = None if share is None else f"{format_share(share)} of the effective cost is unexplained"
    return Table(columns, rows, note=note)


def invoices_table(view: FleetBill) -> Table:
    """Every invoice, whole, in its own currency."""
    columns = (
        Column("provider", "provider", "text"),
        Column("invoice", "invoice", "text"),
        Column("currency", "currency", "text"),
        Column("charges", "charges", "number"),
        Column("billed", "billed", "number"),
        Column("effective", "effective", "number"),
        Column("contracted", "contracted", "number"),
        Column("list", "list", "number"),
        Column("by_category", "billed by category", "text"),
    )
    rows = [
        (
            one.provider,
            one.name,
            one.currency or "not stated",
            one.charges,
            one.billed_cost,
            one.effective_cost,
            one.contracted_cost,
            one.list_cost,
            ", ".join(f"{name} {cost:,.2f}" for name, cost in one.billed_by_category.items()),
        )
        for one in view.reconciliation.invoices
    ]
    return table(columns, rows)


def not_billed_table(view: FleetBill) -> Table:
    """Jobs without a bill, each with its reason."""
    columns = (Column("job_id", "job", "text"), Column("reason", "why", "text"))
    return table(columns, [(one.job_id, one.reason) for one in view.not_billed])
