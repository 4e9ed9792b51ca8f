"""Exact sums, also of what 64 bits cannot hold."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.compute.stats.exact import int_sum, int_sums

INT64 = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(st.tuples(st.integers(0, 3), INT64), max_size=30))
def test_sums_are_those_of_whole_numbers_whatever_their_size(rows: list[tuple[int, int]]) -> None:
    place = np.array([k for k, _ in rows], dtype=np.int64)
    values = np.array([value for _, value in rows], dtype=np.int64)
    assert int_sum(values) == sum(value for _, value in rows)
    want = [sum(value for k, value in rows if k == group) for group in range(4)]
    made = int_sums(place, values, 4)
    assert made.tolist() == want
    assert int_sums(np.zeros(4, dtype=np.int64), made, 1).tolist() == [sum(want)]
    assert int_sum(made) == sum(want)
