"""The login, the word that somebody may not, and who is reading a page."""

from __future__ import annotations

import streamlit as st

from steptax.app.access import ANY_READER, ANYONE, Access, AccessDeniedError, NotLoggedInError
from steptax.pages import parts, reader


def gate() -> Access | None:
    """The reader, or None where a login is asked for or refused; then nothing else is drawn."""
    try:
        return reader.current()
    except NotLoggedInError as problem:
        _ask(problem)
    except AccessDeniedError as problem:
        parts.error(problem, "denied")
        _log_out()
    return None


def who(access: Access) -> None:
    """Under a page: who is reading it, as what, and the way out."""
    if access in (ANYONE, ANY_READER):
        return
    seen = "every team" if access.teams is None else ", ".join(sorted(access.teams))
    with st.container(horizontal=True, key="who", vertical_alignment="center"):
        st.caption(parts.plain(f"{access.user}: {access.role.name.lower()} of {seen or 'no team'}"))
        _log_out()


def _ask(problem: NotLoggedInError) -> None:
    with st.container(key="login", border=True):
        st.header("Log in")
        st.markdown(parts.plain(f"Steptax shows its pages to people it knows: {problem.message}."))
        # White on the light blue of the dark screen would be too pale to read.
        st.button("Log in", on_click=_begin, key="log_in")


def _begin() -> None:
    st.login()


def _log_out() -> None:
    st.button("Log out", on_click=st.logout, type="tertiary", key="log_out")
