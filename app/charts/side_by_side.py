"""Figure and tables of two sides of a comparison."""

from __future__ import annotations

import itertools

import numpy as np
import plotly.graph_objects as go

from steptax.app.charts.style import MAX_POINTS, blank
from steptax.app.charts.tables import Column, Table, table
from steptax.app.charts.times import in_unit, time_unit
from steptax.app.theme import BLUE, ORANGE
from steptax.app.views.compare.rows import metric_rows
from steptax.app.views.compare.view import Side, SideBySide


def compared_figure(view: SideBySide) -> go.Figure:
    """Step times of both sides over their own steps, counted from each side's first."""
    figure = blank(280, legend=True)
    unit = time_unit([*view.a.step_ms, *view.b.step_ms])
    for side, name, colour, dash in ((view.a, "A", BLUE, "dash"), (view.b, "B", ORANGE, "solid")):
        places, step_ms = _thinned(side, MAX_POINTS // 2)
        figure.add_trace(
            go.Scatter(
                x=places,
                y=in_unit(step_ms, unit),
                name=f"{name}: {side.label}",
                mode="lines",
                line={"color": colour, "dash": dash, "width": 1.6},
                customdata=side.steps[places].astype(np.float64),
                hovertemplate=f"{name} %{{y:,.4~r}} {unit} (step %{{customdata:d}})<extra></extra>",
            )
        )
    figure.update_layout(hovermode="x unified", dragmode="zoom")
    figure.update_xaxes(title={"text": "steps since the first of each side"}, hoverformat="d")
    figure.update_yaxes(title={"text": f"step, {unit}"}, rangemode="tozero")
    return figure


def _thinned(side: Side, limit: int) -> tuple[np.ndarray, np.ndarray]:
    """Places and step times, of each run of steps the longest, so that no spike is lost."""
    count = len(side.step_ms)
    if count <= limit:
        return np.arange(count, dtype=np.int32), side.step_ms.astype(np.float32)
    edges = np.linspace(0, count, limit + 1).round().astype(np.int64)
    runs = itertools.pairwise(edges.tolist())
    places = np.array([first + int(np.argmax(side.step_ms[first:end])) for first, end in runs])
    return places.astype(np.int32), side.step_ms[places].astype(np.float32)


def metrics_table(view: SideBySide) -> Table:
    """Each metric on both sides and how it changed."""
    columns = (
        Column("metric", "metric", "text", width_px=220),
        Column("a", "A", "text", view.a.label),
        Column("b", "B", "text", view.b.label),
        Column("change", "change", "text", "B over A less 1; of shares the difference in points"),
        Column(
            "better", "better", "text", "which side has the better figure; noise not considered"
        ),
    )
    return table(columns, metric_rows(view))


def differences_table(view: SideBySide) -> Table:
    """Fields of the jobs that are not equal."""
    columns = tuple(Column(key, key, "text") for key in ("field", "A", "B"))
    return table(columns, view.differs)
