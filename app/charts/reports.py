"""What others say of a job: what its log printed, step by step, and scores of other tools."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from steptax.app.charts.style import blank
from steptax.app.charts.tables import Column, Table, table
from steptax.app.theme import BLUE, PURPLE
from steptax.app.views.reported.models import Beside, PrintedSeries, PrintedValue, ReportedScores

_PANEL_PX = 150
_GAP_RATIO = 0.12


def printed_figure(series: Sequence[PrintedSeries]) -> go.Figure:
    """One panel for each of ``series`` over the same steps, the first on top."""
    figure = blank(40 + _PANEL_PX * len(series))
    height = (1.0 - _GAP_RATIO * (len(series) - 1)) / len(series)
    for place, one in enumerate(series):
        axis = "" if place == 0 else str(place + 1)
        top = 1.0 - place * (height + _GAP_RATIO)
        unit = f" {one.unit}" if one.unit else ""
        figure.add_trace(
            go.Scatter(
                x=one.steps.astype(np.float64),
                y=one.values.astype(np.float32),
                mode="lines+markers" if len(one.steps) <= 50 else "lines",
                name=one.printed_as,
                # Loss in the colour that it has among the steps, too.
                line={"color": PURPLE if one.name == "loss" else BLUE, "width": 1.6},
                marker={"size": 5},
                cliponaxis=False,
                xaxis="x",
                yaxis=f"y{axis}",
                hovertemplate=f"step %{{x:d}}<br>{_escaped(one.printed_as)} "
                f"%{{y:.5~g}}{_escaped(unit)}<extra></extra>",
            )
        )
        figure.update_layout(
            {
                f"yaxis{axis}": {
                    "domain": [max(0.0, top - height), top],
                    "title": {"text": one.unit or one.printed_as},
                    "automargin": True,
                    "zeroline": False,
                }
            }
        )
    lowest = "y" if len(series) == 1 else f"y{len(series)}"
    figure.update_xaxes(title={"text": "step"}, hoverformat="d", anchor=lowest)
    return figure


def _escaped(text: str) -> str:
    """A name of a file in a hover text, where tags would be drawn and braces filled in."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("%{", "% {")


def series_table(series: Sequence[PrintedSeries]) -> Table:
    """Every drawn value, one line per step."""
    told = [dict(zip(one.steps.tolist(), one.values.tolist(), strict=True)) for one in series]
    columns = [Column("step", "step", "count")]
    columns += [
        Column(one.name, f"{one.printed_as}, {one.unit}" if one.unit else one.printed_as, "number")
        for one in series
    ]
    rows = [
        (step, *(values.get(step) for values in told))
        for step in sorted(set().union(*(values.keys() for values in told)))
    ]
    left_out = max(one.values_printed - len(one.steps) for one in series)
    note = f"{left_out:,} values between the extremes are left out" if left_out else None
    return table(columns, rows, note=note)


def beside_table(rows: Sequence[Beside]) -> Table:
    """Each figure as printed, and ours."""
    columns = (
        Column("figure", "figure", "text", width_px=180),
        Column("printed", "newest, as printed", "text", width_px=130),
        Column("printed_unit", "unit", "text"),
        Column("ours", "ours", "number"),
        Column("ours_unit", "unit of ours", "text"),
        Column("ours_is", "ours rests on", "text", width_px=320),
        Column("step", "at step", "count"),
        Column("printed_mean", "mean of printed", "number", "over the lines", width_px=125),
        Column("values", "values", "count"),
        Column("printed_as", "called in the log", "text"),
    )
    lines = [
        (
            row.title,
            row.printed.text,
            row.printed.unit or "",
            _in_percent(row, row.ours.value) if row.ours is not None else None,
            _unit(row),
            row.ours_is,
            row.printed.step,
            row.printed.mean_value,
            row.printed.values_printed,
            row.printed.printed_as,
        )
        for row in rows
    ]
    return table(columns, lines)


def _in_percent(row: Beside, value: float | None) -> float | None:
    """Ours in the size of what is printed: a share in percent."""
    is_share = row.ours is not None and row.ours.unit == "ratio"
    return value if value is None or not is_share else 100.0 * value


def _unit(row: Beside) -> str:
    if row.ours is None or row.ours.value is None:
        return ""
    return "%" if row.ours.unit == "ratio" else row.ours.unit


def printed_table(values: Sequence[PrintedValue]) -> Table:
    """Every name that the log printed, with its newest value."""
    columns = (
        Column("name", "name", "text"),
        Column("subject", "of", "text"),
        Column("text", "newest, as printed", "text"),
        Column("value", "value", "number"),
        Column("unit", "unit", "text"),
        Column("step", "at step", "count"),
        Column("values_printed", "values", "count"),
        Column("mean_value", "mean", "number"),
        Column("printed_as", "called in the log", "text"),
    )
    rows = [
        [v.unit or "" if column.key == "unit" else getattr(v, column.key) for column in columns]
        for v in values
    ]
    return table(columns, rows)


def scores_table(scores: ReportedScores) -> Table:
    """The reported scores, newest report first."""
    columns = (
        Column("tool", "tool", "text"),
        Column("report", "report", "text"),
        Column("at_us", "at", "time"),
        Column("step", "step", "count"),
        Column("rank", "rank", "count"),
        Column("host", "host", "text"),
        Column("metric", "metric", "text"),
        Column("listed", "listed as", "text"),
        Column("score", "score", "number"),
        Column("unit", "unit", "text"),
        Column("ranks_total", "of ranks", "count"),
    )
    rows = [
        [row.unit or "" if column.key == "unit" else getattr(row, column.key) for column in columns]
        for row in scores.rows
    ]
    return table(columns, rows, note=scores.note)
