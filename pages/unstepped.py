"""The job page of a job of which no steps are stored: what else there is of it."""

from __future__ import annotations

import streamlit as st

from steptax.app.errors import NotFoundError
from steptax.app.metrics import METRICS
from steptax.app.views.bill.record import NO_CARD, RecordView
from steptax.app.views.job.printed import beside
from steptax.pages import collectives, data, devices, frame, history, job_parts, parts, said, state

_NUMBERS = ("gpu_hours", "spend_usd", "scheduling_ratio", "goodput_ratio")


def draw(job_id: str, problem: NotFoundError) -> None:
    """The job's bill, what others say of it, its collectives; where nothing is, the problem."""
    top = st.container()
    with frame.guarded("no_lake"):
        reports, record = data.reports(job_id), data.record(job_id, state.read().price)
        is_known = not reports.is_empty or bool(record.bill.lines)
        if not is_known and not data.has_collectives(job_id):
            parts.error(problem)
            history.draw(job_id, is_live=False)
            return
        top.info(parts.plain(f"{problem.message}: {NO_CARD}. What to do: {problem.hint}"))
        _bill(record)
        said.scores_alone(reports)
        said.printed(reports, beside(reports, {}), loss_is_drawn=False)
        history.draw(job_id, is_live=False)
        devices.draw(job_id, top, is_live=False)
        collectives.draw(job_id, top, is_live=False)


def _bill(record: RecordView) -> None:
    """What the job held and cost, from its allocation on."""
    with st.container(horizontal=True, key="kpis"):
        for name in _NUMBERS:
            parts.number(METRICS[name].title, record.metrics[name], name)
    job_parts.whole(record.bill)
