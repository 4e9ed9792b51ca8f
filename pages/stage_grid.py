"""Pipeline stages by replicas: which of them is slow, and how to get to its rank."""

from __future__ import annotations

import streamlit as st

from steptax.app.charts import job_tables as tables
from steptax.app.charts.heatmap import grid_figure, rank_at
from steptax.app.views.job.models import Grid
from steptax.pages import bridge, parts, state


def draw(grid: Grid, unit: str) -> None:
    """The heat map of the grid; a click chooses the rank of a cell."""

    def choose(row: int, column: int) -> None:
        rank = rank_at(grid, row, column)
        if rank is not None:
            state.choose_rank(rank)

    parts.section("Pipeline stage by replica")
    st.markdown(parts.plain(grid.pattern))
    parts.figure(
        "grid",
        grid_figure(grid, parts.palette(), unit),
        lambda: tables.grid_table(grid, unit),
        alt=f"Heat map of mean excess by pipeline stage and replica. {grid.pattern}",
    )
    bridge.on_cell("grid", choose)
