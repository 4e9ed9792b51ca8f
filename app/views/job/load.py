"""From a job in the lake to the matrices that the computation layer takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.compute as pc

from steptax.app.compute.straggler.repeats import matrix_of_newest, newest_of_each
from steptax.app.compute.straggler.steps import StepMatrix, build_matrix
from steptax.app.errors import NotFoundError
from steptax.app.lake.kept import dropped
from steptax.app.lake.standing import lost, together
from steptax.app.queries.arrays import Columns, numbers_of
from steptax.app.views.job.extent import step_numbers, step_span
from steptax.app.views.models import Window
from steptax.app.views.workspace import Workspace

#: Rank rows that one view may load; beyond it the window is cut, and says so.
MAX_ROWS = 2_097_152


@dataclass(frozen=True)
class LoadedJob:
    """A job's rows in a window, as a matrix, with what is known beside them."""

    job: dict[str, Any]
    matrix: StepMatrix
    window: Window
    places: dict[int, dict[str, Any]]
    """Row of the ``ranks`` table by rank."""
    attempt: int
    newest_us: int | None
    from_ops: bool
    repeated_rows: int = 0
    """Rows left out because a newer one tells of the same step and rank, in the same attempt."""

    @property
    def world_is_unknown(self) -> bool:
        """Whether nothing says how many ranks the job has: a log of it need not."""
        return self.matrix.of_job and not self.job.get("world_size")


def load_job(ws: Workspace, job: dict[str, Any], *, last_steps: int | None) -> LoadedJob:
    """Load the last ``last_steps`` steps (all when None) of ``job``, a row of ``ws.jobs()``.

    Raises NotFoundError when the lake has none of its steps.
    """
    job_id = job["job_id"]
    places = {row["rank"]: row for row in ws.engine.run("rank_places", job_id=job_id).to_pylist()}
    span = step_span(ws, job_id)
    gone = dropped(ws.lake, "steps", job_id)
    if gone is not None:
        if not ws.lake.segments("steps", job_id):
            raise NotFoundError(
                f"job {job_id!r} has no raw rows of steps any more: {gone.sentence}",
                where=ws.place,
                hint="its whole history is told from them",
            )
        return _from_what_is_left(ws, job, places, span, last_steps, gone.sentence)
    if span["row_count"]:
        return _from_steps(ws, job, places, span, last_steps)
    if ws.lake.segments("ops", job_id):
        return _from_ops(ws, job, places, last_steps)
    folder = ws.lake.relative(ws.lake.folder("steps", job_id))
    found = [] if ws.lake.scope else [one for one in lost(ws.lake, folder) if not one.is_mended]
    for one in together(found):
        raise NotFoundError(
            f"job {job_id!r} has no steps that can be read: {one.sentence}",
            where=ws.place,
            hint=one.hint(ws.lake),
        )
    aside = [one for one in ws.lake.set_aside() if one.place.startswith(f"{folder}/")]
    if aside:
        raise NotFoundError(
            f"job {job_id!r} has no steps that can be read: {aside[0].place} is damaged and set "
            f"aside ({aside[0].reason})"
            + (f", and {len(aside) - 1:,} more" if len(aside) > 1 else ""),
            where=ws.place,
            hint="put it back from a backup, or ingest its input again: steptax doctor",
        )
    raise NotFoundError(
        f"job {job_id!r} has no steps",
        where=ws.place,
        hint=f"import per-rank steps: steptax ingest steps FILE --job {job_id}",
    )


def _from_steps(
    ws: Workspace,
    job: dict[str, Any],
    places: dict[int, dict[str, Any]],
    span: dict[str, Any],
    last_steps: int | None,
) -> LoadedJob:
    first, last = int(span["first_step"]), int(span["last_step"])
    ranks = max(1, int(span["ranks"]))
    asked = last_steps if last_steps is not None else last - first + 1
    begin, note = first, None
    if asked < last - first + 1:
        # Step numbers may have gaps (one in ten is logged, say): count stored steps, not numbers.
        numbers = numbers_of(step_numbers(ws, job["job_id"])["step"])
        begin = int(numbers[max(0, len(numbers) - asked)])
    affordable = MAX_ROWS // ranks
    if min(asked, int(span["steps"])) > affordable:
        numbers = numbers_of(step_numbers(ws, job["job_id"])["step"])
        begin = int(numbers[-affordable])
        every = int(span["steps"])
        wanted = "all of them are" if asked >= every else f"the {asked:,} asked for are"
        note = (
            f"the last {affordable:,} of {every:,} steps: {wanted} more than {MAX_ROWS:,} rank rows"
        )
    cells = ws.engine.arrays("step_cells", job_id=job["job_id"], first_step=begin, last_step=last)
    return from_rows(job, cells, places, span, Window(begin, last, first, last, note))


def _from_what_is_left(
    ws: Workspace,
    job: dict[str, Any],
    places: dict[int, dict[str, Any]],
    whole: dict[str, Any],
    last_steps: int | None,
    note: str,
) -> LoadedJob:
    """The newest steps of a job whose older rows were dropped; ``whole`` is its whole extent."""
    left = ws.engine.run("step_span", job_id=job["job_id"]).to_pylist()[0]
    numbers = numbers_of(ws.engine.run("step_numbers", job_id=job["job_id"])["step"])
    affordable = max(1, MAX_ROWS // max(1, int(left["ranks"])))
    count = min(len(numbers), affordable, len(numbers) if last_steps is None else last_steps)
    begin, last = int(numbers[-count]), int(numbers[-1])
    cells = ws.engine.arrays("step_cells", job_id=job["job_id"], first_step=begin, last_step=last)
    window = Window(begin, last, int(whole["first_step"]), int(whole["last_step"]), note)
    return from_rows(job, cells, places, {**left, "ranks": whole["ranks"]}, window)


def from_rows(
    job: dict[str, Any],
    cells: Columns,
    places: dict[int, dict[str, Any]],
    span: dict[str, Any],
    window: Window,
) -> LoadedJob:
    """The rank rows of ``window`` as a matrix.

    ``cells`` are the columns of ``step_cells``, ``span`` is the job's row of ``step_span``.
    """
    ranks = max(1, int(span["ranks"]))
    matrix, repeated = matrix_of_newest(
        cells,
        lambda columns: build_matrix(
            columns,
            world_size=max(int(job.get("world_size") or 0), _expected(places, ranks)),
            topology=_topology(places),
            expected_ranks=_expected(places, ranks),
            time_is_relative=job.get("time_basis") == "relative",
            of_job=job.get("time_basis") == "log" and ranks == 1,
        ),
    )
    return LoadedJob(
        job,
        matrix,
        window,
        places,
        int(span["attempt"]),
        None if span["newest_us"] is None else int(span["newest_us"]),
        from_ops=False,
        repeated_rows=repeated,
    )


def _from_ops(
    ws: Workspace,
    job: dict[str, Any],
    places: dict[int, dict[str, Any]],
    last_steps: int | None,
) -> LoadedJob:
    rows = ws.engine.run("op_steps", job_id=job["job_id"])
    numbers = np.unique(rows["step"].to_numpy())
    begin = int(numbers[0 if last_steps is None else max(0, len(numbers) - last_steps)])
    keep = rows["step"].to_numpy() >= begin
    columns = {
        "step": rows["step"].to_numpy()[keep],
        "rank": rows["rank"].to_numpy()[keep],
        # Kept in fractions of a microsecond: a trace's operations are that short.
        "duration_us": rows["duration_ns"].to_numpy()[keep] / 1000.0,
        "compute_us": rows["compute_ns"].to_numpy()[keep] / 1000.0,
    }
    topology = {
        int(rank): (int(pp), int(dp))
        for rank, pp, dp in zip(
            rows["rank"].to_pylist(), rows["pp"].to_pylist(), rows["dp"].to_pylist(), strict=True
        )
        if pp is not None and dp is not None
    }
    recorded = len(np.unique(columns["rank"]))
    matrix = build_matrix(
        columns,
        world_size=int(job.get("world_size") or recorded),
        topology=topology or None,
        expected_ranks=recorded,
        work_is_partial=True,
    )
    window = Window(begin, int(numbers[-1]), int(numbers[0]), int(numbers[-1]))
    return LoadedJob(job, matrix, window, places, 0, None, from_ops=True)


def _topology(places: dict[int, dict[str, Any]]) -> dict[int, tuple[int, int]] | None:
    """``rank -> (stage, dp)`` when every known rank says both."""
    if not places or any(p["pp"] is None or p["dp"] is None for p in places.values()):
        return None
    return {rank: (int(p["pp"]), int(p["dp"])) for rank, p in places.items()}


def _expected(places: dict[int, dict[str, Any]], seen: int) -> int:
    """Ranks that should report: those that announced themselves, or those that ever did."""
    return max(seen, len(places), 1)


def load_step(ws: Workspace, job_id: str, step: int) -> LoadedJob:
    """Load one step of ``job_id``; NotFoundError when it has no such step."""
    job = ws.job(job_id)
    places = {row["rank"]: row for row in ws.engine.run("rank_places", job_id=job_id).to_pylist()}
    columns, repeated = newest_of_each(
        ws.engine.arrays("step_cells", job_id=job_id, first_step=step, last_step=step)
    )
    window = Window(step, step, step, step)
    if len(columns["step"]):
        partial = False
    else:
        rows = ws.engine.run("op_steps", job_id=job_id)
        rows = rows.filter(pc.equal(rows["step"], step))
        if not rows.num_rows:
            gone = dropped(ws.lake, "steps", job_id)
            told = f": {gone.sentence}" if gone and gone.first <= step <= gone.last else ""
            raise NotFoundError(
                f"job {job_id!r} has no {'raw rows of ' if told else ''}step {step}{told}",
                where=ws.place,
                hint="choose a step of the window that is shown",
            )
        columns = {
            "step": rows["step"].to_numpy(),
            "rank": rows["rank"].to_numpy(),
            "duration_us": rows["duration_ns"].to_numpy() / 1000.0,
            "compute_us": rows["compute_ns"].to_numpy() / 1000.0,
        }
        partial = True
    ranks = len(columns["rank"])
    matrix = build_matrix(
        columns,
        world_size=max(int(job.get("world_size") or 0), ranks),
        topology=_topology(places),
        expected_ranks=ranks,
        work_is_partial=partial,
        time_is_relative=job.get("time_basis") == "relative",
        of_job=job.get("time_basis") == "log" and ranks == 1,
    )
    return LoadedJob(job, matrix, window, places, 0, None, from_ops=partial, repeated_rows=repeated)
