"""Who stopped reporting, since when, and what the others do meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

from steptax.app.lake import Lake
from steptax.app.views.job.models import JobView
from steptax.app.views.job.view import job_view
from steptax.app.views.workspace import open_workspace

NOW_US = 1_800_000_000_000_000
STEP_US = 200_000


def record(
    lake: Lake, steps: int, ranks: int = 4, *, last_of: dict[int, int] | None = None
) -> None:
    """``steps`` synchronised steps up to now; ``last_of`` ends a rank's rows early."""
    rows: list[dict[str, Any]] = []
    for step in range(steps):
        for rank in range(ranks):
            if step > (last_of or {}).get(rank, steps):
                continue
            compute = 150_000 + 1_000 * rank
            rows.append(
                {
                    "job_id": "j",
                    "attempt": 0,
                    "step": step,
                    "rank": rank,
                    "start_us": NOW_US - (steps - step) * STEP_US,
                    "duration_us": STEP_US,
                    "compute_us": compute,
                    "comm_us": STEP_US - compute,
                }
            )
    lake.append("steps", pa.Table.from_pylist(rows), source="t")
    state = pa.table({"job_id": ["j"], "state": ["running"], "world_size": [ranks]})
    lake.append("jobs", state, source="t")


def beat(lake: Lake, rank: int, age_s: float, **more: Any) -> None:
    folder = lake.root / "live" / "job=j"
    folder.mkdir(parents=True, exist_ok=True)
    body = {
        "rank": rank,
        "state": "running",
        "step": 50,
        "phase": "collective",
        "phase_since_us": NOW_US - 9_000_000,
        "last_step_done": 49,
        "ts_us": NOW_US - int(age_s * 1e6),
        "host": "node-a",
    }
    (folder / f"rank-{rank:06d}.json").write_bytes(orjson.dumps(body | more))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake", create=True)


def view(lake: Lake, after_s: float = 0.0) -> JobView:
    now_us = NOW_US + int(after_s * 1e6)
    return job_view(open_workspace(lake.root), "j", price=None, now_us=now_us)


def test_a_running_job_is_live_and_complete(lake: Lake) -> None:
    record(lake, 50)
    for rank in range(4):
        beat(lake, rank, 0.5)
    coverage = view(lake).coverage
    assert coverage.is_live
    assert coverage.stopped == ()
    assert coverage.stale is None
    assert coverage.text.startswith("4 of 4 ranks reporting")


def test_a_silent_rank_is_named_with_its_phase_and_who_waits(lake: Lake) -> None:
    record(lake, 50)
    for rank in (0, 1, 3):
        beat(lake, rank, 0.5)
    beat(lake, 2, 12.0, phase="compute")
    found = view(lake).coverage
    assert [rank.rank for rank in found.stopped] == [2]
    text = found.stopped[0].text
    assert text.startswith("rank 2 stopped reporting 12 s ago (2027-01-15 07:59:48 UTC)")
    assert "after step 49, while in compute of step 50" in text
    assert "3 of the 3 others have waited for it in the collective for 9.0 s" in text
    assert found.text.startswith("3 of 4 ranks reporting")


def test_the_first_to_fall_silent_stands_out_after_the_end(lake: Lake) -> None:
    record(lake, 50)
    for rank in (0, 1, 3):
        beat(lake, rank, 0.0, state="closed")
    beat(lake, 2, 25.0, phase="compute")
    found = view(lake, after_s=600).coverage
    assert [rank.rank for rank in found.stopped] == [2]


def test_a_job_that_ended_well_has_nobody_missing(lake: Lake) -> None:
    record(lake, 50)
    for rank in range(4):
        beat(lake, rank, 0.0, state="closed")
    done = pa.table({"job_id": ["j"], "state": ["completed"]})
    lake.append("jobs", done, source="t")
    coverage = view(lake, after_s=600).coverage
    assert not coverage.is_live
    assert coverage.stopped == ()
    assert coverage.stale is None


def test_old_data_of_a_running_job_is_said_to_be_old(lake: Lake) -> None:
    record(lake, 50)
    for rank in range(4):
        beat(lake, rank, -29.0)
    stale = view(lake, after_s=30).coverage.stale
    assert stale is not None
    assert "30 s ago" in stale


def test_an_imported_rank_that_stops_early_is_named(lake: Lake) -> None:
    record(lake, 50, last_of={1: 20})
    found = view(lake).coverage
    assert [rank.text for rank in found.stopped] == [
        "rank 1 last reported step 20; the newest step is 49"
    ]
    # The numbers rest on the three ranks that reported throughout, and say so.
    assert "50 of 50 steps used on 3 of 4 ranks" in found.text


def test_of_imported_data_the_ranks_that_reported_count(lake: Lake) -> None:
    """The last steps are one rank's alone: the others have not stopped, the job has ended."""
    record(lake, 50, last_of={1: 40, 2: 40, 3: 40})
    ended = pa.table({"job_id": ["j"], "state": ["completed"], "world_size": [4]})
    lake.append("jobs", ended, source="t")
    found = view(lake).coverage
    assert not found.is_live
    assert found.ranks_reporting == 4
    assert found.text.startswith("4 of 4 ranks reported · ")


def test_missing_rows_are_said(lake: Lake) -> None:
    """Every step lacks one of ten ranks, so that none is whole."""
    rows = [
        {
            "job_id": "j",
            "attempt": 0,
            "step": step,
            "rank": rank,
            "start_us": NOW_US - (40 - step) * STEP_US,
            "duration_us": STEP_US,
            "compute_us": 150_000 + 1_000 * rank,
            "comm_us": STEP_US - 150_000 - 1_000 * rank,
        }
        for step in range(40)
        for rank in range(10)
        if rank != step % 10
    ]
    lake.append("steps", pa.Table.from_pylist(rows), source="t")
    lake.append("jobs", pa.table({"job_id": ["j"], "world_size": [10]}), source="t")
    got = view(lake)
    assert "40 of 40 steps used" in got.coverage.text
    assert "40 of 400 rows in them missing (10 %)" in got.coverage.text
