"""Straggler statistics on records of real jobs, read without any connector."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from steptax.app.compute.bill.ledger import step_ledger
from steptax.app.compute.measure import Level
from steptax.app.compute.straggler.analysis import IDEALS, analyse_stragglers
from steptax.app.compute.straggler.arrival import spread_ratio
from steptax.app.compute.straggler.result import Kind
from steptax.app.compute.straggler.steps import StepMatrix, build_matrix

Find = Callable[[str], Path]


def pipeline_trace(path: Path, world_size: int) -> StepMatrix:
    """Step span, and forward and backward compute per rank, of an operation trace in seconds."""
    table = pq.read_table(path)
    kind = np.array(table["optype"].cast(pa.string()).to_pylist())
    column = {n: table[n].to_numpy() for n in ("step", "rank", "stage", "dp_rank")}
    start = table["start_ts"].to_numpy().astype(np.float64) * 1e6
    duration = table["duration"].to_numpy().astype(np.float64) * 1e6
    steps, row = np.unique(column["step"], return_inverse=True)
    ranks, place = np.unique(column["rank"], return_inverse=True)
    work = np.zeros((len(steps), len(ranks)))
    first, last = np.full(len(steps), np.inf), np.full(len(steps), -np.inf)
    own = np.isin(kind, ["forward-compute", "backward-compute"])
    np.add.at(work, (row[own], place[own]), duration[own])
    np.minimum.at(first, row, start)
    np.maximum.at(last, row, start + duration)
    return build_matrix(
        {
            "step": np.repeat(steps, len(ranks)),
            "rank": np.tile(ranks, len(steps)),
            "duration_us": np.repeat(last - first, len(ranks)),
            "compute_us": work.ravel(),
        },
        world_size=world_size,
        topology={
            int(r): (int(s), int(d))
            for r, s, d in zip(column["rank"], column["stage"], column["dp_rank"], strict=True)
        },
        work_is_partial=True,
    )


def minibatches(path: Path) -> StepMatrix:
    """Normalised mini-batch times of ten workers; exact duplicates of a row count once."""
    table = pa_csv.read_csv(path)
    rows = np.stack([table[n].to_numpy() for n in ("time", "worker", "batch_time_norm")], axis=1)
    rows = np.unique(rows, axis=0)
    return build_matrix(
        {"step": rows[:, 0], "rank": rows[:, 1], "duration_us": rows[:, 2] * 1000.0},
        world_size=10,
        time_is_relative=True,
    )


def hidden_by_allreduce(path: Path) -> StepMatrix:
    """Four ranks, one slow inside backward, whose wall time all share."""
    table = pa_csv.read_csv(path)

    def us(name: str) -> np.ndarray:
        return np.rint(table[name].to_numpy() * 1000.0)

    columns = {
        "step": table["step"].to_numpy(),
        "rank": table["rank"].to_numpy(),
        "duration_us": us("forward_ms") + us("backward_wall_ms"),
    }
    if "allreduce_wait_ms" in table.column_names:
        columns["comm_us"] = us("allreduce_wait_ms")
        columns["compute_us"] = us("forward_ms") + us("backward_compute_ms")
    return build_matrix(columns, world_size=4)


@pytest.mark.parametrize(
    ("name", "world", "expected"),
    [
        ("AR", 64, {"mean": 2.081, "median": 2.261, "p10": 2.278, "min": 2.286}),
        ("ST", 8, {"mean": 1.223, "median": 1.317, "p10": 1.323, "min": 1.325}),
    ],
)
def test_per_rank_slowdown_of_published_traces(
    shared: Find, name: str, world: int, expected: dict[str, float]
) -> None:
    matrix = pipeline_trace(shared(f"ops/trace-{name}.parquet"), world)
    for ideal in IDEALS:
        slowdown = analyse_stragglers(matrix, ideal=ideal).slowdown_ratio
        assert slowdown.value == pytest.approx(expected[ideal], abs=5e-4)
        assert slowdown.low is not None
        assert slowdown.high is not None
        assert slowdown.low < slowdown.value < slowdown.high
        assert any("dependency graph" in w for w in slowdown.warnings)


def test_one_slow_worker_is_found(shared: Find) -> None:
    matrix = pipeline_trace(shared("ops/trace-AR.parquet"), 64)
    got = analyse_stragglers(matrix)
    assert (got.verdict.kind, got.verdict.ranks) == (Kind.WORKER, (0,))
    assert got.persistent_share_ratio.value == pytest.approx(1.0, abs=1e-9)
    assert got.explanation.dominant is not None
    assert got.explanation.dominant.phase == "compute"
    assert got.ranks is not None
    # dp 0 of stage 0 works 2.353 times the median of its peers
    assert got.ranks.mean_work_us[0] / 1e6 == pytest.approx(45.29, abs=0.01)
    assert got.ranks.excess_us[0] / 1e6 == pytest.approx(26.07, abs=0.01)
    assert got.coverage.weight == 4


def test_a_heavy_last_stage_is_no_slow_device(shared: Find) -> None:
    matrix = pipeline_trace(shared("ops/trace-ST.parquet"), 8)
    got = analyse_stragglers(matrix)
    assert (got.verdict.kind, got.verdict.stage) == (Kind.STAGE, 3)
    assert got.verdict.ranks == (6, 7)
    assert got.verdict.culprit is None
    assert got.persistent_share_ratio.value == pytest.approx(0.998, abs=5e-4)
    assert got.between_stage_ratio.value is not None
    assert got.tax_ratio.value is not None
    assert got.between_stage_ratio.value / got.tax_ratio.value > 0.98
    assert got.recoverable_ratio.value is None


def test_the_ledger_of_a_trace_covers_every_paid_gpu(shared: Find) -> None:
    matrix = pipeline_trace(shared("ops/trace-AR.parquet"), 64)
    ledger = step_ledger(matrix, Decimal("2.00"))
    assert ledger.weight == Fraction(4)
    # 44 steps of 46.65 s on 64 GPUs
    assert float(ledger.paid_gpu_us) / 3.6e9 == pytest.approx(36.49, abs=0.005)
    assert ledger.paid_usd == Decimal("72.98")
    wait = ledger.row("straggler_wait")
    assert wait is not None
    assert wait.share_ratio == pytest.approx(0.5195, abs=5e-5)


def test_workers_on_slower_machines(shared: Find) -> None:
    got = analyse_stragglers(minibatches(shared("fleet/alibaba2020_minibatch_job1.csv")))
    assert got.tax_ratio.value == pytest.approx(0.0999, abs=5e-5)
    assert got.tax_ratio.level is Level.STEP_TIME
    assert (got.coverage.steps_used, got.coverage.steps_total) == (300, 300)
    assert (got.verdict.kind, got.verdict.ranks) == (Kind.WORKER, (0, 1, 2))
    assert np.mean(got.steps.last_rank == 0) == pytest.approx(0.47)


def test_one_worker_that_is_nearly_always_last(shared: Find) -> None:
    got = analyse_stragglers(minibatches(shared("fleet/alibaba2020_minibatch_job2.csv")))
    assert got.tax_ratio.value == pytest.approx(0.1105, abs=5e-5)
    assert (got.coverage.steps_used, got.coverage.steps_total) == (238, 254)
    assert got.coverage.steps_incomplete == 16
    assert (got.verdict.kind, got.verdict.culprit) == (Kind.WORKER, 5)
    assert np.mean(got.steps.last_rank[got.steps.used] == 5) == pytest.approx(0.9748, abs=5e-5)
    assert "% of the mean step" in got.verdict.text


CASE = "cases/05-straggler-hidden-by-allreduce"


def test_a_rank_hidden_by_allreduce_is_found_with_collective_times(shared: Find) -> None:
    matrix = hidden_by_allreduce(shared(f"{CASE}/phases_full.csv"))
    got = analyse_stragglers(matrix, ideal="median")
    assert (got.verdict.kind, got.verdict.culprit) == (Kind.WORKER, 1)
    assert got.ranks is not None
    assert got.ranks.excess_us[1] / 1000 == pytest.approx(199.9, abs=0.1)
    assert got.ranks.persistence_ratio[1] == 1
    assert got.waste_ratio.value == pytest.approx(0.583, abs=1e-3)
    assert got.explanation.dominant is not None
    assert got.explanation.dominant.phase == "compute"


def test_without_them_it_is_not_guessed(shared: Find) -> None:
    matrix = hidden_by_allreduce(shared(f"{CASE}/phases_wall_only.csv"))
    assert spread_ratio(matrix.duration_us) == pytest.approx(0.00184, abs=5e-5)
    got = analyse_stragglers(matrix)
    assert (got.verdict.kind, got.verdict.culprit) == (Kind.UNTELLABLE, None)
    assert got.tax_ratio.value is None
    assert "comm_us" in (got.tax_ratio.reason or "")
    assert got.tax_ratio.level is Level.STEP_TIME
