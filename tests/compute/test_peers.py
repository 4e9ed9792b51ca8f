"""The median of the others agrees with leaving each one out by hand."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from steptax.app.compute.stats.rows import (
    row_count,
    row_max,
    row_mean,
    row_min,
    row_quantile,
    row_sum,
)
from steptax.app.compute.straggler.peers import peer_median, peer_median_at

#: How long an example takes says nothing about whether it is right.
UNTIMED = settings(suppress_health_check=[HealthCheck.too_slow])

#: Few distinct values, so that ties are common, and gaps.
VALUES = arrays(
    np.float64,
    st.tuples(st.integers(1, 5), st.integers(1, 8)),
    elements=st.sampled_from([0.0, 1.0, 2.0, 2.5, 7.0, -3.0, np.nan]),
)


def by_hand(values: np.ndarray, groups: np.ndarray | None) -> np.ndarray:
    out = np.full(values.shape, np.nan)
    for s, i in np.ndindex(values.shape):
        same = np.ones(values.shape[1], dtype=bool) if groups is None else groups == groups[i]
        same[i] = False
        others = values[s, same]
        others = others[~np.isnan(others)]
        if len(others) and not np.isnan(values[s, i]):
            out[s, i] = np.median(others)
    return out


@UNTIMED
@given(values=VALUES)
def test_median_of_the_others(values: np.ndarray) -> None:
    np.testing.assert_array_equal(peer_median(values), by_hand(values, None))


@UNTIMED
@given(values=VALUES, seed=st.integers(0, 99))
def test_median_of_the_others_on_the_same_stage(values: np.ndarray, seed: int) -> None:
    groups = np.random.default_rng(seed).integers(0, 3, values.shape[1]).astype(np.int32)
    np.testing.assert_array_equal(peer_median(values, groups), by_hand(values, groups))


@UNTIMED
@given(values=VALUES, seed=st.integers(0, 99))
def test_some_cells_alone_have_the_same_median(values: np.ndarray, seed: int) -> None:
    dice = np.random.default_rng(seed)
    cells = tuple(dice.integers(0, size, 6) for size in values.shape)
    groups = dice.integers(0, 3, values.shape[1]).astype(np.int32)
    for own in (None, groups):
        found = peer_median_at(values, (cells[0], cells[1]), own)
        np.testing.assert_array_equal(found, peer_median(values, own)[cells])


@UNTIMED
@given(values=VALUES)
def test_reductions_leave_out_what_was_not_reported(values: np.ndarray) -> None:
    lists = [row[~np.isnan(row)] for row in values]
    np.testing.assert_array_equal(row_count(values), [len(x) for x in lists])
    np.testing.assert_array_equal(row_sum(values), [x.sum() for x in lists])
    for function, reference in (
        (row_max, np.max),
        (row_min, np.min),
        (row_mean, np.mean),
        (lambda v: row_quantile(v, 0.95)[0], lambda x: np.quantile(x, 0.95)),
        (lambda v: row_quantile(v, 0.1, 0.5)[1], np.median),
    ):
        wanted = [reference(x) if len(x) else np.nan for x in lists]
        np.testing.assert_allclose(function(values), wanted, rtol=1e-12)
