"""Which steps and ranks are used, and who has stopped."""

from __future__ import annotations

import numpy as np
import pytest

from steptax.app.compute.straggler.coverage import Coverage, cover
from steptax.app.compute.straggler.rules import StragglerRules
from steptax.app.compute.straggler.steps import build_matrix

RULES = StragglerRules()


def coverage(cells: np.ndarray, expected: int | None = None, world: int | None = None) -> Coverage:
    step, rank = np.nonzero(cells)
    matrix = build_matrix(
        {"step": step, "rank": rank, "duration_us": np.ones(len(step))},
        world_size=world or expected or cells.shape[1],
        expected_ranks=expected,
    )
    return cover(matrix, matrix.reported, RULES)


def test_everything_is_used_when_everybody_reported() -> None:
    got = coverage(np.ones((5, 3), dtype=bool))
    assert (got.steps_used, got.steps_incomplete, got.ranks_used) == (5, 0, 3)
    assert got.label is None
    assert got.reason is None
    assert got.complete.all()


def test_incomplete_steps_are_left_out_while_half_are_complete() -> None:
    cells = np.ones((10, 4), dtype=bool)
    cells[:5, 2] = False
    got = coverage(cells)
    assert (got.steps_used, got.steps_incomplete, got.ranks_used) == (5, 5, 4)
    np.testing.assert_array_equal(got.step_places, np.arange(5, 10))


def test_a_rank_that_misses_most_steps_is_left_out_and_said() -> None:
    cells = np.ones((10, 4), dtype=bool)
    cells[:6, 2] = False
    cells[9, 0] = False
    got = coverage(cells)
    np.testing.assert_array_equal(got.rank_places, [0, 1, 3])
    np.testing.assert_array_equal(got.step_places, np.arange(9))
    assert got.label == "on 3 of 4 ranks"


def test_a_rank_that_never_reported_counts_as_expected() -> None:
    got = coverage(np.ones((6, 3), dtype=bool), expected=4, world=16)
    assert (got.steps_used, got.steps_incomplete) == (6, 6)
    assert got.label == "on 3 of 4 ranks"
    assert got.weight == 4


def test_ranks_that_never_met_cannot_be_compared() -> None:
    got = coverage(np.eye(4, dtype=bool))
    assert got.steps_used == 0
    assert got.reason is not None
    assert "no step was reported by enough ranks" in got.reason


@pytest.mark.parametrize(("lag", "stopped"), [(3, ()), (4, (1,))])
def test_a_rank_has_stopped_when_it_lags_by_more_than_three_steps(
    lag: int, stopped: tuple[int, ...]
) -> None:
    cells = np.ones((20, 3), dtype=bool)
    cells[20 - lag :, 1] = False
    got = coverage(cells)
    assert got.stopped_ranks == stopped
    assert got.newest_step == 19
    np.testing.assert_array_equal(got.last_step, [19, 19 - lag, 19])
