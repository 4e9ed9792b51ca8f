"""What stands first on the page of a job: the sentence, what it rests on, what is out of order."""

from __future__ import annotations

import streamlit as st

from steptax.app.charts.focus import stopped_lines, title_of, window_text
from steptax.app.views.job.first_steps import demo_text, first_steps_text
from steptax.app.views.job.models import JobView
from steptax.pages import frame, parts, trace


def draw(view: JobView) -> None:
    """The sentence first; then how far it can be relied on."""
    with st.container(key="live_sentence" if view.coverage.is_live else "last_sentence"):
        parts.sentence(view.card.sentence)
    frame.coverage(f"{view.coverage.text} · {window_text(view)} · {view.price.basis}")
    if reading := first_steps_text(view.coverage, view.window):
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
