"""The split of the waiting is fair and complete."""

from __future__ import annotations

from itertools import permutations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from steptax.app.compute.straggler.blame import blame_us

#: How long an example takes says nothing about whether it is right.
UNTIMED = settings(suppress_health_check=[HealthCheck.too_slow])

ARRIVALS = arrays(
    np.float64,
    st.tuples(st.integers(1, 4), st.integers(1, 7)),
    elements=st.one_of(st.integers(-(10**6), 10**7).map(float), st.just(np.nan)),
)


@UNTIMED
@given(arrival=ARRIVALS)
def test_blame_adds_up_to_the_waiting_and_is_never_negative(arrival: np.ndarray) -> None:
    blame = blame_us(arrival)
    np.testing.assert_array_equal(np.isnan(blame), np.isnan(arrival))
    for charged, came in zip(blame, arrival, strict=True):
        here = came[~np.isnan(came)]
        waiting = (here.max() - here).sum() if len(here) else 0.0
        np.testing.assert_allclose(np.nansum(charged), waiting, rtol=1e-9, atol=1e-6)
        assert (charged[~np.isnan(charged)] >= 0).all()


@UNTIMED
@given(arrival=ARRIVALS, seed=st.integers(0, 99))
def test_blame_follows_the_rank_and_not_its_number(arrival: np.ndarray, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(arrival.shape[1])
    np.testing.assert_allclose(
        blame_us(arrival[:, order]), blame_us(arrival)[:, order], rtol=1e-9, atol=1e-6
    )


@settings(UNTIMED, max_examples=25)
@given(arrival=st.lists(st.integers(0, 1000), min_size=2, max_size=5))
def test_blame_is_the_shapley_value_of_the_waiting_game(arrival: list[int]) -> None:
    # The cost of a set of late ranks: what the others wait when only these are late and the rest
    # come with the first. The airport game is this cost in the order of the arrivals.
    n = len(arrival)
    ordered = sorted(arrival)
    step_cost = [k * (ordered[k] - ordered[k - 1]) for k in range(1, n)]

    def cost(coalition: frozenset[int]) -> float:
        latest = max((arrival[i] for i in coalition), default=ordered[0])
        return float(sum(c for k, c in enumerate(step_cost, start=1) if ordered[k] <= latest))

    value = np.zeros(n)
    orders = list(permutations(range(n)))
    for order in orders:
        before: frozenset[int] = frozenset()
        for rank in order:
            value[rank] += cost(before | {rank}) - cost(before)
            before |= {rank}
    np.testing.assert_allclose(
        blame_us(np.array([arrival], dtype=float))[0], value / len(orders), atol=1e-9
    )


def test_one_late_rank_bears_it_all_and_equals_share() -> None:
    np.testing.assert_array_equal(blame_us(np.array([[1.0, 1.0, 5.0]])), [[0.0, 0.0, 8.0]])
    np.testing.assert_array_equal(blame_us(np.array([[1.0, 5.0, 5.0]])), [[0.0, 2.0, 2.0]])


def test_no_reports_no_blame() -> None:
    assert blame_us(np.empty((0, 3))).shape == (0, 3)
    assert np.isnan(blame_us(np.full((2, 3), np.nan))).all()
