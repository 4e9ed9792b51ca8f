"""Interval arithmetic against sets of whole numbers."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.intervals import Spans, both, length_until, measure, minus, union, within

PAIRS = st.lists(st.tuples(st.integers(-30, 30), st.integers(-2, 15)), max_size=12)


def spans(pairs: list[tuple[int, int]]) -> Spans:
    start = np.array([a for a, _ in pairs], np.int64)
    return union(start, start + np.array([n for _, n in pairs], np.int64))


def points(found: Spans) -> set[int]:
    return {t for a, b in zip(*(x.tolist() for x in found), strict=True) for t in range(a, b)}


def covered(pairs: list[tuple[int, int]]) -> set[int]:
    return {t for a, n in pairs for t in range(a, a + n)}


@given(PAIRS)
def test_a_union_covers_what_any_covers_in_disjoint_ascending_stretches(
    pairs: list[tuple[int, int]],
) -> None:
    found = spans(pairs)
    assert points(found) == covered(pairs)
    assert measure(found) == len(covered(pairs))
    assert (found[1] > found[0]).all()
    assert (found[0][1:] > found[1][:-1]).all()


@given(PAIRS, PAIRS)
def test_difference_and_intersection_are_those_of_sets(
    one: list[tuple[int, int]], two: list[tuple[int, int]]
) -> None:
    a, b = spans(one), spans(two)
    assert points(minus(a, b)) == covered(one) - covered(two)
    assert points(both(a, b)) == covered(one) & covered(two)
    assert measure(minus(a, b)) + measure(both(a, b)) == measure(a)


@given(PAIRS, st.integers(-40, 40), st.integers(0, 40))
def test_within_cuts_and_length_until_counts(
    pairs: list[tuple[int, int]], start: int, length: int
) -> None:
    found = spans(pairs)
    inside = {t for t in covered(pairs) if start <= t < start + length}
    assert points(within(found, start, start + length)) == inside
    moments = np.arange(-45, 60)
    before = [sum(t < m for t in covered(pairs)) for m in moments.tolist()]
    assert length_until(found, moments).tolist() == before
