"""What steps a job has, and when: of a small job from its rows, of a big one from its roll-ups.

Of a job whose old rows retention dropped, too: its roll-ups tell of them still.

Both say the same; the rows of a small job are read sooner than its many segments are summed up.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from steptax.app.lake.kept import dropped
from steptax.app.views.workspace import Workspace

#: Rows of a job beyond which its roll-ups answer.
BIG_ROWS = 1_000_000


def is_big(ws: Workspace, job_id: str) -> bool:
    """Whether its roll-ups are to be read: for its many rows, or for those that were dropped."""
    rows = sum(segment.rows for segment in ws.lake.segments("steps", job_id))
    return rows > BIG_ROWS or dropped(ws.lake, "steps", job_id) is not None


def step_span(ws: Workspace, job_id: str) -> dict[str, Any]:
    """First and last step, ranks, rows, newest moment of a job; see the query ``step_span``."""
    rows = _asked(ws, job_id, "step_span", "history_span").to_pylist()
    return dict(rows[0])


def step_numbers(ws: Workspace, job_id: str) -> pa.Table:
    """Numbers of the steps that a job has, ascending."""
    return _asked(ws, job_id, "step_numbers", "history_numbers")


def step_summary(ws: Workspace, job_id: str) -> pa.Table:
    """Start and longest duration of every executed step of every attempt."""
    return _asked(ws, job_id, "step_summary", "history_summary")


def loss_by_step(ws: Workspace, job_id: str) -> pa.Table:
    """Mean loss of every executed step of every attempt, and when it was."""
    return _asked(ws, job_id, "loss_by_step", "history_loss")


def _asked(ws: Workspace, job_id: str, of_rows: str, of_rollups: str) -> pa.Table:
    return ws.engine.run(of_rollups if is_big(ws, job_id) else of_rows, job_id=job_id)
