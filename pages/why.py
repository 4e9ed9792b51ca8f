"""Why a job is slow: each finding with its cause, its evidence, and what to do."""

from __future__ import annotations

import streamlit as st

from steptax.app.views.job.causes import FINDINGS_TITLE, finding_details, findings_note
from steptax.app.views.job.models import JobView
from steptax.pages import cause_list, parts

#: Findings that the page lists; the command prints all.
LISTED = 8


def draw(view: JobView) -> None:
    """The findings, costliest first; nothing where there is nothing to explain."""
    if not view.findings:
        return
    parts.section(FINDINGS_TITLE)
    for place, row in enumerate(view.findings[:LISTED]):
        with st.container(key=f"finding_{place}", border=True):
            st.markdown(f"**{parts.plain(row.sentence)}**")
            lines = [f"*{title}*: {parts.plain(text)}" for title, text in finding_details(row)]
            if row.cause.cause is not None:
                lines.append(f"[How this cause is named]({cause_list.address(row.cause.cause)})")
            st.caption("  \n".join(lines))
    note = parts.plain(findings_note(len(view.findings), LISTED))
    st.caption(f"{note} [All causes and their thresholds]({cause_list.ALL})")
