"""Expected maxima from observed values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.compute.stats.order_stats import exponential_order_mean
from steptax.app.compute.stats.tails import Tail, ecdf_max_mean, fit_tail
from steptax.app.errors import UserError

SAMPLES = st.lists(st.floats(0, 1e6), min_size=1, max_size=50).map(lambda v: np.sort(np.array(v)))


@given(SAMPLES)
def test_one_draw_gives_the_mean(values: np.ndarray) -> None:
    assert ecdf_max_mean(values, 1) == pytest.approx(values.mean(), abs=1e-6)


@given(SAMPLES, st.integers(1, 10_000))
def test_more_draws_never_lower_it_and_the_largest_bounds_it(values: np.ndarray, n: int) -> None:
    assert ecdf_max_mean(values, n) <= ecdf_max_mean(values, n + 1) + 1e-6
    assert ecdf_max_mean(values, n) <= values[-1] + 1e-6


def test_two_draws_from_two_values() -> None:
    assert ecdf_max_mean(np.array([0.0, 1.0]), 2) == 0.75


def test_weights_count_as_repeats() -> None:
    values = np.array([1.0, 2.0, 5.0])
    repeated = np.array([1.0, 2.0, 2.0, 5.0])
    weighted = ecdf_max_mean(values, 3, np.array([1.0, 2.0, 1.0]))
    assert weighted == pytest.approx(ecdf_max_mean(repeated, 3))


def test_nothing_to_take_a_maximum_of() -> None:
    with pytest.raises(UserError):
        ecdf_max_mean(np.array([]), 3)
    with pytest.raises(UserError):
        ecdf_max_mean(np.array([1.0]), 3, np.array([0.0]))


def test_fit_finds_an_exponential_tail_and_its_maximum() -> None:
    values = np.sort(np.random.default_rng(1).exponential(2.0, 200_000))
    tail = fit_tail(values)
    assert tail is not None
    assert tail.shape == pytest.approx(0.0, abs=0.03)
    assert tail.scale == pytest.approx(2.0, rel=0.03)
    assert tail.max_mean(1000, values) == pytest.approx(
        exponential_order_mean(1000, 1000, 2.0), rel=0.02
    )


@pytest.mark.parametrize("shape", [-0.3, 0.0, 1e-7, 0.4])
def test_tail_maximum_against_simulation(shape: float) -> None:
    """All of the distribution is tail: no body, threshold 0, everything exceeds."""
    draws, n = 40_000, 50
    uniform = np.random.default_rng(2).uniform(size=(draws, n)).max(axis=1)
    sample = -np.log1p(-uniform) if abs(shape) < 1e-5 else ((1 - uniform) ** -shape - 1) / shape
    error = sample.std() / math.sqrt(draws)
    mean = Tail(0.0, 1.0, shape, 1.0).max_mean(n, np.array([0.0]), np.array([1.0]))
    assert mean == pytest.approx(sample.mean(), abs=4 * error)


def test_an_infinite_mean_is_no_number() -> None:
    assert Tail(0.0, 1.0, 1.0, 0.1).max_mean(10, np.array([0.0, 1.0])) is None


def test_no_tail_from_too_few_or_equal_values() -> None:
    assert fit_tail(np.arange(100.0)) is None
    assert fit_tail(np.ones(10_000)) is None
    two_values = np.sort(np.r_[np.zeros(5000), np.full(500, 3.0)])
    assert fit_tail(two_values) is None
