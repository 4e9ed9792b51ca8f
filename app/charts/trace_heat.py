"""Slowdown of every worker, pipeline stages down and data-parallel ranks across.

The pattern is the diagnosis (Lin et al., OSDI'25, section 8): one hot cell is a worker, a hot row a
stage, a hot column a data-parallel rank.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from steptax.app.charts.heatmap import cell_axis, colour_scale
from steptax.app.charts.style import blank
from steptax.app.theme import Palette
from steptax.app.views.trace.models import WorkerGrid

#: Cells up to which, and columns up to which, there is room for numbers.
_LABELLED_CELLS = 256
_LABELLED_COLUMNS = 16
#: Frames that are drawn; a pattern of more pieces is told by its colours alone.
_FRAMES = 64
Box = tuple[int, int, int, int]


def worker_figure(grid: WorkerGrid, palette: Palette, *, chosen: int | None = None) -> go.Figure:
    """Slowdown by stage and data-parallel rank; cells of the pattern have a frame.

    ``chosen`` is the rank in focus: arrows point at its row and column.
    """
    cells = grid.slowdown.astype(np.float32)
    rows, columns = cells.shape
    downs, across = [str(p) for p in grid.stages], [str(d) for d in grid.dps]
    is_labelled = cells.size <= _LABELLED_CELLS and columns <= _LABELLED_COLUMNS
    figure = blank(min(460, max(200, 110 + 38 * rows)))
    figure.add_trace(
        go.Heatmap(
            z=cells,
            x=across,
            y=downs,
            customdata=grid.ranks.astype(np.int32),
            zmin=grid.colour_low,
            zmax=grid.colour_high,
            # From no slowdown on: the upper half of the scale of all heat maps.
            colorscale=colour_scale(palette.diverging[len(palette.diverging) // 2 :]),
            colorbar={
                "title": {"text": "S"},
                "thickness": 12,
                "outlinewidth": 0,
                "x": 1.04,
                "tickformat": ".2~f",
            },
            texttemplate="%{z:.2f}" if is_labelled else None,
            hovertemplate=(
                "stage %{y}, data-parallel rank %{x}<br>rank %{customdata}<br>"
                "slowdown %{z:.3f}×<extra></extra>"
            ),
            hoverongaps=False,
            xgap=1,
            ygap=1,
        )
    )
    figure.update_layout(plot_bgcolor=palette.missing, dragmode=False)
    figure.update_xaxes(
        title={"text": "data-parallel rank"},
        fixedrange=True,
        **cell_axis(across, 16, down=False),
    )
    figure.update_yaxes(
        title={"text": "pipeline stage"}, fixedrange=True, **cell_axis(downs, 16, down=True)
    )
    for top, left, bottom, right in list(frames(grid.highlighted))[:_FRAMES]:
        figure.add_shape(
            type="rect",
            x0=left - 0.5,
            x1=right + 0.5,
            y0=top - 0.5,
            y1=bottom + 0.5,
            line={"color": palette.marker, "width": 3},
        )
    _point_at(figure, grid, palette, chosen)
    return figure


def frames(marked: npt.NDArray[np.bool_]) -> Iterator[Box]:
    """Rectangles (top, left, bottom, right; all included) that cover ``marked`` exactly.

    Runs of a row that stand under equal runs are one rectangle: a hot row or column has one frame.
    """
    open_boxes: dict[tuple[int, int], int] = {}
    for row in range(marked.shape[0] + 1):
        runs = set(_runs(marked[row])) if row < marked.shape[0] else set()
        for left, right in [run for run in open_boxes if run not in runs]:
            yield open_boxes.pop((left, right)), left, row - 1, right
        for run in runs:
            open_boxes.setdefault(run, row)


def _runs(flags: npt.NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(np.concatenate(([False], flags, [False])).astype(np.int8)))
    for first, after in edges.reshape(-1, 2).tolist():
        yield first, after - 1


def worker_at(grid: WorkerGrid, row: int, column: int) -> int | None:
    """The rank of a cell; None where there is none."""
    rows, columns = grid.ranks.shape
    if not (0 <= row < rows and 0 <= column < columns) or grid.ranks[row, column] < 0:
        return None
    return int(grid.ranks[row, column])


def _point_at(figure: go.Figure, grid: WorkerGrid, palette: Palette, chosen: int | None) -> None:
    """Point at the row and the column of the rank in focus, from outside."""
    rows, columns = np.nonzero(grid.ranks == (-1 if chosen is None else chosen))
    if chosen is None or not len(rows):
        return
    row, column = int(rows[0]), int(columns[0])
    common = {"showarrow": False, "font": {"color": palette.marker, "size": 13}}
    figure.add_annotation(
        text="\N{BLACK LEFT-POINTING TRIANGLE}",
        x=1,
        xref="x domain",
        xanchor="left",
        y=row,
        yref="y",
        **common,
    )
    figure.add_annotation(
        text="\N{BLACK DOWN-POINTING TRIANGLE}",
        x=column,
        xref="x",
        y=1,
        yref="y domain",
        yanchor="bottom",
        **common,
    )
