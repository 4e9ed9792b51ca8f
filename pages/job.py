"""Job drill-down: who makes the others wait, since when, why, and what it costs."""

from __future__ import annotations

import streamlit as st

from steptax.app.charts.card import card_fields
from steptax.app.charts.job_tables import ledger_table
from steptax.app.charts.style import LIVE_BYTES, PAGE_BYTES
from steptax.app.charts.waterfall import units_of, waterfall_figure
from steptax.app.errors import NotFoundError
from steptax.app.metrics import METRICS
from steptax.app.views.job.card_text import card_as_text
from steptax.app.views.job.models import JobView
from steptax.pages import (
    collectives,
    data,
    devices,
    drill,
    frame,
    history,
    job_head,
    parts,
    quiet,
    said,
    state,
    trace,
    unstepped,
    why,
)
from steptax.pages.drawn import drawn

_NUMBERS = (
    "straggler_tax_ratio",
    "slowdown_ratio",
    "persistent_share_ratio",
    "goodput_ratio",
    "ettr_ratio",
    "mfu_ratio",
    "gpu_hours",
    "spend_usd",
    "window_gpu_hours",
    "window_usd",
    "recoverable_usd",
    "unexplained_ratio",
)


_OF_WINDOW = ("window_gpu_hours", "window_usd")


def page() -> None:
    """Draw the page once, and again every two seconds while its job runs."""
    chosen = state.read()
    if chosen.job_id is None:
        st.info("Choose a job above.")
        return
    top = st.container()
    try:
        with st.spinner("Reading the steps of the job"):
            is_live = data.job(chosen, chosen.job_id).coverage.is_live
    except NotFoundError as problem:
        unstepped.draw(chosen.job_id, problem, top)
        frame.wait_for_steps(chosen)
        return
    live = is_live and chosen.live
    st.fragment(_body, run_every=data.LIVE_EVERY_S if live else None)(live)
    history.draw(chosen.job_id, is_live=is_live)
    quiet.draw(chosen.job_id, is_live=is_live)
    devices.draw(chosen.job_id, top, is_live=is_live)
    collectives.draw(chosen.job_id, top, is_live=is_live)
    trace.draw(chosen.job_id, is_live=is_live)


def _body(live: bool) -> None:
    with frame.guarded():
        chosen = state.read()
        view = data.job(chosen, str(chosen.job_id))
        if live and not view.coverage.is_live:
            st.rerun()  # the job ended: draw once more, at rest
        # Each part has a place of its own: a banner that comes and goes would otherwise shift what
        # follows it to another place, where the browser would build it anew.
        with st.container():
            if live:
                parts.calm()
            job_head.draw(view)
        left, right = st.columns([13, 9], gap="medium")
        with left:
            _card(view)
        with right:
            _numbers(view)
            parts.notes(view.coverage.warnings)
        with st.container():
            why.draw(view)
        with st.container():
            drill.draw(view, LIVE_BYTES if live else PAGE_BYTES)
        with st.container():
            has_loss = view.series.loss is not None
            said.printed(view.reports, view.beside, loss_is_drawn=has_loss)
        with st.container():
            _ledger(view)


def _card(view: JobView) -> None:
    with st.container(key="card", border=True):
        parts.card(card_fields(view))
        with st.expander("Copy as text", icon=":material/content_copy:"):
            st.code(card_as_text(view), language=None, wrap_lines=True)
        said.others(view)


def _numbers(view: JobView) -> None:
    with st.container(horizontal=True, key="kpis"):
        for name in filter(view.metrics.__contains__, _NUMBERS):
            if name in _OF_WINDOW and view.window.is_all:
                continue  # of the whole job it stands there already
            parts.number(METRICS[name].title, view.metrics[name], name)


def _ledger(view: JobView) -> None:
    parts.section("Where the paid time went")
    left, right = st.columns([3, 2], gap="medium")
    with left:
        unit = parts.unit_choice(units_of(view.ledger))
        parts.figure(
            "ledger",
            drawn(view, waterfall_figure, view.ledger, unit, parts.palette()),
            lambda: ledger_table(view.ledger),
            alt=f"Waterfall from paid time to the ranks' own computing. {view.ledger_note}",
        )
    with right:
        parts.rows("ledger_lines", ledger_table(view.ledger))
    st.caption(parts.plain(view.ledger_note))
    parts.section("The whole job, from its allocation on")
    if view.bill.lines:
        parts.rows("bill", ledger_table(view.bill.lines))
        parts.download("bill", lambda: ledger_table(view.bill.lines))
    for text in (view.bill.note, *view.bill.findings):
        st.caption(parts.plain(text))


if __name__ == "__main__":
    page()
