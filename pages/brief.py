"""A page as a file, with the choices that the page shows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from urllib.parse import urlsplit

import streamlit as st

from steptax.app.report.executive import executive_report
from steptax.app.report.fleet import fleet_report
from steptax.app.report.models import Report
from steptax.app.report.render import possible_formats, render
from steptax.app.views.fleet.filter import FleetFilter
from steptax.app.views.workspace import Workspace
from steptax.pages import data, parts, reader, state

#: Keys of the days that are chosen, in the URL.
_DAYS = ("from", "to")
_TYPES = {
    "pdf": "application/pdf",
    "html": "text/html",
    "csv": "text/csv",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}


def draw() -> None:
    """The cost review: a button per format; the file is made when it is asked for."""
    chosen = st.session_state
    by, denominator, tz = (
        chosen.get(key) or usual
        for key, usual in ((state.BY, "team"), (state.DENOMINATOR, "paid"), (state.ZONE, "UTC"))
    )
    first, last = (day if isinstance(day := chosen.get(key), date) else None for key in _DAYS)
    price, served_at = state.read().price, where_served("")

    def report(seen: Workspace) -> Report:
        return executive_report(
            seen,
            price=price,
            first=first,
            last=last,
            by=by,
            denominator=denominator,
            tz=tz,
            base_url=served_at,
        )

    _buttons("executive", "One page for a mail or a meeting, and all numbers behind it.", report)


def draw_fleet(only: FleetFilter) -> None:
    """The fleet, of the jobs that are chosen: a button per format."""
    price, served_at = state.read().price, where_served("/fleet")

    def report(seen: Workspace) -> Report:
        return fleet_report(seen, price=price, only=only, base_url=served_at)

    _buttons("fleet", "What this page shows, of the jobs that are chosen.", report)


def _buttons(name: str, about: str, report: Callable[[Workspace], Report]) -> None:
    parts.section("Take it along")
    st.caption(about)
    # Opened here: the file is made outside of the run of the page, where nobody knows who reads.
    seen = data.workspace()
    with st.container(horizontal=True, key="brief"):
        for form in possible_formats():
            st.download_button(
                form.upper(),
                data=reader.file_for(lambda form=form: render(report(seen), form)),  # type: ignore[misc]
                file_name=f"steptax-{name}.{form}",
                mime=_TYPES[form],
                key=f"brief_{form}",
                icon=":material/download:",
                on_click="ignore",
            )
    st.caption(f"By mail or from cron: steptax report {name} --to-mail CHANNEL")


def where_served(path: str) -> str | None:
    """Where the pages are served, from that of the page at ``path``; None where nobody knows."""
    parsed = urlsplit(st.context.url or "")
    own = parsed.path.rstrip("/").removesuffix(path)
    return f"{parsed.scheme}://{parsed.netloc}{own}" if parsed.netloc else None
