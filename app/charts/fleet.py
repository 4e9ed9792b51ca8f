"""A fleet as pictures: jobs by size and state, failures against 1/N, and how values are spread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import plotly.graph_objects as go

from steptax.app.charts.style import blank, pattern
from steptax.app.format import format_count, format_measure, format_share, format_value
from steptax.app.theme import BLUE, ORANGE, PURPLE, SKY, VERMILLION, YELLOW, Palette
from steptax.app.views.fleet.bucket_jobs import BINS, bin_of, bin_text
from steptax.app.views.fleet.models import FleetView
from steptax.app.words import count_text

SizeUnit = Literal["GPU-hours", "jobs"]
SIZE_UNITS: tuple[SizeUnit, ...] = ("GPU-hours", "jobs")

# A colour and a pattern for each state; others look like what is not known.
_LOOKS: dict[str, tuple[str, str]] = {
    "completed": (SKY, ""),
    "running": (BLUE, "."),
    "pending": (YELLOW, "."),
    "cancelled": (PURPLE, "\\"),
    "timeout": (ORANGE, "/"),
    "failed": (VERMILLION, "/"),
}
_TICKS = [factor * 10.0**power for power in range(-4, 4) for factor in (1, 2, 5)]


def sizes_figure(view: FleetView, unit: SizeUnit, palette: Palette) -> go.Figure:
    """One bar per class of size, one part per state."""
    figure = blank(130 + 36 * len(view.sizes), legend=True)
    names = [row.size for row in view.sizes]
    for state in _states(view):
        colour, shape = _LOOKS.get(state, (palette.unmeasured, "x"))
        values = [
            float((row.jobs_by_state if unit == "jobs" else row.gpu_hours_by_state).get(state, 0))
            for row in view.sizes
        ]
        if not any(values):
            continue
        whole = [
            sum((row.jobs_by_state if unit == "jobs" else row.gpu_hours_by_state).values())
            for row in view.sizes
        ]
        said = [
            f"{format_count(round(v)) + ' jobs' if unit == 'jobs' else format_value(v, unit)}"
            f" · {format_share(v / all_) if all_ else 'nothing'} of this size"
            for v, all_ in zip(values, whole, strict=True)
        ]
        figure.add_trace(
            go.Bar(
                x=values,
                y=names,
                orientation="h",
                name=state,
                customdata=said,
                marker={"color": colour, "pattern": pattern(shape, palette)},
                hovertemplate=f"%{{y}} GPUs<br>{state}<br>%{{customdata}}<extra></extra>",
            )
        )
    figure.update_layout(barmode="stack", bargap=0.25, dragmode=False)
    figure.update_xaxes(title={"text": unit}, fixedrange=True)
    figure.update_yaxes(
        title={"text": "GPUs"}, type="category", autorange="reversed", fixedrange=True
    )
    return figure


def _states(view: FleetView) -> list[str]:
    """Known states in their order, then others as they come."""
    there = [row.state for row in view.states]
    return [*(s for s in _LOOKS if s in there), *(s for s in there if s not in _LOOKS)]


def rate_figure(view: FleetView, palette: Palette) -> go.Figure:
    """Failures of each class of size over what 1/N expects, with the interval of the count."""
    rows = [row for row in view.rate.sizes if row.over_expected.value is not None]
    figure = blank(280)
    values = [row.over_expected.value or 0.0 for row in rows]
    highs = [row.over_expected.high or 0.0 for row in rows]
    lows = [row.over_expected.low or 0.0 for row in rows]
    figure.add_trace(
        go.Scatter(
            x=[row.size for row in rows],
            # Of none counted a log scale has no place; its interval ends above.
            y=[value or None for value in values],
            mode="markers",
            marker={
                "size": 11,
                "color": [VERMILLION if row.off_model else BLUE for row in rows],
                "symbol": ["diamond" if row.off_model else "circle" for row in rows],
            },
            error_y={
                "type": "data",
                "symmetric": False,
                "array": [high - value for high, value in zip(highs, values, strict=True)],
                "arrayminus": [value - low for low, value in zip(lows, values, strict=True)],
                "thickness": 1.5,
                "color": palette.neutral,
            },
            customdata=[
                f"{row.failures:,} failures, {row.expected:,.1f} expected"
                f"<br>{format_measure(row.over_expected)}"
                f"{'<br>does not go with 1/N' if row.off_model else ''}"
                for row in rows
            ],
            hovertemplate="%{x} GPUs<br>%{customdata}<extra></extra>",
            name="failures",
        )
    )
    figure.add_hline(y=1, line={"color": palette.marker, "width": 1.5, "dash": "dash"})
    # On a log scale an annotation stands at the logarithm.
    figure.add_annotation(
        x=1, xref="paper", xanchor="right", y=0, yanchor="bottom", text="1/N", showarrow=False
    )
    figure.update_layout(dragmode=False)
    figure.update_xaxes(type="category", title={"text": "GPUs of a job"}, fixedrange=True)
    figure.update_yaxes(
        type="log",
        title={"text": "observed / expected"},
        tickvals=_TICKS,
        ticktext=[f"{tick:g}" for tick in _TICKS],
        fixedrange=True,
    )
    return figure


def spread_figure(values: Sequence[float], title: str) -> go.Figure:
    """How many jobs have which share, in twentieths."""
    counts = np.bincount([bin_of(value) for value in values], minlength=BINS)
    middle = 100 * (np.arange(BINS) + 0.5) / BINS
    figure = blank(240)
    figure.add_trace(
        go.Bar(
            x=middle,
            y=counts,
            width=100 / BINS * 0.92,
            marker={"color": BLUE},
            customdata=[
                f"{bin_text(number)}: {count_text(count, 'job')}"
                for number, count in enumerate(counts.tolist())
            ],
            hovertemplate="%{customdata}<extra></extra>",
            name=title,
        )
    )
    figure.update_layout(dragmode=False)
    figure.update_xaxes(title={"text": f"{title}, %"}, range=[0, 100], fixedrange=True)
    figure.update_yaxes(title={"text": "jobs"}, rangemode="tozero", fixedrange=True)
    return figure
