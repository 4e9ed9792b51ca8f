"""Straggler statistics: identities, invariances and verdicts on jobs made for the purpose."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steptax.app.compute.measure import Level
from steptax.app.compute.straggler.analysis import IDEALS, analyse_stragglers, excess_matrix
from steptax.app.compute.straggler.result import Kind, StragglerResult
from steptax.app.compute.straggler.rules import StragglerRules
from steptax.app.compute.straggler.steps import StepMatrix, build_matrix
from steptax.app.errors import UserError

#: How long an example takes says nothing about whether it is right.
UNTIMED = settings(suppress_health_check=[HealthCheck.too_slow])

QUICK = StragglerRules(replicates=40)


def job(
    work: np.ndarray,
    *,
    transfer: float = 5000.0,
    stage: list[int] | None = None,
    world: int | None = None,
    **more: np.ndarray,
) -> StepMatrix:
    """Ranks that work, meet, and transfer together; communication is measured."""
    comm = np.nanmax(work, axis=1, keepdims=True) - work + transfer
    step, rank = np.indices(work.shape)
    columns = {"step": step, "rank": rank, "duration_us": work + comm, "comm_us": comm} | more
    here = ~np.isnan(work).ravel()
    ranks = work.shape[1]
    return build_matrix(
        {name: values.ravel()[here] for name, values in columns.items()},
        world_size=world or ranks,
        expected_ranks=ranks,
        topology=None if stage is None else {r: (stage[r], r) for r in range(ranks)},
    )


@st.composite
def works(draw: st.DrawFn) -> np.ndarray:
    """[S, R] work with lasting and passing differences, some of it level."""
    steps, ranks = draw(st.integers(3, 25)), draw(st.integers(2, 9))
    g = np.random.default_rng(draw(st.integers(0, 10**6)))
    lasting = g.exponential(draw(st.sampled_from([0.0, 1e3, 3e4])), ranks)
    passing = g.exponential(draw(st.sampled_from([1.0, 1e3, 2e4])), (steps, ranks))
    return 1e5 + lasting + passing


@st.composite
def jobs(draw: st.DrawFn) -> StepMatrix:
    """Jobs of every basis, with and without pipeline stages."""
    work = draw(works())
    ranks = work.shape[1]
    stage = draw(st.sampled_from([None, [r % 2 for r in range(ranks)], [0] * ranks]))
    matrix = job(work, stage=stage)
    basis = draw(st.sampled_from(["comm", "wait", "phases", "duration"]))
    if basis == "wait":
        extra = draw(st.sampled_from([0.0, 2000.0]))
        assert matrix.comm_us is not None
        wait = matrix.comm_us - 5000.0 + extra
        return replace(matrix, wait_us=wait, comm_us=matrix.comm_us + extra)
    if basis == "phases":
        span = np.broadcast_to(work.max(axis=1, keepdims=True) + 7000, work.shape)
        return replace(matrix, comm_us=None, duration_us=span, phases={"compute": work})
    if basis == "duration":
        spread = work * np.linspace(1, 1.1, ranks)
        return replace(matrix, comm_us=None, duration_us=spread)
    return matrix


def value(result: StragglerResult, name: str) -> float:
    got = getattr(result, name).value
    assert got is not None
    return float(got)


@settings(UNTIMED, max_examples=60)
@given(matrix=jobs())
def test_tax_is_a_share_and_its_parts_add_up(matrix: StepMatrix) -> None:
    got = analyse_stragglers(matrix, rules=QUICK)
    tax = value(got, "tax_ratio")
    assert 0 <= tax < 1
    assert value(got, "slowdown_ratio") == pytest.approx(1 / (1 - tax), rel=1e-9)
    assert value(got, "waste_ratio") == pytest.approx(tax, abs=1e-12)
    persistent, transient = value(got, "persistent_ratio"), value(got, "transient_ratio")
    assert persistent >= -1e-12
    assert transient >= -1e-12
    assert persistent + transient == pytest.approx(tax, abs=1e-12)
    if matrix.stage is not None:
        between, within = value(got, "between_stage_ratio"), value(got, "within_stage_ratio")
        assert between >= 0
        assert within >= -1e-12
        assert between + within == pytest.approx(tax, abs=1e-12)
    assert value(got, "step_us") - value(got, "ideal_step_us") == pytest.approx(
        value(got, "wait_us"), rel=1e-9, abs=1e-6
    )


@settings(UNTIMED, max_examples=40)
@given(matrix=jobs())
def test_reference_ranks_are_ordered(matrix: StepMatrix) -> None:
    slowdown = [
        value(analyse_stragglers(matrix, ideal=ideal, rules=QUICK), "slowdown_ratio")
        for ideal in ("median", "p10", "min")
    ]
    assert slowdown == sorted(slowdown)
    taxes = {value(analyse_stragglers(matrix, ideal=i, rules=QUICK), "tax_ratio") for i in IDEALS}
    assert len(taxes) == 1


def _same(a: StragglerResult, b: StragglerResult) -> None:
    for name in (
        "tax_ratio",
        "slowdown_ratio",
        "persistent_ratio",
        "transient_ratio",
        "recoverable_ratio",
    ):
        one, other = getattr(a, name), getattr(b, name)
        assert (one.value is None) == (other.value is None)
        for x, y in ((one.value, other.value), (one.low, other.low), (one.high, other.high)):
            if x is not None:
                assert x == pytest.approx(y, rel=1e-9, abs=1e-12)
    assert a.verdict.kind is b.verdict.kind


@settings(UNTIMED, max_examples=40)
@given(matrix=jobs(), factor=st.sampled_from([2.0, 0.25, 1024.0]))
def test_the_unit_of_time_does_not_matter(matrix: StepMatrix, factor: float) -> None:
    scaled = replace(
        matrix,
        duration_us=matrix.duration_us * factor,
        comm_us=None if matrix.comm_us is None else matrix.comm_us * factor,
        wait_us=None if matrix.wait_us is None else matrix.wait_us * factor,
        phases={name: v * factor for name, v in matrix.phases.items()},
    )
    one, other = (analyse_stragglers(m, rules=QUICK) for m in (matrix, scaled))
    _same(one, other)
    assert one.ranks is not None
    assert other.ranks is not None
    np.testing.assert_allclose(other.ranks.excess_us, one.ranks.excess_us * factor)
    np.testing.assert_array_equal(other.ranks.persistence_ratio, one.ranks.persistence_ratio)


@settings(UNTIMED, max_examples=40)
@given(matrix=jobs(), seed=st.integers(0, 99))
def test_new_rank_numbers_change_the_numbers_and_nothing_else(
    matrix: StepMatrix, seed: int
) -> None:
    order = np.random.default_rng(seed).permutation(len(matrix.ranks))
    moved = replace(matrix.select(np.arange(len(matrix.steps)), order), ranks=matrix.ranks.copy())
    one, other = (analyse_stragglers(m, rules=QUICK) for m in (matrix, moved))
    _same(one, other)
    new_number = {int(old): new for new, old in enumerate(order)}
    assert {new_number[r] for r in one.verdict.ranks} == set(other.verdict.ranks)
    assert one.ranks is not None
    assert other.ranks is not None
    for name in ("mean_work_us", "excess_us", "excess_low_us", "mean_wait_us", "blame_ratio"):
        np.testing.assert_allclose(
            getattr(other.ranks, name), getattr(one.ranks, name)[order], rtol=1e-9, atol=1e-6
        )
    np.testing.assert_allclose(other.ranks.persistence_ratio, one.ranks.persistence_ratio[order])
    np.testing.assert_allclose(other.ranks.last_ratio, one.ranks.last_ratio[order])


@settings(UNTIMED, max_examples=30)
@given(work=works(), more=st.integers(1, 10**6))
def test_time_that_everybody_spends_adds_no_waiting(work: np.ndarray, more: int) -> None:
    one, other = (analyse_stragglers(job(w), rules=QUICK) for w in (work, work + more))
    np.testing.assert_allclose(one.steps.wait_sum_us, other.steps.wait_sum_us, rtol=1e-9, atol=1e-5)
    assert one.ranks is not None
    assert other.ranks is not None
    np.testing.assert_allclose(one.ranks.excess_us, other.ranks.excess_us, atol=1e-6)


@settings(UNTIMED, max_examples=30)
@given(matrix=jobs())
def test_selecting_everything_and_calling_again_change_nothing(matrix: StepMatrix) -> None:
    every = matrix.select(np.arange(len(matrix.steps)), np.arange(len(matrix.ranks)))
    one, other = (analyse_stragglers(m, rules=QUICK) for m in (matrix, every))
    assert one.tax_ratio == other.tax_ratio
    assert one.verdict == other.verdict
    assert one.curve == other.curve


@settings(UNTIMED, max_examples=30)
@given(matrix=jobs())
def test_repairs_give_back_more_with_every_rank_and_never_more_than_there_is(
    matrix: StepMatrix,
) -> None:
    got = analyse_stragglers(matrix, rules=QUICK)
    shares = [point.recoverable.value for point in got.curve]
    assert shares == sorted(shares)
    assert all(0 <= share <= 1 for share in shares if share is not None)
    assert got.ranks is not None
    for point in got.curve[:1]:
        alone = got.ranks.recoverable_ratio[np.flatnonzero(got.ranks.ranks == point.rank)[0]]
        assert point.recoverable.value == pytest.approx(alone, abs=1e-12)
    if got.verdict.kind is Kind.WORKER and len(got.verdict.ranks) <= len(got.curve):
        assert got.recoverable_ratio.value == shares[len(got.verdict.ranks) - 1]


@settings(UNTIMED, max_examples=30)
@given(work=works(), seed=st.integers(0, 99))
def test_reports_of_unused_steps_leak_into_nothing(work: np.ndarray, seed: int) -> None:
    g = np.random.default_rng(seed)
    holed = np.concatenate([work, work[:1]])
    holed[-1] *= 50
    holed[-1, g.integers(work.shape[1])] = np.nan
    one, other = (analyse_stragglers(job(w), rules=QUICK) for w in (work, holed))
    assert one.tax_ratio.value == other.tax_ratio.value
    assert one.verdict == other.verdict
    assert other.coverage.steps_incomplete == 1
    assert np.isnan(other.steps.tax_ratio[-1])
    assert other.steps.last_rank[-1] == -1
    excess = excess_matrix(job(holed))
    without_peer = np.count_nonzero(~np.isnan(holed), axis=1)[:, None] < 2
    np.testing.assert_array_equal(np.isnan(excess), np.isnan(holed) | without_peer)


def noise(steps: int, ranks: int, size: float = 300.0, seed: int = 0) -> np.ndarray:
    return 100_000 + np.random.default_rng(seed).normal(0, size, (steps, ranks))


def test_a_slow_worker_is_named_with_its_excess_and_interval() -> None:
    work = noise(100, 16, seed=1)
    work[:, 11] += 20_000
    got = analyse_stragglers(job(work))
    assert (got.verdict.kind, got.verdict.culprit) == (Kind.WORKER, 11)
    assert "Rank 11 makes the other 15 wait: +20.0 ms" in got.verdict.text
    assert got.ranks is not None
    low, high = got.ranks.excess_low_us[11], got.ranks.excess_high_us[11]
    assert low < 20_000 < high
    assert high - low < 400
    assert got.ranks.persistence_ratio[11] == got.ranks.stability_ratio[11] == 1
    assert got.ranks.last_ratio[11] == 1
    assert got.ranks.mean_wait_us[11] == 0
    assert got.tax_ratio.level is Level.PHASES
    assert got.recoverable_ratio.value == pytest.approx(20_000 / 125_000, rel=0.03)


def test_several_slow_workers_are_all_named_largest_first() -> None:
    work = noise(100, 16)
    work[:, 3] += 20_000
    work[:, 9] += 30_000
    got = analyse_stragglers(job(work))
    assert got.verdict.ranks == (9, 3)
    assert "Ranks 9 and 3 make the others wait, rank 9 most" in got.verdict.text


def test_a_heavy_stage_is_a_matter_of_partitioning() -> None:
    work = noise(50, 8)
    work[:, 6:] += 30_000
    stage = [0, 0, 1, 1, 2, 2, 3, 3]
    got = analyse_stragglers(job(work, stage=stage))
    assert (got.verdict.kind, got.verdict.stage, got.verdict.ranks) == (Kind.STAGE, 3, (6, 7))
    assert got.verdict.culprit is None
    assert "not a slow device" in got.verdict.text
    assert got.stages is not None
    assert got.stages.excess_us[3] == pytest.approx(30_000, rel=0.02)
    assert [h.id for h in got.explanation.hints] == ["stage_imbalance"]


def test_one_rank_on_a_stage_leaves_stage_and_device_open() -> None:
    work = noise(50, 4)
    work[:, 2] += 30_000
    got = analyse_stragglers(job(work, stage=[0, 1, 2, 3]))
    assert (got.verdict.kind, got.verdict.stage) == (Kind.STAGE, 2)
    assert "look alike" in got.verdict.text
    assert got.ranks is not None
    assert np.isnan(got.ranks.excess_us).all()
    assert np.isnan(got.ranks.persistence_ratio).all()


def test_a_slow_worker_in_a_heavy_stage_comes_first_and_the_stage_is_noted() -> None:
    work = noise(50, 12)
    work[:, 8:] += 30_000
    work[:, 9] += 40_000
    got = analyse_stragglers(job(work, stage=[r // 4 for r in range(12)]))
    assert (got.verdict.kind, got.verdict.culprit) == (Kind.WORKER, 9)
    assert len(got.verdict.notes) == 1
    assert "Pipeline stage 2" in got.verdict.notes[0]


def test_a_straggler_that_moves_is_nobody() -> None:
    work = noise(90, 10)
    work[np.arange(90), np.arange(90) % 10] += 20_000
    got = analyse_stragglers(job(work))
    assert (got.verdict.kind, got.verdict.culprit) == (Kind.MOVING, None)
    # That is known: a repair of any of them returns nothing.
    assert got.recoverable_ratio.value == 0
    assert got.recoverable_ratio.warnings == (
        "no rank is slow for good, so there is none to repair",
    )
    assert value(got, "transient_ratio") > 5 * value(got, "persistent_ratio")


def test_a_level_job_has_no_straggler() -> None:
    got = analyse_stragglers(job(noise(50, 10)))
    assert got.verdict.kind is Kind.NONE
    assert not got.verdict.notes
    assert not got.verdict.ranks


def test_a_level_job_by_step_times_alone_says_what_it_rests_on() -> None:
    step, rank = np.indices((50, 10))
    duration = noise(50, 10, size=600)
    matrix = build_matrix(
        {"step": step.ravel(), "rank": rank.ravel(), "duration_us": duration.ravel()},
        world_size=10,
    )
    got = analyse_stragglers(matrix)
    assert got.verdict.kind is Kind.NONE
    assert got.tax_ratio.level is Level.STEP_TIME
    assert "step times alone" in got.verdict.notes[0]


def test_wall_times_name_nobody_and_say_why() -> None:
    step, rank = np.indices((50, 4))
    duration = np.repeat(noise(50, 1, size=5000), 4, axis=1)
    duration[:, 0] += 1
    matrix = build_matrix(
        {"step": step.ravel(), "rank": rank.ravel(), "duration_us": duration.ravel()},
        world_size=4,
    )
    got = analyse_stragglers(matrix)
    assert (got.verdict.kind, got.verdict.culprit) == (Kind.UNTELLABLE, None)
    for name in ("tax_ratio", "slowdown_ratio", "waste_ratio", "wait_us", "recoverable_ratio"):
        measure = getattr(got, name)
        assert measure.value is None
        assert "comm_us" in measure.reason
    assert value(got, "step_us") == pytest.approx(duration.mean())
    assert got.ranks is None
    assert (got.steps.last_rank == -1).all()
    assert np.isnan(excess_matrix(matrix)).all()


def test_two_steps_cannot_tell_lasting_from_passing() -> None:
    work = noise(2, 4)
    work[:, 1] += 50_000
    got = analyse_stragglers(job(work))
    assert got.verdict.kind is Kind.UNTELLABLE
    assert "2 usable steps" in got.verdict.text
    assert value(got, "tax_ratio") > 0.2
    assert got.tax_ratio.low is None
    assert got.ranks is not None
    assert np.isnan(got.ranks.excess_low_us).all()


def test_one_rank_of_many_is_untellable_and_a_job_of_one_is_not() -> None:
    lonely = analyse_stragglers(job(noise(9, 1), world=8))
    assert lonely.verdict.kind is Kind.UNTELLABLE
    assert lonely.tax_ratio.value is None
    alone = analyse_stragglers(job(noise(9, 1)))
    assert alone.verdict.kind is Kind.NONE
    assert "nobody to wait for" in alone.verdict.text
    assert alone.tax_ratio.value == 0
    assert alone.persistent_share_ratio.value is None


def test_ranks_that_never_met_are_untellable() -> None:
    work = np.where(np.eye(6, dtype=bool), 1000.0, np.nan)
    got = analyse_stragglers(job(work))
    assert got.verdict.kind is Kind.UNTELLABLE
    assert got.step_us.value is None
    assert "no step was reported by enough ranks" in (got.tax_ratio.reason or "")


def test_a_partly_covered_job_is_labelled() -> None:
    work = noise(40, 6)
    work[:, 2] += 20_000
    work[5:, 4] = np.nan
    got = analyse_stragglers(job(work))
    assert got.verdict.culprit == 2
    assert "on 5 of 6 ranks" in got.tax_ratio.warnings
    assert got.coverage.stopped_ranks == (4,)
    assert got.ranks is not None
    assert list(got.ranks.ranks) == [0, 1, 2, 3, 5]


def test_a_report_whose_parts_exceed_its_whole_is_left_out_and_named() -> None:
    matrix = job(noise(40, 4))
    assert matrix.comm_us is not None
    comm = matrix.comm_us.copy()
    comm[7, 2] = 9e6
    got = analyse_stragglers(replace(matrix, comm_us=comm))
    assert got.coverage.rejected_reports == 1
    assert got.coverage.steps_used == 39
    assert any("first step 7, rank 2" in w for w in got.tax_ratio.warnings)
    assert np.isnan(excess_matrix(replace(matrix, comm_us=comm))[7, 2])


def test_normalised_time_is_spoken_of_in_shares_only() -> None:
    work = noise(40, 4)
    work[:, 1] += 20_000
    got = analyse_stragglers(replace(job(work), time_is_relative=True))
    assert "of the step" in got.verdict.text
    assert " ms" not in got.verdict.text


def test_step_table_tells_each_step() -> None:
    work = np.array([[10.0, 20.0, 60.0], [30.0, 30.0, 30.0], [90.0, 60.0, 30.0]]) * 1000
    got = analyse_stragglers(job(work, transfer=10_000))
    table = got.steps
    np.testing.assert_array_equal(table.max_us, [60_000, 30_000, 90_000])
    np.testing.assert_array_equal(table.mean_us, [30_000, 30_000, 60_000])
    np.testing.assert_array_equal(table.p50_us, [20_000, 30_000, 60_000])
    np.testing.assert_allclose(table.p95_us, [56_000, 30_000, 87_000])
    np.testing.assert_array_equal(table.step_us, [70_000, 40_000, 100_000])
    np.testing.assert_array_equal(table.last_rank, [2, 0, 0])
    np.testing.assert_array_equal(table.wait_sum_us, [90_000, 0, 90_000])
    np.testing.assert_allclose(table.tax_ratio, [90 / 210, 0, 90 / 300])
    assert table.used.all()
    assert table.complete.all()


def test_blame_and_last_place_of_the_ranks() -> None:
    work = np.tile([10_000.0, 10_000.0, 20_000.0, 40_000.0], (5, 1))
    got = analyse_stragglers(job(work))
    assert got.ranks is not None
    # waits 30, 30, 20, 0: the first 10 ms keep two waiting for two, the next 20 ms three for one
    np.testing.assert_allclose(got.ranks.blame_ratio, [0, 0, 10 / 80, 70 / 80])
    np.testing.assert_array_equal(got.ranks.last_ratio, [0, 0, 0, 1])


def test_an_unknown_ideal_is_refused() -> None:
    with pytest.raises(UserError, match="best"):
        analyse_stragglers(job(noise(5, 3)), ideal="best")  # type: ignore[arg-type]


def test_steps_without_length_have_no_tax() -> None:
    step, rank = np.indices((4, 2))
    matrix = build_matrix(
        {
            "step": step.ravel(),
            "rank": rank.ravel(),
            "duration_us": np.zeros(8),
            "comm_us": np.zeros(8),
        },
        world_size=2,
    )
    assert analyse_stragglers(matrix).tax_ratio.reason == "all recorded durations are zero"


def test_thousands_of_ranks_are_compared_without_a_loop_over_them() -> None:
    work = noise(20, 2048, size=1000)
    work[:, 1842] += 17_400
    got = analyse_stragglers(job(work, stage=[r // 256 for r in range(2048)]))
    assert got.verdict.ranks == (1842,)
    assert got.ranks is not None
    place = int(np.flatnonzero(got.ranks.ranks == 1842)[0])
    assert got.ranks.excess_us[place] == pytest.approx(17_400, rel=0.05)
