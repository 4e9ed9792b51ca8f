"""The job page of a job of which no steps are stored: what else there is of it."""

from __future__ import annotations

from streamlit.delta_generator import DeltaGenerator

from steptax.app.errors import NotFoundError
from steptax.app.views.printed import beside
from steptax.pages import collectives, data, frame, parts, said


def draw(job_id: str, problem: NotFoundError, top: DeltaGenerator) -> None:
    """What others say of the job and its collectives; where there is nothing, the problem."""
    with frame.guarded("no_lake"):
        reports = data.reports(job_id)
        if reports.is_empty and not data.has_collectives(job_id):
            parts.error(problem)
            return
        lacking = "who is slow in them, and what it costs, cannot be told"
        top.info(parts.plain(f"{problem.message}: {lacking}. What to do: {problem.hint}"))
        said.scores_alone(reports)
        said.printed(reports, beside(reports, {}), loss_is_drawn=False)
        collectives.draw(job_id, top, is_live=False)
