"""What stands first on the page of a job: the sentence, what it rests on, what is out of order."""

from __future__ import annotations

import streamlit as st

from steptax.app.charts.focus import stopped_lines, title_of, window_text
from steptax.app.views.job.first_steps import FIRST_STEPS_READ, demo_text, first_steps_text
from steptax.app.views.job.models import JobView
from steptax.pages import frame, parts, trace

#: The job whose first steps were being read while its page was open.
_READ_HERE = "first_steps_of"


def draw(view: JobView) -> None:
    """The sentence first; then how far it can be relied on."""
    with st.container(key="live_sentence" if view.coverage.is_live else "last_sentence"):
        parts.sentence(view.card.sentence)
    said = f"{view.coverage.text} · {window_text(view)} · {view.price.basis}"
    frame.coverage(said, live=view.coverage.is_live)
    if reading := _reading(view):
        with st.container(key="first_steps"):
            st.info(parts.plain(reading), icon=":material/hourglass_top:")
    if demo := demo_text(view.header):
        with st.container(key="demo"):
            st.info(parts.plain(demo), icon=":material/school:")
    if view.coverage.stale:
        with st.container(key="stale"):
            st.warning(parts.plain(view.coverage.stale), icon=":material/hourglass_disabled:")
    if stopped := stopped_lines(view):
        with st.container(key="stopped"):
            st.error("  \n".join(map(parts.plain, stopped)), icon=":material/report:")
    st.caption(parts.plain(title_of(view)))
    trace.pointer(view.header.job_id)


def _reading(view: JobView) -> str | None:
    """How far the first steps of a running job are read; once said, its place is kept."""
    job_id = view.header.job_id
    reading = first_steps_text(view.coverage, view.window)
    if reading is not None:
        st.session_state[_READ_HERE] = job_id
    elif st.session_state.get(_READ_HERE) == job_id and view.coverage.is_live:
        return None if view.coverage.stale else FIRST_STEPS_READ
    return reading
