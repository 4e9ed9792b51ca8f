"""Who is reading: the one place where pages learn whose rows they may show.

``data.workspace`` asks it for every view, so a page cannot forget to.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import streamlit as st

from steptax.app.access import ANYONE, Access, AccessRules, read_rules
from steptax.app.handed import HANDED
from steptax.app.settings import current_settings


def current() -> Access:
    """The reader of this run.

    NotLoggedInError or AccessDeniedError where nothing may be shown; also where nobody knows who
    asks, as outside of a run of a page.
    """
    path = current_settings().access
    if path is None:
        return ANYONE
    # Read anew when it changes: a grant that is taken away is gone with the next run of a page.
    rules = _rules(str(path), path.stat().st_mtime_ns if path.exists() else 0)
    return rules.access_of(st.user.to_dict(), now_s=time.time())


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


@st.cache_resource(max_entries=2, show_spinner=False)
def _rules(path: str, changed_ns: int) -> AccessRules:
    return read_rules(Path(path))
