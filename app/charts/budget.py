"""Spend of a period by day against its budget, and the tables beside it."""

from __future__ import annotations

from datetime import timedelta
from itertools import accumulate

import plotly.graph_objects as go

from steptax.app.charts.style import blank, day_axis
from steptax.app.charts.tables import Column, Table, table
from steptax.app.compute.measure import Measure
from steptax.app.compute.spend.budget import Day
from steptax.app.format import format_measure, format_range, format_usd
from steptax.app.theme import BLUE, ORANGE, Palette
from steptax.app.views.review.budget import BudgetView, changes, standing


def budget_figure(view: BudgetView, palette: Palette) -> go.Figure:
    """Spend so far, day by day, where it is heading, and the budget."""
    figure = blank(260, legend=True)
    days = [str(d.day) for d in view.days]
    spent = list(accumulate(d.usd or 0.0 for d in view.days))
    figure.add_trace(
        go.Scatter(
            x=days,
            y=spent,
            mode="lines+markers",
            name="spent",
            line={"color": BLUE, "width": 2},
            customdata=[
                f"{day}: {format_usd(total)} in all" for day, total in zip(days, spent, strict=True)
            ],
            hovertemplate="%{customdata}<extra></extra>",
        )
    )
    end = view.spend.at_end_usd
    if end.value is not None and days and spent[-1] < end.value:
        _heading(figure, view, days[-1], spent[-1])
    if view.budget_usd is not None:
        figure.add_hline(
            y=float(view.budget_usd),
            line={"color": palette.marker, "width": 1.5, "dash": "dash"},
            annotation={"text": f"budget {format_usd(view.budget_usd)}", "showarrow": False},
            annotation_position="top left",
        )
    figure.update_layout(hovermode="closest", dragmode=False)
    first, last = view.period.first, view.period.last
    after = last + timedelta(days=1)
    day_axis(figure, (after - first).days, range=[str(first), str(after)])
    figure.update_yaxes(title={"text": "USD"}, rangemode="tozero", fixedrange=True)
    return figure


def _heading(figure: go.Figure, view: BudgetView, day: str, spent: float) -> None:
    end = view.spend.at_end_usd
    assert end.value is not None
    low, high = end.low or end.value, end.high or end.value
    figure.add_trace(
        go.Scatter(
            x=[day, str(view.period.last)],
            y=[spent, end.value],
            mode="lines+markers",
            name="at this rate",
            line={"color": ORANGE, "width": 2, "dash": "dot"},
            error_y={
                "type": "data",
                "symmetric": False,
                "array": [0, high - end.value],
                "arrayminus": [0, end.value - low],
                "thickness": 1,
            },
            customdata=["", f"at the end {format_measure(end)}"],
            hovertemplate="%{customdata}<extra></extra>",
        )
    )


def _goodput(day: Day) -> Measure:
    if day.goodput_ratio is None:
        return Measure.missing("ratio", "it is not known of this day")
    return Measure(day.goodput_ratio, "ratio", day.low_ratio, day.high_ratio)


def days_table(view: BudgetView) -> Table:
    """Cost and goodput of each day."""
    columns = (
        Column("day", "day", "text"),
        Column("usd", "cost", "usd"),
        Column("goodput_ratio", "goodput", "ratio"),
        Column("goodput_ratio_range", "goodput, interval", "text"),
    )
    rows = [[str(d.day), d.usd, d.goodput_ratio, format_range(_goodput(d))] for d in view.days]
    return table(columns, rows, sum_of={"usd": "USD"})


def history_table(view: BudgetView) -> Table:
    """Who set what when, newest first."""
    columns = (
        Column("set_at_us", "set", "time"),
        Column("set_by", "by", "text"),
        Column("change", "what changed", "text", width_px=300),
        Column("budget_usd", "budget", "usd", "what holds from then on"),
        Column("goodput_slo_ratio", "goodput", "ratio", "what holds from then on"),
        Column("note", "why", "text", width_px=320),
    )
    rows = [
        [
            e.set_at_us,
            e.set_by,
            change,
            None if budget is None else float(budget),
            slo,
            e.note,
        ]
        for e, change, (budget, slo) in zip(
            view.history, changes(view.history), standing(view.history), strict=True
        )
    ]
    return table(columns, rows)
