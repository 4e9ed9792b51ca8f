"""Faster or slower is said beyond the noise only."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steptax.app.compute.straggler.side_by_side import (
    LEAST_STEPS,
    PUBLISHED_SPREAD_RATIO,
    Outcome,
    Pace,
    Spread,
    contrast,
    spread_of,
)

NOBODY = Spread(0, None)


def pace(
    mean_us: float, *, steps: int = 200, seed: int = 0, noise: float = 0.02, **more: object
) -> Pace:
    dice = np.random.default_rng(seed)
    tokens, devices = more.get("tokens"), more.get("devices")
    counted = None if tokens is None else np.full(steps, float(str(tokens)))
    return Pace(
        mean_us * (1 + noise * dice.standard_normal(steps)),
        counted,
        None if devices is None else int(str(devices)),
    )


def test_two_parts_of_a_run_that_differ_by_a_tenth() -> None:
    found = contrast(pace(1e5), pace(1.1e5, seed=1), same_run=True, repeats=NOBODY)
    assert found.outcome is Outcome.SLOWER
    assert found.change.value == pytest.approx(0.1, abs=0.005)
    assert found.change.low is not None
    assert found.change.high is not None
    assert found.change.low < 0.1 < found.change.high
    back = contrast(pace(1.1e5, seed=1), pace(1e5), same_run=True, repeats=NOBODY)
    assert back.outcome is Outcome.FASTER


def test_chance_is_seldom_taken_for_a_difference() -> None:
    called = sum(
        contrast(pace(1e5, seed=k), pace(1e5, seed=500 + k), same_run=True, repeats=NOBODY).outcome
        is not Outcome.SAME
        for k in range(60)
    )
    assert called <= 6


def test_a_slow_drift_inside_a_run_is_noise() -> None:
    drift = 1e5 * (1 + 0.1 * np.sin(np.arange(400) / 400 * 2 * np.pi))
    whole = contrast(
        Pace(drift, None, None), Pace(drift * 1.02, None, None), same_run=True, repeats=NOBODY
    )
    assert whole.outcome is Outcome.SAME


def test_between_two_runs_a_small_difference_stays_open() -> None:
    """Without runs that are alike, equal devices alone differ by more."""
    a, b = pace(1e5), pace(1.05e5, seed=1)
    assert contrast(a, b, same_run=True, repeats=NOBODY).outcome is Outcome.SLOWER
    found = contrast(a, b, same_run=False, repeats=NOBODY)
    assert found.outcome is Outcome.OPEN
    assert found.between_is_published
    assert found.between_ratio == PUBLISHED_SPREAD_RATIO
    large = contrast(a, pace(1.2e5, seed=1), same_run=False, repeats=NOBODY)
    assert large.outcome is Outcome.SLOWER


def test_runs_that_are_alike_tell_what_is_noise_between_runs() -> None:
    a, b = pace(1e5), pace(1.05e5, seed=1)
    close = spread_of([1e5, 1.002e5, 0.999e5, 1.001e5])
    assert contrast(a, b, same_run=False, repeats=close).outcome is Outcome.SLOWER
    apart = spread_of([1e5, 1.1e5, 0.95e5, 1.03e5])
    found = contrast(a, b, same_run=False, repeats=apart)
    assert found.outcome is Outcome.SAME
    assert not found.between_is_published
    assert spread_of([1e5, 1.1e5]).ratio is None


def test_runs_of_different_size_are_compared_by_device_time_per_token() -> None:
    a = pace(1e5, tokens=1e6, devices=8)
    twice = pace(1e5, seed=1, tokens=2e6, devices=16)
    found = contrast(a, twice, same_run=False, repeats=NOBODY)
    assert found.per_token
    assert found.outcome is Outcome.SAME
    wasteful = pace(1e5, seed=1, tokens=1e6, devices=16)
    found = contrast(a, wasteful, same_run=False, repeats=NOBODY)
    assert found.change.value == pytest.approx(1.0, abs=0.02)
    assert not contrast(a, pace(1e5), same_run=True, repeats=NOBODY).per_token


def test_a_few_steps_tell_nothing() -> None:
    found = contrast(pace(1e5, steps=LEAST_STEPS - 1), pace(2e5), same_run=True, repeats=NOBODY)
    assert found.outcome is Outcome.OPEN
    assert found.change.value is None
    assert "A has 19 steps" in str(found.change.reason)


@settings(max_examples=25)
@given(factor=st.floats(0.3, 3.0), noise=st.floats(0.001, 0.3), seed=st.integers(0, 1000))
def test_swapping_the_sides_swaps_the_word(factor: float, noise: float, seed: int) -> None:
    a = Pace(np.abs(pace(1e5, seed=seed, noise=noise).step_us) + 1, None, None)
    b = Pace(np.abs(pace(1e5 * factor, seed=seed + 1, noise=noise).step_us) + 1, None, None)
    there = contrast(a, b, same_run=False, repeats=NOBODY)
    back = contrast(b, a, same_run=False, repeats=NOBODY)
    assert there.change.value is not None
    assert back.change.value is not None
    assert (1 + there.change.value) * (1 + back.change.value) == pytest.approx(1)
    words = {there.outcome, back.outcome}
    if there.outcome in (Outcome.FASTER, Outcome.SLOWER) and abs(np.log(factor)) > 1.2 * (
        (there.inside_ratio or 0) + PUBLISHED_SPREAD_RATIO
    ):
        assert words == {Outcome.FASTER, Outcome.SLOWER}
        assert (there.outcome is Outcome.SLOWER) == (factor > 1)
