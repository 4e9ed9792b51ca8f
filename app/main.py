"""Entry script of the pages: navigation, and the frame around each of them.

It stands beside no folder named ``pages``: Streamlit would take that for its own navigation.
"""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from steptax.app.access import Access
from steptax.app.telemetry import TELEMETRY
from steptax.pages import access, frame
from steptax.pages.places import (
    COMPARE_PAGE,
    EXECUTIVE_PAGE,
    FLEET_PAGE,
    HEALTH_PAGE,
    JOB_PAGE,
    PROCUREMENT_PAGE,
    REFERENCE_PAGE,
    WHATIF_PAGE,
)

#: A file of our own: icons by name are fetched from their maker's servers.
ICON = Path(__file__).resolve().parent / "icon.svg"


def main() -> None:
    """Draw the chosen page inside the frame."""
    st.set_page_config(page_title="Steptax", page_icon=str(ICON), layout="wide")
    reader = None
    with frame.guarded():
        reader = access.gate()
    if reader is not None:
        _draw(reader)


def _draw(reader: Access) -> None:
    executive = st.Page(
        EXECUTIVE_PAGE, title="Executive review", icon=":material/payments:", default=True
    )
    fleet = st.Page(FLEET_PAGE, title="Fleet", icon=":material/dns:", url_path="fleet")
    job = st.Page(JOB_PAGE, title="Job drill-down", icon=":material/monitoring:", url_path="job")
    compare = st.Page(
        COMPARE_PAGE, title="Compare", icon=":material/compare_arrows:", url_path="compare"
    )
    whatif = st.Page(WHATIF_PAGE, title="What-if", icon=":material/calculate:", url_path="whatif")
    procurement = st.Page(
        PROCUREMENT_PAGE,
        title="Procurement",
        icon=":material/shopping_cart:",
        url_path="procurement",
    )
    reference = st.Page(
        REFERENCE_PAGE, title="Reference figures", icon=":material/menu_book:", url_path="reference"
    )
    health = st.Page(
        HEALTH_PAGE, title="Data & health", icon=":material/database:", url_path="health"
    )
    pages = [executive, fleet, job, compare, whatif, procurement, reference]
    if reader.may_manage():  # what it shows is of all teams
        pages.insert(-1, health)
    page = st.navigation(pages, position="top")
    # The choices are drawn here and not by the pages, so that they outlive a change of page.
    with frame.guarded():
        needs_job = page not in (
            whatif,
            procurement,
            reference,
        )  # these say something without one too
        has_job = frame.strip(
            is_job=page in (job, whatif, procurement), is_live=page is job, needs_job=needs_job
        )
        if has_job or not needs_job:
            with TELEMETRY.page_run(page.title):
                page.run()
    access.who(reader)


main()
