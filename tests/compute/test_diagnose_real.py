"""Findings on records of real jobs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from steptax.app.compute.causes.diagnose import Evidence, diagnose
from steptax.app.compute.causes.model import Cause, Diagnosis, Scope
from steptax.app.compute.straggler.analysis import analyse_stragglers
from steptax.app.compute.straggler.steps import StepMatrix
from tests.compute.test_straggler_real import (
    CASE,
    hidden_by_allreduce,
    minibatches,
    pipeline_trace,
)

Find = Callable[[str], Path]


def told(matrix: StepMatrix) -> Diagnosis:
    return diagnose(matrix, analyse_stragglers(matrix), Evidence())


def test_a_heavy_last_stage_is_the_stage_and_no_device(shared: Find) -> None:
    (one,) = told(pipeline_trace(shared("ops/trace-ST.parquet"), 8)).findings
    assert (one.scope, one.ranks, one.cause.cause) == (Scope.STAGE, (6, 7), Cause.STAGE)
    assert one.excess_ratio == pytest.approx(0.24, abs=0.01)
    assert one.lost_ratio == pytest.approx(0.18, abs=0.005)


def test_one_slow_worker_lasts_and_its_cause_is_not_guessed(shared: Find) -> None:
    matrix = pipeline_trace(shared("ops/trace-AR.parquet"), 64)
    (one,) = told(matrix).findings
    assert (one.scope, one.ranks, one.part) == (Scope.RANKS, (0,), "compute")
    assert (one.first_step, one.last_step) == (matrix.steps[0], matrix.steps[-1])
    assert one.is_open
    assert one.cause.cause is None
    assert any("samples of the devices" in text for text in one.cause.settle)


def test_worker_5_of_the_second_mini_batch_job(shared: Find) -> None:
    (one,) = told(minibatches(shared("fleet/alibaba2020_minibatch_job2.csv"))).findings
    assert (one.ranks, one.cause.cause) == ((5,), None)
    assert "compute_us" in one.cause.text


def test_workers_on_slower_machines_are_all_named(shared: Find) -> None:
    found = told(minibatches(shared("fleet/alibaba2020_minibatch_job1.csv"))).findings
    assert {f.ranks for f in found if f.scope is Scope.RANKS} == {(0,), (1,), (2,)}


def test_a_rank_hidden_by_allreduce(shared: Find) -> None:
    (one,) = told(hidden_by_allreduce(shared(f"{CASE}/phases_full.csv"))).findings
    assert (one.ranks, one.part) == ((1,), "compute")
    blind = told(hidden_by_allreduce(shared(f"{CASE}/phases_wall_only.csv")))
    assert blind.findings == ()
    assert "comm_us" in (blind.reason or "")
