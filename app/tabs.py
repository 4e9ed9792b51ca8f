"""How many browser tabs are connected to this server, and how often each of them may ask then."""

from __future__ import annotations

import math

from streamlit import runtime

#: Tabs that are served at the usual pace. A server has one processor for what Python does: with
#: more of them each asks less often, or whoever opens a page waits behind all that is drawn anew.
USUAL_TABS = 10


def open_tabs() -> int:
    """Tabs that are connected; 0 where no server runs."""
    if not runtime.exists():
        return 0
    # No name of its interface: where another version has none, everybody is served alike.
    manager = getattr(runtime.get_instance(), "_session_mgr", None)
    return 0 if manager is None else manager.num_active_sessions()


def paced_s(every_s: int, tabs: int | None = None) -> int:
    """``every_s`` seconds, or more where more than ``USUAL_TABS`` of ``tabs`` (open ones) ask."""
    count = open_tabs() if tabs is None else tabs
    return math.ceil(every_s * max(1.0, count / USUAL_TABS))
