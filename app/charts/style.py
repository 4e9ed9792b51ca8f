"""What all figures share: configuration, margins, limits on size.

Fonts, grids and backgrounds come from the page's own theme, which follows the reader's screen at
once; only what carries data is coloured here.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from steptax.app.theme import Palette

CONFIG: dict[str, Any] = {
    # plotly.js would otherwise offer to upload the figure to its maker.
    "showSendToCloud": False,
    "displaylogo": False,
    "responsive": True,
    "modeBarButtonsToRemove": ["lasso2d", "autoScale2d", "toggleSpikelines"],
}
"""Configuration of every figure, on a page and in an export."""

MAX_POINTS = 5_000
"""Points in one chart; above it a browser without a GPU becomes slow."""

LIVE_BYTES = 250_000
"""Size of one figure that is redrawn every two seconds. At ten times that a browser falls behind
the server, and both grow without bound."""

DAY_FORMAT = "%Y-%m-%d"
"""How an axis writes a day. Plotly's own way, ``Nov 1`` over ``2026``, is used nowhere else."""

FEW_DAYS, DAY_MS = 7, 86_400_000
"""So few days get a tick each: else an axis marks every few hours with the name of its day."""

PAGE_BYTES = 4_000_000
"""Size of one figure that is drawn once."""


def blank(height_px: int, *, legend: bool = False) -> go.Figure:
    """A figure without traces, with a fixed height so that a page does not jump on refresh."""
    # Plotly asks whoever imported pandas for its types, also while another thread is still at it:
    # this waits for that. A page imports it anyway, for its tables.
    importlib.import_module("pandas")
    axis = {"automargin": True, "zeroline": False}
    # All at once: an update of a figure that is there takes eight times as long.
    return go.Figure(
        layout={
            # The page has its own; Plotly's would add seven kilobytes to each figure.
            "template": {},
            "height": height_px,
            # No pad: around cells it would look like a rim of cells that were not reported.
            "margin": {"l": 8, "r": 8, "t": 40 if legend else 16, "b": 8, "pad": 0},
            "showlegend": legend,
            # Above the plot: at its side a legend takes the width that a telephone does not have.
            "legend": {
                "orientation": "h",
                "traceorder": "normal",
                "x": 0,
                "xanchor": "left",
                "y": 1.0,
                "yanchor": "bottom",
            },
            # What a person zoomed into stays zoomed when the figure is drawn anew.
            "uirevision": "keep",
            "xaxis": axis,
            "yaxis": axis,
        }
    )


def day_axis(figure: go.Figure, days: int, **more: Any) -> None:
    """Make x an axis of ``days`` days, each written as in tables and sentences: 2026-11-30.

    ``more`` goes to the axis as it is.
    """
    if days <= FEW_DAYS:
        more = {"dtick": DAY_MS, **more}
    figure.update_xaxes(
        type="date", tickformat=DAY_FORMAT, hoverformat=DAY_FORMAT, fixedrange=True, **more
    )


def pattern(shape: str | Sequence[str], palette: Palette) -> dict[str, Any]:
    """Lines over the colour of a bar, so that colour is not alone in telling bars apart."""
    return {
        "shape": shape,
        "fillmode": "overlay",
        "fgcolor": palette.background,
        "fgopacity": 0.6,
        "size": 7,
        "solidity": 0.2,
    }


def payload_bytes(figure: go.Figure) -> int:
    """Size of ``figure`` as it goes to the browser."""
    return len(figure.to_json().encode())
