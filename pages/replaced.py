"""What a session knows of figures that were drawn anew is let go of.

A figure in which something can be chosen is a widget to Streamlit, and known by all that is drawn
in it: each refresh of a live page makes another. What was chosen in one that is gone is dropped at
the end of a run, but what to do about it is not, and that holds what the figure was made from, for
as long as the tab is open.
"""

from __future__ import annotations

from streamlit.runtime.scriptrunner import get_script_run_ctx


def let_go() -> None:
    """Forget the widgets of which this session keeps no value any more.

    Those that a run replaces are forgotten in the run after it, once its callbacks were called: a
    choice may be on its way from the browser while the figure is drawn anew.
    """
    ctx = get_script_run_ctx()
    if ctx is None:
        return
    session = ctx.session_state._state
    known = session._new_widget_state.widget_metadata
    names = session._key_id_mapper
    for gone in known.keys() - (session._new_widget_state.states.keys() | session._old_state):
        known.pop(gone, None)
        # Where the key is another's now; else it says what a link sets when the page comes again.
        key = names.id_key_mapping.get(gone)
        if key is not None and names.get_id_from_key(key) != gone:
            names.id_key_mapping.pop(gone, None)
