"""A rank that became slow late in the window is a straggler; one that recovered is none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steptax.app.compute.straggler.analysis import analyse_stragglers
from steptax.app.compute.straggler.result import Kind
from steptax.app.compute.straggler.steps import StepMatrix, build_matrix

STEPS, RANKS, SLOW = 200, 8, 3
UNTIMED = settings(max_examples=15)


def job(factor: np.ndarray, seed: int = 0) -> StepMatrix:
    """Work of 100 ms with 2 % of noise; ``factor`` [S, R] times as long."""
    rng = np.random.default_rng(seed)
    compute = 1e5 * rng.normal(1, 0.02, (STEPS, RANKS)) * factor
    length = np.broadcast_to(compute.max(axis=1)[:, None] + 1e4, compute.shape)
    return build_matrix(
        {
            "step": np.repeat(np.arange(STEPS), RANKS),
            "rank": np.tile(np.arange(RANKS), STEPS),
            "duration_us": length.ravel(),
            "compute_us": compute.ravel(),
            "comm_us": (length - compute).ravel(),
        },
        world_size=RANKS,
    )


@UNTIMED
@given(seed=st.integers(0, 1000), onset=st.integers(110, 175))
def test_slow_since_lately_is_slow_for_good(seed: int, onset: int) -> None:
    factor = np.ones((STEPS, RANKS))
    factor[onset:, SLOW] = 1.5
    verdict = analyse_stragglers(job(factor, seed)).verdict
    assert verdict.kind is Kind.WORKER
    assert verdict.ranks == (SLOW,)
    assert f"since step {onset}." in verdict.text


@pytest.mark.parametrize(
    ("slow", "said"),
    [
        (slice(100, 180), "rank 3 in steps 100 to 179: it is slow no longer."),
        (slice(188, 200), "rank 3 since step 188: that is too new to be called slow for good."),
    ],
    ids=["recovered", "too new"],
)
def test_a_spell_is_no_lasting_straggler_and_none_that_moves(slow: slice, said: str) -> None:
    factor = np.ones((STEPS, RANKS))
    factor[slow, SLOW] = 1.8
    verdict = analyse_stragglers(job(factor)).verdict
    assert (verdict.kind, verdict.culprit) == (Kind.PASSED, None)
    assert verdict.text.endswith(said)
    assert "different rank" not in verdict.text


@UNTIMED
@given(seed=st.integers(0, 1000))
def test_a_straggler_that_moves_has_no_onset(seed: int) -> None:
    factor = np.ones((STEPS, RANKS))
    late = np.random.default_rng(seed + 1).integers(RANKS, size=STEPS)
    factor[np.arange(STEPS), late] = 1.5
    verdict = analyse_stragglers(job(factor, seed)).verdict
    assert verdict.kind is Kind.MOVING
    assert verdict.ranks == ()
