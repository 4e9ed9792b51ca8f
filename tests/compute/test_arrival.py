"""Waiting, work and arrival from whichever columns there are."""

from __future__ import annotations

import numpy as np
import pytest

from steptax.app.compute.measure import Level
from steptax.app.compute.straggler.arrival import (
    Basis,
    arrivals,
    choose_basis,
    reported_cells,
    spread_ratio,
)
from steptax.app.compute.straggler.rules import StragglerRules
from steptax.app.compute.straggler.steps import StepMatrix, build_matrix

RULES = StragglerRules()
NAN = float("nan")


def matrix(world: int | None = None, **columns: list[list[float]]) -> StepMatrix:
    shape = np.array(columns["duration_us"]).shape
    step, rank = np.indices(shape)
    long = {"step": step.ravel(), "rank": rank.ravel()}
    values = {name: np.array(given, dtype=float).ravel() for name, given in columns.items()}
    here = ~np.isnan(values["duration_us"])
    return build_matrix(
        {name: given[here] for name, given in (long | values).items()},
        world_size=world or shape[1],
    )


def test_measured_waiting_comes_first() -> None:
    m = matrix(
        duration_us=[[100, 104]], comm_us=[[50, 20]], wait_us=[[35, 5]], transfer_us=[[15, 15]]
    )
    choice = choose_basis(m, RULES)
    got = arrivals(m, choice)
    assert (choice.basis, choice.level) == (Basis.WAIT, Level.PHASES)
    np.testing.assert_array_equal(got.wait_us, [[35, 5]])
    np.testing.assert_array_equal(got.work_us, [[50, 84]])
    np.testing.assert_array_equal(got.arrival_us, [[102 - 35, 102 - 5]])
    np.testing.assert_array_equal(got.paid_us, [204])


def test_waiting_without_transfer_takes_it_from_communication_or_leaves_it_in_work() -> None:
    with_comm = matrix(duration_us=[[100, 100]], comm_us=[[50, 20]], wait_us=[[35, 5]])
    got = arrivals(with_comm, choose_basis(with_comm, RULES))
    assert got.transfer_us is not None
    np.testing.assert_array_equal(got.transfer_us, [[15, 15]])
    alone = matrix(duration_us=[[100, 100]], wait_us=[[35, 5]])
    got = arrivals(alone, choose_basis(alone, RULES))
    assert got.transfer_us is None
    np.testing.assert_array_equal(got.work_us, [[65, 95]])


def test_communication_splits_at_the_rank_that_has_least_of_it() -> None:
    m = matrix(duration_us=[[100, 101, 99], [100, 100, 100]], comm_us=[[40, 10, 35], [5, 5, 7]])
    choice = choose_basis(m, RULES)
    got = arrivals(m, choice)
    assert choice.basis is Basis.COMM
    assert got.transfer_us is not None
    np.testing.assert_array_equal(got.transfer_us, [[10, 10, 10], [5, 5, 5]])
    np.testing.assert_array_equal(got.wait_us, [[30, 0, 25], [0, 0, 2]])
    np.testing.assert_array_equal(got.work_us, [[60, 91, 64], [95, 95, 93]])
    np.testing.assert_array_equal(got.step_us, [100, 100])
    np.testing.assert_array_equal(got.paid_us, [300, 300])


def test_phases_tell_when_wall_times_are_all_alike() -> None:
    m = matrix(
        duration_us=[[100, 100.2], [100, 100.1]],
        compute_us=[[60, 80], [61, 79]],
        input_us=[[5, 4], [NAN, 4]],
    )
    choice = choose_basis(m, RULES)
    got = arrivals(m, choice)
    assert (choice.basis, choice.level) == (Basis.PHASES, Level.PHASES)
    assert set(choice.inputs) == {"duration_us", "compute_us", "input_us"}
    np.testing.assert_array_equal(got.work_us, [[65, 84], [61, 83]])
    np.testing.assert_array_equal(got.wait_us, [[19, 0], [22, 0]])
    np.testing.assert_allclose(got.paid_us, [200.4, 200.2])


def test_durations_that_spread_like_the_phases_hold_time_that_no_phase_names() -> None:
    # Rank 1 is late through host time between the phases, which only its duration shows.
    m = matrix(duration_us=[[100, 150], [101, 152]], compute_us=[[90, 91], [91, 90]])
    choice = choose_basis(m, RULES)
    assert choice.basis is Basis.DURATION
    np.testing.assert_array_equal(arrivals(m, choice).wait_us, [[50, 0], [51, 0]])


def test_partial_work_is_compute_alone_whatever_the_durations_do() -> None:
    m = build_matrix(
        {
            "step": np.array([0, 0]),
            "rank": np.array([0, 1]),
            **{
                name: np.array(values, dtype=float)
                for name, values in {
                    "duration_us": [300, 300],
                    "compute_us": [60, 80],
                    "comm_us": [9, 9],
                    "other_us": [50, 1],
                }.items()
            },
        },
        world_size=2,
        work_is_partial=True,
    )
    choice = choose_basis(m, RULES)
    assert choice.basis is Basis.PHASES
    assert choice.inputs == ("duration_us", "compute_us")
    np.testing.assert_array_equal(arrivals(m, choice).work_us, [[60, 80]])


def test_durations_alone_are_work_when_they_differ() -> None:
    m = matrix(duration_us=[[100, 130], [100, 131]])
    choice = choose_basis(m, RULES)
    assert (choice.basis, choice.level, choice.unknown) == (Basis.DURATION, Level.STEP_TIME, None)
    assert any("before the barrier" in w for w in choice.warnings)


def test_durations_alone_tell_nothing_when_they_are_alike() -> None:
    choice = choose_basis(matrix(duration_us=[[10000, 10030], [10000, 10049]]), RULES)
    assert choice.unknown is not None
    assert "compute_us" in choice.unknown
    assert "comm_us" in choice.unknown
    assert "0.39 %" in choice.unknown


def test_one_of_many_ranks_has_nobody_to_be_compared_with() -> None:
    choice = choose_basis(matrix(world=8, duration_us=[[10], [11]]), RULES)
    assert choice.unknown is not None
    assert "one rank reports of 8" in choice.unknown


def test_a_job_of_one_rank_waits_for_nobody() -> None:
    m = matrix(duration_us=[[10], [11]])
    choice = choose_basis(m, RULES)
    assert choice.unknown is None
    assert not choice.warnings
    np.testing.assert_array_equal(arrivals(m, choice).wait_us, [[0], [0]])


@pytest.mark.parametrize(("known", "basis"), [(18, Basis.COMM), (17, Basis.DURATION)])
def test_a_column_that_most_reports_lack_is_not_relied_on(known: int, basis: Basis) -> None:
    duration = [[100.0, 120.0]] * 10
    comm = np.full((10, 2), NAN)
    comm.ravel()[:known] = 10
    m = matrix(duration_us=duration, comm_us=comm.tolist())
    choice = choose_basis(m, RULES)
    assert choice.basis is basis
    assert any("comm_us is missing" in w for w in choice.warnings) is (basis is Basis.DURATION)
    assert reported_cells(m, choice.basis).sum() == (known if basis is Basis.COMM else 20)


def test_what_was_not_reported_never_leaks_into_the_others() -> None:
    whole = matrix(duration_us=[[100, 101, 90]], comm_us=[[40, 10, 35]])
    holed = matrix(
        duration_us=[[100, 101, NAN], [50, NAN, 50]], comm_us=[[40, 10, NAN], [9, NAN, 4]]
    )
    choice = choose_basis(holed, RULES)
    got = arrivals(holed, choice)
    reference = arrivals(whole.select(np.array([0]), np.array([0, 1])), choice)
    np.testing.assert_array_equal(got.wait_us[0, :2], reference.wait_us[0])
    assert np.isnan(got.wait_us[0, 2])
    np.testing.assert_array_equal(got.wait_us[1], [5, NAN, 0])
    np.testing.assert_array_equal(got.paid_us, [201, 100])


def test_spread_looks_only_at_steps_with_several_reports() -> None:
    assert spread_ratio(np.array([[100.0, 90.0], [100.0, NAN], [0.0, 0.0]])) == pytest.approx(0.1)
    assert spread_ratio(np.array([[100.0], [90.0]])) == 0.0


def test_pipeline_jobs_are_marked_as_estimates() -> None:
    m = build_matrix(
        {
            "step": np.array([0, 0]),
            "rank": np.array([0, 1]),
            "duration_us": np.array([9.0, 9.0]),
            "compute_us": np.array([4.0, 5.0]),
        },
        world_size=2,
        topology={0: (0, 0), 1: (1, 0)},
    )
    assert any("without a dependency graph" in w for w in choose_basis(m, RULES).warnings)
