"""Checkpoints, failures, spares."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.compute.calculators.checkpoint_interval import checkpoint_interval
from steptax.app.compute.calculators.failures import failures
from steptax.app.compute.calculators.hot_spares import hot_spares, spares_needed
from steptax.app.compute.fleet.checkpointing import (
    best_interval_s,
    daly_high_order_interval_s,
    daly_interval_s,
    useful_ratio,
)
from steptax.app.errors import UserError


@pytest.mark.parametrize(
    ("delta", "mtbf", "restart", "printed"),
    [
        (60, 10800, 60, (1138.42, 1078.42, 1098.77, 1098.78, 0.89328)),
        (300, 11135.08, 600, (2584.77, 2284.77, 2388.64, 2388.76, 0.74427)),
    ],
)
def test_c12_checkpoint_intervals(
    delta: float, mtbf: float, restart: float, printed: tuple[float, ...]
) -> None:
    result = checkpoint_interval(checkpoint_s=delta, mtbf_s=mtbf, restart_s=restart)
    shown = (
        round(result.young_s.value or 0, 2),
        round(result.daly_s.value or 0, 2),
        round(result.daly_high_order_s.value or 0, 2),
        round(result.best_interval_s.value or 0, 2),
        round(result.useful_at_best_ratio.value or 0, 5),
    )
    assert shown == printed


def test_b5_8_wall_time_against_simulation() -> None:
    """Segments of tau + delta, failures at rate 1/M, each followed by a restart that can fail."""
    rng = np.random.default_rng(6)
    tau, delta, mtbf, restart, segments = 900.0, 60.0, 3000.0, 200.0, 20_000
    walls = np.zeros(segments)
    open_ = np.arange(segments)
    need = np.full(segments, tau + delta)
    while open_.size:
        life = rng.exponential(mtbf, open_.size)
        done = life >= need[open_]
        walls[open_] += np.where(done, need[open_], life)
        # After a failure the restart is part of what must be survived.
        open_ = open_[~done]
        need[open_] = restart + tau + delta
    simulated = tau / walls.mean()
    error = walls.std() / math.sqrt(segments) / walls.mean() * simulated
    # The closed form charges the restart of the first segment too: e^(R/M) on all, not on retries.
    first = mtbf * math.expm1((tau + delta) / mtbf)
    retries = math.expm1((tau + delta) / mtbf)
    own = tau / (first + retries * mtbf * math.expm1(restart / mtbf))
    assert simulated == pytest.approx(own, abs=4 * error)
    assert useful_ratio(tau, delta, mtbf, restart) == pytest.approx(own, rel=1e-12)


@given(st.floats(1, 3000), st.floats(100, 1e6), st.floats(0, 3000))
def test_b5_8_best_interval_is_best(delta: float, mtbf: float, restart: float) -> None:
    best = best_interval_s(delta, mtbf)
    at_best = useful_ratio(best, delta, mtbf, restart)
    for factor in (0.5, 0.9, 1.1, 2.0):
        assert useful_ratio(best * factor, delta, mtbf, restart) <= at_best * (1 + 1e-9)
    assert 0 <= at_best < 1


@given(st.floats(1e-6, 10), st.floats(1e4, 1e7))
def test_b5_8_forms_meet_where_saves_are_cheap(delta: float, mtbf: float) -> None:
    best = best_interval_s(delta, mtbf)
    assert daly_high_order_interval_s(delta, mtbf) == pytest.approx(best, rel=1e-3)


def test_b5_8_best_interval_is_smooth_where_the_formula_changes() -> None:
    below, above = best_interval_s(0.999e-9, 1.0), best_interval_s(1.001e-9, 1.0)
    assert below / above == pytest.approx(math.sqrt(0.999 / 1.001), rel=1e-4)


def test_b5_8_saves_longer_than_the_time_between_failures() -> None:
    assert daly_interval_s(500, 100) is None
    assert daly_high_order_interval_s(500, 100) == 100
    result = checkpoint_interval(checkpoint_s=500, mtbf_s=100, restart_s=0)
    assert result.daly_s.value is None
    assert result.daly_s.reason
    assert useful_ratio(1e6, 1, 1, 0) == 0.0


def test_b5_8_background_saves_lose_what_was_not_durable() -> None:
    plain = checkpoint_interval(checkpoint_s=5, mtbf_s=10800, restart_s=60, interval_s=600)
    slow = checkpoint_interval(
        checkpoint_s=5, mtbf_s=10800, restart_s=60, interval_s=600, write_s=500
    )
    assert plain.best_interval_s.value == pytest.approx(best_interval_s(5, 10800))
    assert slow.best_interval_s.value == 500
    assert slow.lost_per_failure_s.value == pytest.approx(250 + 500 + 60)
    assert slow.useful_at_interval_ratio.value == pytest.approx(useful_ratio(600, 5, 10800, 560))
    with pytest.raises(UserError) as caught:
        checkpoint_interval(checkpoint_s=5, mtbf_s=10800, restart_s=60, interval_s=60, write_s=500)
    assert caught.value.where == "interval_s"


def test_b5_8_the_larger_part_of_a_failure_is_named() -> None:
    assert (
        "larger part is lost work"
        in checkpoint_interval(checkpoint_s=60, mtbf_s=10800, restart_s=60).sentence
    )
    assert (
        "larger part is the restart"
        in checkpoint_interval(checkpoint_s=1, mtbf_s=1000, restart_s=600).sentence
    )


@given(st.floats(1, 1000), st.floats(100, 1e6), st.floats(0, 1000), st.floats(1, 10))
def test_b5_8_rarer_failures_leave_more_useful(
    delta: float, mtbf: float, restart: float, more: float
) -> None:
    def useful(m: float) -> float:
        result = checkpoint_interval.function(checkpoint_s=delta, mtbf_s=m, restart_s=restart)
        return result.useful_at_best_ratio.value or 0.0

    assert useful(mtbf * more) >= useful(mtbf) - 1e-12


@pytest.mark.parametrize("bad", [(0, 1), (1, 0), (-1, 1)])
def test_useful_ratio_refuses(bad: tuple[float, float]) -> None:
    with pytest.raises(UserError):
        useful_ratio(bad[0], 1, bad[1], 0)


@pytest.mark.parametrize(("gpus", "minutes"), [(16_384, 185.6), (100_000, 30.4), (1_000_000, 3.04)])
def test_b5_8_failures_scale_with_gpus(gpus: int, minutes: float) -> None:
    result = failures(gpus=gpus, observed_failures=419, observed_h=54 * 24, observed_gpus=16_384)
    assert 60 * (result.mtbf_h.value or 0) == pytest.approx(minutes, abs=0.05)
    assert round(result.mtbf_gpu_h.value or 0) == 50_677
    assert result.mtbf_h.low is not None
    assert result.mtbf_h.high is not None
    assert result.mtbf_h.low < (result.mtbf_h.value or 0) < result.mtbf_h.high
    assert "independent" in result.warnings[0]


def test_b5_8_planned_interruptions_count_too() -> None:
    result = failures(gpus=16_384, observed_failures=466, observed_h=1296, observed_gpus=16_384)
    assert result.mtbf_h.value == pytest.approx(2.781, abs=5e-4)


def test_b5_8_no_failure_seen_gives_a_bound_and_no_value() -> None:
    result = failures(gpus=64, observed_failures=0, observed_h=100, observed_gpus=64, run_h=100)
    assert result.mtbf_h.value is None
    assert result.mtbf_h.low == pytest.approx(100 / -math.log(0.05))
    assert result.no_failure_ratio.low == pytest.approx(0.05)
    assert "at least" in result.sentence
    assert result.expected_failures.warnings


def test_b5_8_cost_of_failures() -> None:
    result = failures(
        gpus=1000, mtbf_gpu_h=50_000, run_h=500, lost_per_failure_s=1800, usd_per_gpu_hour=2
    )
    assert result.expected_failures.value == pytest.approx(10)
    assert result.failures_per_day.value == pytest.approx(0.48)
    assert result.no_failure_ratio.value == pytest.approx(math.exp(-10))
    assert result.lost_gpu_hours.value == pytest.approx(5000)
    assert result.lost_usd.value == pytest.approx(10_000)
    bare = failures(gpus=1000, mtbf_gpu_h=50_000)
    assert bare.no_failure_ratio.value is None
    assert bare.lost_gpu_hours.value is None
    assert bare.lost_usd.value is None


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        ({"gpus": 8}, "observed_failures"),
        ({"gpus": 8, "observed_failures": 1, "mtbf_gpu_h": 5}, "observed_failures"),
        ({"gpus": 8, "observed_failures": 1, "observed_gpus": 8}, "observed_h"),
        ({"gpus": 8, "observed_failures": 1, "observed_h": 8}, "observed_gpus"),
    ],
)
def test_failures_need_a_rate(arguments: dict[str, float], where: str) -> None:
    with pytest.raises(UserError) as caught:
        failures.run(arguments)
    assert caught.value.where == where


@pytest.mark.parametrize(("repair_h", "printed"), [(4, 5), (24, 15), (72, 35)])
def test_b5_9_spares(repair_h: float, printed: int) -> None:
    assert hot_spares(failures_per_h=0.3233, repair_h=repair_h).spares.value == printed


def test_b5_9_cost_against_benefit() -> None:
    result = hot_spares(failures_per_h=0.3233, repair_h=24, nodes=2048, requeue_s=1800, swap_s=120)
    assert result.cost_ratio.value == pytest.approx(15 / 2048)
    assert result.benefit_ratio.value == pytest.approx(1680 / 3600 * 0.3233)
    assert result.net_ratio.value == pytest.approx(1680 / 3600 * 0.3233 - 15 / 2048)
    assert hot_spares(failures_per_h=1, repair_h=1).net_ratio.value is None
    with pytest.raises(UserError) as caught:
        hot_spares(failures_per_h=1, repair_h=1, requeue_s=10, swap_s=11)
    assert caught.value.where == "swap_s"


@given(st.floats(0, 5), st.floats(0, 100), st.floats(0.01, 0.9999))
def test_b5_9_spares_are_the_smallest_that_cover(
    rate: float, repair: float, coverage: float
) -> None:
    mean = rate * repair
    spares = spares_needed(rate, repair, coverage)

    def covered(s: int) -> float:
        logs = (
            [k * math.log(mean) - mean - math.lgamma(k + 1) for k in range(s + 1)] if mean else []
        )
        return math.fsum(map(math.exp, logs)) if mean else 1.0

    assert covered(spares) >= coverage - 1e-9
    assert spares == 0 or covered(spares - 1) < coverage + 1e-9
