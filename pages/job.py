"""Job drill-down: who makes the others wait, since when, why, and what it costs."""

from __future__ import annotations

import contextlib

import streamlit as st

from steptax.app.charts.style import LIVE_BYTES, PAGE_BYTES
from steptax.app.errors import NotFoundError, SteptaxError
from steptax.app.views.job.models import JobView
from steptax.pages import (
    collectives,
    data,
    devices,
    drill,
    frame,
    history,
    job_head,
    job_parts,
    newest,
    parts,
    quiet,
    said,
    state,
    trace,
    unstepped,
    why,
)


def page() -> None:
    """Draw the page once, and again every few seconds while its job runs."""
    chosen = state.read()
    if chosen.job_id is None:
        st.info("Choose a job above.")
        return
    try:
        with parts.reading("Reading the steps of the job"):
            view = data.job(chosen, chosen.job_id)
    except NotFoundError as problem:
        unstepped.draw(chosen.job_id, problem)
        frame.wait_for_steps(chosen)
        return
    is_live = view.coverage.is_live
    live = is_live and chosen.live
    every_s = data.live_every_s(view) if live else None
    st.fragment(_head, run_every=every_s)(live)
    if live:
        newest.draw()
    elif chosen.live and not is_live:
        frame.wait_for_life(chosen, view)
    more = st.container()
    st.fragment(_body, run_every=every_s)(live)
    history.draw(chosen.job_id, is_live=is_live)
    quiet.draw(chosen.job_id, is_live=is_live)
    devices.draw(chosen.job_id, more, is_live=is_live)
    collectives.draw(chosen.job_id, more, is_live=is_live)
    trace.draw(chosen.job_id, is_live=is_live)


def _head(live: bool) -> None:
    # What cannot be told is told once, by the rest of the page.
    with contextlib.suppress(SteptaxError), st.container():
        if live:
            parts.calm()
        job_head.draw(_view(live))


def _view(live: bool) -> JobView:
    chosen = state.read()
    view = data.job(chosen, str(chosen.job_id))
    if live and not view.coverage.is_live:
        st.rerun()  # the job ended: draw once more, at rest
    return view


def _body(live: bool) -> None:
    with frame.guarded():
        view = _view(live)
        # Each part has a place of its own: a banner that comes and goes would otherwise shift what
        # follows it to another place, where the browser would build it anew.
        left, right = st.columns([13, 9], gap="medium")
        with left:
            job_parts.card(view)
        with right:
            job_parts.numbers(view)
            parts.notes(view.coverage.warnings)
        with st.container():
            why.draw(view)
        with st.container():
            drill.draw(view, LIVE_BYTES if live else PAGE_BYTES)
        with st.container():
            has_loss = view.series.loss is not None
            said.printed(view.reports, view.beside, loss_is_drawn=has_loss)
        with st.container():
            job_parts.ledger(view)


if __name__ == "__main__":
    page()
