"""Expected maximum, any slow rank, removing the worst."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.compute.calculators.any_slow import any_slow
from steptax.app.compute.calculators.expected_max import expected_max
from steptax.app.compute.calculators.remove_worst import remove_worst, remove_worst_ranks
from steptax.app.errors import UserError


def test_c12_any_slow() -> None:
    result = any_slow(ranks=100, slow_ratio=0.01)
    assert round(result.any_slow_ratio.value or 0, 5) == 0.63397
    assert result.expected_slow.value == pytest.approx(1)


@pytest.mark.parametrize(
    ("slow", "ranks", "printed"), [(6, 392, 1.53), (43, 107, 40.2), (16, 27, 59.3)]
)
def test_c09_share_of_slow_jobs(slow: int, ranks: int, printed: float) -> None:
    rate = any_slow(ranks=1, observed_ranks=ranks, observed_slow=slow).slow_ratio
    assert round(100 * (rate.value or 0), 2 if printed < 10 else 1) == printed
    assert rate.low is not None
    assert rate.high is not None
    # The exact interval: each end is where what was seen, or more extreme, has 2.5 %.
    at_high = sum(
        math.comb(ranks, k) * rate.high**k * (1 - rate.high) ** (ranks - k) for k in range(slow + 1)
    )
    at_low = sum(
        math.comb(ranks, k) * rate.low**k * (1 - rate.low) ** (ranks - k)
        for k in range(slow, ranks + 1)
    )
    assert (at_low, at_high) == pytest.approx((0.025, 0.025), rel=1e-6)


def test_none_seen_is_not_none() -> None:
    result = any_slow(ranks=4096, observed_ranks=512, observed_slow=0)
    assert result.slow_ratio.high == 3 / 512
    assert result.any_slow_ratio.high == pytest.approx(1 - (1 - 3 / 512) ** 4096)
    assert "0.0 % to >99.9 %" in result.sentence
    assert any_slow(ranks=2, observed_ranks=3, observed_slow=3).slow_ratio.high == 1


@pytest.mark.parametrize(
    "arguments",
    [
        {"ranks": 4},
        {"ranks": 4, "slow_ratio": 0.1, "observed_ranks": 4},
        {"ranks": 4, "observed_ranks": 4, "observed_slow": 5},
    ],
)
def test_any_slow_needs_one_way_of_saying_it(arguments: dict[str, float]) -> None:
    with pytest.raises(UserError):
        any_slow.run(arguments)


@given(st.floats(0, 1), st.integers(1, 10_000))
def test_any_slow_grows_with_ranks(p: float, n: int) -> None:
    few = any_slow.function(ranks=n, slow_ratio=p).any_slow_ratio.value
    more = any_slow.function(ranks=n + 1, slow_ratio=p).any_slow_ratio.value
    assert few is not None
    assert more is not None
    assert p - 1e-12 <= few <= more <= 1


def test_expected_max_of_a_normal_spread() -> None:
    result = expected_max(ranks=1024, cv_ratio=0.05, mean_ms=100, distribution="normal")
    assert round(result.slowdown.value or 0, 3) == 1.162
    assert result.expected_max_ms.value == pytest.approx(116.24, abs=0.005)
    assert result.tax_ratio.value == pytest.approx(1 - 1 / 1.16241, abs=1e-5)
    assert round(result.standard_max.value or 0, 4) == 3.2482
    assert result.slowdown.low is None


def test_expected_max_without_a_shape_is_a_band() -> None:
    result = expected_max(ranks=1024, cv_ratio=0.05)
    ends = [
        expected_max(ranks=1024, cv_ratio=0.05, distribution=shape).slowdown.value
        for shape in ("normal", "lognormal", "exponential")
    ]
    assert [result.slowdown.low, result.slowdown.high] == [ends[0], ends[2]]
    assert result.expected_max_ms.value is None
    assert result.warnings


def test_expected_max_without_a_spread_still_gives_the_score() -> None:
    result = expected_max(ranks=1)
    assert result.slowdown.value is None
    assert result.gumbel.value is None
    assert result.standard_max.value == pytest.approx(0, abs=1e-12)


def test_expected_max_with_what_is_shared() -> None:
    free = expected_max(ranks=64, cv_ratio=0.1, distribution="normal").slowdown.value
    tied = expected_max(
        ranks=64, cv_ratio=0.1, distribution="normal", correlation_ratio=0.75
    ).slowdown.value
    assert free is not None
    assert tied is not None
    assert tied - 1 == pytest.approx((free - 1) / 2)
    nested = expected_max(
        ranks=64, cv_ratio=0.1, ranks_per_node=8, node_share_ratio=0.5
    ).slowdown.value
    assert nested is not None
    assert 1 < nested < free


@pytest.mark.parametrize(
    ("extra", "where"),
    [
        ({"ranks_per_node": 8}, "ranks_per_node"),
        ({"ranks_per_node": 7, "node_share_ratio": 0.5}, "ranks_per_node"),
        (
            {"ranks_per_node": 8, "node_share_ratio": 0.5, "distribution": "lognormal"},
            "distribution",
        ),
    ],
)
def test_expected_max_node_arguments(extra: dict[str, object], where: str) -> None:
    with pytest.raises(UserError) as caught:
        expected_max.run({"ranks": 64, "cv_ratio": 0.1, **extra})
    assert caught.value.where == where


@given(st.integers(1, 5000), st.floats(0, 1), st.floats(0, 0.5))
def test_expected_max_grows_with_spread(ranks: int, cv: float, more: float) -> None:
    low = expected_max.function(ranks=ranks, cv_ratio=cv).slowdown.value
    high = expected_max.function(ranks=ranks, cv_ratio=cv + more).slowdown.value
    assert low is not None
    assert high is not None
    assert 1 - 1e-9 <= low <= high + 1e-9


TIMES = [100.0] * 60 + [120.0, 130.0, 150.0, 110.0]


def test_b5_2_remove_the_worst() -> None:
    result = remove_worst(times_ms=TIMES, worst=2, other_ms=20, usd_per_gpu_hour=2)
    assert result.step_before_ms.value == 170
    assert result.step_replaced_ms.value == pytest.approx(140)
    assert result.step_shrunk_ms.value == pytest.approx(20 + 120 * 64 / 62)
    assert result.recovered_ratio.value == pytest.approx(30 / 170)
    assert result.recovered_usd_per_day.value == pytest.approx(30 / 170 * 64 * 24 * 2)
    assert result.gpu_s_shrunk.value == pytest.approx(62 * 0.02 + 64 * 0.12)
    assert result.payback_d.value is None
    assert result.curve[0] == (0, 170, 170)
    assert len(result.curve) == 3


def test_b5_2_payback_and_its_absence() -> None:
    paid = remove_worst(times_ms=TIMES, worst=1, usd_per_gpu_hour=2, replacement_usd=1000)
    assert paid.payback_d.value == pytest.approx(
        1000 / (paid.recovered_usd_per_day.value or math.nan)
    )
    even = remove_worst(
        times_ms=[5.0, 5.0], worst=1, usd_per_gpu_hour=2, replacement_usd=10
    ).payback_d
    assert even.value is None
    assert "never" in (even.reason or "")
    unpriced = remove_worst(times_ms=TIMES, worst=1, replacement_usd=10)
    assert unpriced.recovered_usd_per_day.value is None
    assert unpriced.payback_d.value is None


def test_b5_2_replacements_vary_like_the_rest() -> None:
    """Exact expectation against drawing the replacements."""
    rng = np.random.default_rng(11)
    work = 100 + 10 * rng.standard_normal((40, 12))
    work[:, [2, 7]] += 60
    result = remove_worst_ranks(work, 2)
    assert set(result.ranks) == {2, 7}
    rest = np.delete(work, [2, 7], axis=1)
    mean = rest.mean(axis=1, keepdims=True)
    pool = (rest - mean).ravel()
    draws = np.array(
        [
            np.maximum(rest.max(axis=1), mean[:, 0] + rng.choice(pool, (40, 2)).max(axis=1)).mean()
            for _ in range(4000)
        ]
    )
    assert result.replaced == pytest.approx(draws.mean(), abs=4 * draws.std() / math.sqrt(4000))
    assert rest.max(axis=1).mean() < result.replaced < result.before


@given(st.lists(st.floats(0, 1e4), min_size=2, max_size=30).filter(lambda t: max(t) > 0))
def test_each_further_removal_helps_no_less_than_nothing(times: list[float]) -> None:
    work = np.array([times])
    steps = [remove_worst_ranks(work, k) for k in range(len(times))]
    for fewer, more in itertools.pairwise(steps):
        assert more.replaced <= fewer.replaced + 1e-9
        assert more.replaced <= more.shrunk + 1e-9
        assert more.before == fewer.before


def test_removing_everyone_is_refused() -> None:
    with pytest.raises(UserError) as caught:
        remove_worst(times_ms=[1.0, 2.0], worst=2)
    assert caught.value.where == "worst"
    with pytest.raises(UserError):
        remove_worst(times_ms=[0.0, 0.0], worst=1)
    with pytest.raises(UserError):
        remove_worst_ranks(np.array([[1.0, np.nan]]), 1)
