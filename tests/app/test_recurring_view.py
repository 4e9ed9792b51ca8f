"""A rank that is slow again and again, as the card and its finding show it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from steptax.app.lake import Lake
from steptax.app.views.job.models import JobView
from steptax.app.views.job.view import job_view
from steptax.app.views.workspace import open_workspace

STEPS, RANKS, SLOW = 200, 8, 3


def view(tmp_path: Path, slow: np.ndarray) -> JobView:
    """Steps of a fifth of a second; in ``slow`` ones rank 3 takes half as long again."""
    lake = Lake(tmp_path / "lake", create=True)
    work = 2e5 * np.random.default_rng(0).lognormal(0, 0.01, (STEPS, RANKS))
    work[slow, SLOW] *= 1.5
    length = np.broadcast_to(work.max(axis=1)[:, None] + 1e4, work.shape)
    start = 1_795_900_000_000_000 + np.cumsum(length, axis=0) - length
    step, rank = np.indices(work.shape)
    columns = {
        "step": step,
        "rank": rank,
        "start_us": start,
        "duration_us": length,
        "compute_us": work,
        "comm_us": length - work,
    }
    rows = {name: values.ravel().astype(np.int64) for name, values in columns.items()}
    ids = {"job_id": ["a"] * step.size, "attempt": np.zeros(step.size, np.int64)}
    lake.append("steps", pa.table(ids | rows), source="t")
    lake.append("jobs", pa.table({"job_id": ["a"], "world_size": [RANKS]}), source="t")
    return job_view(open_workspace(lake.root), "a", price=None)


def test_the_card_says_how_often_and_since_when(tmp_path: Path) -> None:
    got = view(tmp_path, np.arange(STEPS) % 5 == 2)
    assert (got.card.verdict, got.card.culprit_rank) == ("worker", SLOW)
    assert "in the 20 % of the steps in which it is slow, in 40 separate stretches" in (
        got.card.sentence
    )
    assert got.card.since == (
        "again and again since step 2: in 40 of 200 steps, 40 separate stretches; last in step 197"
    )
    (one,) = got.findings
    assert one.in_steps == (40, 196)
    assert "step 2 to 197, in 40 of 196 steps, still going on" in one.sentence


def test_one_that_is_over_is_told_as_that(tmp_path: Path) -> None:
    slow = (np.arange(STEPS) >= 40) & (np.arange(STEPS) < 110)
    got = view(tmp_path, slow)
    assert (got.card.verdict, got.card.culprit_rank) == ("passed", None)
    assert "rank 3 in steps 40 to 109: it is slow no longer." in got.card.sentence
    assert got.card.next_action.startswith("find out what began and what ended on that rank")
    assert got.findings[0].ranks == (SLOW,)
