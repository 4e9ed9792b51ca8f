"""Rank by step, and pipeline stage by data-parallel replica: who exceeds the peers, where."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from steptax.app.charts.style import blank
from steptax.app.charts.times import in_unit
from steptax.app.format import format_value
from steptax.app.theme import Palette
from steptax.app.views.job.models import Grid, HeatMap, IntArray, Series
from steptax.app.views.job.shape import coloured

Cells = npt.NDArray[np.int16] | npt.NDArray[np.float32]

_INT16 = 32_767
_LABELLED_CELLS = 256
#: Cells that are circled, and how far beyond the colours they must be.
_CIRCLES = 12
_FAR = 4.0
#: Steps across below which ranks are pooled instead.
_LEAST_STEPS = 64


def heat_figure(
    heat: HeatMap,
    palette: Palette,
    *,
    chosen: tuple[int | None, int | None] = (None, None),
    budget_bytes: int,
    unit: str = "ms",
) -> go.Figure:
    """Excess over the peers' median by rank (down) and step (across).

    ``chosen`` rank and step are marked. ``heat`` must have been brought to ``budget_bytes`` by
    ``fit`` before, so that a cell that is clicked is the cell that was sent.
    """
    values, unit = encode(heat, budget_bytes, unit)
    middle, limit = in_unit(heat.middle_ms, unit), in_unit(heat.colour_limit_ms, unit)
    firsts, lasts = heat.ranks[heat.rank_edges[:-1]], heat.ranks[heat.rank_edges[1:] - 1]
    rows = _labels(zip(firsts.tolist(), lasts.tolist(), strict=True))
    columns = _labels(heat.columns)
    figure = blank(360)
    # Not as titles of axes: they would cost the width that a telephone does not have.
    peak = f"{heat.pooled_by} excess of the cell" if heat.is_pooled else "excess over peers"
    figure.add_trace(
        go.Heatmap(
            z=values,
            x=columns,
            y=rows,
            zmin=middle - limit,
            zmax=middle + limit,
            zmid=middle,
            colorscale=colour_scale(palette.diverging),
            colorbar={"title": {"text": unit}, "thickness": 12, "outlinewidth": 0, "x": 1.02},
            hovertemplate=(
                f"rank %{{y}}<br>step %{{x}}<br>{peak} %{{z:+,.3~r}} {unit}<extra></extra>"
            ),
            hoverongaps=False,
        )
    )
    figure.update_layout(dragmode="select", plot_bgcolor=palette.missing)
    figure.update_xaxes(title={"text": "step"}, **cell_axis(columns, 8, down=False))
    figure.update_yaxes(title={"text": "rank"}, **cell_axis(rows, 12, down=True))
    _circle_outliers(figure, heat, palette, rows, columns)
    _mark(figure, heat, palette, chosen)
    return figure


def heat_note(heat: HeatMap, unit: str = "ms") -> str | None:
    """What must be known to read the map; None where it is plain."""
    parts = []
    if heat.is_pooled:
        held = f"A cell holds the {heat.pooled_by} excess of its ranks and steps"
        if heat.middle_ms:
            typical = format_value(in_unit(heat.middle_ms, unit), unit)
            held += (
                f", of the typical cell +{typical}: that is the middle of the colours, orange is "
                "more and blue is less"
            )
        parts.append(f"{held}.")
    if _outliers(heat).size:
        parts.append("Circles: far beyond the colours.")
    return " ".join(parts) or None


def columns_note(heat: HeatMap, block_steps: int) -> str:
    """What a cell of a map of blocks of ``block_steps`` steps stands for, as it is drawn."""
    # The first and the last block may be cut by the ends of the job.
    inner = heat.columns[1:-1] or heat.columns
    widths = [last - first + 1 for first, last in inner]
    least, most = min(widths), max(widths)
    width = f"{most:,}" if least == most else f"{least:,} to {most:,}"
    note = f"a column is {width} {'step' if most == 1 else 'steps'}"
    if most > block_steps:
        note += f", of whose blocks of {block_steps:,} the largest mean is drawn"
    if len(heat.rank_edges) - 1 < len(heat.ranks):
        note += ", a row the rank of its group that exceeds most"
    return note


def encode(heat: HeatMap, budget_bytes: int, unit: str = "ms") -> tuple[Cells, str]:
    """The cells in the smallest exact-enough type, and their unit.

    float32 where it fits ``budget_bytes``; else int16 in µs or ms, whichever holds the largest
    value, where every cell is known (an integer has no word for a missing cell) and it is smaller.
    Normalised times, and seconds, whose integers would be too coarse, stay float32.
    """
    exact = in_unit(heat.excess_ms, unit).astype(np.float32)
    size = sent_bytes(exact)
    if size <= budget_bytes or unit != "ms" or np.isnan(exact).any():
        return exact, unit
    largest = float(np.abs(exact).max())
    for smaller, factor in (("µs", 1000.0), ("ms", 1.0)):
        if largest * factor <= _INT16:
            whole = np.rint(heat.excess_ms * factor).astype(np.int16)
            return (whole, smaller) if sent_bytes(whole) < size else (exact, unit)
    return exact, unit


def sent_bytes(values: Cells) -> int:
    """Size of an array inside a figure: base64, where Plotly writes a slash as six characters."""
    text = base64.b64encode(values.tobytes())
    return len(text) + 5 * text.count(b"/")


def fit(heat: HeatMap, budget_bytes: int, unit: str = "ms") -> HeatMap:
    """Pool further, by the largest excess, until the cells fit ``budget_bytes``.

    Means always do: of unequal cells no mean could be told.

    Steps are pooled before ranks: a rank is what a person looks for.
    """
    whole = heat
    while sent_bytes(encode(heat, budget_bytes, unit)[0]) > budget_bytes:
        if heat.excess_ms.shape[1] > _LEAST_STEPS:
            heat = replace(
                heat, excess_ms=_pool(heat.excess_ms, 1), step_edges=_halved(heat.step_edges)
            )
        elif heat.excess_ms.shape[0] > 1:
            heat = replace(
                heat, excess_ms=_pool(heat.excess_ms, 0), rank_edges=_halved(heat.rank_edges)
            )
        else:
            break
    return heat if heat is whole else coloured(heat)


def cell_at(heat: HeatMap, series: Series, row: int, column: int) -> tuple[int, int]:
    """The rank and step that a cell stands for.

    Of a pooled cell it is the step whose slowest rank lies in the cell and worked longest; where
    the slowest ranks lie elsewhere, the first rank and step of the cell.
    """
    row = min(max(row, 0), heat.excess_ms.shape[0] - 1)
    column = min(max(column, 0), heat.excess_ms.shape[1] - 1)
    ranks = heat.ranks[heat.rank_edges[row] : heat.rank_edges[row + 1]]
    steps = heat.steps[heat.step_edges[column] : heat.step_edges[column + 1]]
    inside = np.isin(series.steps, steps) & np.isin(series.slowest_rank, ranks)
    if inside.any():
        work = np.where(inside & ~np.isnan(series.work_max_ms), series.work_max_ms, -np.inf)
        at = int(np.argmax(work))
        return int(series.slowest_rank[at]), int(series.steps[at])
    return int(ranks[0]), int(steps[0])


def worst_in_box(
    heat: HeatMap, x_range: Sequence[float], y_range: Sequence[float]
) -> tuple[int, int]:
    """Row and column of the largest excess in a box given in places of cells."""
    rows = _span(y_range, heat.excess_ms.shape[0])
    columns = _span(x_range, heat.excess_ms.shape[1])
    box = heat.excess_ms[rows, columns]
    if np.isnan(box).all():
        return rows.start, columns.start
    row, column = np.unravel_index(int(np.nanargmax(box)), box.shape)
    return rows.start + int(row), columns.start + int(column)


def grid_figure(grid: Grid, palette: Palette, unit: str = "ms") -> go.Figure:
    """Mean excess by pipeline stage (down) and data-parallel replica (across)."""
    cells = in_unit(grid.excess_ms, unit).astype(np.float32)
    known = np.abs(cells[~np.isnan(cells)])
    limit = float(known.max()) if known.size and known.max() > 0 else 1.0
    digits = 0 if limit >= 100 else 1 if limit >= 3 else 2
    columns, rows = [str(d) for d in grid.dp], [str(p) for p in grid.pp]
    figure = blank(min(420, 120 + 26 * len(rows)))
    figure.add_trace(
        go.Heatmap(
            z=cells,
            x=columns,
            y=rows,
            customdata=grid.rank.astype(np.int32),
            zmin=-limit,
            zmax=limit,
            zmid=0,
            colorscale=colour_scale(palette.diverging),
            colorbar={"title": {"text": unit}, "thickness": 12, "outlinewidth": 0, "x": 1.02},
            # A number in each cell, as long as there is room for it.
            texttemplate=f"%{{z:+.{digits}f}}" if cells.size <= _LABELLED_CELLS else None,
            hovertemplate=(
                "stage %{y}, replica %{x}<br>rank %{customdata}<br>"
                f"mean excess %{{z:+,.3~r}} {unit}<extra></extra>"
            ),
            hoverongaps=False,
            xgap=1,
            ygap=1,
        )
    )
    figure.update_layout(plot_bgcolor=palette.missing)
    across, stage = {"text": "data-parallel replica"}, {"text": "pipeline stage"}
    figure.update_xaxes(title=across, **cell_axis(columns, 16, down=False))
    figure.update_yaxes(title=stage, **cell_axis(rows, 16, down=True))
    return figure


def rank_at(grid: Grid, row: int, column: int) -> int | None:
    """The rank of a cell of the grid; None where there is none."""
    rows, columns = grid.rank.shape
    if not (0 <= row < rows and 0 <= column < columns) or grid.rank[row, column] < 0:
        return None
    return int(grid.rank[row, column])


def colour_scale(colours: Sequence[str]) -> list[list[float | str]]:
    """``colours`` at even distances, as Plotly takes a scale."""
    last = len(colours) - 1
    return [[i / last, colour] for i, colour in enumerate(colours)]


def _labels(ends: Iterable[tuple[int, int]]) -> list[str]:
    """What each cell covers, from its first and last: ``17`` or ``16–19``."""
    return [str(a) if a == b else f"{a}\N{EN DASH}{b}" for a, b in ends]


def _round_up(every: int) -> int:
    """The least of 1, 2, 5, 10, 20, 50 ... not below ``every``: a reader counts by these."""
    size = int(10 ** (len(str(max(1, every))) - 1))
    return next(size * step for step in (1, 2, 5, 10) if size * step >= every)


def cell_axis(labels: Sequence[str], wanted: int, *, down: bool) -> dict[str, object]:
    """An axis of cells without a rim, with about ``wanted`` labels at even places.

    Where cells are pooled only what they begin with is printed.
    """
    every = _round_up(-(-len(labels) // wanted))
    named = labels[::every]
    ends = [-0.5, len(labels) - 0.5]
    return {
        "type": "category",
        "showgrid": False,
        "range": ends[::-1] if down else ends,
        "tickmode": "array",
        "tickvals": named,
        "ticktext": [label.split("\N{EN DASH}")[0] for label in named],
    }


def _mark(
    figure: go.Figure, heat: HeatMap, palette: Palette, chosen: tuple[int | None, int | None]
) -> None:
    """Point at the row of the chosen rank and the column of the chosen step, from outside."""
    rank, step = chosen
    common = {"showarrow": False, "font": {"color": palette.marker, "size": 13}}
    row = _place(heat.ranks, heat.rank_edges, rank)
    column = _place(heat.steps, heat.step_edges, step)
    if row is not None:
        where = {"x": 1, "xref": "x domain", "xanchor": "left", "y": row, "yref": "y"}
        figure.add_annotation(text="\N{BLACK LEFT-POINTING TRIANGLE}", **where, **common)
    if column is not None:
        where = {"x": column, "xref": "x", "y": 1, "yref": "y domain", "yanchor": "bottom"}
        figure.add_annotation(text="\N{BLACK DOWN-POINTING TRIANGLE}", **where, **common)


def _outliers(heat: HeatMap) -> npt.NDArray[np.intp]:
    """Flat places of the largest cells that the clipped colours cannot tell from the next."""
    flat = np.where(np.isnan(heat.excess_ms), -np.inf, heat.excess_ms).ravel()
    order = np.argsort(-flat, kind="stable")[:_CIRCLES]
    return order[flat[order] - heat.middle_ms > _FAR * heat.colour_limit_ms]


def _circle_outliers(
    figure: go.Figure,
    heat: HeatMap,
    palette: Palette,
    rows: Sequence[str],
    columns: Sequence[str],
) -> None:
    """Circle single cells that stand out; one pixel of a saturated colour would not be seen."""
    row, column = np.unravel_index(_outliers(heat), heat.excess_ms.shape)
    if not len(row):
        return
    figure.add_trace(
        go.Scatter(
            x=[columns[i] for i in column],
            y=[rows[i] for i in row],
            mode="markers",
            marker={"symbol": "circle-open", "size": 11, "color": palette.marker},
            # The cell below answers to the pointer.
            hoverinfo="skip",
            showlegend=False,
        )
    )


def _place(values: IntArray, edges: IntArray, wanted: int | None) -> int | None:
    """The cell that holds ``wanted``, if any does."""
    if wanted is None:
        return None
    found = np.flatnonzero(values == wanted)
    if not len(found):
        return None
    return int(np.searchsorted(edges, found[0], side="right")) - 1


def _span(bounds: Sequence[float], count: int) -> slice:
    """Cells whose middle lies between two places, at least the one under the first place."""
    low, high = sorted(bounds[:2])
    first = min(max(round(low), 0), count - 1)
    last = min(max(round(high), first), count - 1)
    return slice(first, last + 1)


def _halved(edges: IntArray) -> IntArray:
    return np.append(edges[:-1:2], edges[-1])


def _pool(cells: npt.NDArray[np.float64], axis: int) -> npt.NDArray[np.float64]:
    """Largest value of each pair along ``axis``; NaN where both are."""
    starts = np.arange(0, cells.shape[axis], 2)
    filled = np.where(np.isnan(cells), -np.inf, cells)
    pooled: npt.NDArray[np.float64] = np.maximum.reduceat(filled, starts, axis=axis)
    return np.where(np.isneginf(pooled), np.nan, pooled)
