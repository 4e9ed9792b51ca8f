"""What others say of a job, beside what is computed here: other tools, and the job's own log."""

from __future__ import annotations

import streamlit as st

from steptax.app.charts import reports as charts
from steptax.app.views.job.models import JobView
from steptax.app.views.reported.comparison_text import (
    TITLE,
    blame_line,
    falcon_lines,
    ideal_lines,
    nvrx_lines,
    tax_line,
)
from steptax.app.views.reported.models import Beside, ReportedScores, Reports
from steptax.app.views.reported.text import PRINTED_NOTE, PRINTED_TITLE, SCORES_TITLE, scores_lines
from steptax.pages import parts


def others(view: JobView) -> None:
    """How other references and other detectors see the same steps, and what other tools report."""
    with st.expander(TITLE, icon=":material/balance:"):
        said = (
            ("Slowdown by reference", (*ideal_lines(view.comparison), tax_line(view.metrics))),
            ("Charged for the waiting", (blame_line(view.blame),)),
            ("FALCON", falcon_lines(view.comparison)),
            ("NVRx", nvrx_lines(view.comparison)),
        )
        for title, lines in said:
            _lines(title, lines)
        _scores(view.reports.scores)


def scores_alone(reports: Reports) -> None:
    """The reports of other tools on a job of which there are no steps to compare."""
    if reports.scores.rows:
        with st.container(key="scores_alone", border=True):
            _scores(reports.scores)


def _scores(scores: ReportedScores) -> None:
    if scores.rows:
        _lines(SCORES_TITLE, scores_lines(scores))
        parts.below("scores", lambda: charts.scores_table(scores))


def _lines(title: str, lines: tuple[str, ...]) -> None:
    if lines:
        st.caption("  \n".join((f"**{title}**", *map(parts.plain, lines))))


def printed(reports: Reports, beside: tuple[Beside, ...], *, loss_is_drawn: bool) -> None:
    """Throughput, MFU, loss and the like as the log printed them, with ours; then step by step.

    With ``loss_is_drawn`` the page shows a loss among the steps already.
    """
    if not reports.printed:
        return
    parts.section(PRINTED_TITLE)
    st.caption(parts.plain(PRINTED_NOTE))
    if beside:
        parts.rows("beside", charts.beside_table(beside))
        parts.download("beside", lambda: charts.beside_table(beside))
    series = [one for one in reports.series if not (loss_is_drawn and one.name == "loss")]
    if series:
        drawn = " and ".join(one.printed_as for one in series)
        parts.figure(
            "printed",
            charts.printed_figure(series),
            lambda: charts.series_table(series),
            alt=f"{drawn} by step, as the log printed them.",
        )
    names = len(reports.printed)
    st.caption(f"Newest value of {names:,} printed name{'s' if names != 1 else ''}:")
    parts.below("printed_all", lambda: charts.printed_table(reports.printed))
