"""The three quiet failures on the job page."""

from __future__ import annotations

import streamlit as st

from steptax.app.charts.job_tables import quiet_table
from steptax.app.errors import NotFoundError
from steptax.pages import data, frame, parts, state


def draw(job_id: str, *, is_live: bool) -> None:
    """One sentence and one table; nothing for a job without steps."""
    with frame.guarded("quiet_problem"):
        try:
            view = data.quiet(state.read(), job_id, is_live=is_live)
        except NotFoundError:
            return
        parts.section("Quiet failures")
        st.markdown(parts.plain(view.sentence))
        parts.rows("quiet", quiet_table(view))
        parts.download("quiet", lambda: quiet_table(view, for_file=True))
