"""Data & health: where rows come from, what was refused, what each number means."""

from __future__ import annotations

import streamlit as st

from steptax.app.charts.fleet_tables import (
    alerts_table,
    gaps_table,
    metrics_table,
    score_groups_table,
    score_table,
    sources_table,
    stored_table,
)
from steptax.app.charts.tables import records_table
from steptax.pages import cause_list, data, frame, parts


def page() -> None:
    """Draw the page from one view."""
    view = data.health()
    parts.sentence(view.sentence)
    frame.coverage(f"lake {data.settings().lake_place}")
    parts.notes(view.warnings)
    _alerts()
    parts.section("Sources")
    parts.rows("sources", sources_table(view))
    parts.download("sources", lambda: sources_table(view))
    if view.recorders:
        parts.section("Recorders")
        parts.rows("recorders", records_table(view.recorders))
        parts.download("recorders", lambda: records_table(view.recorders))
    if view.gaps:
        parts.section("Gaps between samples of devices")
        parts.rows("gaps", gaps_table(view))
        parts.download("gaps", lambda: gaps_table(view))
    parts.section("Rejected rows")
    if view.rejects:
        parts.rows("rejects", records_table(view.rejects))
        parts.download("rejects", lambda: records_table(view.rejects))
    else:
        st.markdown("None.")
    parts.section("Stored rows")
    parts.rows("stored", stored_table(view))
    _score()
    parts.section("What each number means")
    parts.rows("metrics", metrics_table())
    parts.download("metrics", metrics_table)


def _score() -> None:
    parts.section("How good the detector is")
    with frame.guarded("score_problem"):
        score = data.score()
        st.markdown(parts.plain(score.sentence))
        parts.rows("score", score_table(score))
        if score.groups:
            st.markdown(
                "By noise, and by what is special about the jobs. Whoever names nearly every rank "
                "names the slow ones as well: read how many were named beside how many were slow."
            )
            parts.rows("score_groups", score_groups_table(score))
        st.caption(
            "Jobs with faults of every kind, made by steptax.benchmarks.product.faults; the other "
            "two detectors saw the same jobs. "
            f"[The rules]({cause_list.ALL})"
        )


def _alerts() -> None:
    found = data.alerts()
    if not found:
        return
    parts.section("Alerts")
    parts.rows("alerts", alerts_table(found))
    parts.download("alerts", lambda: alerts_table(found))


if __name__ == "__main__":
    page()
