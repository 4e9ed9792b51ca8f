"""One step of a job, rank by rank: who is drawn, and as what."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from steptax.app.charts.timeline import bar_title
from steptax.app.lake import Lake
from steptax.app.views.job.view import step_timeline
from steptax.app.views.workspace import Workspace, open_workspace

RANKS = 40


@pytest.fixture
def ws(tmp_path: Path) -> Workspace:
    """40 ranks; rank 39 is the last of step 0; rank 7 is not in step 1."""
    rank = np.tile(np.arange(RANKS, dtype=np.int32), 2)
    step = np.repeat([0, 1], RANKS)
    work = np.where((rank == 39) & (step == 0), 150_000, 100_000)
    there = ~((rank == 7) & (step == 1))
    rows = {
        "job_id": pa.array(["run"] * int(there.sum())),
        "attempt": np.zeros(int(there.sum()), np.int32),
        "step": step[there],
        "rank": rank[there],
        "duration_us": np.full(int(there.sum()), 160_000),
        "compute_us": work[there],
        "comm_us": (160_000 - work)[there],
    }
    lake = Lake(tmp_path / "lake", create=True)
    lake.append("steps", pa.table(rows), source="test")
    return open_workspace(lake.root)


def test_the_chosen_rank_and_the_culprit_are_told_apart(ws: Workspace) -> None:
    told = step_timeline(ws, "run", 0, ranks=(3, 11), culprits=(11,), limit=10)
    titles = [bar_title(bar) for bar in told.bars]
    assert {"chosen · 3", "culprit · 11", "last · 39"} <= set(titles)
    assert told.note == "10 of 40 ranks: the chosen, the latest and an even sample of the rest"


@pytest.mark.parametrize(
    ("ranks", "step", "note"),
    [
        ((7, 3), 1, "no report of rank 7 in this step; 10 of 39 ranks: the chosen, the latest and"),
        ((7,), 1, "no report of rank 7 in this step; 10 of 39 ranks: the latest and an even"),
        ((90, 91), 0, "no report of ranks 90, 91 in this step; 10 of 40 ranks: the latest and"),
        ((), 0, "10 of 40 ranks: the latest and an even sample of the rest"),
    ],
)
def test_a_chosen_rank_without_a_report_is_told(
    ws: Workspace, ranks: tuple[int, ...], step: int, note: str
) -> None:
    told = step_timeline(ws, "run", step, ranks=ranks, limit=10)
    assert told.note is not None
    assert told.note.startswith(note)
    assert not {7, 90, 91}.intersection(bar.rank for bar in told.bars) or step == 0
