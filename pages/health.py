"""Data & health: where rows come from, what was refused, what each number means."""

from __future__ import annotations

import streamlit as st

from steptax.app.charts.fleet_tables import metrics_table, sources_table, stored_table
from steptax.app.charts.tables import records_table
from steptax.pages import data, frame, parts


def page() -> None:
    """Draw the page from one view."""
    view = data.health()
    frame.coverage(f"lake {data.settings().lake}")
    parts.sentence(view.sentence)
    parts.notes(view.warnings)
    parts.section("Sources")
    parts.rows("sources", sources_table(view))
    parts.download("sources", lambda: sources_table(view))
    if view.recorders:
        parts.section("Recorders")
        parts.rows("recorders", records_table(view.recorders))
        parts.download("recorders", lambda: records_table(view.recorders))
    parts.section("Rejected rows")
    if view.rejects:
        parts.rows("rejects", records_table(view.rejects))
        parts.download("rejects", lambda: records_table(view.rejects))
    else:
        st.markdown("None.")
    parts.section("Stored rows")
    parts.rows("stored", stored_table(view))
    parts.section("What each number means")
    parts.rows("metrics", metrics_table())
    parts.download("metrics", metrics_table)


if __name__ == "__main__":
    page()
