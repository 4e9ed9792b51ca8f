"""Which jobs the Fleet page shows: by team, project, cluster, state, size and day; in the URL."""

from __future__ import annotations

from datetime import date
from typing import Any, Final

import streamlit as st

from steptax.app.views.fleet.filter import FIELDS, FleetChoices, FleetFilter
from steptax.pages import parts

#: Keys of the days in the URL; the other choices go by the names of their fields.
FROM: Final = "from"
TO: Final = "to"

_TITLES = {"size": "Size, GPUs"}


def draw(choices: FleetChoices) -> FleetFilter:
    """The choices; empty ones take all jobs."""
    with (
        st.expander("Choose jobs: team, project, cluster, state, size, day", key="fleet_choice"),
        st.container(horizontal=True, vertical_alignment="bottom"),
    ):
        values = {name: _several(name, choices.of(name)) for name in FIELDS}
        first = _day("Started from", FROM, choices)
        last = _day("Started to", TO, choices)
        st.button("All jobs", key="fleet_all", on_click=_clear, icon=":material/filter_alt_off:")
    return FleetFilter(**values, first=first, last=last)


def said(text: str) -> None:
    """What was chosen, beside numbers that it does not change."""
    if text:
        st.caption(
            parts.plain(
                f"Only jobs of: {text}. Unallocated capacity, samples of devices, Xids and error "
                "budgets are of no job and stay those of all."
            )
        )


def _several(name: str, options: tuple[str, ...]) -> tuple[str, ...]:
    chosen = st.multiselect(
        _TITLES.get(name, name.capitalize()),
        options,
        key=name,
        bind="query-params",
        placeholder="all",
        width=190,
    )
    return tuple(chosen)


def _day(title: str, key: str, choices: FleetChoices) -> date | None:
    known = choices.first is not None and choices.last is not None
    about = f"Days in UTC, both included; known from {choices.first} to {choices.last}."
    chosen: Any = st.date_input(
        title,
        value=None,
        key=key,
        bind="query-params",
        format="YYYY-MM-DD",
        help=about if known else "No job tells when it started.",
        width=150,
    )
    return chosen if isinstance(chosen, date) else None


def _clear() -> None:
    for name in FIELDS:
        st.session_state[name] = []
    for name in (FROM, TO):
        st.session_state[name] = None
