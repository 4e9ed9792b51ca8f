"""Order statistics against printed tables, closed forms and simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.compute.stats import order_stats as o
from steptax.app.errors import UserError

M_N = {
    8: (1.4236, 0.6107),
    16: (1.7660, 0.5431),
    32: (2.0697, 0.4915),
    64: (2.3437, 0.4511),
    100: (2.5076, 0.4294),
    128: (2.5946, 0.4186),
    256: (2.8269, 0.3920),
    1024: (3.2482, 0.3508),
    4096: (3.6261, 0.3201),
    16384: (3.9714, 0.2963),
    100000: (4.3843, 0.2719),
}


@pytest.mark.parametrize("n", M_N)
def test_c12_normal_maximum(n: int) -> None:
    mean, sd = M_N[n]
    assert round(o.normal_max_mean(n), 4) == mean
    assert round(o.normal_max_sd(n), 4) == sd


@pytest.mark.parametrize(
    ("n", "mean"),
    [(1, 0.0), (2, 1 / math.sqrt(math.pi)), (3, 1.5 / math.sqrt(math.pi))],
)
def test_normal_maximum_equals_its_closed_forms(n: int, mean: float) -> None:
    assert o.normal_max_mean(n) == pytest.approx(mean, abs=1e-13)


def test_normal_maximum_of_a_million_lies_between_its_approximations() -> None:
    n = 1_000_000
    assert o.blom_max_mean(n) < o.normal_max_mean(n) < o.gumbel_max_mean(n)


@pytest.mark.parametrize(("n", "blom", "gumbel"), [(8, 0.007, 0.05), (16384, -0.004, 0.003)])
def test_approximations_miss_by_what_is_said_of_them(n: int, blom: float, gumbel: float) -> None:
    exact = o.normal_max_mean(n)
    assert o.blom_max_mean(n) / exact - 1 == pytest.approx(blom, abs=5e-4)
    assert o.gumbel_max_mean(n) / exact - 1 == pytest.approx(gumbel, abs=5e-3)


@pytest.mark.parametrize(
    ("sigma", "printed"),
    [
        (0.05, [1.0743, 1.1246, 1.1765, 1.1989, 1.2198]),
        (0.1, [1.1552, 1.2654, 1.3846, 1.4378, 1.4882]),
    ],
)
def test_c12_lognormal_maximum(sigma: float, printed: list[float]) -> None:
    sizes = (8, 64, 1024, 4096, 16384)
    assert [round(o.lognormal_order_mean(n, n, sigma), 4) for n in sizes] == printed


def test_c12_order_statistics_of_100() -> None:
    assert round(o.normal_order_mean(94, 100), 4) == 1.5080
    assert round(o.normal_order_mean(96, 100), 4) == 1.6872
    assert round(o.exponential_order_mean(94, 100), 4) == 2.7374
    assert round(o.exponential_order_mean(96, 100), 4) == 3.1040
    assert round(o.exponential_order_mean(100, 100), 4) == 5.1874


@pytest.mark.parametrize("sigma", [0.1, 1.0, 3.0])
def test_a_single_lognormal_has_its_mean(sigma: float) -> None:
    assert o.lognormal_order_mean(1, 1, sigma) == pytest.approx(math.exp(sigma**2 / 2), rel=1e-10)


@pytest.mark.parametrize("n", [5, 64])
@pytest.mark.parametrize("distribution", ["normal", "lognormal", "exponential"])
def test_maximum_against_simulation(n: int, distribution: str) -> None:
    cv, draws = 0.2, 20_000
    rng = np.random.default_rng(7)
    if distribution == "normal":
        sample = 1 + cv * rng.standard_normal((draws, n))
    elif distribution == "exponential":
        sample = 1 - cv + cv * rng.standard_exponential((draws, n))
    else:
        sigma = o.lognormal_sigma(cv)
        sample = np.exp(sigma * rng.standard_normal((draws, n)) - sigma**2 / 2)
    ordered = np.sort(sample, axis=1)
    for k in (n, n - 2):
        error = ordered[:, k - 1].std() / math.sqrt(draws)
        expected = o.standard_order_mean(k, n, cv, distribution)
        assert ordered[:, k - 1].mean() == pytest.approx(expected, abs=4 * error)


@given(st.integers(2, 100_000))
def test_maximum_grows_with_ranks(n: int) -> None:
    assert o.normal_max_mean(n) < o.normal_max_mean(n + max(1, n // 10))


@given(st.integers(1, 400), st.integers(1, 400))
def test_order_statistics_are_symmetric(a: int, b: int) -> None:
    k, n = min(a, b), max(a, b)
    assert o.normal_order_mean(k, n) == pytest.approx(-o.normal_order_mean(n - k + 1, n), abs=1e-9)


@given(st.integers(1, 60))
def test_order_statistics_average_to_the_mean(n: int) -> None:
    normal = [o.normal_order_mean(k, n) for k in range(1, n + 1)]
    exponential = [o.exponential_order_mean(k, n, 3.0) for k in range(1, n + 1)]
    assert sum(normal) == pytest.approx(0, abs=1e-9 * n)
    assert sum(exponential) == pytest.approx(3.0 * n)


def test_what_all_share_makes_nobody_wait() -> None:
    assert o.correlated_max_mean(10, 2, 1.0, 64) == 10
    assert o.correlated_max_mean(10, 2, 0.0, 64) == pytest.approx(10 + 2 * o.normal_max_mean(64))
    half = o.correlated_max_mean(0, 1, 0.75, 64)
    assert half == pytest.approx(0.5 * o.normal_max_mean(64))


def test_nested_maximum_against_simulation() -> None:
    rng = np.random.default_rng(3)
    draws, nodes, ranks = 8_000, 32, 8
    for node_sd, rank_sd in ((1.0, 0.5), (0.5, 1.0), (0.05, 1.0)):
        node = node_sd * rng.standard_normal((draws, nodes, 1))
        sample = (node + rank_sd * rng.standard_normal((draws, nodes, ranks))).max(axis=(1, 2))
        error = sample.std() / math.sqrt(draws)
        expected = o.nested_max_mean(nodes, ranks, node_sd, rank_sd)
        assert sample.mean() == pytest.approx(expected, abs=4 * error)
        simple = node_sd * o.normal_max_mean(nodes) + rank_sd * o.normal_max_mean(ranks)
        assert expected >= simple


@pytest.mark.parametrize(("node_sd", "rank_sd"), [(1.0, 1e-4), (1e-4, 1.0), (1.0, 0.0), (0.0, 1.0)])
def test_nested_maximum_meets_its_limits(node_sd: float, rank_sd: float) -> None:
    limit = o.normal_max_mean(128 * 8) if rank_sd > node_sd else o.normal_max_mean(128)
    assert o.nested_max_mean(128, 8, node_sd, rank_sd) == pytest.approx(limit, abs=5e-4)


def test_c12_chance_of_any_slow() -> None:
    assert round(o.any_slow_ratio(0.01, 100), 5) == 0.63397
    assert o.any_slow_ratio(0.01, 4096) == pytest.approx(1.0)
    assert o.any_slow_ratio(1e-18, 1000) == pytest.approx(1e-15)
    assert (o.any_slow_ratio(0.0, 5), o.any_slow_ratio(1.0, 5)) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("call", "where"),
    [
        (lambda: o.normal_max_mean(0), "ranks"),
        (lambda: o.normal_order_mean(5, 4), "k"),
        (lambda: o.exponential_order_mean(0, 4), "k"),
        (lambda: o.any_slow_ratio(1.5, 4), "slow_ratio"),
        (lambda: o.correlated_max_mean(1, 1, -0.1, 4), "correlation"),
        (lambda: o.nested_max_mean(4, 0, 1, 1), "ranks_per_node"),
        (lambda: o.nested_max_mean(4, 4, -1, 1), "node_sd, rank_sd"),
        (lambda: o.gumbel_max_mean(1), "ranks"),
        (lambda: o.standard_order_mean(1, 1, 0.1, "cauchy"), "distribution"),
    ],
)
def test_arguments_out_of_range_are_named(call: object, where: str) -> None:
    assert callable(call)
    with pytest.raises(UserError) as caught:
        call()
    assert caught.value.where == where
