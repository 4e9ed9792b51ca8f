"""The newest step of a running job, in a line that is drawn anew every second."""

from __future__ import annotations

import contextlib

import streamlit as st

from steptax.app.errors import SteptaxError
from steptax.app.tabs import paced_s
from steptax.app.views.job.newest import newest_text
from steptax.pages import data, parts, state


def draw() -> None:
    """The line, for as long as the job runs."""
    st.fragment(_line, run_every=paced_s(data.NEWEST_EVERY_S))()


def _line() -> None:
    # What cannot be told is told once, by the rest of the page.
    with contextlib.suppress(SteptaxError), st.container(key="newest_step"):
        chosen = state.read()
        st.markdown(parts.plain(newest_text(data.newest(chosen, str(chosen.job_id)))))
