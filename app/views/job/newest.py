"""The newest step of a running job, known long before all that a page says of it is worked out."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from steptax.app.compute.straggler.look import newest_steps
from steptax.app.compute.straggler.repeats import matrix_of_newest
from steptax.app.compute.straggler.steps import build_matrix
from steptax.app.format import format_age, format_share, format_value
from steptax.app.lake.segments import newest_last
from steptax.app.views.job.models import JobView
from steptax.app.views.workspace import Workspace

#: Steps that are read for it: in the newest ones rows of some ranks are still on their way.
NEWEST_STEPS = 30
#: So long rows may be on their way before it is said whose are missing.
_ON_THE_WAY_S = 5.0


@dataclass(frozen=True)
class NewestStep:
    """The newest step that all ranks have reported; None where that is not known."""

    step: int | None
    ended_us: int | None
    """When its last rank ended it, by that rank's clock."""
    step_us: float | None
    tax_ratio: float | None
    last_rank: int | None
    last_host: str | None
    begun: str | None
    """How far the newest step of all has come in."""


def newest_step(ws: Workspace, view: JobView) -> NewestStep:
    """Of the job of ``view``: the same figures as the view gives of that step, but sooner."""
    job_id = view.header.job_id
    last = newest_last(ws.lake.segments("steps", job_id))
    unknown = NewestStep(None, None, None, None, None, None, None)
    if last is None:
        return unknown
    cells = ws.engine.arrays(
        "step_cells", job_id=job_id, first_step=max(0, last - NEWEST_STEPS + 1), last_step=last
    )
    if not len(cells["step"]):
        return unknown
    expected = max(view.coverage.ranks_expected, len(np.unique(cells["rank"])))
    matrix, _ = matrix_of_newest(
        cells,
        lambda columns: build_matrix(
            columns,
            world_size=max(expected, view.header.world_size or 0),
            expected_ranks=expected,
            time_is_relative=view.header.time_basis == "relative",
        ),
    )
    table = newest_steps(matrix)
    reported = int(matrix.reported[-1].sum())
    begun = None if reported == expected else f"{reported:,} of {expected:,} ranks"
    whole = np.flatnonzero(table.complete)
    if not len(whole):
        return NewestStep(None, None, None, None, None, None, begun)
    place = int(whole[-1])
    rank = int(table.last_rank[place])
    hosts = {row.rank: row.host for row in view.ranks}
    ends_us = None if matrix.start_us is None else matrix.start_us + matrix.duration_us
    return NewestStep(
        step=int(table.steps[place]),
        ended_us=None if ends_us is None else int(np.nanmax(ends_us[place])),
        step_us=_known(table.step_us[place]),
        tax_ratio=_known(table.tax_ratio[place]),
        last_rank=None if rank < 0 else rank,
        last_host=hosts.get(rank),
        begun=begun,
    )


def newest_text(newest: NewestStep, now_us: int | None = None) -> str:
    """``newest`` in a line, at the moment ``now_us`` (now)."""
    if newest.step is None:
        return f"No step is whole yet{f': {newest.begun} so far' if newest.begun else ''}."
    now = time.time_ns() // 1000 if now_us is None else now_us
    said, age_s = f"Step {newest.step:,}", None
    if newest.ended_us is not None:
        age_s = (now - newest.ended_us) / 1e6  # below zero where the node's clock is ahead
        said += f" ended {format_age(age_s)} ago" if age_s > 0 else " ended just now"
    parts = [] if newest.step_us is None else [f"{format_value(newest.step_us, 'us')} long"]
    if newest.tax_ratio is not None and newest.last_rank is not None:
        host = f" on {newest.last_host}" if newest.last_host else ""
        share = format_share(newest.tax_ratio)
        parts.append(f"{share} of it waiting, the last to arrive was rank {newest.last_rank}{host}")
    if newest.begun is not None and (age_s is None or age_s > _ON_THE_WAY_S):
        parts.append(f"the next one is in from {newest.begun}")
    return f"{said}: {', '.join(parts)}" if parts else said


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
