"""One side of a comparison: a job, or some of its steps, and their rank rows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from steptax.app.compute.stats.rows import Flags, Ints
from steptax.app.errors import NotFoundError, UserError
from steptax.app.views.job.extent import step_numbers, step_span
from steptax.app.views.job.load import MAX_ROWS, LoadedJob, from_rows, load_job
from steptax.app.views.models import Window
from steptax.app.views.workspace import Workspace

#: ``llm-7b``, ``llm-7b@120-299``, ``llm-7b@120-``, ``llm-7b@-119``.
_SIDE = re.compile(r"(?P<job>.+?)(?:@(?P<steps>\d*-\d*))?", re.DOTALL)
_STEPS = re.compile(r"(?P<first>\d*)-(?P<last>\d*)")


@dataclass(frozen=True)
class Part:
    """What a reader asked for: a job, and which of its steps (None: from the first, to the last).

    Written ``JOB``, ``JOB@FROM-TO``, ``JOB@FROM-`` or ``JOB@-TO``, both ends included.
    """

    job_id: str
    first: int | None = None
    last: int | None = None

    @property
    def steps_text(self) -> str:
        """The steps as they are written, ``120-299``; empty for all of them."""
        if self.first is None and self.last is None:
            return ""
        first, last = ("" if end is None else str(end) for end in (self.first, self.last))
        return f"{first}-{last}"

    @property
    def text(self) -> str:
        """As it is written."""
        return f"{self.job_id}@{self.steps_text}" if self.steps_text else self.job_id


def read_part(text: str, where: str) -> Part:
    """``text`` as a part of a job, whose name may hold any character; UserError as ``part_of``."""
    found = _SIDE.fullmatch(text)
    if found is None:
        raise UserError(
            f"expected a job, found {text!r}", where=where, hint="for example llm-7b@120-299"
        )
    return part_of(found["job"], found["steps"] or "", where)


def part_of(job_id: str, steps: str, where: str) -> Part:
    """A job and its steps, written as ``Part.steps_text`` does; empty for all.

    UserError for what is no range of steps, or ends before it begins.
    """
    found = _STEPS.fullmatch(steps or "-")
    if found is None:
        raise UserError(
            f"expected steps as FIRST-LAST, found {steps!r}",
            where=where,
            hint="0-119, 120- or -119, both ends included; empty for all",
        )
    first, last = (int(found[end]) if found[end] else None for end in ("first", "last"))
    if first is not None and last is not None and last < first:
        raise UserError(
            f"step {last} is before step {first}", where=where, hint="both ends are included"
        )
    return Part(job_id, first, last)


def load_part(ws: Workspace, part: Part) -> LoadedJob:
    """The rank rows of ``part``; NotFoundError for an unknown job or one without such steps."""
    job = _job(ws, part)
    span = step_span(ws, part.job_id)
    if not span["row_count"]:
        return _load_ops(ws, part, job)
    numbers = step_numbers(ws, part.job_id)["step"].to_numpy()
    kept = numbers[_inside(numbers, part)]
    if not len(kept):
        raise _no_steps(ws, part, int(numbers[0]), int(numbers[-1]))
    affordable = MAX_ROWS // max(1, int(span["ranks"]))
    note = None
    if len(kept) > affordable:
        note = (
            f"the last {affordable:,} of {len(kept):,} steps: all of them are more than "
            f"{MAX_ROWS:,} rank rows"
        )
        kept = kept[-affordable:]
    places = {
        row["rank"]: row for row in ws.engine.run("rank_places", job_id=part.job_id).to_pylist()
    }
    first, last = int(kept[0]), int(kept[-1])
    cells = ws.engine.arrays("step_rows", job_id=part.job_id, first_step=first, last_step=last)
    window = Window(first, last, int(numbers[0]), int(numbers[-1]), note)
    return from_rows(job, cells, places, span, window)


def _job(ws: Workspace, part: Part) -> dict[str, Any]:
    """The row of the job; where its name ends in what may be mistyped steps, that is said."""
    try:
        return ws.job(part.job_id)
    except NotFoundError:
        job_id, sign, steps = part.job_id.rpartition("@")
        if not sign:
            raise
        raise UserError(
            f"expected steps as FIRST-LAST after @, found {steps!r}",
            where=part.text,
            hint=f"for example {job_id}@0-119, {job_id}@120- or {job_id}@-119, both ends included",
        ) from None


def _load_ops(ws: Workspace, part: Part, job: dict[str, Any]) -> LoadedJob:
    """From operations, which are of few steps: all are loaded, and those asked for are kept."""
    whole = load_job(ws, job, last_steps=None)
    places = np.flatnonzero(_inside(whole.matrix.steps, part))
    if not len(places):
        raise _no_steps(ws, part, whole.window.first_step, whole.window.last_step)
    matrix = whole.matrix.select(places, np.arange(len(whole.matrix.ranks)))
    window = Window(
        int(matrix.steps[0]),
        int(matrix.steps[-1]),
        whole.window.stored_first_step,
        whole.window.stored_last_step,
    )
    return LoadedJob(job, matrix, window, whole.places, whole.attempt, None, whole.from_ops)


def _inside(steps: Ints, part: Part) -> Flags:
    """[S] of ``steps`` those that ``part`` asks for."""
    inside = np.ones(len(steps), dtype=np.bool_)
    if part.first is not None:
        inside &= steps >= part.first
    if part.last is not None:
        inside &= steps <= part.last
    return inside


def _no_steps(ws: Workspace, part: Part, first: int, last: int) -> NotFoundError:
    return NotFoundError(
        f"job {part.job_id!r} has no steps there",
        where=f"{part.text} in {ws.place}",
        hint=f"it has steps {first:,} to {last:,}",
    )


def halves(ws: Workspace, job_id: str) -> tuple[Part, Part]:
    """The first and the second half of a job's steps, to begin a comparison with.

    NotFoundError for an unknown job or one without steps.
    """
    if step_span(ws, job_id)["row_count"]:
        numbers = step_numbers(ws, job_id)["step"].to_numpy()
    else:
        numbers = load_job(ws, ws.job(job_id), last_steps=None).matrix.steps
    middle = int(numbers[len(numbers) // 2])
    return Part(job_id, int(numbers[0]), middle - 1), Part(job_id, middle, int(numbers[-1]))
