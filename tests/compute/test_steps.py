"""Long columns become matrices without a value gained, lost or moved."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steptax.app.compute.straggler import steps
from steptax.app.compute.straggler.steps import (
    StepMatrix,
    accounted_us,
    build_matrix,
    inconsistent_cells,
    name_cell,
    without_inconsistent,
)
from steptax.app.errors import IntegrityError, NotFoundError

#: How long an example takes says nothing about whether it is right.
UNTIMED = settings(suppress_health_check=[HealthCheck.too_slow])

NAN = float("nan")


def columns(rows: list[tuple[float, ...]], *names: str) -> dict[str, np.ndarray]:
    return {
        name: np.array([row[i] for row in rows], dtype=float) for i, name in enumerate(names)
    } | {
        "step": np.array([row[0] for row in rows], dtype=np.int64),
        "rank": np.array([row[1] for row in rows], dtype=np.int32),
    }


@UNTIMED
@given(
    cells=st.dictionaries(
        st.tuples(st.integers(0, 5), st.integers(0, 4)), st.integers(0, 10**9), min_size=1
    ),
    seed=st.integers(0, 1000),
)
def test_every_row_lands_in_its_cell_and_nowhere_else(
    cells: dict[tuple[int, int], int], seed: int
) -> None:
    rows = [(step, rank, value) for (step, rank), value in cells.items()]
    np.random.default_rng(seed).shuffle(rows)
    matrix = build_matrix(columns(rows, "step", "rank", "duration_us"), world_size=8)
    assert matrix.reported.sum() == len(cells)
    assert list(matrix.steps) == sorted({step for step, _ in cells})
    assert list(matrix.ranks) == sorted({rank for _, rank in cells})
    for (step, rank), value in cells.items():
        at = np.searchsorted(matrix.steps, step), np.searchsorted(matrix.ranks, rank)
        assert matrix.duration_us[at] == value


def test_columns_that_nobody_measured_are_absent_and_not_zero() -> None:
    rows = [(1, 0, 10, NAN, 4), (1, 1, 11, NAN, NAN)]
    matrix = build_matrix(
        columns(rows, "step", "rank", "duration_us", "comm_us", "compute_us"), world_size=2
    )
    assert matrix.comm_us is None
    assert set(matrix.phases) == {"compute"}
    assert matrix.phases["compute"][0, 0] == 4
    assert np.isnan(matrix.phases["compute"][0, 1])
    assert matrix.stage is None
    assert not matrix.has_pipeline


def test_loss_of_a_step_is_the_mean_of_those_that_say_it() -> None:
    rows = [(1, 0, 10, 2.0), (1, 1, 10, 4.0), (2, 0, 10, NAN), (2, 1, 10, 5.0), (3, 0, 10, NAN)]
    matrix = build_matrix(columns(rows, "step", "rank", "duration_us", "loss"), world_size=2)
    assert matrix.loss is not None
    np.testing.assert_array_equal(matrix.loss, [3.0, 5.0, NAN])


def test_two_rows_for_one_step_and_rank_are_refused_by_name() -> None:
    rows = [(7, 3, 10), (8, 3, 10), (8, 3, 12)]
    with pytest.raises(IntegrityError, match=r"step 8, rank 3: 2 rows"):
        build_matrix(columns(rows, "step", "rank", "duration_us"), world_size=4)


def test_a_negative_time_is_refused_by_name() -> None:
    rows = [(7, 3, 10, 1), (8, 3, 10, -2)]
    with pytest.raises(IntegrityError, match=r"step 8, rank 3: gc_us is -2"):
        build_matrix(columns(rows, "step", "rank", "duration_us", "gc_us"), world_size=4)


def test_a_row_without_duration_is_refused() -> None:
    with pytest.raises(IntegrityError, match="no duration_us"):
        build_matrix(columns([(1, 0, 5), (1, 1, NAN)], "step", "rank", "duration_us"), world_size=2)


def test_no_rows_at_all_is_not_a_job_of_zero_length() -> None:
    with pytest.raises(NotFoundError, match="no step was recorded"):
        build_matrix(columns([], "step", "rank", "duration_us"), world_size=2)


@pytest.mark.parametrize(("world", "expected"), [(1, None), (4, 1), (4, 5)])
def test_a_world_that_cannot_hold_the_ranks_is_refused(world: int, expected: int | None) -> None:
    rows = [(1, 0, 5), (1, 1, 5)]
    with pytest.raises(IntegrityError, match="2 ranks reported"):
        build_matrix(
            columns(rows, "step", "rank", "duration_us"), world_size=world, expected_ranks=expected
        )


def test_recorded_ranks_stand_for_their_group() -> None:
    rows = [(1, 0, 5), (1, 4, 5), (1, 8, 5)]
    matrix = build_matrix(columns(rows, "step", "rank", "duration_us"), world_size=16)
    assert matrix.weight == Fraction(16, 3)


def test_topology_must_name_every_rank_to_count() -> None:
    rows = [(1, 0, 5), (1, 1, 5)]
    given_columns = columns(rows, "step", "rank", "duration_us")
    whole = build_matrix(given_columns, world_size=2, topology={0: (0, 0), 1: (1, 0), 9: (7, 7)})
    assert whole.stage is not None
    assert list(whole.stage) == [0, 1]
    assert whole.has_pipeline
    partial = build_matrix(given_columns, world_size=2, topology={0: (0, 3), 1: (None, 4)})
    assert partial.stage is None
    assert partial.dp is not None
    assert list(partial.dp) == [3, 4]


def full() -> StepMatrix:
    rows = [
        (s, r, 100 + s, 30, 20, 10, 40, 5, 2, 0.5)
        for s in (1, 2, 3)
        for r in (0, 1, 2)
        if (s, r) != (2, 2)
    ]
    names = ("step", "rank", "duration_us", "comm_us", "wait_us", "transfer_us")
    more = ("compute_us", "tokens", "seq_sq_sum", "loss")
    return build_matrix(
        columns(rows, *names, *more), world_size=3, topology={r: (r % 2, r) for r in range(3)}
    )


def test_selecting_everything_changes_nothing() -> None:
    matrix = full()
    same = matrix.select(np.arange(3), np.arange(3))
    for name in ("steps", "ranks", "duration_us", "comm_us", "wait_us", "tokens", "loss", "stage"):
        np.testing.assert_array_equal(getattr(same, name), getattr(matrix, name))
    np.testing.assert_array_equal(same.phases["compute"], matrix.phases["compute"])


def test_selected_ranks_become_the_expected_ones() -> None:
    part = full().select(np.array([1]), np.array([0, 1]))
    assert part.expected_ranks == 2
    assert list(part.steps) == [2]
    assert part.dp is not None
    assert list(part.dp) == [0, 1]
    assert part.duration_us.shape == (1, 2)


def test_parts_count_communication_once() -> None:
    matrix = full()
    assert accounted_us(matrix)[0, 0] == 70  # compute 40 and comm 30, of which wait 20 is a part
    split = build_matrix(
        columns(
            [(1, 0, 100, 20, 10, 40)],
            *("step", "rank", "duration_us", "wait_us", "transfer_us", "compute_us"),
        ),
        world_size=1,
    )
    assert accounted_us(split)[0, 0] == 70


@pytest.mark.parametrize(
    ("duration", "parts", "refused"),
    [
        (100_000, 102_000, False),  # exactly 1 % and 1 ms
        (100_000, 102_001, True),
        (0, 1000, False),
        (10_000_000, 10_100_000, False),
    ],
)
def test_parts_may_exceed_their_whole_by_one_percent_and_a_millisecond(
    duration: int, parts: int, refused: bool
) -> None:
    matrix = build_matrix(
        columns([(5, 2, duration, parts)], "step", "rank", "duration_us", "compute_us"),
        world_size=1,
    )
    bad = inconsistent_cells(matrix)
    assert bool(bad[0, 0]) is refused
    kept, out = without_inconsistent(matrix)
    assert bool(out[0, 0]) is refused
    assert bool(kept.reported[0, 0]) is not refused
    if refused:
        assert name_cell(matrix, bad) == "step 5, rank 2"


def test_a_selection_of_whole_steps_is_no_copy() -> None:
    matrix = build_matrix(
        {
            "step": np.repeat(np.arange(4), 3),
            "rank": np.tile(np.arange(3), 4),
            "duration_us": np.arange(12) + 10.0,
            "comm_us": np.full(12, 5000.0),
        },
        world_size=3,
    )
    assert matrix.inconsistent.all()
    everyone = np.arange(3)
    part = matrix.select(np.array([1, 2]), everyone)
    assert np.shares_memory(part.duration_us, matrix.duration_us)
    np.testing.assert_array_equal(part.duration_us, matrix.duration_us[1:3])
    for chosen in (part, part.expecting(3), matrix.select(np.array([3, 1]), np.array([2, 0]))):
        assert chosen.inconsistent.shape == chosen.duration_us.shape
        assert chosen.inconsistent.all()
    rows, parts = zip(*matrix.parts(), strict=True)
    assert [(row.start, row.stop) for row in rows] == [(0, 4)]
    assert parts[0].expected_ranks == matrix.expected_ranks


@given(numbers=st.lists(st.integers(-(2**40), 2**40) | st.integers(-3, 9), min_size=1, max_size=30))
def test_places_of_numbers_are_those_of_sorting_them(numbers: list[int]) -> None:
    values = np.array(numbers, dtype=np.int64)
    found, place = steps._places(values)
    want, at = np.unique(values, return_inverse=True)
    np.testing.assert_array_equal(found, want)
    np.testing.assert_array_equal(place, at)
    assert found.dtype == values.dtype
