"""What is left of a slowdown with all but one thing ideal, and what repairs give back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from steptax.app.charts.style import blank, pattern
from steptax.app.charts.times import in_measure, in_unit, time_unit
from steptax.app.compute.measure import Measure
from steptax.app.format import format_interval, format_value
from steptax.app.theme import BLUE, ORANGE, VERMILLION, Palette
from steptax.app.views.trace.models import CurvePoint, StepSeries, TraceBar

#: Slowdown from which on a bar is drawn as a loss, if all of its interval is above 1.
_COSTS = 1.01
_LABELLED_COLUMNS = 8
_LINE_POINTS = 2_000 // 3
#: Columns of the curve up to which the added rank stands under each.
_NAMED_POINTS = 8


def type_figure(bars: Sequence[TraceBar], palette: Palette) -> go.Figure:
    """Bars to the right, one for each thing, from 1 (it costs nothing) on, with their intervals."""
    shown = [bar for bar in bars if bar.measure.value is not None]
    names = [bar.key for bar in shown]
    figure = blank(70 + 30 * max(2, len(shown)))
    figure.add_trace(
        go.Bar(
            y=names,
            x=[value - 1 for value in _values(shown)],
            base=[1.0] * len(shown),
            orientation="h",
            marker=_marker(shown, palette),
            error_x=_errors(shown, palette),
            customdata=[_spoken(bar) for bar in shown],
            hovertemplate="%{customdata}<extra></extra>",
        )
    )
    figure.update_layout(bargap=0.3, dragmode=False)
    low, high = _extent(shown)
    figure.update_xaxes(
        title={"text": "slowdown that is left, ×"},
        range=[low, high],
        fixedrange=True,
        tickformat=".3~g",
    )
    # The amount stands with the name: beside the bar it would meet the interval.
    figure.update_yaxes(
        autorange="reversed",
        type="category",
        fixedrange=True,
        tickmode="array",
        tickvals=names,
        ticktext=[f"{bar.label} <b>{_amount(bar)}</b>" for bar in shown],
    )
    figure.add_vline(x=1.0, line={"color": palette.text, "width": 1})
    return figure


def column_figure(bars: Sequence[TraceBar], palette: Palette, title: str) -> go.Figure:
    """The same as columns, for things that have a number: stages, data-parallel ranks."""
    shown = [bar for bar in bars if bar.measure.value is not None]
    names = [bar.key for bar in shown]
    figure = blank(250)
    figure.add_trace(
        go.Bar(
            x=names,
            y=[value - 1 for value in _values(shown)],
            base=[1.0] * len(shown),
            marker=_marker(shown, palette),
            error_y=_errors(shown, palette),
            customdata=[_spoken(bar) for bar in shown],
            hovertemplate="%{customdata}<extra></extra>",
        )
    )
    figure.update_layout(bargap=0.3, dragmode=False)
    low, high = _extent(shown)
    every = max(1, -(-len(names) // 16))
    has_room = len(shown) <= _LABELLED_COLUMNS
    figure.update_xaxes(
        title={"text": title},
        type="category",
        fixedrange=True,
        tickmode="array",
        tickvals=names[::every],
        ticktext=[
            f"{bar.key}<br><b>{_amount(bar)}</b>" if has_room else bar.key for bar in shown[::every]
        ],
        tickangle=0,
    )
    figure.update_yaxes(
        title={"text": "slowdown that is left, ×"},
        range=[low, high],
        fixedrange=True,
        tickformat=".3~g",
    )
    figure.add_hline(y=1.0, line={"color": palette.text, "width": 1})
    return figure


def series_figure(
    series: StepSeries, palette: Palette, *, chosen_step: int | None = None
) -> go.Figure:
    """Each analysed step: as measured, simulated without launch delays, and ideal."""
    keep = _kept(series.measured_ms)
    steps = series.steps[keep].astype(np.float64)
    mode = "lines+markers" if len(keep) <= 100 else "lines"
    figure = blank(270, legend=True)
    unit = time_unit(series.measured_ms)
    lines = (
        ("measured", series.measured_ms[keep], palette.neutral, "solid", 2.0),
        ("original, simulated", series.original_ms[keep], VERMILLION, "dash", 1.4),
        ("ideal", np.full(len(keep), series.ideal_ms), BLUE, "dot", 1.8),
    )
    slowdown = series.S[keep]
    slowest = series.slowest_rank[keep]
    for name, values, colour, dash, width in lines:
        is_first = name == "measured"
        figure.add_trace(
            go.Scatter(
                x=steps,
                y=in_unit(values, unit).astype(np.float32),
                name=name,
                mode="lines" if name == "ideal" else mode,
                line={"color": colour, "dash": dash, "width": width},
                marker={"size": 5, "symbol": "circle" if is_first else "diamond-open"},
                customdata=[
                    f"S {s:.3f}×, slowest rank {r}"
                    for s, r in zip(slowdown.tolist(), slowest.tolist(), strict=True)
                ]
                if is_first
                else None,
                hovertemplate=f"{name} %{{y:,.4~r}} {unit}"
                + (" (%{customdata})" if is_first else "")
                + "<extra></extra>",
            )
        )
    figure.update_layout(hovermode="x unified", dragmode="zoom")
    figure.update_xaxes(title={"text": "step"}, hoverformat="d")
    figure.update_yaxes(title={"text": f"{unit} per step"}, rangemode="tozero", tickformat=",")
    if chosen_step is not None and chosen_step in series.steps:
        figure.add_vline(x=chosen_step, line={"color": palette.marker, "width": 1, "dash": "dot"})
    return figure


def slowest_step(series: StepSeries) -> int:
    """Number of the step that takes longest as simulated."""
    return int(series.steps[int(np.argmax(series.original_ms))])


def worst_figure(points: Sequence[CurvePoint], before: Measure, palette: Palette) -> go.Figure:
    """Step time with the k slowest ranks repaired together, from none on, with its interval."""
    shown = [point for point in points if point.step_ms.value is not None]
    figure = blank(270)
    x = [point.k for point in shown]
    unit = time_unit([before.value, *(point.step_ms.value for point in shown)])
    measures = [in_measure(point.step_ms, unit) for point in shown]
    y = [measure.value for measure in measures]
    said = [_said_of(point) for point in shown]
    if before.value is not None:
        now = in_measure(before, unit)
        x, y = [0, *x], [now.value, *y]
        said, measures = ["nothing is repaired", *said], [now, *measures]
    figure.add_trace(
        go.Scatter(
            x=x,
            y=y,
            mode="lines+markers",
            line={"color": ORANGE, "width": 2, "shape": "linear"},
            marker={"size": 8},
            error_y=_bounds(measures, palette),
            customdata=said,
            hovertemplate=f"%{{customdata}}<br>step %{{y:,.4~r}} {unit}<extra></extra>",
        )
    )
    named = {0: "none"} | {point.k: f"{point.k}<br>+{point.rank}" for point in shown}
    has_room = len(x) <= _NAMED_POINTS + 1
    figure.update_layout(dragmode=False, hovermode="closest")
    figure.update_xaxes(
        title={"text": "slowest ranks repaired together" + (", +rank added" if has_room else "")},
        fixedrange=True,
        **(
            {"tickmode": "array", "tickvals": x, "ticktext": [named[k] for k in x]}
            if has_room
            else {"dtick": max(1, -(-len(x) // 12))}
        ),
    )
    figure.update_yaxes(
        title={"text": f"{unit} per step"}, rangemode="tozero", fixedrange=True, tickformat=","
    )
    return figure


def _said_of(point: CurvePoint) -> str:
    worth = [
        format_value(m.value, m.unit)
        for m in (point.share, point.gpu_hours_per_day, point.usd_per_day)
        if m.value is not None
    ]
    ranks = "the slowest rank" if point.k == 1 else f"the {point.k} slowest ranks"
    return f"{ranks}, rank {point.rank} last<br>gives back {', '.join(worth) or 'unknown'}"


def _values(bars: Sequence[TraceBar]) -> list[float]:
    return [bar.measure.value for bar in bars if bar.measure.value is not None]


def _amount(bar: TraceBar) -> str:
    return format_value(bar.measure.value, "x")


def _spoken(bar: TraceBar) -> str:
    interval = format_interval(bar.measure)
    return f"{bar.title}<br>{_amount(bar)}" + (f" ({interval})" if interval else "")


def _marker(bars: Sequence[TraceBar], palette: Palette) -> dict[str, object]:
    """What costs something has stripes as well as its colour."""
    costs = [
        (bar.measure.value or 0.0) >= _COSTS and (bar.measure.low or _COSTS) > 1 for bar in bars
    ]
    return {
        "color": [palette.loss if cost else palette.neutral for cost in costs],
        "line": {"width": 0},
        "pattern": pattern(["/" if cost else "" for cost in costs], palette),
    }


def _errors(bars: Sequence[TraceBar], palette: Palette) -> dict[str, object]:
    return _bounds([bar.measure for bar in bars], palette)


def _bounds(measures: Sequence[Measure], palette: Palette) -> dict[str, object]:
    """Both arms of the interval; none where there is no interval."""
    above, below = [], []
    for measure in measures:
        value = measure.value or 0.0
        above.append(max(0.0, (measure.high if measure.high is not None else value) - value))
        below.append(max(0.0, value - (measure.low if measure.low is not None else value)))
    return {
        "type": "data",
        "symmetric": False,
        "array": above,
        "arrayminus": below,
        "color": palette.text,
        "thickness": 1.2,
        "width": 4,
    }


def _extent(bars: Sequence[TraceBar]) -> tuple[float, float]:
    """Range of the axis: 1 and all intervals, with a little room."""
    ends = [1.0, 1.05]
    for bar in bars:
        ends += [v for v in (bar.measure.value, bar.measure.low, bar.measure.high) if v is not None]
    room = 0.03 * (max(ends) - min(ends))
    return min(ends) - (room if min(ends) < 1 else 0.0), max(ends) + room


def _kept(values: np.ndarray) -> np.ndarray:
    """At most ``_LINE_POINTS`` places, with the longest step of every run among them."""
    if len(values) <= _LINE_POINTS:
        return np.arange(len(values))
    edges = np.linspace(0, len(values), _LINE_POINTS + 1).round().astype(np.int64)
    peaks = [
        a + int(np.argmax(np.where(np.isnan(values[a:b]), -np.inf, values[a:b])))
        for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
    ]
    return np.unique(np.asarray(peaks))
