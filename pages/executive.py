"""Executive review: what was paid, what became work, what to fix first."""

from __future__ import annotations

import streamlit as st

from steptax.app.charts.fleet_tables import jobs_table, teams_table
from steptax.app.charts.job_tables import ledger_table
from steptax.app.charts.waterfall import units_of, waterfall_figure
from steptax.app.views.models import ExecutiveView
from steptax.pages import brief, budget, data, frame, parts, state, whole_bill
from steptax.pages.places import JOB_PAGE


def page() -> None:
    """Draw the page from one view."""
    view = data.executive(state.read().price)
    frame.coverage(f"{view.period} · {view.coverage}")
    parts.sentence(view.sentence)
    parts.notes(view.warnings)
    _numbers(view)
    budget.draw()
    _ledger(view)
    whole_bill.draw()
    _jobs(view)
    _teams(view)
    brief.draw()


def _numbers(view: ExecutiveView) -> None:
    with st.container(horizontal=True, key="kpis"):
        for kpi in view.kpis:
            parts.number(kpi.title, kpi.measure, kpi.metric_id, kpi.help, spark=kpi.spark)


def _ledger(view: ExecutiveView) -> None:
    parts.section("Where it went")
    if not view.ledger:
        st.info(parts.plain(view.ledger_note), icon=":material/info:")
        return
    unit = parts.unit_choice(units_of(view.ledger))
    parts.figure(
        "ledger",
        waterfall_figure(view.ledger, unit, parts.palette()),
        lambda: ledger_table(view.ledger),
        alt=f"Waterfall from what was paid to the ranks' own computing. {view.sentence}",
    )
    st.caption(parts.plain(view.ledger_note))


def _jobs(view: ExecutiveView) -> None:
    parts.section("Jobs by what can be won back")

    def choose() -> None:
        row = state.selected_row("jobs")
        if row is not None:
            state.choose_job(view.jobs[row].job_id)

    shown = parts.rows("jobs", jobs_table(view.jobs), on_select=choose)
    st.caption("Select a row to open the job.")
    parts.download("jobs", lambda: jobs_table(view.jobs))
    if shown.selection.rows:
        # The choices are bound widgets, which put themselves back into the URL.
        st.switch_page(JOB_PAGE, query_params={})


def _teams(view: ExecutiveView) -> None:
    parts.section("Showback by team")
    parts.rows("teams", teams_table(view.by_team))
    parts.download("teams", lambda: teams_table(view.by_team))


if __name__ == "__main__":
    page()
