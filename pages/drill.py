"""From all ranks and steps of a job down to one rank in one step."""

from __future__ import annotations

import streamlit as st

from steptax.app.charts import job_tables as tables
from steptax.app.charts.focus import focus, job_time_unit, timeline_ranks
from steptax.app.charts.series import loss_figure, step_figure
from steptax.app.charts.timeline import timeline_figure
from steptax.app.views.job.models import JobView
from steptax.pages import data, frame, heat, parts, stage_grid, state
from steptax.pages.drawn import drawn


def draw(view: JobView, budget_bytes: int) -> None:
    """Rank by step; the step in focus; all steps; the pipeline grid."""
    parts.section("Who is slow, when")
    st.caption(
        "Work over the median of the peers: orange is slower, blue is faster, grey did not report. "
        "Click a cell, drag a box, choose a line of the table, or type rank and step."
    )
    rank, step = _focus(view)
    left, right = st.columns([3, 2], gap="medium")
    with left:
        heat.draw(view, rank, step, budget_bytes)
    with right:
        _ranks(view)
    with st.container():
        _step(view, rank, step)
    with st.container():
        _series(view, step)
    with st.container():
        if view.grid is not None:
            stage_grid.draw(view.grid, job_time_unit(view))


def _focus(view: JobView) -> tuple[int | None, int]:
    """Rank and step as typed, clicked or linked; empty fields say what is shown instead."""
    shown_rank, shown_step = focus(view, None, None)
    with st.container(horizontal=True, key="focus", vertical_alignment="bottom"):
        rank = _field("Rank", state.RANK, shown_rank)
        step = _field("Step", state.STEP, shown_step)
    return focus(view, rank, step)


def _field(title: str, key: str, shown: int | None) -> int | None:
    return st.number_input(
        title,
        min_value=0,
        value=None,
        step=1,
        key=key,
        bind="query-params",
        placeholder="none" if shown is None else str(shown),
        width=150,
    )


def _ranks(view: JobView) -> None:
    ranks = [row.rank for row in view.ranks]

    def choose() -> None:
        row = state.selected_row("ranks")
        if row is not None:
            state.choose_rank(ranks[row])

    if not view.ranks:
        st.caption("Ranks cannot be compared: " + parts.plain(view.card.sentence))
        return
    parts.rows("ranks", tables.ranks_table(view), on_select=choose, height=360)
    parts.download("ranks", lambda: tables.ranks_table(view))


def _step(view: JobView, rank: int | None, step: int) -> None:
    parts.section(f"Step {step}, rank by rank")
    unit = job_time_unit(view)
    with frame.guarded():
        timeline = data.timeline(view, step, timeline_ranks(view, rank))
        parts.figure(
            "timeline",
            drawn(timeline, timeline_figure, timeline, parts.palette(), unit),
            lambda: tables.timeline_table(timeline, unit),
            alt=f"Phases of each rank in step {timeline.step}, as stacked bars.",
        )
        if timeline.note:
            st.caption(parts.plain(timeline.note))


def _series(view: JobView, step: int) -> None:
    parts.section("Step by step")
    series, unit = view.series, job_time_unit(view)
    parts.figure(
        "series",
        drawn(view, step_figure, series, parts.palette(), chosen_step=step, unit=unit),
        lambda: tables.series_table(series, unit),
        alt="Step time with the median, 95th percentile and largest work of the ranks, by step.",
    )
    loss = drawn(view, loss_figure, series)
    if loss is not None:
        parts.figure("loss", loss, lambda: tables.series_table(series, unit), alt="Loss by step.")
