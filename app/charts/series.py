"""What happens from step to step: step time, the ranks' work, loss."""

from __future__ import annotations

import itertools

import numpy as np
import plotly.graph_objects as go

from steptax.app.charts.style import MAX_POINTS, blank
from steptax.app.charts.times import in_unit
from steptax.app.format import format_value
from steptax.app.theme import BLUE, ORANGE, PURPLE, VERMILLION, Palette
from steptax.app.views.job.models import FloatArray, IntArray, Series

_LINES = 4
_BAND = "rgba(0,114,178,0.14)"
"""Between median and 95th percentile: blue, and what lies under it still shows."""


def step_figure(
    series: Series,
    palette: Palette,
    *,
    chosen_step: int | None = None,
    unit: str = "ms",
    spread_of: str = "",
    error_ratio: float | None = None,
) -> go.Figure:
    """Step time with the median, 95th percentile and maximum of the ranks' work.

    ``error_ratio`` is how far median and 95th percentile may be from the exact ones, and
    ``spread_of`` says what they are of where that is not the step alone; both are said on hovering,
    and the band between the two is filled.
    """
    keep = spikes(series, MAX_POINTS // _LINES)
    steps = series.steps[keep]
    figure = blank(280, legend=True)
    slowest = series.slowest_rank[keep]
    lines = (
        ("step", series.duration_ms, palette.neutral, "solid", 2.0),
        ("slowest", series.work_max_ms, VERMILLION, "solid", 1.2),
        ("95 %", series.work_p95_ms, ORANGE, "dash", 1.2),
        ("median", series.work_p50_ms, BLUE, "dot", 1.8),
    )
    for name, values, colour, dash, width in lines:
        shown = in_unit(values[keep], unit).astype(np.float32)
        if np.isnan(shown).all():
            continue
        is_max = values is series.work_max_ms
        is_spread = error_ratio is not None and name in ("median", "95 %")
        exact = f" ± {format_value(error_ratio, 'ratio')}{spread_of}" if is_spread else ""
        is_band = is_spread and name == "median" and figure.data[-1].name == "95 %"
        said = name if values is series.duration_ms else f"{name} rank's work"
        figure.add_trace(
            go.Scatter(
                x=_compact(steps),
                y=shown,
                name=name,
                mode="lines",
                line={"color": colour, "dash": dash, "width": width},
                fill="tonexty" if is_band else None,
                fillcolor=_BAND if is_band else None,
                customdata=slowest.astype(np.int32) if is_max else None,
                hovertemplate=f"{said} %{{y:,.4~r}} {unit}"
                + (" (rank %{customdata})" if is_max else exact)
                + "<extra></extra>",
            )
        )
    figure.update_layout(hovermode="x unified", dragmode="zoom")
    figure.update_xaxes(title={"text": "step"}, hoverformat="d")
    figure.update_yaxes(title={"text": unit}, rangemode="tozero")
    if chosen_step is not None and len(steps) and steps[0] <= chosen_step <= steps[-1]:
        figure.add_vline(x=chosen_step, line={"color": palette.marker, "width": 1, "dash": "dot"})
    return figure


def loss_figure(series: Series) -> go.Figure | None:
    """Training loss by step; None where no loss was reported."""
    if series.loss is None or np.isnan(series.loss).all():
        return None
    keep = ~np.isnan(series.loss)
    keep[np.flatnonzero(keep)[MAX_POINTS:]] = False
    figure = blank(160)
    figure.add_trace(
        go.Scatter(
            x=_compact(series.steps[keep]),
            y=series.loss[keep].astype(np.float32),
            mode="lines",
            line={"color": PURPLE, "width": 1.5},
            hovertemplate="step %{x}<br>loss %{y:.5~g}<extra></extra>",
        )
    )
    figure.update_xaxes(title={"text": "step"}, hoverformat="d")
    figure.update_yaxes(title={"text": "loss"})
    return figure


def spikes(series: Series, limit: int) -> IntArray:
    """At most ``limit`` places of ``series`` that keep the longest step and work of every run."""
    count = len(series.steps)
    if count <= limit:
        return np.arange(count, dtype=np.int64)
    edges = np.linspace(0, count, limit // 2 + 1).round().astype(np.int64)
    found = [
        a + peak
        for a, b in itertools.pairwise(edges.tolist())
        for peak in (_peak(series.duration_ms[a:b]), _peak(series.work_max_ms[a:b]))
    ]
    return np.unique(np.asarray(found, dtype=np.int64))


def _peak(values: FloatArray) -> int:
    return int(np.argmax(np.where(np.isnan(values), -np.inf, values)))


def _compact(steps: IntArray) -> np.ndarray:
    """Step numbers in half the bytes, where they fit."""
    fits = len(steps) == 0 or int(np.abs(steps).max()) < 2**31
    return steps.astype(np.int32) if fits else steps.astype(np.float64)
