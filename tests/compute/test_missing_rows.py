"""A few lost rows leave the verdict as it is: missing is not zero, and no step has to be whole."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steptax.app.compute.causes.diagnose import Evidence, diagnose
from steptax.app.compute.causes.model import Cause, Scope
from steptax.app.compute.straggler.analysis import analyse_stragglers
from steptax.app.compute.straggler.nvrx_scores import nvrx_scores
from steptax.app.compute.straggler.result import Kind, Verdict
from steptax.app.compute.straggler.slow_groups import group_checks
from steptax.app.compute.straggler.steps import StepMatrix, build_matrix
from steptax.app.whatif.coarse import coarse_of, step_saving_us, worst_places
from steptax.benchmarks.product.fault_detectors import evidence_of, matrix_of
from steptax.benchmarks.product.fault_jobs import make_job
from steptax.benchmarks.product.fault_model import NOISES, Fault, Plan, Shape

UNTIMED = settings(max_examples=10)


def job(
    lost: np.ndarray, *, slow: int = 5, since: int = 0, stages: int = 1, seed: int = 0
) -> StepMatrix:
    """Ranks of 100 ms and 2 % of noise, rank ``slow`` a fifth longer; rows ``lost`` are gone."""
    steps, ranks = lost.shape
    work = 1e5 * np.random.default_rng(seed).lognormal(0, 0.02, (steps, ranks))
    work[since:, slow] *= 1.2
    length = np.broadcast_to(work.max(axis=1)[:, None] + 1e4, work.shape)
    step, rank = np.nonzero(~lost)
    kept = (step, rank)
    return build_matrix(
        {
            "step": step,
            "rank": rank,
            "duration_us": length[kept],
            "compute_us": work[kept],
            "comm_us": (length - work)[kept],
        },
        world_size=ranks,
        topology={r: (r * stages // ranks, r % (ranks // stages)) for r in range(ranks)},
    )


@pytest.mark.parametrize("share", [0.001, 0.01])
@pytest.mark.parametrize("stages", [1, 4])
def test_a_thousand_ranks_that_lose_rows(share: float, stages: int) -> None:
    lost = np.random.default_rng(1).random((60, 1024)) < share
    whole = analyse_stragglers(job(np.zeros_like(lost), stages=stages))
    got = analyse_stragglers(job(lost, stages=stages))
    assert (got.verdict.kind, got.verdict.ranks) == (Kind.WORKER, (5,))
    assert got.coverage.steps_used == 60
    assert got.coverage.ranks_used == 1024
    assert got.coverage.missing_reports == lost.sum()
    assert got.ranks is not None
    assert whole.ranks is not None
    assert got.ranks.excess_us[5] == pytest.approx(whole.ranks.excess_us[5], rel=0.03)
    assert got.tax_ratio.value == pytest.approx(whole.tax_ratio.value, rel=0.03)
    assert any(f"{lost.sum():,} of 61,440 reports are missing" in w for w in got.tax_ratio.warnings)
    assert not any("missing" in w for w in whole.tax_ratio.warnings)


@UNTIMED
@given(seed=st.integers(0, 1000), share=st.floats(0.0, 0.05), stages=st.sampled_from([1, 2, 4]))
def test_whatever_is_lost_the_parts_add_up(seed: int, share: float, stages: int) -> None:
    lost = np.random.default_rng(seed).random((50, 32)) < share
    got = analyse_stragglers(job(lost, stages=stages, seed=seed))
    assert got.verdict.culprit == 5
    values = {
        name: getattr(got, name).value
        for name in ("tax_ratio", "persistent_ratio", "transient_ratio", "recoverable_ratio")
    }
    assert all(v is not None and 0 <= v < 1 for v in values.values()), values
    assert values["persistent_ratio"] + values["transient_ratio"] == pytest.approx(
        values["tax_ratio"]
    )
    between, within = got.between_stage_ratio.value, got.within_stage_ratio.value
    assert between is not None
    assert within is not None
    assert between + within == pytest.approx(values["tax_ratio"])
    assert got.ranks is not None
    assert got.ranks.persistence_ratio[5] > 0.95
    assert got.ranks.last_ratio[5] > 0.95
    assert got.ranks.blame_us.argmax() == 5
    assert got.ranks.recoverable_ratio.argmax() == 5
    for name in ("mean_work_us", "mean_wait_us", "excess_us", "excess_low_us", "stability_ratio"):
        assert np.isfinite(getattr(got.ranks, name)).all(), name


def test_all_that_reads_the_used_reports_does_without_some() -> None:
    lost = np.random.default_rng(2).random((60, 256)) < 0.01
    matrix = job(lost, stages=4)
    coarse = coarse_of(matrix)
    assert worst_places(coarse, 1).tolist() == [5]
    assert np.isfinite(step_saving_us(coarse, worst_places(coarse, 1))).all()
    work = coarse.arrived.work_us
    assert list(nvrx_scores({"work": work}, list(range(256))).flagged()) in ([], [5])
    places = {"pp": np.asarray(coarse.part.stage), "dp": np.asarray(coarse.part.dp)}
    checks = group_checks(work, list(range(256)), {k: v.tolist() for k, v in places.items()})
    assert {c.kind for c in checks} == {"TP", "PP", "DP"}


def test_causes_are_named_from_what_is_there() -> None:
    plan = Plan(7, Shape(256), 160, NOISES[1], (Fault("gc", (15,), 60, 159, 0.2),))
    for lost_ratio in (0.0, 0.01):
        made = make_job(replace(plan, lost_ratio=lost_ratio))
        matrix = matrix_of(made)
        result = analyse_stragglers(matrix)
        (one,) = diagnose(matrix, result, evidence_of(made)).findings
        assert (one.ranks, one.cause.cause) == ((15,), Cause.GC)
        assert 58 <= one.first_step <= 64
        assert (result.coverage.missing_reports > 0) == (lost_ratio > 0)


def test_a_step_with_too_few_ranks_does_not_count() -> None:
    lost = np.random.default_rng(3).random((40, 64)) < 0.02
    lost[10, :20] = True
    got = analyse_stragglers(job(lost))
    assert 10 not in got.coverage.step_places
    assert got.coverage.steps_used == 39


def test_ranks_that_report_too_little_wait_as_well() -> None:
    lost = np.zeros((60, 8), dtype=bool)
    lost[::2, 4] = lost[1::3, 6] = lost[2::3, 7] = True
    got = analyse_stragglers(job(lost))
    assert got.coverage.label == "on 5 of 8 ranks"
    assert got.verdict.text.startswith("Rank 5 makes the other 7 wait: ")


def test_a_slow_rank_that_joins_late_is_named() -> None:
    lost = np.zeros((300, 8), dtype=bool)
    lost[:180, 5] = True
    got = analyse_stragglers(job(lost))
    assert (got.verdict.kind, got.verdict.ranks) == (Kind.WORKER, (5,)), got.verdict.text


@pytest.mark.parametrize("ranks", [4, 8])
@pytest.mark.parametrize("stopped", [300, 600, 960])
def test_a_rank_that_stopped_reporting_hides_nobody_who_is_slow_since(
    stopped: int, ranks: int
) -> None:
    lost = np.zeros((1000, ranks), dtype=bool)
    lost[stopped:, 1] = True
    got = analyse_stragglers(job(lost, slow=3, since=700))
    assert (got.verdict.kind, got.verdict.ranks) == (Kind.WORKER, (3,)), got.verdict.text
    assert got.coverage.step_places[-1] == 999
    assert got.coverage.stopped_ranks == (1,)


def test_a_slow_rank_that_stopped_reporting_late_is_named() -> None:
    lost = np.zeros((1000, 8), dtype=bool)
    lost[600:, 5] = True
    got = analyse_stragglers(job(lost))
    assert got.verdict.ranks == (5,), got.verdict.text
    assert got.coverage.steps_used == 1000


@pytest.mark.parametrize("newest", [0, 5, 19])
def test_a_slow_rank_that_reports_seldom_is_named(newest: int) -> None:
    lost = np.zeros((1000, 8), dtype=bool)
    lost[:, 5] = (np.arange(1000) + newest + 1) % 20 != 0
    got = analyse_stragglers(job(lost))
    assert (got.verdict.kind, got.verdict.ranks) == (Kind.WORKER, (5,)), got.verdict.text
    assert got.coverage.steps_used == 50


def test_of_two_ranks_one_of_which_stopped_the_steps_of_both_are_used() -> None:
    lost = np.zeros((100, 2), dtype=bool)
    lost[60:, 1] = True
    got = analyse_stragglers(job(lost, slow=0))
    assert (got.verdict.ranks, got.coverage.steps_used) == ((0,), 60)


def test_a_rank_that_was_slow_when_it_stopped_reporting_is_not_said_to_be_well() -> None:
    lost = np.zeros((1000, 8), dtype=bool)
    lost[600:, 5] = True
    matrix = job(lost, since=400)
    got = analyse_stragglers(matrix)
    assert got.verdict.ranks == (5,), got.verdict.text
    found = diagnose(matrix, got, Evidence()).findings
    (one,) = (finding for finding in found if finding.ranks == (5,))
    assert one.last_step == 599
    assert (one.is_open, one.is_silent) == (False, True)


def passed(step: int, ranks: tuple[int, ...] = (5,), *, of: int = 8) -> Verdict:
    """What is said where ``ranks`` report from ``step`` on, and rank 1 was slow for a while."""
    lost = np.zeros((300, of), dtype=bool)
    lost[:step, list(ranks)] = True
    matrix = job(lost, slow=1, since=300)
    work = matrix.phases["compute"].copy()
    work[100:180, 1] *= 1.2
    length = np.nanmax(work, axis=1, keepdims=True) + 1e4
    return analyse_stragglers(
        replace(
            matrix,
            phases={"compute": work},
            duration_us=np.where(np.isnan(work), np.nan, length),
            comm_us=length - work,
        )
    ).verdict


def test_who_is_not_compared_is_said_by_number_or_counted() -> None:
    assert passed(0).left_out is None
    assert passed(0).text.endswith("it is slow no longer.")
    got = passed(285)
    assert got.kind is Kind.PASSED
    assert got.text.endswith(
        "it is slow no longer. Rank 5 reported too few steps to be compared: the others may wait "
        "for it."
    )
    assert passed(285, (3, 5)).text.endswith(
        "Ranks 3 and 5 reported too few steps to be compared: the others may wait for one of them."
    )
    assert passed(285, tuple(range(8, 16)), of=32).left_out == "8 of 32 ranks"


def test_what_a_repair_returns_is_unknown_while_ranks_are_not_compared() -> None:
    lost = np.zeros((300, 8), dtype=bool)
    lost[:285, 5] = True
    matrix = job(lost)
    assert matrix.comm_us is not None
    matrix = replace(matrix, wait_us=matrix.comm_us - 1e4)
    got = analyse_stragglers(matrix)
    assert got.verdict.kind is Kind.MOVING
    assert got.recoverable_ratio.value is None
    assert got.recoverable_ratio.reason == (
        "rank 5 reported too few steps to be compared, and may be slow"
    )
    found = diagnose(matrix, got, Evidence()).findings
    (one,) = (finding for finding in found if finding.scope is Scope.MOVING)
    assert one.place == "a rank that is not compared, or a different one from step to step"
    assert one.cause.action.startswith("make rank 5 report every step")


def test_a_rank_that_never_reported_is_not_compared_either() -> None:
    matrix = job(np.zeros((60, 8), dtype=bool), slow=1, since=60)
    got = analyse_stragglers(replace(matrix, expected_ranks=9, world_size=9))
    assert got.coverage.left_out == (8,)
    assert got.verdict.left_out == "rank 8"
