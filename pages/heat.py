"""The heat map of a job: who exceeds the peers, rank by step."""

from __future__ import annotations

from typing import get_args

import streamlit as st

from steptax.app.charts.focus import job_time_unit
from steptax.app.charts.heatmap import cell_at, fit, heat_figure, heat_note, worst_in_box
from steptax.app.charts.job_tables import heat_table
from steptax.app.views.job.models import HeatMap, JobView, Pooling
from steptax.pages import bridge, parts, state
from steptax.pages.drawn import drawn


def draw(view: JobView, rank: int | None, step: int, budget_bytes: int) -> None:
    """The map; a cell that is clicked, or the worst of a box, becomes the choice."""
    unit, whole = job_time_unit(view), _pooled(view)
    heat, series = drawn(view, fit, whole, budget_bytes, unit), view.series

    # A tab keeps what it can call: not the view, which has figures and all else.
    def choose_cell(row: int, column: int) -> None:
        state.choose_cell(*cell_at(heat, series, row, column))

    def choose_box() -> None:
        box = state.selected_box("heat")
        if box is not None:
            choose_cell(*worst_in_box(heat, *box))

    parts.figure(
        "heat",
        drawn(
            view,
            heat_figure,
            heat,
            parts.palette(),
            chosen=(rank, step),
            budget_bytes=budget_bytes,
            unit=unit,
        ),
        lambda: heat_table(whole, unit),
        alt=f"Heat map of excess work by rank and step. {view.card.sentence}",
        on_select=choose_box,
    )
    bridge.on_cell("heat", choose_cell)
    if note := heat_note(heat, unit):
        st.caption(note)


def _pooled(view: JobView) -> HeatMap:
    """The map by what the reader wants of a cell that several ranks and steps share."""
    if view.heat_mean is None:
        return view.heat
    chosen = st.segmented_control(
        "A cell holds the",
        get_args(Pooling),
        default="largest",
        required=True,
        key=state.CELLS,
        bind="query-params",
        help="The largest excess of its ranks and steps shows a single spike; their mean shows "
        "what lasts.",
    )
    return view.heat_mean if chosen == "mean" else view.heat
