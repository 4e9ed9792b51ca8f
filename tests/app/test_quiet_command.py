"""``steptax quiet`` on a made-up job whose failures are known."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Steptax = Callable[..., Any]


@pytest.fixture
def job(steptax: Steptax, tmp_path: Path) -> Steptax:
    """60 steps of 4 ranks: the first three warm up, one stalls, every tenth saves."""
    path = tmp_path / "job.csv"
    names = ["step", "rank", "start_s", "compute_ms", "comm_ms", "checkpoint_ms", "duration_ms"]
    now_s = 1_795_900_000.0
    with path.open("w") as handle:
        writer = csv.writer(handle)
        writer.writerow(names)
        for step in range(60):
            for rank in range(4):
                compute, save = 100.0, 0.0
                compute += 900 if step < 3 else 0
                compute += 400 if step == 30 and rank == 2 else 0
                save = 20.0 if step % 10 == 9 else 0.0
                longest = 100 + (900 if step < 3 else 0) + (400 if step == 30 else 0)
                comm = 10 + longest - compute
                writer.writerow(
                    [step, rank, f"{now_s:.6f}", compute, comm, save, longest + 10 + save]
                )
            now_s += (longest + 10 + save) / 1000
    steptax("ingest", "steps", path, "--job", "q")
    return steptax


def test_each_failure_has_its_numbers(job: Steptax) -> None:
    data = job("quiet", "--job", "q")
    found = {line["title"]: line["value"] for line in data["lines"]}
    assert found["steps that stalled"] == 1
    assert data["worst_step"] == 30
    assert found["longest mean wait"] == pytest.approx(300)
    assert found["until the job was steady"] == pytest.approx(3 * 1.01, rel=1e-3)
    assert found["lost until then"] == pytest.approx(2.7, rel=0.01)
    assert found["a save takes"] == pytest.approx(0.02)
    assert found["steps far longer than usual"] == 1
    assert found["pauses between steps, in all"] == 0
    assert "stalled" in data["sentence"]
    assert data["lines"][0]["failure"] == "Stragglers"


def test_a_job_that_is_not_there(job: Steptax) -> None:
    assert job("quiet", "--job", "none", fails=2)["kind"] == "NotFoundError"


def test_normalised_times_are_called_that_and_counts_hold(steptax: Steptax, tmp_path: Path) -> None:
    """A share and a count need no clock; a duration in seconds does."""
    path = tmp_path / "norm.csv"
    with path.open("w") as handle:
        writer = csv.writer(handle)
        writer.writerow(["step", "rank", "compute_norm", "comm_norm", "duration_norm"])
        for step in range(60):
            for rank in range(4):
                compute = 1.0 + (4.0 if step == 30 and rank == 2 else 0.0)
                longest = 5.0 if step == 30 else 1.0
                writer.writerow([step, rank, compute, 0.1 + longest - compute, longest + 0.1])
    steptax("ingest", "steps", path, "--job", "n")
    data = steptax("quiet", "--job", "n")
    lines = {line["title"]: line for line in data["lines"]}
    assert lines["steps that stalled"]["value"] == 1
    assert lines["steps far longer than usual"]["value"] == 1
    assert lines["time lost in them"]["value"] == pytest.approx(3 / (59 * 1.1 + 5.1), rel=0.01)
    for title in ("longest mean wait", "until the job was steady", "longest pause"):
        assert lines[title]["value"] is None
        assert lines[title]["reason"].startswith("durations in this source are normalised")
