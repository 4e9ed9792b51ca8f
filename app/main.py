"""Entry script of the pages: navigation, and the frame around each of them.

It stands beside no folder named ``pages``: Streamlit would take that for its own navigation.
"""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from steptax.app.access import Access
from steptax.app.shell import HOME, PAGES
from steptax.app.telemetry import TELEMETRY
from steptax.pages import access, frame, replaced, state
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

#: Script, icon and choices of every page, in their order.
_PAGES = {
    "executive": (EXECUTIVE_PAGE, ":material/payments:", frame.Choices(bill_will_do=True)),
    "fleet": (FLEET_PAGE, ":material/dns:", frame.Choices()),
    "job": (JOB_PAGE, ":material/monitoring:", frame.Choices(job=True, live=True)),
    "compare": (COMPARE_PAGE, ":material/compare_arrows:", frame.Choices()),
    # These three say something without a job too.
    "whatif": (WHATIF_PAGE, ":material/calculate:", frame.Choices(job=True, needs_job=False)),
    "procurement": (
        PROCUREMENT_PAGE,
        ":material/shopping_cart:",
        frame.Choices(job=True, needs_job=False),
    ),
    "health": (HEALTH_PAGE, ":material/database:", frame.Choices(price=False)),
    "reference": (
        REFERENCE_PAGE,
        ":material/menu_book:",
        frame.Choices(price=False, needs_job=False),
    ),
}

#: A file of our own: icons by name are fetched from their maker's servers.
ICON = Path(__file__).resolve().parent / "icon.svg"


def main() -> None:
    """Draw the chosen page inside the frame."""
    st.set_page_config(page_title="Steptax", page_icon=str(ICON), layout="wide")
    replaced.let_go()
    reader = None
    with frame.guarded():
        reader = access.gate()
    if reader is not None:
        _draw(reader)


def _draw(reader: Access) -> None:
    pages = {
        address: st.Page(
            script,
            title=PAGES[address],
            icon=icon,
            default=address == HOME,
            url_path=None if address == HOME else address,
        )
        for address, (script, icon, _) in _PAGES.items()
        # What Data & health shows is of all teams.
        if address != "health" or reader.may_manage()
    }
    page = st.navigation(list(pages.values()), position="top")
    choices = next(_PAGES[address][2] for address, one in pages.items() if one == page)
    frame.name_tab(page.title)
    # The choices are drawn here and not by the pages, so that they outlive a change of page.
    with frame.guarded():
        if frame.strip(page.title, choices):
            if choices.live:
                frame.name_tab(page.title, state.read().job_id)
            with TELEMETRY.page_run(page.title):
                page.run()
    access.who(reader)


main()
