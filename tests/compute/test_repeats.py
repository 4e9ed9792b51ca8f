"""Rows that tell of a step and rank twice: one holds, and how many did not is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.compute.straggler.repeats import matrix_of_newest, newest_of_each
from steptax.app.compute.straggler.steps import build_matrix
from steptax.app.errors import IntegrityError


def columns(rows: list[tuple[int, int, float, float]]) -> dict[str, Any]:
    step, rank, start_us, duration_us = zip(*rows, strict=True)
    return {
        "step": np.array(step, dtype=np.int64),
        "rank": np.array(rank, dtype=np.int32),
        "start_us": np.array(start_us, dtype=np.float64),
        "duration_us": np.array(duration_us, dtype=np.float64),
    }


ROWS = st.lists(
    st.tuples(
        st.integers(0, 4),
        st.integers(0, 3),
        st.one_of(st.just(float("nan")), st.integers(0, 3).map(float)),
        st.integers(1, 1_000).map(float),
    ),
    min_size=1,
    max_size=40,
)


@given(ROWS)
def test_of_each_step_and_rank_the_row_that_started_last_holds(
    rows: list[tuple[int, int, float, float]],
) -> None:
    expected: dict[tuple[int, int], tuple[float, float]] = {}
    for step, rank, start_us, duration_us in rows:
        began = -1.0 if np.isnan(start_us) else start_us
        known = expected.get((step, rank))
        if known is None or (began, duration_us) >= known:
            expected[step, rank] = (began, duration_us)
    found, left_out = newest_of_each(columns(rows))
    assert left_out == len(rows) - len(expected)
    matrix, same = matrix_of_newest(columns(rows), lambda c: build_matrix(c, world_size=4))
    assert same == left_out
    for step, rank, duration_us in zip(
        found["step"].tolist(), found["rank"].tolist(), found["duration_us"].tolist(), strict=True
    ):
        assert expected.pop((step, rank))[1] == duration_us
        place = np.searchsorted(matrix.steps, step), np.searchsorted(matrix.ranks, rank)
        assert matrix.duration_us[place] == duration_us
    assert expected == {}


def test_other_faults_are_not_hidden() -> None:
    rows = columns([(1, 0, 5.0, 10.0), (1, 0, 6.0, -1.0)])
    with pytest.raises(IntegrityError, match="cannot be negative"):
        matrix_of_newest(rows, lambda c: build_matrix(c, world_size=1))


@pytest.mark.parametrize("start", [None, 5.0])
def test_what_holds_does_not_depend_on_the_order_of_rows(start: float | None) -> None:
    """Queries give rows in no order: the same question must not be answered in two ways."""
    columns = {"step": np.array([1, 1, 1]), "rank": np.zeros(3, np.int32)}
    columns |= {"duration_us": np.array([7, 9, 8]), "loss": np.array([3.0, 1.0, 2.0])}
    if start is not None:
        columns["start_us"] = np.full(3, start)
    for order in ([0, 1, 2], [2, 1, 0], [1, 0, 2]):
        kept, left_out = newest_of_each({n: v[order] for n, v in columns.items()})
        assert (kept["duration_us"].tolist(), kept["loss"].tolist(), left_out) == ([9], [1.0], 2)
