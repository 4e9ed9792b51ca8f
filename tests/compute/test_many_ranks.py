"""A job of thousands of ranks: what its analysis takes beside its rows, and how it is told."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from steptax.app.compute.bill.ledger import step_ledger
from steptax.app.compute.causes.diagnose import Evidence, diagnose
from steptax.app.compute.straggler.analysis import analyse_stragglers, work_and_peers
from steptax.app.compute.straggler.steps import StepMatrix, build_matrix
from steptax.app.queries.arrays import arrays_of
from steptax.benchmarks.product.scale_data import segments, slow_rank

RANKS, STEPS = 4_096, 64


@pytest.fixture(scope="module")
def columns() -> dict[str, np.ndarray]:
    (rows,) = segments(RANKS, STEPS)
    return arrays_of(rows.drop_columns("job_id"))


@pytest.fixture(scope="module")
def matrix(columns: dict[str, np.ndarray]) -> StepMatrix:
    return build_matrix(columns, world_size=RANKS)


def matrices_taken(call: Callable[[], Any]) -> float:
    """The most memory that ``call`` holds at once, in matrices of a number by step and rank."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1] / (8 * RANKS * STEPS)
    finally:
        tracemalloc.stop()


def test_the_analysis_holds_a_few_copies_of_the_steps(
    columns: dict[str, np.ndarray], matrix: StepMatrix
) -> None:
    result = analyse_stragglers(matrix)
    taken = {
        "matrix": matrices_taken(lambda: build_matrix(columns, world_size=RANKS)),
        "analysis": matrices_taken(lambda: analyse_stragglers(matrix)),
        "diagnosis": matrices_taken(lambda: diagnose(matrix, result, Evidence())),
        "ledger": matrices_taken(lambda: step_ledger(matrix, None)),
    }
    most = {"matrix": 9.0, "analysis": 22.0, "diagnosis": 12.0, "ledger": 7.0}
    assert all(taken[name] <= most[name] for name in most), taken


def test_what_was_compared_is_not_compared_again(matrix: StepMatrix) -> None:
    result = analyse_stragglers(matrix)
    assert result.used is not None
    again, anew = work_and_peers(matrix, result=result), work_and_peers(matrix)
    assert again[0] is result.used.arrived.work_us
    for one, other in zip(again, anew, strict=True):
        np.testing.assert_array_equal(one, other)


def test_counts_of_thousands_have_separators(matrix: StepMatrix) -> None:
    told = analyse_stragglers(matrix).verdict
    assert told.ranks == (slow_rank(RANKS),)
    assert told.text.startswith(f"Rank {slow_rank(RANKS)} makes the other 4,095 wait: ")
