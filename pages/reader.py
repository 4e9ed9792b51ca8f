"""Who is reading: the one place where pages learn whose rows they may show.

``data.workspace`` asks it for every view, so a page cannot forget to.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import streamlit as st

from steptax.app.access import ANY_READER, ANYONE, Access, AccessDeniedError, live_rules
from steptax.app.handed import HANDED
from steptax.app.settings import current_settings


def current() -> Access:
    """The reader of this run.

    NotLoggedInError or AccessDeniedError where nothing may be shown; also where nobody knows who
    asks, as outside of a run of a page.
    """
    told = current_settings()
    if told.access is None:
        return ANY_READER if told.anyone_may_read else ANYONE
    return live_rules(told.access).now().access_of(st.user.to_dict(), now_s=time.time())


def told(text: str) -> str:
    """``text`` for the reader of this run: where the lake is is for whoever runs it alone."""
    try:
        if current().may_manage():
            return text
    except AccessDeniedError:
        pass
    lake = current_settings().lake
    for place in (current_settings().lake_place, str(lake.resolve()), str(lake)):
        text = text.replace(place, "the lake")
    return text


def file_for(make: Callable[[], bytes | str]) -> Callable[[], bytes | str]:
    """``make``, for the reader of this run alone.

    It is called outside of the run, where nobody knows who asked.
    """
    reader = current().identity

    def made() -> bytes | str:
        content = make()
        HANDED.note(content, reader)
        return content

    return made
