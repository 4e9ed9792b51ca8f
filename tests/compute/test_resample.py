"""Bootstrap intervals over steps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steptax.app.compute.stats import resample
from steptax.app.compute.stats.resample import block_length, block_means, interval

#: How long an example takes says nothing about whether it is right.
UNTIMED = settings(suppress_health_check=[HealthCheck.too_slow])


def test_block_length_is_the_cube_root() -> None:
    assert [block_length(n) for n in (1, 2, 8, 27, 500, 1000)] == [1, 1, 2, 3, 8, 10]


@UNTIMED
@given(steps=st.integers(1, 60), seed=st.integers(0, 50))
def test_means_equal_those_of_the_drawn_steps(steps: int, seed: int) -> None:
    values = np.random.default_rng(seed + 1).normal(size=(steps, 3))
    got = block_means(values, replicates=5, seed=seed)
    length = block_length(steps)
    blocks = -(-steps // length)
    starts = np.random.default_rng(seed).integers(steps, size=(5, blocks))
    for row, drawn in zip(got, starts, strict=True):
        taken = np.concatenate([(s + np.arange(length)) % steps for s in drawn])
        np.testing.assert_allclose(row, values[taken].mean(axis=0), atol=1e-12)


def test_replicates_do_not_depend_on_how_they_are_batched(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).normal(size=(50, 4))
    whole = block_means(values, replicates=40, seed=3)
    monkeypatch.setattr(resample, "_COUNTS_AT_ONCE", 150)
    np.testing.assert_allclose(block_means(values, replicates=40, seed=3), whole, atol=1e-13)


def test_a_step_that_is_not_known_spoils_no_other() -> None:
    values = np.array([[1.0, np.nan, np.nan], [2.0, 1.0, np.nan], [3.0, 1.0, np.nan]])
    got = block_means(values, replicates=99, seed=0)
    assert np.isfinite(got[:, 0]).all()
    # A mean is over the steps that are there; a draw may hold none of them.
    drawn = got[~np.isnan(got[:, 1]), 1]
    assert len(drawn) > 50
    assert (drawn == 1.0).all()
    assert np.isnan(got[:, 2]).all()


def test_interval_covers_the_mean_as_often_as_it_says() -> None:
    # Correlated steps (AR(1), 0.5): an interval that took them for independent would cover ~75 %.
    g = np.random.default_rng(11)
    noise = g.normal(size=(600, 300))
    series = np.empty_like(noise)
    series[0] = noise[0]
    for t in range(1, 600):
        series[t] = 0.5 * series[t - 1] + noise[t]
    low, high = interval(block_means(series[100:], replicates=400, seed=5))
    covered = float(np.mean((low < 0) & (high > 0)))
    assert 0.86 < covered < 0.98
