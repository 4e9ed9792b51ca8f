"""What pages tell of jobs that run may be a little old; what of others may not."""

from __future__ import annotations

import time
from pathlib import Path

import orjson
import pyarrow as pa
import pytest

from steptax.app.errors import NotFoundError
from steptax.app.lake import Lake
from steptax.app.lake.segments import job_folder
from steptax.app.views import kept
from steptax.app.views.compare.load import Part
from steptax.app.views.fleet.filter import FleetFilter
from steptax.app.views.workspace import Workspace, open_workspace
from steptax.pages import compare_data, data, fleet_data, whatif_data
from steptax.pages.state import Selection

JOB = "goes-on"


@pytest.fixture
def ws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    lake = Lake(tmp_path / "lake", create=True)
    _job(lake, JOB)
    _steps(lake, 0)
    ws = open_workspace(lake.root)
    monkeypatch.setattr(data, "workspace", lambda: ws)
    return ws


def _job(lake: Lake, name: str) -> None:
    start_us = time.time_ns() // 1000 - 3_600_000_000
    told = {"job_id": [name], "state": ["running"], "start_us": [start_us], "world_size": [2]}
    lake.append("jobs", pa.table(told), source="t")


def _steps(lake: Lake, first: int) -> None:
    start_us = time.time_ns() // 1000 - 60_000_000
    steps = [first + k // 2 for k in range(60)]
    rows = {
        "job_id": [JOB] * 60,
        "attempt": pa.array([0] * 60, pa.int32()),
        "rank": pa.array([0, 1] * 30, pa.int32()),
        "step": steps,
        "start_us": [start_us + 1_000_000 * step for step in steps],
        "duration_us": [900_000] * 60,
        "compute_us": [800_000, 850_000] * 30,
    }
    lake.append("steps", pa.table(rows), source="t")


def _is_heard(lake: Lake) -> None:
    folder = lake.root / "live" / job_folder(JOB)
    folder.mkdir(parents=True)
    beat = {"rank": 0, "ts_us": time.time_ns() // 1000, "state": "running"}
    (folder / "beats-t.json").write_bytes(orjson.dumps([beat]))


def _asked(ws: Workspace) -> list[object]:
    whole = Part(JOB, 0, 10)
    return [
        fleet_data.fleet(None, FleetFilter()),
        fleet_data.executive(None),
        fleet_data.budget("all", None, None),
        whatif_data.inputs(Selection(JOB, 500, None, live=True), JOB),
        compare_data.compared(whole, Part(JOB, 11, 20), None),
    ]


def test_of_a_job_that_runs_the_same_is_told_for_a_while(
    ws: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "BESIDE_S", 0.0)  # as if each of them took long
    _is_heard(ws.lake)
    assert data.is_running(JOB)
    assert data.something_runs()
    before = _asked(ws)
    _steps(ws.lake, 30)
    after = _asked(ws)
    assert all(a is b for a, b in zip(after, before, strict=True))


def test_a_new_job_is_told_at_once_beside_one_that_runs(ws: Workspace) -> None:
    _is_heard(ws.lake)
    before = fleet_data.fleet(None, FleetFilter())
    _job(ws.lake, "begins")
    after = fleet_data.fleet(None, FleetFilter())
    assert after is not before
    assert "of 2 jobs" in after.sentence


def test_where_no_job_runs_what_was_stored_is_told_at_once(ws: Workspace) -> None:
    assert not data.is_running(JOB)  # its record says so, but no recorder was ever heard
    assert not data.something_runs()
    before = _asked(ws)
    _steps(ws.lake, 30)
    after = _asked(ws)
    assert not any(a is b for a, b in zip(after, before, strict=True))


def test_a_job_that_is_not_there_does_not_run_and_the_page_says_what_is_wrong(
    ws: Workspace,
) -> None:
    assert not data.is_running("nobody")
    with pytest.raises(NotFoundError, match="nobody"):
        compare_data.compared(Part("nobody"), Part(JOB), None)
