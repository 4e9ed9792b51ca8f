"""From a bar to its jobs: a click on it, or a choice beside it for who uses no mouse."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import streamlit as st

from steptax.app.charts.tables import Table
from steptax.app.words import count_text
from steptax.pages import parts, state
from steptax.pages.places import JOB_PAGE

_NONE = ""


def choose_by(
    key: str, figure: str, of_point: Callable[[Mapping[str, object]], str | None]
) -> None:
    """Take the bar that was clicked in ``figure`` as the choice ``key``. Only from a callback."""
    point = state.selected_point(figure)
    chosen = None if point is None else of_point(point)
    if chosen is not None:
        st.session_state[key] = chosen


def draw(
    key: str,
    label: str,
    names: Mapping[str, str],
    jobs: Callable[[str], tuple[Sequence[str], Table]],
) -> None:
    """The choice of a bar among ``names``, and its jobs; a row opens its job.

    ``jobs`` gives the ids in the order of the rows.
    """
    chosen = st.selectbox(
        label,
        [_NONE, *names],
        format_func=lambda name: names.get(name, "click a bar, or choose one"),
        key=key,
        bind="query-params",
        width=380,
    )
    if not chosen:
        return
    ids, table = jobs(chosen)
    if not ids:
        st.caption("No job of its own has anything in it.")
        return
    rows = f"{key}_jobs"

    def choose() -> None:
        row = state.selected_row(rows)
        if row is not None:
            state.choose_job(ids[row])

    shown = parts.rows(rows, table, on_select=choose)
    st.caption(f"{count_text(len(ids), 'job')} with most of it. Select a row to open the job.")
    parts.download(rows, lambda: table)
    if shown.selection.rows:
        # The choices are bound widgets, which put themselves back into the URL.
        st.switch_page(JOB_PAGE, query_params={})
