"""Job drill-down: who makes the others wait, since when, why, and what it costs."""

from __future__ import annotations

import streamlit as st

from steptax.app.charts import job_tables as tables
from steptax.app.charts.card import card_fields
from steptax.app.charts.focus import focus, timeline_ranks, title_of, window_text
from steptax.app.charts.heatmap import (
    cell_at,
    fit,
    grid_figure,
    heat_figure,
    rank_at,
    worst_in_box,
)
from steptax.app.charts.series import loss_figure, step_figure
from steptax.app.charts.style import LIVE_BYTES, PAGE_BYTES
from steptax.app.charts.timeline import timeline_figure
from steptax.app.charts.waterfall import units_of, waterfall_figure
from steptax.app.errors import NotFoundError
from steptax.app.metrics import METRICS
from steptax.app.views.card_text import card_as_text
from steptax.app.views.models import JobView
from steptax.pages import bridge, data, frame, parts, state

_NUMBERS = (
    "straggler_tax_ratio",
    "slowdown_ratio",
    "persistent_share_ratio",
    "goodput_ratio",
    "mfu_ratio",
    "gpu_hours",
    "spend_usd",
    "recoverable_usd",
    "unexplained_ratio",
)


def page() -> None:
    """Draw the page once, and again every two seconds while its job runs."""
    chosen = state.read()
    if chosen.job_id is None:
        st.info("Choose a job above.")
        return
    try:
        is_live = data.job(chosen, chosen.job_id).coverage.is_live
    except NotFoundError as problem:
        parts.error(problem)
        frame.wait_for(chosen.job_id, said="Looks again every 2 seconds, in case it just started.")
        return
    live = is_live and chosen.live
    st.fragment(_body, run_every=data.LIVE_EVERY_S if live else None)(live)


def _body(live: bool) -> None:
    with frame.guarded():
        chosen = state.read()
        view = data.job(chosen, str(chosen.job_id))
        if live and not view.coverage.is_live:
            st.rerun()  # the job ended: draw once more, at rest
        _head(view)
        left, right = st.columns([13, 9], gap="medium")
        with left:
            _card(view)
        with right:
            _numbers(view)
            parts.notes(view.coverage.warnings)
        _drill(view, chosen, LIVE_BYTES if live else PAGE_BYTES)
        _ledger(view)


def _head(view: JobView) -> None:
    frame.coverage(f"{view.coverage.text} · {window_text(view)} · {view.price.basis}")
    if view.coverage.stale:
        with st.container(key="stale"):
            st.warning(parts.plain(view.coverage.stale), icon=":material/hourglass_disabled:")
    if view.coverage.stopped:
        stopped = "  \n".join(parts.plain(rank.text) for rank in view.coverage.stopped)
        with st.container(key="stopped"):
            st.error(stopped, icon=":material/report:")
    parts.sentence(view.card.sentence)
    st.caption(parts.plain(title_of(view)))


def _card(view: JobView) -> None:
    with st.container(key="card", border=True):
        parts.card(card_fields(view))
        with st.expander("Copy as text", icon=":material/content_copy:"):
            st.code(card_as_text(view), language=None, wrap_lines=True)


def _numbers(view: JobView) -> None:
    with st.container(horizontal=True, key="kpis"):
        for name in _NUMBERS:
            if name in view.metrics:
                parts.number(METRICS[name].title, view.metrics[name], name)


def _drill(view: JobView, chosen: state.Selection, budget_bytes: int) -> None:
    """Rank by step; the chosen step; all steps; the pipeline grid."""
    heat = fit(view.heat, budget_bytes)
    rank, step = focus(view, chosen.rank, chosen.step)

    def choose_cell(row: int, column: int) -> None:
        state.choose_cell(*cell_at(heat, view.series, row, column))

    def choose_box() -> None:
        box = state.selected_box("heat")
        if box is not None:
            choose_cell(*worst_in_box(heat, *box))

    def choose_rank() -> None:
        row = state.selected_row("ranks")
        if row is not None:
            state.choose_rank(view.ranks[row].rank)

    def choose_grid(row: int, column: int) -> None:
        found = rank_at(view.grid, row, column) if view.grid else None
        if found is not None:
            state.choose_rank(found)

    parts.section("Who is slow, when")
    st.caption(
        "Work over the median of the peers: orange is slower, blue is faster. "
        "Click a cell, drag a box, choose a line of the table, or type rank and step."
    )
    left, right = st.columns([3, 2], gap="medium")
    with left:
        parts.figure(
            "heat",
            heat_figure(heat, parts.palette(), chosen=(rank, step), budget_bytes=budget_bytes),
            lambda: tables.heat_table(view.heat),
            alt=f"Heat map of excess work by rank and step. {view.card.sentence}",
            on_select=choose_box,
        )
        bridge.on_cell("heat", choose_cell)
    with right:
        parts.rows("ranks", tables.ranks_table(view), on_select=choose_rank, height=360)
        parts.download("ranks", lambda: tables.ranks_table(view))
    _step(view, rank, step)
    _series(view, step)
    if view.grid is not None:
        parts.section("Pipeline stage by replica")
        st.markdown(parts.plain(view.grid.pattern))
        grid = view.grid
        parts.figure(
            "grid",
            grid_figure(grid, parts.palette()),
            lambda: tables.grid_table(grid),
            alt=f"Heat map of mean excess by pipeline stage and replica. {grid.pattern}",
        )
        bridge.on_cell("grid", choose_grid)


def _step(view: JobView, rank: int | None, step: int) -> None:
    with st.container(horizontal=True, key="focus", vertical_alignment="bottom"):
        for key, title, default in ((state.RANK, "Rank", rank), (state.STEP, "Step", step)):
            st.number_input(
                title,
                min_value=0,
                value=None,
                step=1,
                key=key,
                bind="query-params",
                placeholder="none" if default is None else str(default),
                width=150,
            )
    with frame.guarded():
        timeline = data.timeline(view, step, timeline_ranks(view, rank))
        st.markdown(f"**Step {timeline.step}, rank by rank**")
        parts.figure(
            "timeline",
            timeline_figure(timeline, parts.palette()),
            lambda: tables.timeline_table(timeline),
            alt=f"Phases of each rank in step {timeline.step}, as stacked bars in milliseconds.",
        )
        if timeline.note:
            st.caption(parts.plain(timeline.note))


def _series(view: JobView, step: int) -> None:
    parts.section("Step by step")
    parts.figure(
        "series",
        step_figure(view.series, parts.palette(), chosen_step=step),
        lambda: tables.series_table(view),
        alt="Step time with the median, 95th percentile and largest work of the ranks, by step.",
    )
    loss = loss_figure(view.series)
    if loss is not None:
        parts.figure("loss", loss, lambda: tables.series_table(view), alt="Training loss by step.")


def _ledger(view: JobView) -> None:
    parts.section("Where the paid time went")
    left, right = st.columns([3, 2], gap="medium")
    with left:
        unit = parts.unit_choice(units_of(view.ledger))
        parts.figure(
            "ledger",
            waterfall_figure(view.ledger, unit, parts.palette()),
            lambda: tables.ledger_table(view.ledger),
            alt=f"Waterfall from paid time to the ranks' own computing. {view.ledger_note}",
        )
    with right:
        parts.rows("ledger_lines", tables.ledger_table(view.ledger))
    st.caption(parts.plain(view.ledger_note))


if __name__ == "__main__":
    page()
