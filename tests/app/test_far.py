"""How far long work has come is told while it goes on, and to nobody who did not ask."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import streamlit as st

from steptax.app.commands import progress
from steptax.app.lake import Lake
from steptax.app.views import far
from steptax.app.views.job.step_facts import facts_of
from steptax.app.views.workspace import Workspace, open_workspace
from steptax.pages import data

JOBS = 3


@pytest.fixture
def ws(tmp_path: Path) -> Workspace:
    lake = Lake(tmp_path / "lake", create=True)
    step, rank = (part.ravel() for part in np.indices((30, 4)))
    for number in range(JOBS):
        rows = {
            "job_id": [f"j{number}"] * len(step),
            "attempt": pa.array([0] * len(step), pa.int32()),
            "step": step,
            "rank": rank.astype(np.int32),
            "start_us": 1_795_900_000_000_000 + 1000 * step,
            "duration_us": [1000] * len(step),
            "compute_us": 800 - 10 * rank,
            "comm_us": 200 + 10 * rank,
        }
        lake.append("steps", pa.table(rows), source="test")
    return open_workspace(lake.root)


def test_each_job_is_told_once_it_is_worked_out(ws: Workspace) -> None:
    heard: list[tuple[int, int]] = []
    with far.heard_by(lambda one: heard.append((one.done, one.total))):
        assert len(facts_of(ws, ws.jobs())) == JOBS
        first = list(heard)
        facts_of(ws, ws.jobs())  # they are known now
    assert first[0] == (0, JOBS)
    assert first[-1] == (JOBS - 1, JOBS)
    assert [done for done, _ in first] == sorted(done for done, _ in first)
    assert heard == first
    far.come(1, 2)  # nobody listens any more
    assert heard == first


def test_a_page_has_a_bar_for_as_long_as_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []

    class Place:
        def progress(self, share: float, text: str) -> None:
            drawn.append((share, text))

        def empty(self) -> None:
            drawn.append(None)

    monkeypatch.setattr(st, "empty", Place)

    def make() -> str:
        far.come(1, 4)
        far.come(1, 1)
        return "made"

    # Made by a thread beside the page that is drawn, it has no place there.
    assert data.with_spinner("Adding up", make) == "made"
    assert not drawn
    monkeypatch.setattr(data, "get_script_run_ctx", lambda **_: object())
    assert data.with_spinner("Adding up", make) == "made"
    assert drawn == [(0.25, "1 of 4 jobs"), (1.0, "1 of 1 job"), None]


def test_a_terminal_has_one_too_and_a_file_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def shown(is_terminal: bool) -> str:
        monkeypatch.setattr("sys.stderr.isatty", lambda: is_terminal, raising=False)
        with progress.counting("Analysing"):
            far.come(2, 5)
        return capsys.readouterr().err

    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "2/5" in shown(True)
    assert shown(False) == ""


def test_threads_do_not_hear_of_one_another() -> None:
    heard: list[int] = []
    with far.heard_by(lambda one: heard.append(one.done)):
        thread = threading.Thread(target=far.come, args=(1, 2))
        thread.start()
        thread.join()
    assert heard == []
