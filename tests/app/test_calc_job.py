"""``steptax calc NAME --job ID``: a formula that starts from what a job measured."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
START_S = 1_795_900_000.0


@pytest.fixture
def job(steptax: Run, tmp_path: Path) -> str:
    """40 steps of 4 ranks, 60 + 30 ms and 10 ms of input; rank 2 takes 20 ms longer.

    Of 8 s of its life the job spends 4.8 s in steps: it was allocated 3.2 s before the first.
    """
    path = tmp_path / "small.csv"
    with path.open("w", newline="") as handle:
        writer = csv.writer(handle)
        names = "step rank start_s compute_ms comm_ms input_ms duration_ms tokens"
        writer.writerow(names.split())
        for step in range(40):
            for rank in range(4):
                compute = 80 if rank == 2 else 60
                row = (step, rank, START_S + 0.12 * step, compute, 110 - compute, 10, 120, 1000)
                writer.writerow(row)
    steptax("ingest", "steps", path, "--job", "small")
    about = tmp_path / "jobs.csv"
    start, end = START_S - 3.2, START_S + 4.8
    about.write_text(
        "job_id,gpu_model,dtype,params_total,tokens_per_step,world_size,start_s,end_s\n"
        f"small,H100 SXM,bf16,8000000000,4000,4,{start},{end}\n"
    )
    steptax("ingest", "jobs", about)
    return "small"


def inputs(printed: Any) -> dict[str, Any]:
    return {one["name"]: one for one in printed["inputs"]}


def test_the_step_comes_from_the_job(steptax: Run, job: str) -> None:
    printed = steptax("calc", "kernel-speedup", "--job", job, "--speedup", "2")
    found = inputs(printed)
    assert printed["job"] == job
    assert found["compute_ms"]["value"]["value"] == pytest.approx(65)
    assert found["compute_ms"]["origin"] == "measured"
    assert job in found["compute_ms"]["basis"]
    assert found["speedup"]["origin"] == "typed"
    assert found["hidden_comm_ms"]["origin"] == "none"
    assert "per-operation trace" in found["hidden_comm_ms"]["basis"]
    assert printed["measures"]["step_before_ms"]["value"] == pytest.approx(120)


def test_what_is_typed_comes_first(steptax: Run, job: str) -> None:
    line = ("--speedup", "2", "--wait-ms", "40")
    printed = steptax("calc", "kernel-speedup", "--job", job, *line)
    assert inputs(printed)["wait_ms"]["value"] == "40"
    assert printed["measures"]["step_before_ms"]["value"] > 120


def test_no_example_stands_in_for_the_question(steptax: Run, job: str) -> None:
    error = steptax("calc", "kernel-speedup", "--job", job, fails=2)
    assert error["where"] == "--speedup"
    assert "required" in error["message"]


def test_break_even_starts_from_the_jobs_own_goodput_and_mfu(steptax: Run, job: str) -> None:
    metrics = steptax("job", job, "--price", "2")["metrics"]
    line = ("--b-peak-tflops", "2250", "--b-mfu-ratio", "0.35", "--b-goodput-ratio", "0.9")
    printed = steptax("calc", "break-even", "--job", job, "--price", "2", *line)
    found = inputs(printed)
    goodput = metrics["goodput_ratio"]["value"]
    assert goodput is not None
    assert 0 < goodput < 1
    assert found["a_goodput_ratio"]["value"]["value"] == pytest.approx(goodput, rel=1e-5)
    # 4,000 tokens x 6 x 8e9 FLOPs in 120 ms on 4 devices of 989.5 TFLOP/s.
    mfu = 4000 * 6 * 8e9 / 0.12 / (4 * 989.5e12)
    assert found["a_mfu_ratio"]["value"]["value"] == pytest.approx(mfu, rel=1e-4)
    assert found["a_usd_per_gpu_hour"]["origin"] == "price"
    expected = 2 * (2250 * 0.35 * 0.9) / (989.5 * mfu * goodput)
    price = printed["measures"]["b_break_even_usd_per_gpu_hour"]["value"]
    assert price == pytest.approx(expected, rel=1e-3)


def test_what_the_job_lacks_is_said_with_the_flag(steptax: Run, tmp_path: Path) -> None:
    path = tmp_path / "bare.csv"
    rows = [f"{step},{rank},100.0" for step in range(30) for rank in range(4)]
    path.write_text("step,rank,duration_ms\n" + "\n".join(rows))
    steptax("ingest", "steps", path, "--job", "bare")
    error = steptax("calc", "break-even", "--job", "bare", fails=2)
    assert set(error["where"].split(", ")) == {
        *("--a-usd-per-gpu-hour", "--a-peak-tflops", "--a-mfu-ratio", "--a-goodput-ratio")
    }
    assert "start times" in error["message"]


def test_a_window_of_the_job(steptax: Run, job: str) -> None:
    printed = steptax("calc", "waste", "--job", job, "--window", "10")
    assert "last 10 steps" in inputs(printed)["slowdown"]["basis"]


def test_an_unknown_job_is_named(steptax: Run, job: str) -> None:
    error = steptax("calc", "waste", "--job", "nobody", fails=2)
    assert error["kind"] == "NotFoundError"
    assert "nobody" in error["message"]


def test_metrics_of_the_job_follow_from_its_record(steptax: Run, job: str) -> None:
    metrics = {
        name: measure["value"]
        for name, measure in steptax("job", job, "--price", "2")["metrics"].items()
    }
    # 8 s on 4 GPUs at $2 an hour for 40 x 4,000 tokens.
    paid = 4 * 8 / 3600 * 2
    assert metrics["usd_per_billion_tokens"] == pytest.approx(paid / 160_000 * 1e9, rel=2e-3)
    assert metrics["job_utilisation_ratio"] == pytest.approx(1 / metrics["slowdown_ratio"])
    assert metrics["excess_step_ratio"] == pytest.approx(20 / 120)
    hours = metrics["window_gpu_hours"] * metrics["recoverable_ratio"]
    assert metrics["recoverable_gpu_hours"] == pytest.approx(hours)
    per_hour = metrics["recoverable_usd_per_hour"]
    assert per_hour == pytest.approx(4 * 2 * metrics["recoverable_ratio"])
    assert metrics["recoverable_usd_per_day"] == pytest.approx(24 * per_hour)
    assert metrics["hfu_ratio"] is None
    card = steptax("job", job)["card"]
    assert card["phase_share"]["value"] == pytest.approx(1)  # phase_share_ratio: all in compute
    shown = steptax("executive")["metrics"]
    assert shown["compute_share_ratio"]["value"] == pytest.approx(65 / 120)
    window = steptax("job", job, "--price", "2", "--window", "10")["metrics"]
    only_steps = window["usd_per_billion_tokens"]
    assert only_steps["value"] == pytest.approx(4 * 1.2 / 3600 * 2 / 40_000 * 1e9)
    assert "recorded steps only" in only_steps["warnings"][0]


def test_a_mixture_is_not_charged_for_all_its_experts(
    steptax: Run, job: str, tmp_path: Path
) -> None:
    """Of a mixture the total alone says nothing of what a token meets."""
    about = tmp_path / "mixture.csv"
    about.write_text(
        "job_id,gpu_model,dtype,params_total,experts,topk,tokens_per_step,world_size\n"
        "small,H100 SXM,bf16,47000000000,8,2,4000,4\n"
    )
    steptax("ingest", "jobs", about)
    found = steptax("calc", "mfu", "--job", job)
    given = {one["name"]: one for one in found["inputs"]}
    assert found["measures"]["mfu_ratio"]["value"] is None
    assert given["topk"]["value"]["value"] == 2
    assert given["params"]["value"]["value"] is None
    told = steptax("calc", "mfu", "--job", job, "--params", "12.9e9")["measures"]
    assert told["mfu_ratio"]["value"] == pytest.approx(
        6 * 12.9e9 * 4000 / 0.12 / (4 * 989.5e12), rel=1e-3
    )
