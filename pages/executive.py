"""Executive review: what was paid, what became work, what to fix first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Final

import streamlit as st

from steptax.app.charts.fleet_tables import jobs_table
from steptax.app.charts.job_tables import ledger_table
from steptax.app.charts.review import bucket_table
from steptax.app.charts.tables import Table
from steptax.app.charts.waterfall import units_of, waterfall_figure
from steptax.app.errors import SteptaxError
from steptax.app.views.bill.ledger import bill_lines, bill_note
from steptax.app.views.fleet import bucket_jobs
from steptax.app.views.models import LedgerLine
from steptax.app.views.review.executive_models import ExecutiveView
from steptax.app.views.review.jobs import ReviewJobs
from steptax.pages import brief, bucket, budget, fleet_data, frame, parts, review, state, whole_bill
from steptax.pages.places import JOB_PAGE

#: Jobs that the page lists.
LISTED_JOBS = 1_000
_BESIDE = ("gpu_hours", "compute_share_ratio")
LEDGER: Final = "ledger_of"
BUCKET: Final = "bucket"
_WHOLE, _RECORDED = "all that was paid", "recorded steps"


def page() -> None:
    """Draw the page from one view."""
    first, last, compare_to = review.period()
    view = fleet_data.executive(state.read().price, first, last, compare_to)
    parts.sentence(view.sentence)
    frame.coverage(f"{view.period} · {view.coverage}")
    review.empty(view)
    review.fix_first(view)
    review.cards(view)
    parts.notes(view.warnings)
    _ledger(view, first, last)
    _jobs(view)
    review.weeks(view)
    review.variance(view)
    review.anomalies(view)
    budget.draw()
    whole_bill.draw(first, last)
    review.showback(view)
    review.runs(view)
    brief.draw()


def _numbers(view: ExecutiveView) -> None:
    """What stands beside the cards: the hours that they rest on, and what ranks did in them."""
    with st.container(horizontal=True, key="kpis"):
        for kpi in view.kpis:
            if kpi.metric_id in _BESIDE:
                parts.number(kpi.title, kpi.measure, kpi.metric_id, kpi.help, spark=kpi.spark)


def _ledger(view: ExecutiveView, first: date | None, last: date | None) -> None:
    """From what was paid to what was useful: of all that was paid, or of the recorded steps."""
    parts.section("Where it went")
    _numbers(view)
    whole, note = _whole_bill(first, last)
    ledgers = {_WHOLE: whole, _RECORDED: view.ledger}
    known = [name for name, lines in ledgers.items() if lines]
    if not known:
        st.info(parts.plain(view.ledger_note), icon=":material/info:")
        return
    with st.container(horizontal=True, key="ledger_choices", vertical_alignment="bottom"):
        name = st.segmented_control(
            "Of", known, default=known[0], required=True, key=LEDGER, bind="query-params"
        )
        lines = ledgers[name or known[0]]
        unit = parts.unit_choice(units_of(lines))
    said = note if lines is whole else view.ledger_note
    titles = {line.title: line.bucket for line in lines}
    parts.figure(
        "ledger",
        waterfall_figure(lines, unit, parts.palette()),
        lambda: ledger_table(lines),
        alt=f"Waterfall from what was paid to what was useful. {said}",
        on_select=lambda: bucket.choose_by(BUCKET, "ledger", lambda p: titles.get(str(p.get("y")))),
        select="points",
    )
    bucket.draw(
        BUCKET,
        "Jobs behind a bar",
        {line.bucket: line.title for line in lines if line.gpu_seconds},
        lambda name: _behind(view, name, first, last, is_whole=lines is whole),
    )
    st.caption(parts.plain(said))
    if not view.ledger:
        st.caption(parts.plain(view.ledger_note))


def _behind(
    view: ExecutiveView, name: str, first: date | None, last: date | None, *, is_whole: bool
) -> tuple[Sequence[str], Table]:
    """The jobs with most of their time in a bucket."""
    if is_whole:
        _, denominator, tz = whole_bill.chosen()
        bill = fleet_data.whole_bill("job", denominator, tz, state.read().price, first, last)
        found = bucket_jobs.of_bill(bill, name)
    else:
        assert isinstance(view.jobs, ReviewJobs)
        found = bucket_jobs.of_steps(view.jobs, name)
    return [job.job_id for job in found], bucket_table(found, name)


def _whole_bill(first: date | None, last: date | None) -> tuple[tuple[LedgerLine, ...], str]:
    """The whole bill of the period as a ledger; what is wrong with it is said further down."""
    try:
        bill = fleet_data.whole_bill(*whole_bill.chosen(), state.read().price, first, last)
    except SteptaxError:
        return (), ""
    return bill_lines(bill), bill_note(bill)


def _jobs(view: ExecutiveView) -> None:
    parts.section("Jobs by what can be won back")

    def choose() -> None:
        row = state.selected_row("jobs")
        if row is not None:
            state.choose_job(view.jobs[row].job_id)

    # Of fifty thousand jobs the file has all; a browser shows the first thousand.
    shown = parts.rows("jobs", jobs_table(view.jobs[:LISTED_JOBS]), on_select=choose)
    listed = min(len(view.jobs), LISTED_JOBS)
    more = (
        ""
        if listed == len(view.jobs)
        else f" {listed:,} of {len(view.jobs):,} jobs; the file has all."
    )
    st.caption(f"Select a row to open the job.{more}")
    parts.download("jobs", lambda: jobs_table(view.jobs))
    if shown.selection.rows:
        # The choices are bound widgets, which put themselves back into the URL.
        st.switch_page(JOB_PAGE, query_params={})


if __name__ == "__main__":
    page()
