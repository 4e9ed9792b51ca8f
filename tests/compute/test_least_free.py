"""Devices that were free at every moment."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.compute.fleet.least_free import least_free

stretch = st.tuples(st.integers(0, 12), st.integers(0, 12), st.integers(0, 5))


@given(st.lists(stretch, max_size=8), st.integers(0, 12), st.integers(0, 12))
def test_it_is_the_least_of_all_moments(
    rows: list[tuple[int, int, int]], first: int, last: int
) -> None:
    rows = [(min(a, b), max(a, b), n) for a, b, n in rows]
    start, end, gpus = (np.array([row[k] for row in rows], dtype=np.int64) for k in range(3))
    want = [sum(n for a, b, n in rows if a <= at < b) for at in range(first, last)]
    assert least_free(start, end, gpus, first, last) == min(want, default=0)
