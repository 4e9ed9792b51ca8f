"""How other references and detectors see a job, as ``steptax job`` prints it."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from steptax.app.compute.straggler.analysis import IDEALS

Run = Callable[..., Any]
Find = Callable[[str], Path]
SLOW = 5
ONSET = 90


def write_job(path: Path, *, steps: int = 150, onset: int = ONSET) -> None:
    """Eight ranks on four replicas of two TP ranks; rank 5 computes 60 % longer from ``onset``."""
    rng = np.random.default_rng(3)
    with path.open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(
            ["step", "rank", "tp", "pp", "dp", "compute_ms", "comm_ms", "input_ms", "duration_ms"]
        )
        for step in range(steps):
            compute = 100 + rng.normal(0, 2, 8)
            if step >= onset:
                compute[SLOW] *= 1.6
            length = compute.max() + 15
            for rank in range(8):
                cells = (compute[rank], length - compute[rank] - 5, 5.0, length)
                numbers = [f"{value:.3f}" for value in cells]
                writer.writerow([step, rank, rank % 2, 0, rank // 2, *numbers])


@pytest.fixture
def job(steptax: Run, tmp_path: Path) -> dict[str, Any]:
    path = tmp_path / "late.csv"
    write_job(path)
    steptax("ingest", "steps", path, "--job", "late")
    return dict(steptax("job", "late", "--price", "2"))


def test_the_card_says_since_when(job: dict[str, Any]) -> None:
    card = job["card"]
    assert card["culprit_rank"] == SLOW
    assert card["since_step"] == ONSET
    # Slow in 40 % of the steps only, and for good all the same.
    assert card["persistence"]["value"] == pytest.approx(0.4, abs=0.02)
    assert f"nearly all since step {ONSET}" in card["sentence"]


def test_the_card_dates_a_lasting_straggler(steptax: Run, tmp_path: Path) -> None:
    path = tmp_path / "early.csv"
    write_job(path, onset=40)
    steptax("ingest", "steps", path, "--job", "early")
    card = steptax("job", "early")["card"]
    assert card["culprit_rank"] == SLOW
    assert card["since_step"] == 40
    assert card["since"].startswith("since step 40")
    window = steptax("job", "early", "--window", "60")["card"]
    assert window["since_step"] is None
    assert window["since"] == "from the first step looked at, 90"


def test_falcon_dates_the_change_and_finds_the_group(job: dict[str, Any]) -> None:
    falcon = job["comparison"]["falcon"]
    (change,) = falcon["changes"]
    assert change["step"] == ONSET
    assert change["before_ms"] == pytest.approx(118, abs=2)
    assert change["after_ms"] == pytest.approx(175, abs=3)
    assert change["change_ratio"] == pytest.approx(0.48, abs=0.03)
    assert change["confidence"] > 0.9
    groups = {group["kind"]: group for group in falcon["groups"]}
    (suspect,) = groups["TP"]["suspects"]
    assert "ranks 4 and 5" in suspect
    assert "single rank" in groups["PP"]["reason"]


def test_nvrx_flags_the_rank_against_its_own_best(job: dict[str, Any]) -> None:
    nvrx = job["comparison"]["nvrx"]
    first = nvrx["rows"][0]
    assert len(nvrx["rows"]) == 8
    by_rank = {row["rank"]: row for row in nvrx["rows"]}
    assert by_rank[SLOW]["individual"]["compute"] == pytest.approx(1 / 1.6, abs=0.02)
    assert by_rank[SLOW]["flagged"] == ["compute, against its own best"]
    assert by_rank[0]["flagged"] == []
    assert first["relative"]["input"] == 1.0
    assert "over-stated" in nvrx["note"]
    assert nvrx["threshold"] == 0.75


def test_every_ideal_is_there_and_labelled(job: dict[str, Any], steptax: Run) -> None:
    rows = job["comparison"]["ideals"]
    assert [row["ideal"] for row in rows] == list(IDEALS)
    assert [("outside the ledger" in row["label"]) for row in rows] == [False, True, True, True]
    for row in rows:
        chosen = steptax("job", "late", "--ideal", row["ideal"])["metrics"]
        assert chosen["slowdown_ratio"]["value"] == row["slowdown"]["value"]
        assert chosen["waste_ratio"]["value"] == row["waste"]["value"]
        # The tax is measured idle time, whatever the reference.
        assert chosen["straggler_tax_ratio"]["value"] == rows[0]["waste"]["value"]
    values = [row["slowdown"]["value"] for row in rows]
    assert values == sorted(values)


def test_blame_adds_up_to_the_wait(job: dict[str, Any]) -> None:
    blame = job["blame"]
    charged = sum(row["gpu_seconds"] for row in blame["rows"])
    assert charged + blame["nobody_gpu_seconds"] == pytest.approx(blame["wait_gpu_seconds"])
    assert sum(row["share"] for row in blame["rows"]) == pytest.approx(1)
    assert blame["rows"][0]["rank"] == SLOW
    wait = next(line for line in job["ledger"] if line["bucket"] == "straggler_wait")
    # The ledger counts whole microseconds.
    assert blame["wait_gpu_seconds"] == pytest.approx(wait["gpu_seconds"], abs=1e-3)


def test_both_splits_of_the_tax_add_up(job: dict[str, Any]) -> None:
    metrics = {name: measure["value"] for name, measure in job["metrics"].items()}
    tax = metrics["straggler_tax_ratio"]
    assert metrics["persistent_ratio"] + metrics["transient_ratio"] == pytest.approx(tax)
    assert metrics["between_stage_ratio"] + metrics["within_stage_ratio"] == pytest.approx(tax)


def test_kernels_of_a_trace_are_scored(steptax: Run, shared: Find) -> None:
    steptax(
        *("ingest", "ops", shared("ops/trace-AR.parquet"), "--job", "ar"),
        *("--meta", shared("ops/meta-AR.yaml")),
    )
    job = steptax("job", "ar")
    worst = job["comparison"]["nvrx"]["rows"][0]
    assert worst["rank"] == 0
    assert worst["gpu"] == pytest.approx(0.42, abs=0.01)
    assert "GPU" in worst["flagged"]
    assert all(row["gpu"] > 0.9 for row in job["comparison"]["nvrx"]["rows"][1:])
    assert job["card"]["since"].startswith("from the first step looked at")
    suspects = {g["kind"]: g["suspects"] for g in job["comparison"]["falcon"]["groups"]}
    assert "DP 0: 2.25 times" in suspects["PP"][0]


def test_without_phases_nothing_is_made_up(steptax: Run, tmp_path: Path) -> None:
    rows = [f"{step},{rank},100.0" for step in range(30) for rank in range(4)]
    path = tmp_path / "wall.csv"
    path.write_text("step,rank,duration_ms\n" + "\n".join(rows))
    steptax("ingest", "steps", path, "--job", "wall")
    job = steptax("job", "wall")
    assert job["blame"]["wait_gpu_seconds"] is None
    assert job["blame"]["reason"]
    assert job["comparison"]["falcon"]["groups"] == []
    assert "no phase" in job["comparison"]["nvrx"]["sentence"]
    assert all(row["slowdown"]["value"] is None for row in job["comparison"]["ideals"])
