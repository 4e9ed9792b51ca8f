"""Backup workers, local SGD, garbage collection, sequence balancing."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.compute.calculators.backup_workers import backup_workers
from steptax.app.compute.calculators.gc_sync import gc_sync
from steptax.app.compute.calculators.local_sgd import local_sgd
from steptax.app.compute.calculators.sequence_balance import (
    equal_parts_tokens,
    fit_sequence_cost,
    longest_first,
    relative_costs,
    sequence_balance,
)
from steptax.app.compute.stats.order_stats import normal_max_mean, normal_order_mean
from steptax.app.errors import UserError


def test_b5_3_break_even_of_96_of_100() -> None:
    result = backup_workers(workers=96, backups=4)
    assert round(100 * (result.break_even_cv_ratio.value or 0), 2) == 5.55
    assert result.net_gain.value is None
    assert result.cost_factor.value == pytest.approx(100 / 96)
    assert result.dropped_ratio.value == 0.04
    assert "effective batch" in result.warnings[0]


@pytest.mark.parametrize("distribution", ["normal", "lognormal", "exponential"])
def test_b5_3_it_pays_exactly_above_the_break_even(distribution: str) -> None:
    even = backup_workers(workers=96, backups=4, distribution=distribution).break_even_cv_ratio
    assert even.value is not None
    for factor, pays in ((0.99, False), (1.01, True)):
        result = backup_workers(
            workers=96, backups=4, cv_ratio=even.value * factor, distribution=distribution
        )
        assert ((result.net_gain.value or 0) > 1) is pays
        assert ("does not pay" in result.sentence) is not pays


def test_b5_3_normalised_speedup_is_against_no_backups() -> None:
    result = backup_workers(workers=50, backups=3, cv_ratio=0.2)
    plain, waited = 1 + 0.2 * normal_max_mean(50), 1 + 0.2 * normal_order_mean(50, 53)
    assert result.normalised_speedup.value == pytest.approx(plain / waited * 50 / 53)


def test_b5_3_too_many_backups_never_pay() -> None:
    even = backup_workers(workers=1, backups=400, distribution="exponential").break_even_cv_ratio
    assert even.value is None
    assert "does not pay" in (even.reason or "")


@given(st.integers(2, 200), st.integers(1, 40), st.floats(0, 0.3))
def test_backups_never_slow_the_step(workers: int, backups: int, cv: float) -> None:
    result = backup_workers.function(workers=workers, backups=backups, cv_ratio=cv)
    assert (result.step_speedup.value or 0) >= 1 - 1e-9


@pytest.mark.parametrize(("every", "printed"), [(1, 1.162), (4, 1.081), (16, 1.041), (64, 1.020)])
def test_b5_5_local_sgd(every: int, printed: float) -> None:
    result = local_sgd(ranks=1024, cv_ratio=0.05, every_steps=every)
    assert round(result.slowdown.value or 0, 3) == printed


def test_b5_5_does_not_help_a_lasting_straggler() -> None:
    result = local_sgd(ranks=1024, cv_ratio=0.05, every_steps=10_000, persistent_ratio=0.2)
    assert result.slowdown.value == pytest.approx(1.2, abs=0.002)
    assert result.persistent_part.value == 0.2
    assert "0.200 stays" in result.sentence
    unknown = local_sgd(ranks=8, cv_ratio=0.05, every_steps=2)
    assert unknown.persistent_part.value is None
    assert unknown.step_ms.value is None


def test_b5_5_communication_is_shared_by_the_steps() -> None:
    result = local_sgd(ranks=1, cv_ratio=0.0, every_steps=5, mean_ms=100, comm_ms=50)
    assert result.step_ms.value == pytest.approx(110)
    assert result.step_speedup.value == pytest.approx(150 / 110)
    with pytest.raises(UserError) as caught:
        local_sgd(ranks=1, cv_ratio=0.0, every_steps=5, comm_ms=50)
    assert caught.value.where == "mean_ms"


@given(st.integers(1, 4096), st.floats(0, 1), st.integers(1, 500), st.floats(0, 2))
def test_meeting_less_often_never_slows(n: int, cv: float, every: int, lasting: float) -> None:
    now, later = (
        local_sgd.function(ranks=n, cv_ratio=cv, every_steps=h, persistent_ratio=lasting)
        for h in (every, every + 1)
    )
    assert (later.slowdown.value or 0) <= (now.slowdown.value or 0) + 1e-12
    assert (later.slowdown.value or 0) >= 1 + lasting - 1e-12


@pytest.mark.parametrize(("every", "printed"), [(50, 0.925), (100, 0.724), (500, 0.226)])
def test_b5_6_garbage_collection_apart(every: int, printed: float) -> None:
    result = gc_sync(pause_ms=1, every_steps=every, ranks=128)
    assert round(result.unsynchronised_ms.value or 0, 3) == printed
    assert result.synchronised_ms.value == pytest.approx(1 / every)
    assert result.step_speedup.value is None


def test_b5_6_garbage_collection_saves_what_differs() -> None:
    result = gc_sync(pause_ms=250, every_steps=500, ranks=128, step_ms=1000)
    assert result.saved_ms.value == pytest.approx(250 * (0.22606 - 0.002), abs=0.01)
    assert result.step_speedup.value == pytest.approx((1000 + 56.514) / 1000.5, abs=1e-4)


@given(st.floats(0.1, 1e4), st.integers(1, 1000), st.integers(1, 5000))
def test_pausing_together_never_costs_more(pause: float, every: int, ranks: int) -> None:
    result = gc_sync.function(pause_ms=pause, every_steps=every, ranks=ranks)
    assert (result.saved_ms.value or 0) >= -1e-9
    assert (result.unsynchronised_ms.value or 0) <= pause + 1e-9


def test_b5_7_length_of_equal_parts() -> None:
    assert round(equal_parts_tokens(7.504e9, 32, 4096), -3) == 57_000
    assert round(equal_parts_tokens(403.75e9, 126, 16384), -3) == 196_000


def test_b5_7_one_long_sequence_against_32_short_ones() -> None:
    long, short = relative_costs([32 * 1024, 1024], equal_parts_tokens(7.504e9, 32, 4096))
    assert round(float(long / (32 * short)), 2) == 1.54


def test_b5_7_balancing_what_was_dealt_in_turn() -> None:
    lengths = [4000, 100, 4000, 100, 4000, 100, 4000, 100]
    result = sequence_balance(lengths_tokens=lengths, ranks=2, equal_parts_tokens=1e9)
    assert result.imbalance_dealt.value == pytest.approx(4000 / 2050, rel=1e-4)
    assert result.imbalance_balanced.value == pytest.approx(1, rel=1e-4)
    assert result.step_speedup.value == pytest.approx(4000 / 2050, rel=1e-3)
    by_model = sequence_balance(
        lengths_tokens=lengths, ranks=2, parameters=8e9, layers=2, query_width=4
    )
    assert by_model.equal_parts_tokens.value == 1e9


COSTS = st.lists(st.floats(0.1, 100), min_size=1, max_size=6)


@given(COSTS, st.integers(1, 3))
def test_longest_first_keeps_grahams_bound(costs: list[float], ranks: int) -> None:
    best = min(
        np.bincount(placed, weights=costs, minlength=ranks).max()
        for placed in itertools.product(range(ranks), repeat=len(costs))
    )
    loads = longest_first(np.array(costs), ranks)
    assert loads.sum() == pytest.approx(sum(costs))
    assert best - 1e-9 <= loads.max() <= (4 / 3 - 1 / (3 * ranks)) * best + 1e-9


@given(st.lists(st.integers(1, 50_000), min_size=4, max_size=60), st.integers(1, 4))
def test_balancing_stays_between_its_bounds(lengths: list[int], ranks: int) -> None:
    result = sequence_balance.function(
        lengths_tokens=lengths, ranks=ranks, equal_parts_tokens=57_000
    )
    dealt, balanced, bound = (
        m.value or 0
        for m in (result.imbalance_dealt, result.imbalance_balanced, result.imbalance_bound)
    )
    assert 1 - 1e-9 <= bound <= balanced + 1e-9
    assert bound <= dealt + 1e-9
    assert balanced <= (4 / 3 - 1 / (3 * ranks)) * dealt + 1e-9


def test_cost_is_read_off_measured_work() -> None:
    rng = np.random.default_rng(4)
    tokens = rng.integers(1000, 50_000, 200).astype(float)
    squares = tokens * rng.integers(100, 20_000, 200)
    work = 0.5 * tokens + 2e-5 * squares + 700
    cost = fit_sequence_cost(tokens, squares, work + rng.normal(0, 10, 200))
    assert cost.us_per_token == pytest.approx(0.5, rel=0.01)
    assert cost.us_per_token_sq == pytest.approx(2e-5, rel=0.01)
    assert cost.fixed_us == pytest.approx(700, rel=0.05)
    assert cost.equal_parts_tokens == pytest.approx(25_000, rel=0.02)
    flat = fit_sequence_cost(tokens, squares, 0.5 * tokens)
    assert flat.equal_parts_tokens is None or flat.equal_parts_tokens > 1e9


def test_cost_cannot_be_read_off_equal_lengths() -> None:
    same = np.full(10, 4096.0)
    with pytest.raises(UserError):
        fit_sequence_cost(same, same**2, same)
    with pytest.raises(UserError):
        fit_sequence_cost(same[:2], same[:2], same[:2])


@pytest.mark.parametrize(
    "arguments",
    [
        {"lengths_tokens": [1, 2], "ranks": 3, "equal_parts_tokens": 10},
        {"lengths_tokens": [1, 2], "ranks": 1},
        {"lengths_tokens": [1, 2], "ranks": 1, "parameters": 1e9},
        {"lengths_tokens": [1, 2], "ranks": 1, "equal_parts_tokens": 10, "layers": 2},
        {"lengths_tokens": [], "ranks": 1, "equal_parts_tokens": 10},
        {"lengths_tokens": 5, "ranks": 1, "equal_parts_tokens": 10},
    ],
)
def test_sequences_and_cost_must_be_given(arguments: dict[str, object]) -> None:
    with pytest.raises(UserError):
        sequence_balance.run(arguments)
