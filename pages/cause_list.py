"""How a cause of a slow job is named: one entry for each, which its job's page leads to."""

from __future__ import annotations

from urllib.parse import quote

import streamlit as st

from steptax.app.views.cause_policy import named_causes
from steptax.pages import parts

TITLE = "How a cause is named"
ALL = "reference#causes"
"""Address of the list of all causes, from any page."""


def address(cause: str) -> str:
    """Where ``cause``, by its id, is explained, from any page."""
    return f"reference#cause-{quote(cause)}"


def draw() -> None:
    """Each cause: when it is named, what to do about it, what would settle it."""
    st.header(TITLE, anchor="causes", divider="gray")
    st.caption(
        "First the part of the step that carries the excess, then what can make that part grow. A "
        "number in parentheses is the threshold that holds here."
    )
    for one in named_causes():
        st.subheader(parts.plain(one.title), anchor=f"cause-{one.cause_id}")
        st.markdown("  \n".join(f"*{name}*: {parts.plain(said)}" for name, said in one.lines))
