"""Quantiles from counts by bins, against the numbers themselves."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from steptax.app.compute.stats.bins import ERROR_RATIO, Bins, edges, quantiles
from steptax.app.errors import UserError
from tests.own_bins import bin_of

#: Of every size, and close together as the work of ranks is.
_number = st.integers(0, 44).flatmap(lambda bits: st.integers(0, (1 << bits) - 1))
_numbers = st.lists(_number | st.integers(400_000, 440_000), min_size=1, max_size=60)


def bins_of(groups: dict[int, list[int]]) -> Bins:
    counts = Counter((g, bin_of(v)) for g, values in groups.items() for v in values)
    rows = np.array([(g, b, n) for (g, b), n in sorted(counts.items())], dtype=np.int64)
    return Bins(*rows.T)


@given(st.integers(0, bin_of(1 << 44) - 1))
def test_bins_lie_side_by_side(number: int) -> None:
    low, high = edges(np.array([number, number + 1]))
    assert low[1] == high[0] + 1
    assert {bin_of(int(low[0])), bin_of(int(high[0]))} == {number}
    # The promise about the error is one about every bin.
    assert (high[0] - low[0]) / 2 <= ERROR_RATIO * low[0]


@given(
    st.dictionaries(st.integers(0, 9), _numbers, min_size=1),
    st.floats(0, 1) | st.sampled_from([0.0, 0.5, 0.95, 1.0]),
)
@example({0: [255, 256], 3: [(1 << 44) - 1, 0]}, 0.5)
def test_a_quantile_is_within_its_error(groups: dict[int, list[int]], ratio: float) -> None:
    found = quantiles(bins_of(groups), ratio)
    assert found.group.tolist() == sorted(groups)
    assert found.count.tolist() == [len(groups[g]) for g in sorted(groups)]
    exact = np.array([np.quantile(groups[g], ratio) for g in sorted(groups)])
    # A straight line between two numbers rounds its last digit.
    last = 1e-12 * exact
    assert np.all(np.abs(found.value - exact) <= ERROR_RATIO * exact + last)
    assert np.all((found.low <= exact + last) & (exact <= found.high + last))


@given(st.lists(st.integers(0, 255), min_size=1), st.floats(0, 1))
def test_small_numbers_are_exact(values: list[int], ratio: float) -> None:
    found = quantiles(bins_of({0: values}), ratio)
    assert found.value[0] == pytest.approx(np.quantile(values, ratio), abs=1e-9)
    assert found.low == found.value == found.high


@given(st.lists(_numbers, min_size=1, max_size=5), st.randoms())
def test_parts_together_are_the_whole_in_any_order(
    parts: list[list[int]], shuffled: random.Random
) -> None:
    whole = bins_of({0: [value for part in parts for value in part]})
    shuffled.shuffle(parts)
    found = bins_of(dict(enumerate(parts))).together()
    for ours, theirs in zip(vars(found).values(), vars(whole).values(), strict=True):
        assert ours.tolist() == theirs.tolist()


def test_of_nothing_there_is_none_and_a_share_beyond_one_is_refused() -> None:
    none = np.zeros(0, dtype=np.int64)
    assert len(quantiles(Bins(none, none, none), 0.5).value) == 0
    for ratio in (-0.1, 1.1, float("nan")):
        with pytest.raises(UserError, match="share from 0 to 1"):
            quantiles(bins_of({0: [1]}), ratio)
