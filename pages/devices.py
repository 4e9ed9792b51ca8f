"""Devices of one job: what the GPU of each rank did while the steps ran, beside its peers.

A part of the job page that is there only where devices were sampled. Of a running job it is a
fragment of its own, made anew twice a minute.
"""

from __future__ import annotations

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from steptax.app.charts.devices import devices_table
from steptax.app.errors import NotFoundError
from steptax.app.views.devices.text import TITLE, coverage, lines, notes, pointer, verdict
from steptax.app.views.devices.view import DevicesView
from steptax.pages import data, frame, parts, state

_ANCHOR = "devices"
#: Sentences above the table; it has all.
_LINES = 8


def draw(job_id: str, top: DeltaGenerator, *, is_live: bool) -> None:
    """The section, and a line in ``top`` that leads down to it."""
    if not data.devices_are_there(job_id):
        return
    if is_live:
        # What it says may change before the page is drawn anew, so the line does not say it.
        _point(top, "clocks, throttling and errors of each rank's GPU")
        st.fragment(_section, run_every=data.DEVICES_EVERY_S)(job_id, True)
        return
    view = _section(job_id, False)
    if view is not None and view.known:
        _point(top, pointer(view))


def _point(top: DeltaGenerator, text: str) -> None:
    top.caption(f"[:material/memory: {TITLE}](#{_ANCHOR}): {parts.plain(text)}")


def _section(job_id: str, is_live: bool) -> DevicesView | None:
    st.header(TITLE, anchor=_ANCHOR, divider="gray")
    with frame.guarded("devices_problem"):
        try:
            view = data.devices(job_id, state.read().last_steps, is_live=is_live)
        except NotFoundError as problem:
            st.caption(parts.plain(f"{problem.message}. What to do: {problem.hint}"))
            return None
        with st.container(key="devices_verdict"):
            # A device that is out of line stands in a line of its own, with its place.
            said = lines(view)[:_LINES] or (verdict(view),)
            st.markdown("\n".join(f"- **{parts.plain(line)}**" for line in said))
        st.caption(parts.plain(coverage(view)))
        parts.notes(notes(view), "devices_notes")
        if view.known:
            parts.rows("devices", devices_table(view))
            parts.download("devices", lambda: devices_table(view))
        return view
    return None
