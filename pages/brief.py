"""The brief of the cost review as a file, with the choices that the page shows."""

from __future__ import annotations

from urllib.parse import urlsplit

import streamlit as st

from steptax.app.report.executive import executive_report
from steptax.app.report.render import possible_formats, render
from steptax.pages import data, parts, state

_TYPES = {
    "pdf": "application/pdf",
    "html": "text/html",
    "csv": "text/csv",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}


def draw() -> None:
    """A button per format; the file is made when it is asked for."""
    parts.section("Take it along")
    st.caption("One page for a mail or a meeting, and all numbers behind it.")
    with st.container(horizontal=True, key="brief"):
        for form in possible_formats():
            _button(form)
    st.caption("By mail or from cron: steptax report executive --to-mail CHANNEL")


def _button(form: str) -> None:
    chosen = st.session_state
    price = state.read().price
    by, denominator, tz = (
        chosen.get(key) or usual
        for key, usual in ((state.BY, "team"), (state.DENOMINATOR, "paid"), (state.ZONE, "UTC"))
    )
    served_at = _served_at()

    def make() -> bytes:
        report = executive_report(
            data.workspace(),
            price=price,
            by=by,
            denominator=denominator,
            tz=tz,
            base_url=served_at,
        )
        return render(report, form)

    st.download_button(
        form.upper(),
        data=make,
        file_name=f"steptax-executive.{form}",
        mime=_TYPES[form],
        key=f"brief_{form}",
        icon=":material/download:",
        on_click="ignore",
    )


def _served_at() -> str | None:
    """Where this page is served; None where nobody knows."""
    parsed = urlsplit(st.context.url or "")
    return f"{parsed.scheme}://{parsed.netloc}{parsed.path}" if parsed.netloc else None
