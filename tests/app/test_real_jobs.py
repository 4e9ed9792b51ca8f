"""Real files from real systems, from the import to what the command prints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Shared = Callable[[str], Path]
Steptax = Callable[..., Any]


def value(data: Any, metric: str) -> float:
    return float(data["metrics"][metric]["value"])


def test_minibatch_job_1(shared: Shared, steptax: Steptax) -> None:
    done = steptax("ingest", "steps", shared("fleet/alibaba2020_minibatch_job1.csv"))
    assert done["tables"]["steps"] == {"accepted": 3000, "rejected": 0, "stored_before": 0}
    data = steptax("job", done["job_ids"][0], "--price", "2")
    assert value(data, "straggler_tax_ratio") == pytest.approx(0.0999, abs=5e-5)
    assert data["coverage"]["steps_used"] == 300
    assert data["card"]["culprit_rank"] == 0
    rank0 = next(row for row in data["ranks"] if row["rank"] == 0)
    assert rank0["slowest_share"] == pytest.approx(0.47, abs=5e-3)


def test_minibatch_job_2_counts_what_it_left_out(shared: Shared, steptax: Steptax) -> None:
    done = steptax("ingest", "steps", shared("fleet/alibaba2020_minibatch_job2.csv"))
    assert done["tables"]["steps"] == {"accepted": 2401, "rejected": 1, "stored_before": 0}
    assert "step 2381, rank 3 repeats row 2391" in done["rejects"][0]["reason"]
    data = steptax("job", done["job_ids"][0], "--price", "2")
    assert value(data, "straggler_tax_ratio") == pytest.approx(0.1105, abs=5e-5)
    assert data["card"]["verdict"] == "worker"
    assert data["card"]["culprit_rank"] == 5
    coverage = data["coverage"]
    assert (coverage["steps_used"], coverage["steps_total"]) == (238, 254)
    assert (coverage["steps_incomplete"], coverage["duplicates"]) == (16, 1)
    for words in ("238 of 254 steps", "16 incomplete", "1 duplicate row"):
        assert words in coverage["text"]
    # Normalised times: shares hold, milliseconds and GPU-hours do not.
    assert data["metrics"]["excess_ms"]["value"] is None
    assert "normalised" in data["metrics"]["gpu_hours"]["reason"]


@pytest.mark.parametrize(("name", "slowdown"), [("AR", 2.081), ("ST", 1.223)])
def test_operation_traces_give_the_per_rank_estimate(
    shared: Shared, steptax: Steptax, name: str, slowdown: float
) -> None:
    meta = shared(f"ops/meta-{name}.yaml")
    done = steptax("ingest", "ops", shared(f"ops/trace-{name}.parquet"), "--meta", meta)
    data = steptax("job", done["job_ids"][0], "--price", "2")
    assert value(data, "slowdown_ratio") == pytest.approx(slowdown, abs=5e-4)
    assert data["card"]["estimate_note"] == "per-rank estimate, no dependency graph"
    total = sum(line["gpu_seconds"] for line in data["ledger"] if line["gpu_seconds"] is not None)
    assert total / 3600 == pytest.approx(value(data, "gpu_hours"))
    if name == "AR":
        assert data["card"]["verdict"] == "worker"
        assert data["card"]["culprit_ranks"] == [0]
        assert data["card"]["culprit_scope"] == "PP stage 0 · DP replica 0"
        assert value(data, "persistent_share_ratio") == pytest.approx(1.0, abs=5e-4)
        # 36.49 GPU-hours at $2: each recorded rank stands for its group of four.
        assert value(data, "spend_usd") == pytest.approx(72.98, abs=0.01)
    else:
        assert data["card"]["verdict"] == "stage"
        assert data["card"]["culprit_rank"] is None
        assert "not a slow device" in data["card"]["sentence"]
        assert value(data, "persistent_share_ratio") == pytest.approx(0.998, abs=5e-4)


@pytest.mark.parametrize(
    ("ideal", "ar", "st"), [("median", 2.261, 1.317), ("p10", 2.278, 1.323), ("min", 2.286, 1.325)]
)
def test_other_references_are_options(
    shared: Shared, steptax: Steptax, ideal: str, ar: float, st: float
) -> None:
    for name, want in (("AR", ar), ("ST", st)):
        steptax(
            "ingest",
            "ops",
            shared(f"ops/trace-{name}.parquet"),
            "--meta",
            shared(f"ops/meta-{name}.yaml"),
        )
        data = steptax("job", f"trace-{name}", "--ideal", ideal)
        assert value(data, "slowdown_ratio") == pytest.approx(want, abs=5e-4)


def test_the_same_file_twice_adds_nothing(shared: Shared, steptax: Steptax) -> None:
    file = shared("fleet/alibaba2020_minibatch_job1.csv")
    steptax("ingest", "steps", file)
    before = steptax("job", "alibaba2020_minibatch_job1")
    again = steptax("ingest", "steps", file)
    assert again["ingests"][0]["already"] is True
    assert again["tables"]["steps"]["accepted"] == 0
    after = steptax("job", "alibaba2020_minibatch_job1")
    assert after["metrics"] == before["metrics"]
    assert after["coverage"]["steps_total"] == before["coverage"]["steps_total"]


def test_a_file_that_cannot_be_read_says_where_and_what(tmp_path: Path, steptax: Steptax) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text("step,rank,duration_ms\n1,0,5\n1,x,5\n2,0,-1\n")
    done = steptax("ingest", "steps", bad)
    assert done["tables"]["steps"]["accepted"] == 1
    places = [(r["source"], r["row"], r["field"]) for r in done["rejects"]]
    assert places == [("steps:bad.csv", 3, "rank"), ("steps:bad.csv", 4, "duration")]
    assert all("expected" in r["reason"] for r in done["rejects"])
    bad.write_text("a,b\n1,2\n")
    error = steptax("ingest", "steps", bad, fails=2)
    assert "bad.csv" in error["where"]
    assert error["hint"]
    missing = steptax("ingest", "steps", tmp_path / "nothing.csv", fails=2)
    assert "nothing.csv" in missing["where"]


def test_no_price_means_no_dollars(shared: Shared, steptax: Steptax) -> None:
    steptax("ingest", "steps", shared("fleet/alibaba2020_minibatch_job1.csv"))
    data = steptax("job", "alibaba2020_minibatch_job1")
    assert data["price"]["usd_per_gpu_hour"] is None
    assert data["metrics"]["recoverable_usd_per_hour"]["value"] is None
    assert "no price is set" in data["metrics"]["recoverable_usd_per_hour"]["reason"]
    refused = steptax("job", "alibaba2020_minibatch_job1", "--price", "0", fails=2)
    assert "expected a price above 0" in refused["message"]
