"""Extrapolation to more ranks: bands that hold, floors that say so, and refusals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steptax.app.compute.stats.order_stats import (
    any_slow_ratio,
    lognormal_order_mean,
    nested_max_mean,
    normal_max_mean,
)
from steptax.app.compute.stats.scaling import (
    FaultModel,
    bad_rank_upper_ratio,
    extrapolate,
    variance_parts,
)
from steptax.app.errors import UserError


def _normal(seed: int, ranks: int = 32, steps: int = 300, sd: float = 50.0) -> np.ndarray:
    return 1000 + sd * np.random.default_rng(seed).standard_normal((steps, ranks))


def test_variance_is_taken_inside_steps() -> None:
    rng = np.random.default_rng(5)
    steps, ranks = 2000, 64
    common = 200 * rng.standard_normal((steps, 1))
    persistent = 30 * rng.standard_normal((1, ranks))
    work = 5000 + common + persistent + 40 * rng.standard_normal((steps, ranks))
    parts = variance_parts(work)
    assert parts.common_us == pytest.approx(200, rel=0.05)
    assert parts.persistent_us == pytest.approx(persistent.std(ddof=1), rel=0.02)
    assert parts.transient_us == pytest.approx(40, rel=0.02)
    assert parts.idiosyncratic_us == pytest.approx(np.hypot(persistent.std(ddof=1), 40), rel=0.02)
    assert parts.correlation == pytest.approx(
        parts.common_us**2 / (parts.common_us**2 + parts.idiosyncratic_us**2)
    )
    assert work.std() > 3 * parts.idiosyncratic_us


@settings(max_examples=25)
@given(st.integers(2, 12), st.integers(1, 20), st.integers(0, 10_000))
def test_variance_parts_add_up(ranks: int, steps: int, seed: int) -> None:
    work = np.random.default_rng(seed).uniform(1, 9, (steps, ranks))
    parts = variance_parts(work)
    assert parts.idiosyncratic_us**2 == pytest.approx(
        parts.persistent_us**2 + parts.transient_us**2
    )


def test_equal_ranks_have_no_spread_and_no_correlation() -> None:
    parts = variance_parts(np.full((10, 4), 7.0))
    assert (parts.idiosyncratic_us, parts.common_us, parts.correlation) == (0, 0, None)
    result = extrapolate(np.full((10, 4), 7.0), 64)
    assert result.expected_max_us.value == pytest.approx(7)
    assert result.slowdown.value == pytest.approx(1)


@pytest.mark.parametrize("seed", range(6))
def test_band_holds_the_truth_for_light_and_heavy_tails(seed: int) -> None:
    target = 1024
    light = extrapolate(_normal(seed), target).expected_max_us
    truth = 1000 + 50 * normal_max_mean(target)
    assert light.low is not None
    assert light.high is not None
    assert light.low <= truth * 1.01
    assert light.high >= truth * 0.99
    sigma = 0.3
    work = 1000 * np.exp(sigma * np.random.default_rng(seed).standard_normal((300, 32)))
    heavy = extrapolate(work, target).expected_max_us
    truth = 1000 * lognormal_order_mean(target, target, sigma)
    assert heavy.low is not None
    assert heavy.high is not None
    assert heavy.low * 0.97 <= truth <= heavy.high * 1.03


def test_the_widest_band_is_printed() -> None:
    result = extrapolate(_normal(1), 1024)
    band = result.expected_max_us
    assert band.low is not None
    assert band.high is not None
    for model in (result.floor_us, result.lognormal_us, result.tail_us):
        assert model.value is not None
        assert model.value <= band.high
    assert result.floor_us.value is not None
    assert band.low <= result.floor_us.value


def test_floor_is_called_a_floor_beyond_the_ranks_seen() -> None:
    work = _normal(2)
    beyond = extrapolate(work, 33)
    assert any("floor" in text for text in beyond.floor_us.warnings)
    assert extrapolate(work, 32).floor_us.warnings == ()
    far = extrapolate(work, 2048)
    residual = work - work.mean(axis=1, keepdims=True) + work.mean()
    assert far.floor_us.value is not None
    assert far.floor_us.value <= residual.max()


def test_inside_the_ranks_seen_it_agrees_with_what_was_seen() -> None:
    work = _normal(3, ranks=64)
    result = extrapolate(work, 64)
    assert result.expected_max_us.value == pytest.approx(work.max(axis=1).mean(), rel=0.01)


def test_common_slowness_does_not_raise_the_extrapolation() -> None:
    quiet = _normal(4)
    swinging = quiet + 400 * np.sin(np.arange(300))[:, None]
    a = extrapolate(quiet, 1024).expected_max_us.value
    b = extrapolate(swinging, 1024).expected_max_us.value
    assert a is not None
    assert b == pytest.approx(a, rel=0.01)


def test_far_extrapolation_is_refused_unless_faults_are_described() -> None:
    work = _normal(5, ranks=16)
    refused = extrapolate(work, 64 * 16 + 1)
    assert refused.expected_max_us.value is None
    assert refused.slowdown.value is None
    assert "fault model" in (refused.expected_max_us.reason or "")
    assert extrapolate(work, 64 * 16).expected_max_us.value is not None
    faults = FaultModel(bad_rank_ratio=1e-3, bad_slowdown=2.0)
    told = extrapolate(work, 64 * 16 + 1, fault_model=faults)
    # At 1,025 ranks a bad one is there in 64 % of the steps, and takes 2,000 us.
    assert told.expected_max_us.value is not None
    assert told.floor_us.value is not None
    hit = any_slow_ratio(1e-3, 1025)
    assert told.expected_max_us.value > told.floor_us.value
    assert told.expected_max_us.value == pytest.approx(
        (1 - hit) * (1000 + 50 * normal_max_mean(1025)) + hit * 2000, rel=0.02
    )


def test_bad_rank_bound_is_always_there() -> None:
    result = extrapolate(_normal(6), 1024)
    assert result.bad_rank_upper_ratio.value == 3 / 32
    assert result.any_bad_upper_ratio.value == pytest.approx(1 - (1 - 3 / 32) ** 1024)
    assert result.beyond_seen_ratio.value == pytest.approx(1024 / 1056)
    assert extrapolate(_normal(6), 10**6).any_bad_upper_ratio.value == pytest.approx(1)


def test_bad_rank_bound_by_count() -> None:
    assert bad_rank_upper_ratio(100) == 0.03
    assert bad_rank_upper_ratio(2) == 1.0
    assert bad_rank_upper_ratio(5, 5) == 1.0
    assert bad_rank_upper_ratio(1000, confidence=0.9) == pytest.approx(1 - 0.1 ** (1 / 1000))
    one = bad_rank_upper_ratio(100, 1)
    # P(at most 1 of 100 | p) = 5 % at the bound.
    assert (1 - one) ** 100 + 100 * one * (1 - one) ** 99 == pytest.approx(0.05)


def test_shared_nodes_widen_the_band() -> None:
    rng = np.random.default_rng(8)
    nodes = np.repeat(np.arange(8), 8)
    node_effect = 40 * rng.standard_normal((400, 8))[:, nodes]
    work = 1000 + node_effect + 20 * rng.standard_normal((400, 64))
    result = extrapolate(work, 1024, nodes=nodes)
    assert result.nested_us.value == pytest.approx(1000 + nested_max_mean(128, 8, 40, 20), rel=0.01)
    assert all("nodes unknown" not in text for text in result.expected_max_us.warnings)
    alone = extrapolate(work, 1024)
    assert alone.nested_us.value is None
    assert any("nodes unknown" in text for text in alone.expected_max_us.warnings)


def test_ranks_that_did_not_report_are_left_out() -> None:
    work = _normal(9)
    holes = work.copy()
    holes[:50, 3] = np.nan
    holes[100] = np.nan
    holes[100, 0] = 5.0
    gone = np.column_stack((holes, np.full(300, np.nan)))
    nodes = np.r_[np.repeat(np.arange(4), 8), 99]
    result = extrapolate(gone, 256, nodes=nodes)
    assert result.observed_ranks == 32
    assert result.observed_steps == 299
    full = extrapolate(work, 256).expected_max_us.value
    assert full is not None
    assert result.expected_max_us.value == pytest.approx(full, rel=0.01)


def test_same_seed_same_band() -> None:
    work = _normal(10)
    assert extrapolate(work, 512, seed=1) == extrapolate(work, 512, seed=1)
    assert (
        extrapolate(work, 512, seed=1).expected_max_us
        != extrapolate(work, 512, seed=2).expected_max_us
    )


@settings(max_examples=10)
@given(st.integers(0, 1000), st.integers(2, 500))
def test_more_ranks_never_make_it_faster(seed: int, target: int) -> None:
    work = _normal(seed, ranks=16, steps=40)
    few = extrapolate(work, target, replicates=0).expected_max_us.value
    more = extrapolate(work, 2 * target, replicates=0).expected_max_us.value
    assert few is not None
    assert more is not None
    assert more >= few


def test_work_with_zeros_has_no_lognormal_fit_and_says_so() -> None:
    work = np.tile(np.array([0.0, 0.0, 0.0, 10.0]), (50, 1))
    result = extrapolate(work, 16)
    assert result.lognormal_us.value is None
    assert result.lognormal_us.reason
    assert result.expected_max_us.value == result.floor_us.value


@pytest.mark.parametrize(
    ("work", "target", "nodes", "where"),
    [
        (np.ones(5), 8, None, "work_us"),
        (np.ones((5, 1)), 8, None, "work_us"),
        (-np.ones((5, 2)), 8, None, "work_us"),
        (np.full((5, 2), np.inf), 8, None, "work_us"),
        (np.full((5, 2), np.nan), 8, None, "work_us"),
        (np.ones((5, 2)), 0, None, "target_ranks"),
        (np.ones((5, 2)), 8, np.array([0, 0, 1]), "nodes"),
    ],
)
def test_bad_input_is_named(
    work: np.ndarray, target: int, nodes: np.ndarray | None, where: str
) -> None:
    with pytest.raises(UserError) as caught:
        extrapolate(work, target, nodes=nodes)
    assert caught.value.where == where


def test_fault_model_is_checked() -> None:
    with pytest.raises(UserError):
        FaultModel(1.5, 2)
    with pytest.raises(UserError):
        FaultModel(0.5, 0.9)
    with pytest.raises(UserError):
        bad_rank_upper_ratio(5, 6)
