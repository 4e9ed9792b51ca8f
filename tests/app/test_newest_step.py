"""The newest step of a running job: whole, of the attempt that runs, and said in a line."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from steptax.app.lake import Lake
from steptax.app.lake.segments import Segment, live_name, newest_last, write_parquet
from steptax.app.schema import table
from steptax.app.views.job.newest import NewestStep, newest_step, newest_text
from steptax.app.views.job.view import job_view
from steptax.app.views.workspace import Workspace, open_workspace

JOB = "j"
RANKS = 4
EPOCH_US = 1_795_900_000_000_000


def put(lake: Lake, step: int, *, ranks: int = RANKS, attempt: int = 0) -> None:
    """Of a step what a recorder writes: rank 2 works for 40 of 100 ms longer than the others."""
    work_us = [50_000 + 40_000 * (rank == 2) for rank in range(ranks)]
    rows = {
        "job_id": [JOB] * ranks,
        "attempt": [attempt] * ranks,
        "step": [step] * ranks,
        "rank": list(range(ranks)),
        "start_us": [EPOCH_US + 100_000 * step] * ranks,
        "duration_us": [100_000] * ranks,
        "compute_us": work_us,
        "comm_us": [100_000 - work for work in work_us],
        "source": ["recorder"] * ranks,
        "ingested_at_us": [EPOCH_US] * ranks,
    }
    spec = table("steps")
    nothing = [None] * ranks
    whole = pa.table({f.name: rows.get(f.name, nothing) for f in spec.arrow}, spec.arrow)
    folder = lake.folder("steps", JOB)
    folder.mkdir(parents=True, exist_ok=True)
    while (path := folder / live_name(whole)).exists():
        time.sleep(0.001)
    write_parquet(path, spec, whole)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(tmp_path / "lake", create=True)
    for step in range(40):
        put(made, step)
    return made


@pytest.fixture
def ws(lake: Lake) -> Workspace:
    return open_workspace(lake.root)


def newest(ws: Workspace) -> NewestStep:
    return newest_step(ws, job_view(ws, JOB, price=None))


def test_the_newest_whole_step_is_told_as_the_page_tells_it(lake: Lake, ws: Workspace) -> None:
    view = job_view(ws, JOB, price=None)
    found = newest_step(ws, view)
    assert (found.step, found.last_rank, found.step_us) == (39, 2, 100_000)
    assert found.ended_us == EPOCH_US + 40 * 100_000
    assert found.tax_ratio == pytest.approx(view.series.tax[-1])
    assert found.tax_ratio == pytest.approx(0.3)
    assert found.begun is None
    # Rows that have come since are told without the view being made anew.
    put(lake, 40)
    put(lake, 41, ranks=3)
    found = newest_step(ws, view)
    assert (found.step, found.begun) == (40, "3 of 4 ranks")


def test_a_job_that_went_back_is_told_where_it_runs(lake: Lake, ws: Workspace) -> None:
    put(lake, 20, attempt=1)
    found = newest(ws)
    assert found.step == 20
    # Once the segments are merged their order is gone, and the highest number is the best guess.
    merged = [
        Segment("steps", JOB, Path(f"part-ab-{n}-0-{last}-9.parquet"), 0, last, 9)
        for n, last in enumerate((39, 20))
    ]
    assert newest_last(merged) == 39
    assert newest_last([]) is None


def test_what_is_not_known_is_not_said() -> None:
    known = NewestStep(4211, 1_000_000, 1_250_000.0, 0.091, 19, "node-3", None)
    now_us = 2_100_000
    assert newest_text(known, now_us) == (
        "Step 4,211 ended 1.1 s ago: 1,250 ms long, 9.1 % of it waiting, "
        "the last to arrive was rank 19 on node-3"
    )
    bare = replace(known, ended_us=None, tax_ratio=None, last_rank=None, last_host=None)
    assert newest_text(bare) == "Step 4,211: 1,250 ms long"
    # Clocks of a node may be ahead of ours.
    assert newest_text(known, 900_000).startswith("Step 4,211 ended just now:")
    late = replace(known, begun="1,023 of 1,024 ranks")
    assert newest_text(late, now_us) == newest_text(known, now_us)  # still on their way
    hangs_us = now_us + 60_000_000
    assert newest_text(late, hangs_us).endswith("the next one is in from 1,023 of 1,024 ranks")
    none = NewestStep(None, None, None, None, None, None, "3 of 4 ranks")
    assert newest_text(none) == "No step is whole yet: 3 of 4 ranks so far."
    assert newest_text(replace(none, begun=None)) == "No step is whole yet."
