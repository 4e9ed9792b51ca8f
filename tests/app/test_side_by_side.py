"""``steptax compare``: two jobs, or two periods of one, with a verdict."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Run = Callable[..., Any]
SLOW = 3
ONSET = 100


def write_job(
    path: Path, *, mean_ms: float = 100.0, slow_from: int = 10_000, seed: int = 1
) -> None:
    """200 steps of 4 ranks; rank 3 computes half longer from ``slow_from`` on."""
    dice = np.random.default_rng(seed)
    with path.open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(["step", "rank", "compute_ms", "comm_ms", "duration_ms"])
        for step in range(200):
            compute = mean_ms * (1 + 0.01 * dice.standard_normal(4))
            if step >= slow_from:
                compute[SLOW] *= 1.5
            length = compute.max() + 10
            for rank in range(4):
                own = compute[rank]
                writer.writerow([step, rank, f"{own:.3f}", f"{length - own:.3f}", f"{length:.3f}"])


@pytest.fixture
def stored(tmp_path: Path, steptax: Run) -> Callable[..., None]:
    def store(job: str, **shape: Any) -> None:
        path = tmp_path / f"{job}.csv"
        write_job(path, **shape)
        steptax("ingest", "steps", path, "--job", job)

    return store


def test_two_periods_of_a_job_and_why(steptax: Run, stored: Callable[..., None]) -> None:
    stored("long", slow_from=ONSET)
    found = steptax("compare", "long@-99", "long@100-", "--price", "2")
    assert found["verdict"] == "slower"
    assert found["change_ratio"]["value"] == pytest.approx(0.44, abs=0.02)
    assert found["change_ratio"]["low"] < found["change_ratio"]["value"]
    assert "long in steps 100–199 is slower than long in steps 0–99" in found["sentence"]
    assert "waiting for stragglers" in found["reason"]
    assert "instead of" in found["reason"]
    assert "time between steps not counted" in found["reason"]
    assert "Rank 3 makes the other 3 wait" in found["sides"]["b"]["straggler"]
    assert found["sides"]["a"]["last_step"] == 99
    same = steptax("compare", "long@0-49", "long@50-99")
    assert same["verdict"] == "no difference"
    assert "instead of" not in same["reason"]


def test_two_jobs_need_more_than_two_periods(steptax: Run, stored: Callable[..., None]) -> None:
    stored("one", seed=1)
    stored("two", seed=2, mean_ms=104)
    found = steptax("compare", "one", "two")
    assert found["verdict"] == "not told"
    assert "not told" in found["sentence"]
    assert "Sinha" in found["sentence"]
    assert steptax("compare", "one@0-99", "one@100-199")["verdict"] == "no difference"
    stored("three", seed=3, mean_ms=140)
    assert steptax("compare", "one", "three")["verdict"] == "slower"
    assert steptax("compare", "three", "one")["verdict"] == "faster"


def test_runs_that_are_alike_say_what_is_noise(
    steptax: Run, stored: Callable[..., None], tmp_path: Path
) -> None:
    names = [f"run-{k}" for k in range(5)]
    for k, name in enumerate(names):
        stored(name, seed=k, mean_ms=100 + 0.1 * k if k < 4 else 104)
    table = tmp_path / "jobs.csv"
    rows = "".join(f"{name},model-a,4\n" for name in names[:4])
    table.write_text(f"job_id,name,gpus\n{rows}run-4,model-b,4\n")
    steptax("ingest", "jobs", table)
    found = steptax("compare", "run-0", "run-4")
    assert found["runs_alike"] == 4
    assert not found["run_to_run_is_published"]
    assert found["verdict"] == "slower"
    assert "4 runs that are alike" in found["sentence"]
    assert steptax("compare", "run-0", "run-3")["verdict"] == "no difference"
    assert ["name", "model-a", "model-b"] in [list(row.values()) for row in found["differs"]]


def test_mistakes_are_told(steptax: Run, stored: Callable[..., None]) -> None:
    stored("one")
    for sides, said in (
        (("one", "one"), "both sides are the same"),
        (("one@50-20", "one"), "step 20 is before step 50"),
        (("one@900-", "one"), "no steps there"),
        (("one", "other"), "there is no job 'other'"),
        (("one@0-foo", "one"), "expected steps as FIRST-LAST after @, found '0-foo'"),
    ):
        failed = steptax("compare", *sides, fails=2)
        assert said in failed["message"], sides
