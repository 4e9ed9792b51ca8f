"""Bounds that hold for all ranks at once, and verdicts on short and noisy windows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import t as student

from steptax.app.compute.stats.simultaneous import batches_of, lower_bounds
from steptax.app.compute.straggler.analysis import analyse_stragglers
from tests.compute.test_recurring import matrix_of


def formula(batches: np.ndarray, family_error: float) -> np.ndarray:
    """Straight from the head of the module, rank by rank."""
    count, ranks = batches.shape
    wide = student.ppf(1 - family_error / ranks, count - 1)
    each = []
    for third in np.array_split(batches, 3):
        own = third - third.mean(axis=0)
        for x in own.T:
            whole = (x**2).sum()
            each += [(x[1:] * x[:-1]).sum() / whole + 1 / len(x)] if whole > 0 else []
    shared = min(0.9, max(0.0, float(np.median(each))))
    stretch = np.sqrt((1 + shared) / (1 - shared))
    return batches.mean(axis=0) - wide * batches.std(axis=0, ddof=1) / np.sqrt(count) * stretch


@pytest.mark.parametrize(
    ("steps", "count"), [(5, 5), (19, 19), (20, 10), (30, 10), (60, 20), (90, 30), (600, 30)]
)
def test_it_is_the_formula_over_batches(steps: int, count: int) -> None:
    values = np.random.default_rng(0).normal(5, 1, (steps, 7))
    assert batches_of(steps) == count
    batches = values.reshape(count, steps // count, 7).mean(axis=1)
    np.testing.assert_allclose(lower_bounds(values, 0.01), formula(batches, 0.01))


@pytest.mark.parametrize("steps", [20, 120])
def test_all_bounds_hold_together_as_often_as_is_said(steps: int) -> None:
    rng = np.random.default_rng(2)
    wrong = sum(
        bool((lower_bounds(rng.normal(0, 1, (steps, 64)), 0.05) > 0).any()) for _ in range(400)
    )
    assert wrong <= 36  # 20 expected


def test_steps_that_depend_on_their_neighbours_widen_them() -> None:
    rng = np.random.default_rng(3)
    own = rng.normal(0, 1, (600, 1))
    smooth = np.stack([np.convolve(own[:, 0], np.ones(10) / np.sqrt(10), "same")], axis=1)
    assert lower_bounds(smooth, 0.05)[0] - smooth.mean() < 2 * (
        lower_bounds(own, 0.05)[0] - own.mean()
    )


def test_missing_values_count_for_nothing() -> None:
    values = np.random.default_rng(4).normal(5, 1, (18, 3))
    values[:, 1] = np.nan
    values[::3, 2] = np.nan
    got = lower_bounds(values, 0.05)
    assert np.isnan(got[1])
    kept = values[~np.isnan(values[:, 2]), 2]
    plain = kept.mean() - student.ppf(1 - 0.05 / 2, 11) * kept.std(ddof=1) / np.sqrt(12)
    assert kept.mean() - 1.6 * (kept.mean() - plain) <= got[2] <= plain + 1e-12
    assert lower_bounds(values[:1], 0.05)[0] == -np.inf


def test_noise_that_a_host_shares_for_a_while_accuses_nobody() -> None:
    """Neighbouring steps of a host depend on each other: there are fewer of them than it seems."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        shared = rng.normal(0, 0.15, (34, 4))
        for step in range(1, 34):
            shared[step] += 0.8 * shared[step - 1]
        work = rng.lognormal(0, 0.3, (34, 32)) * np.maximum(0.2, 1 + np.repeat(shared, 8, axis=1))
        assert analyse_stragglers(matrix_of(work)).verdict.ranks == (), seed


@pytest.mark.parametrize(
    ("steps", "ranks", "sd"),
    [(20, 32, 0.08), (20, 32, 0.10), (30, 32, 0.10), (30, 32, 0.15), (120, 16, 0.30)],
)
def test_the_slowest_of_many_healthy_ranks_is_not_accused(
    steps: int, ranks: int, sd: float
) -> None:
    for seed in range(12):
        work = np.random.default_rng(seed).lognormal(0, sd, (steps, ranks))
        assert analyse_stragglers(matrix_of(work)).verdict.ranks == (), seed


def test_a_slow_rank_of_a_short_window_is_found_where_noise_allows() -> None:
    for seed in range(5):
        work = np.random.default_rng(seed).lognormal(0, 0.02, (30, 32))
        work[:, 9] *= 1.08
        assert analyse_stragglers(matrix_of(work)).verdict.ranks == (9,)
