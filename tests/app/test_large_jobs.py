"""A fleet with a large job beside small ones: its raw rows are not read through for lists."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from steptax.app.lake import Segment, rollups
from steptax.app.lake.retain import retain
from steptax.app.queries import DuckEngine
from steptax.app.schema import Table
from steptax.app.views.fleet import load as fleet_load
from steptax.app.views.job import extent
from steptax.app.views.job.extent import FEW_JOBS, by_job, step_summaries
from steptax.app.views.workspace import Workspace, open_workspace
from tests.app.fleet_lake import HOUR, job, lake_of, rows, steps, us

T0 = us(2026, 11, 1)
LARGE = ("large", "large/é")


@pytest.fixture
def ws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """Small jobs, and two large ones of two attempts in rolled-up segments and small ones."""
    monkeypatch.setattr(rollups, "ROLLED_ROWS", 64)
    for module in (extent, fleet_load):
        monkeypatch.setattr(module, "LARGE_JOB_ROWS", 60)
    small = [f"small {k}" for k in range(FEW_JOBS)]
    made = lake_of(
        tmp_path / "lake",
        jobs=[job(name, T0, T0 + HOUR, state="completed") for name in (*small, *LARGE)],
        steps=[row for k, name in enumerate(small) for row in steps(name, T0, 3 + k)],
    )
    for name in LARGE:
        for rerun in (
            steps(name, T0, 20),
            steps(name, T0 + HOUR // 2, 10, attempt=1, first=15),
            steps(name, T0 + HOUR, 1, attempt=1, first=25),
        ):
            made.lake.append("steps", rows(rerun), source="test")
    return made


def raw(ws: Workspace) -> dict[str, list[dict[str, Any]]]:
    """By job what raw rows of all jobs give."""
    found = by_job(ws.engine.run("fleet_step_summary"))
    return {name: own.drop_columns(["job_id"]).to_pylist() for name, own in found.items()}


def told(ws: Workspace) -> dict[str, list[dict[str, Any]]]:
    """The same as pages ask for it."""
    found = step_summaries(ws, [row["job_id"] for row in ws.jobs()])
    return {
        name: own.select(["attempt", "step", "start_us", "duration_us"]).to_pylist()
        for name, own in found.items()
    }


def read_raw(monkeypatch: pytest.MonkeyPatch) -> set[str | None]:
    """Jobs whose raw rows are read from now on."""
    seen: set[str | None] = set()
    relation = DuckEngine._relation

    def spied(self: DuckEngine, spec: Table, segments: Sequence[Segment], **how: bool) -> str:
        if spec.name == "steps":
            seen.update(segment.job_id for segment in segments)
        return relation(self, spec, segments, **how)

    monkeypatch.setattr(DuckEngine, "_relation", spied)
    return seen


def test_steps_of_all_jobs_are_those_of_raw_rows_and_large_jobs_are_not_read_through(
    ws: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = raw(ws)
    assert [len(expected[name]) for name in LARGE] == [31, 31]
    seen = read_raw(monkeypatch)
    assert told(ws) == expected
    assert seen == {row["job_id"] for row in ws.jobs()} - {*LARGE}


def test_a_job_whose_rows_were_dropped_is_told_as_before(ws: Workspace) -> None:
    before = told(ws)
    retain(ws.lake, 2**62, tables=["steps"], job_id="small 1")
    assert ws.lake.segments("steps", "small 1") == []
    assert told(open_workspace(ws.root)) == before


def test_small_jobs_are_loaded_together_and_without_the_rows_of_large_ones(
    ws: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [row for row in ws.jobs() if row["job_id"] not in LARGE]
    seen = read_raw(monkeypatch)
    found = dict(fleet_load.load_jobs(ws, jobs))
    assert len(found) == len(jobs)
    assert seen == {row["job_id"] for row in jobs}


def test_few_jobs_are_told_each_by_itself(ws: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = raw(ws)
    monkeypatch.setattr(extent, "BIG_ROWS", 60)
    seen = read_raw(monkeypatch)
    found = step_summaries(ws, ["small 0", "large"])
    assert {name: own.to_pylist() for name, own in found.items()} == {
        name: expected[name] for name in ("small 0", "large")
    }
    assert seen == {"small 0"}
