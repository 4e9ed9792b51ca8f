"""The oldest lake there is, written by the first version that had one, read by this one.

``data/lake-first-format.zip`` was written by the code of the first commit with a lake: rows of each
of its twelve tables, and one import. Also: a backup of a lake that is written to, and its restore.
"""

from __future__ import annotations

import shutil
import subprocess
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from steptax.app.errors import InputError
from steptax.app.lake import Lake, rollups
from steptax.app.lake.compact import compact
from steptax.app.queries import QUERIES
from steptax.app.schema import TABLES
from steptax.app.views.fleet.view import fleet_view
from steptax.app.views.health import health_view
from steptax.app.views.job import extent
from steptax.app.views.job.history import history_view
from steptax.app.views.job.view import job_view
from steptax.app.views.review.executive import executive_view
from steptax.app.views.workspace import open_workspace
from steptax.benchmarks.product.scale_data import JOB, fill
from tests.app.fleet_lake import RANKS, S, rows, steps, us
from tests.team_lake import store_team

OLDEST = Path(__file__).parent / "data" / "lake-first-format.zip"
STORED = {"jobs": 1, "ranks": 4, "steps": 60, "ops": 3, "collectives": 3, "device_samples": 3}
STORED |= {"events": 3, "charges": 3, "prices": 3, "bench_results": 3, "budgets": 3, "rejects": 3}


@pytest.fixture
def oldest(tmp_path: Path) -> Lake:
    with zipfile.ZipFile(OLDEST) as archive:
        archive.extractall(tmp_path / "lake")
    return Lake(tmp_path / "lake")


def test_every_row_of_the_oldest_lake_is_there(oldest: Lake) -> None:
    assert {name: n for name, n in oldest.row_counts().items() if n} == STORED
    read = oldest.read("steps", "old-job").to_pylist()
    assert [row["compute_us"] for row in read[:1]] == [600_000]
    assert sum(row["duration_us"] for row in read) == 40 * S


@pytest.mark.parametrize("name", QUERIES)
def test_every_query_of_today_answers_on_it(oldest: Lake, name: str) -> None:
    known: dict[str, Any] = {"last_us": 2**62, "last_step": 10**6, "last_job": "~", "first_job": ""}
    known |= {"limit_rows": 100, "now_us": us(2026, 9, 30), "gpu_uuids": ["g"], "is_live": False}
    known |= {"step_block": 256, "window_steps": 256, "quantile_ratio": 0.95}
    known |= {"printed_name": "loss"}
    asked = {p: known.get(p, 1) for p in QUERIES[name].parameters if p != "job_id"}
    engine = open_workspace(oldest.root).engine
    assert engine.run(name, job_id="old-job", **asked).num_columns > 0


def test_every_view_of_today_is_made_of_it(oldest: Lake) -> None:
    (oldest.root / "tables" / "charges").rename(oldest.root / "charges")  # made-up currencies
    (oldest.root / "tables" / "budgets").rename(oldest.root / "budgets")  # and periods
    ws = open_workspace(oldest.root)
    assert set(ws.job_ids()) == {"old-job", "old-import"}
    view = job_view(ws, "old-import", price=None)
    assert view.coverage.steps_used == 5
    executive_view(ws, price=None, price_note=None)
    fleet_view(ws, price=None, price_note=None)
    assert health_view(ws).sources


def test_it_is_added_to_merged_and_read_as_one(oldest: Lake) -> None:
    more = steps("old-job", us(2026, 9, 30), 5, length=S, first=100)
    oldest.append("steps", rows(more), source="new")
    compact(oldest, minimum=2, grace_s=0.0)
    assert len(oldest.segments("steps", "old-job")) == 1
    assert oldest.read("steps", "old-job").num_rows == 40 + 5 * RANKS
    assert set(oldest.read("steps", "old-job").column_names) == set(TABLES["steps"].names)


def test_the_same_import_as_then_adds_nothing(oldest: Lake) -> None:
    assert oldest.commits.get("0123456789abcdef01234567") is not None
    assert open_workspace(oldest.root).ingests()[0].detail["accepted"] == {"steps": 20}


def test_roll_ups_that_an_older_version_lacked_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steptax: Callable[..., Any]
) -> None:
    """By the first page that asks for one, or all of them by the command: as if from the start."""
    monkeypatch.setattr(rollups, "ROLLED_ROWS", 64)
    monkeypatch.setattr(extent, "BIG_ROWS", 64)
    lake = Lake(tmp_path / "lake", create=True)
    fill(lake, 4, 200)

    def files() -> dict[Path, bytes]:
        return {p: p.read_bytes() for p in (lake.root / "rollups").rglob("*.parquet")}

    whole = files()
    assert {path.relative_to(lake.root / "rollups").parts[0] for path in whole} >= {"step-bins-1"}
    told = history_view(open_workspace(lake.root), JOB)
    for by in ("page", "command"):
        shutil.rmtree(lake.root / "rollups" / "step-bins-1")
        if by == "page":
            again = history_view(open_workspace(lake.root), JOB)
            assert told is not None
            assert again is not None
            assert again.spread == told.spread is not None
        else:
            assert steptax("rollup", "--lake", lake.root)["summed_up"] == 2
        assert files() == whole


def test_a_lake_of_the_future_is_refused_with_what_to_do(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", create=True)
    (lake.root / "LAKE.json").write_text('{"format": 3}')
    with pytest.raises(InputError, match="lake format 3 where 1 or 2 was expected") as error:
        Lake(lake.root)
    assert "newer" in str(error.value)


def _backup(lake: Path, to: Path) -> None:
    """What docs/operation.md says: commits first, then the tables, by plain copies."""
    to.mkdir(parents=True)
    for part in ("LAKE.json", "commits", "tables"):
        if (lake / part).exists():
            # A temporary name that is gone before it is copied is no loss, and no reason to stop.
            subprocess.run(["cp", "-a", str(lake / part), str(to)], check=False)


def test_a_backup_of_a_lake_that_is_written_to_is_whole(
    tmp_path: Path, steptax: Callable[..., Any]
) -> None:
    lake = Lake(tmp_path / "lake", create=True)
    store_team(lake, "alpha")
    for k in range(3):
        lake.append("steps", rows(steps("a", us(2026, 3, 1), 5, first=5 * k)), source="x")
    before = {name: n for name, n in lake.row_counts().items() if n}
    stop = threading.Event()

    def write() -> None:
        k = 100
        while not stop.is_set():
            lake.append("steps", rows(steps("b", us(2026, 3, 2), 1, first=k)), source="x")
            k += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        _backup(lake.root, tmp_path / "backup")
    finally:
        stop.set()
        writer.join()
    shutil.rmtree(lake.root)
    shutil.copytree(tmp_path / "backup", lake.root)  # the restore
    restored = Lake(lake.root)
    found = restored.row_counts()
    assert {name: found[name] for name in before if name != "steps"} == {
        name: n for name, n in before.items() if name != "steps"
    }
    assert restored.read("steps", "a").num_rows == 15 * RANKS
    assert restored.read("steps", "b").num_rows % RANKS == 0
    data = steptax("doctor", "--lake", str(lake.root), "--deep")
    assert data["failed"] == 0
