"""Learning velocity: dollars count all that was paid, loss only the steps that stay."""

from __future__ import annotations

import dataclasses
import math
import re
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression

from steptax.app.compute.learning.curve import (
    LearningCurve,
    bits_per_byte,
    ema,
    learning_curve,
    superseded,
)
from steptax.app.compute.learning.scaling_law import (
    BESIROGLU,
    HOFFMANN,
    SCALING_CONSTANTS,
    compute_equivalent_gain,
    fit_power_law,
    scaling_prior,
    tokens_per_usd,
)
from steptax.app.compute.learning.velocity import (
    MIN_POINTS,
    dollars_to_target,
    marginal_velocity,
)
from steptax.app.compute.mfu.flops import Convention, flops_per_token
from steptax.app.compute.mfu.model_shape import ModelShape
from steptax.app.compute.traps import TRAPS, traps_of
from steptax.app.errors import UserError


def decaying(points: int, noise: float = 0.0, seed: int = 0) -> LearningCurve:
    """Loss 2 + 3 / sqrt(1 + $/1000) at 10 dollars a step."""
    usd = 10.0 * np.arange(1, points + 1)
    loss = 2 + 3 / np.sqrt(1 + usd / 1000)
    loss += np.random.default_rng(seed).normal(0, noise, points) if noise else 0
    return learning_curve(range(points), loss.tolist(), [10.0] * points)


def test_rolled_back_steps_cost_and_teach_nothing() -> None:
    steps = [1, 2, 3, 4, 3, 4, 5]
    loss = [5.0, 4.5, 4.2, 4.0, 4.1, 3.9, 3.7]
    curve = learning_curve(steps, loss, [10, 10, 10, 10, 25, 10, 10])
    assert curve.step.tolist() == [1, 2, 3, 4, 5]
    assert curve.loss.tolist() == [5.0, 4.5, 4.1, 3.9, 3.7]
    assert curve.paid_usd.tolist() == [10, 20, 65, 75, 85]
    assert (curve.spent_usd, curve.lost_usd) == (85, 20)


def test_rows_without_loss_cost_and_tell_nothing() -> None:
    curve = learning_curve([1, 2, 3], [5.0, None, math.nan], [1, 2, 3])
    assert len(curve) == 1
    assert curve.paid_usd.tolist() == [1]
    assert curve.spent_usd == 6


@given(st.lists(st.integers(0, 30), max_size=40))
def test_what_stays_is_the_last_run_of_each_step(steps: list[int]) -> None:
    lost = superseded(steps)
    kept = [s for s, gone in zip(steps, lost, strict=True) if not gone]
    assert all(a < b for a, b in pairwise(kept))
    for place, step in enumerate(steps):
        assert lost[place] == any(later <= step for later in steps[place + 1 :])


@pytest.mark.parametrize("method", ["theil_sen", "local_linear"])
@given(st.floats(1e-6, 10), st.floats(-5, 5), st.integers(MIN_POINTS, 60))
@settings(max_examples=30)
def test_the_slope_of_a_straight_line(
    method: str, per_usd: float, start: float, points: int
) -> None:
    usd = np.arange(1, points + 1)
    curve = learning_curve(range(points), (start - per_usd * usd).tolist(), [1.0] * points)
    value = marginal_velocity(curve, method=method, window_usd=1e9, replicates=20)
    assert value.value is not None
    # Smoothing lags behind a line by a constant, except at its very beginning.
    assert value.value == pytest.approx(per_usd, rel=1e-6 if method == "theil_sen" else 0.2)


@pytest.mark.parametrize("method", ["theil_sen", "local_linear"])
def test_velocity_covers_the_truth_of_a_noisy_run(method: str) -> None:
    covered = 0
    for seed in range(20):
        value = marginal_velocity(decaying(2000, 0.02, seed), method=method, seed=seed)
        assert value.value is not None
        assert value.low is not None
        assert value.high is not None
        assert value.low < value.value < value.high
        middle, end = (1.5 * (1 + usd / 1000) ** -1.5 / 1000 for usd in (17_500, 20_000))
        covered += value.low <= middle and end <= value.high
    assert covered >= 17


def test_an_outlier_does_not_move_theil_sen() -> None:
    clean = decaying(400)
    spoiled = clean.loss.copy()
    spoiled[-3] = 40.0
    curve = learning_curve(range(400), spoiled.tolist(), [10.0] * 400)
    before, after = (marginal_velocity(c).value for c in (clean, curve))
    assert before is not None
    assert after == pytest.approx(before, rel=0.02)


def test_a_lost_session_lowers_the_velocity_of_money() -> None:
    steps = list(range(200))
    loss = [5 - 0.01 * s for s in steps]
    smooth = learning_curve(steps, loss, [1.0] * 200)
    crashed = learning_curve([*steps[:150], *steps[100:]], [*loss[:150], *loss[100:]], [1.0] * 250)
    fast, slow = (marginal_velocity(c, window_usd=1e9).value for c in (smooth, crashed))
    assert fast == pytest.approx(0.01)
    assert slow is not None
    assert slow < 0.0099


def test_velocity_says_why_it_is_missing() -> None:
    assert "no step" in (marginal_velocity(learning_curve([], [], [])).reason or "")
    few = learning_curve(range(5), [1.0] * 5, [1.0] * 5)
    assert "8 are needed" in (marginal_velocity(few).reason or "")
    free = learning_curve(range(20), [1.0] * 20, [0.0] * 20)
    assert "no dollars" in (marginal_velocity(free).reason or "")
    assert "learning-rate schedule" in marginal_velocity(decaying(50)).warnings[0]


def test_first_passage_of_a_run_without_noise_is_exact() -> None:
    curve = decaying(2000)
    reached = dollars_to_target(curve, 3.0)
    assert reached.value == pytest.approx(8000, abs=10)
    assert reached.low == reached.high == reached.value


def test_first_passage_covers_the_truth_of_a_noisy_run() -> None:
    covered = 0
    for seed in range(20):
        reached = dollars_to_target(decaying(2000, 0.05, seed), 3.0, replicates=100, seed=seed)
        assert reached.low is not None
        assert reached.high is not None
        covered += reached.low <= 8000 <= reached.high
    assert covered >= 17


def test_a_target_that_was_not_reached_has_no_price() -> None:
    missing = dollars_to_target(decaying(500), 2.0)
    assert missing.value is None
    assert missing.reason is not None
    assert "not reached" in missing.reason
    assert "8 are needed" in (dollars_to_target(decaying(3), 4.0).reason or "")


def test_a_target_at_the_edge_has_an_open_interval() -> None:
    curve = decaying(1000, 0.05)
    lowest = float(isotonic_regression(curve.loss, increasing=False).x[-1])
    edge = dollars_to_target(curve, lowest + 1e-9)
    assert edge.value is not None
    assert edge.high is None
    assert any("resampled runs do not reach it" in w for w in edge.warnings)
    assert any("at the end reach it" in w for w in edge.warnings)


@given(st.floats(2.5, 4.5), st.floats(0.001, 0.5))
@settings(max_examples=20)
def test_a_lower_target_is_never_cheaper(target: float, less: float) -> None:
    curve = decaying(1500, 0.02)
    near = dollars_to_target(curve, target, replicates=1).value
    far = dollars_to_target(curve, target - less, replicates=1).value
    assert far is None or (near is not None and near <= far)


@given(
    st.floats(0, 3), st.floats(0.5, 500), st.floats(0.03, 0.5), st.floats(10, 24)
)  # fmt: skip
@settings(max_examples=40)
def test_a_power_law_is_found_again(floor: float, k: float, gamma: float, first: float) -> None:
    compute = [10 ** (first + 0.5 * i) for i in range(9)]
    scaled = k * compute[0] ** gamma
    fit = fit_power_law(compute, [floor + scaled * c**-gamma for c in compute])
    assert fit.rms_error < 1e-3 * k
    for c in compute:
        assert fit.loss(c) == pytest.approx(floor + scaled * c**-gamma, rel=1e-2, abs=1e-2 * k)


def test_compute_equivalent_gain() -> None:
    compute = [1e20, 1e21, 1e22, 1e23]
    fit = fit_power_law(compute, [1.7 + 50 * c**-0.1 for c in compute])
    assert fit.floor == pytest.approx(1.7, abs=1e-4)
    assert fit.gamma == pytest.approx(0.1, abs=1e-4)
    now = 1.7 + 50 * 1e22**-0.1
    gain = compute_equivalent_gain(fit, now, 5e21)
    assert gain.value == pytest.approx(2, rel=1e-4)
    assert not gain.warnings
    per_usd = compute_equivalent_gain(fit, now, 5e21, paid_usd=1000)
    assert per_usd.value == pytest.approx(0.002, rel=1e-4)
    assert per_usd.unit == "x/USD"
    assert "extrapolated" in compute_equivalent_gain(fit, 1.9, 1e24).warnings[0]
    floor = compute_equivalent_gain(fit, 1.6, 1e24)
    assert floor.value is None
    assert "floor" in (floor.reason or "")


def test_published_fits_of_chinchilla() -> None:
    assert HOFFMANN.loss(70e9, 1.4e12) == pytest.approx(1.937, abs=5e-4)
    budget = 5.76e23
    assert BESIROGLU.optimal_tokens_per_param(budget) == pytest.approx(20, abs=3)
    assert HOFFMANN.optimal_tokens_per_param(budget) > 60
    expected = scaling_prior(70e9, 1.4e12, 1e6)
    assert [p.constants for p in expected] == list(SCALING_CONSTANTS)
    assert expected[0].velocity_loss_per_usd != expected[1].velocity_loss_per_usd


@given(
    st.sampled_from(SCALING_CONSTANTS), st.floats(1e9, 1e12), st.floats(1e9, 1e13),
    st.floats(1, 1e9),
)  # fmt: skip
def test_the_prior_velocity_is_the_derivative(
    fit: Any, params: float, tokens: float, per_usd: float
) -> None:
    step = 1e-4 * tokens
    slope = (fit.loss(params, tokens - step) - fit.loss(params, tokens + step)) / (2 * step)
    assert fit.velocity(tokens, per_usd) == pytest.approx(slope * per_usd, rel=1e-3)
    assert fit.loss(params, tokens * 2) < fit.loss(params, tokens) < fit.loss(params / 2, tokens)


@given(st.sampled_from(SCALING_CONSTANTS), st.floats(1e20, 1e26))
def test_the_best_split_of_a_budget_is_the_best(fit: Any, flops: float) -> None:
    ratio = fit.optimal_tokens_per_param(flops)

    def loss(tokens_per_param: float) -> float:
        params = math.sqrt(flops / 6 / tokens_per_param)
        return float(fit.loss(params, params * tokens_per_param))

    assert loss(ratio) <= min(loss(ratio * 1.5), loss(ratio / 1.5))


def test_tokens_of_a_dollar() -> None:
    found = tokens_per_usd(
        peak_flops_per_s=989.5e12, mfu_ratio=0.4, goodput_ratio=0.9, flops_per_token=6e9,
        usd_per_device_hour=2,
    )  # fmt: skip
    assert found == pytest.approx(3600 * 989.5e12 * 0.36 / 12e9)
    with pytest.raises(UserError, match="mfu_ratio"):
        tokens_per_usd(
            peak_flops_per_s=1, mfu_ratio=1.2, goodput_ratio=1, flops_per_token=1,
            usd_per_device_hour=1,
        )  # fmt: skip


def test_bits_per_byte() -> None:
    assert bits_per_byte(math.log(2), 100, 400) == pytest.approx(0.25)
    with pytest.raises(UserError, match="text_bytes"):
        bits_per_byte(1, 100, 0)


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=30), st.floats(0.5, 20))
def test_a_moving_average_stays_inside_its_values(values: list[float], half_life: float) -> None:
    smooth = ema(np.array(values), half_life)
    assert smooth[0] == pytest.approx(values[0])
    assert min(values) - 1e-9 <= smooth.min()
    assert smooth.max() <= max(values) + 1e-9


@pytest.mark.parametrize(
    ("call", "where"),
    [
        (lambda: learning_curve([1], [1.0], [-1]), "usd"),
        (lambda: learning_curve([1], [1.0, 2.0], [1]), "usd"),
        (lambda: marginal_velocity(decaying(20), method="mean"), "method"),
        (lambda: marginal_velocity(decaying(20), window_usd=0), "window_usd"),
        (lambda: marginal_velocity(decaying(100), replicates=0), "replicates"),
        (lambda: dollars_to_target(decaying(20), math.nan), "target_loss"),
        (lambda: ema(np.ones(3), 0), "half_life"),
        (lambda: fit_power_law([1, 2, 3], [1, 2, 3]), "baseline"),
        (lambda: fit_power_law([1, 1, 1, 1], [1, 2, 3, 4]), "baseline"),
        (lambda: fit_power_law([-1, 1, 2, 3], [1, 2, 3, 4]), "baseline"),
        (lambda: HOFFMANN.loss(0, 1), "params"),
        (lambda: HOFFMANN.velocity(0, 1), "tokens"),
    ],
)
def test_values_that_cannot_be_are_refused(call: Any, where: str) -> None:
    with pytest.raises(UserError) as caught:
        call()
    assert caught.value.where == where


def test_traps_belong_to_metrics_and_say_something() -> None:
    for key, trap in TRAPS.items():
        assert key == trap.id
        assert trap.text.endswith(".")
        assert trap.metrics
        assert all(trap in traps_of(metric) for metric in trap.metrics)
    assert [t.id for t in traps_of("busbw_gb_per_s")] == ["busbw-in-switch", "busbw-mean-of-sizes"]
    assert traps_of("no such metric") == ()


def test_the_numbers_in_the_traps_are_right() -> None:
    text = TRAPS["slowdown-is-not-waste"].text
    slowdown, waste = (float(x) / 100 for x in re.findall(r"([\d.]+) %", text))
    assert waste == pytest.approx(slowdown / (1 + slowdown), abs=5e-4)
    text = TRAPS["mfu-convention"].text
    share, seq_len = (float(x.replace(",", "")) for x in re.findall(r"\d[\d,]+\b", text)[:2])
    shape = ModelShape(
        layers=126, hidden=16384, ffn=53248, heads=128, kv_heads=8, vocab=128256, swiglu=True,
        seq_len=int(seq_len),
    )  # fmt: skip
    causal = flops_per_token(shape, Convention.MEGATRON).value
    full = flops_per_token(dataclasses.replace(shape, causal=False), Convention.MEGATRON).value
    assert causal is not None
    assert full is not None
    assert full / causal - 1 == pytest.approx(share / 100, abs=5e-3)
