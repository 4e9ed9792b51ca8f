"""Layers of labelled time behave as if every microsecond were painted by hand."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steptax.app.compute.bill.segments import (
    EMPTY,
    Segments,
    add_up,
    covered_us,
    cut,
    in_order,
    ints,
    one,
    over,
    stack,
)

#: How long an example takes says nothing about whether it is right.
UNTIMED = settings(suppress_health_check=[HealthCheck.too_slow])

END = 24
SPANS = st.lists(
    st.tuples(st.integers(0, END - 1), st.integers(0, END), st.integers(1, 3)), max_size=6
)


def layers(spans: list[tuple[int, int, int]]) -> list[Segments]:
    return [one(*span) for span in spans]


def painted(spans: list[tuple[int, int, int]]) -> list[int]:
    canvas = [0] * END
    for start, end, label in spans:
        for t in range(start, end):
            canvas[t] = label
    return canvas


def read(segments: Segments) -> list[int]:
    assert (segments.end_us > segments.start_us).all()
    assert (segments.start_us[1:] >= segments.end_us[:-1]).all()
    return painted(
        list(
            zip(
                segments.start_us.tolist(),
                segments.end_us.tolist(),
                segments.label.tolist(),
                strict=True,
            )
        )
    )


@settings(UNTIMED, max_examples=200)
@given(spans=SPANS)
def test_a_stack_is_what_lies_on_top(spans: list[tuple[int, int, int]]) -> None:
    found = stack(layers(spans))
    assert read(found) == painted(spans)
    touching = found.start_us[1:] == found.end_us[:-1]
    assert not (touching & (found.label[1:] == found.label[:-1])).any()
    assert found.total_us == sum(label > 0 for label in painted(spans))


@settings(UNTIMED, max_examples=100)
@given(first=SPANS, second=SPANS)
def test_cutting_keeps_where_both_are(
    first: list[tuple[int, int, int]], second: list[tuple[int, int, int]]
) -> None:
    kept, other = cut(stack(layers(first)), stack(layers(second)))
    one_way, two_way = painted(first), painted(second)
    both = [a if b else 0 for a, b in zip(one_way, two_way, strict=True)]
    assert read(kept) == both
    assert read(Segments(kept.start_us, kept.end_us, other)) == [
        b if a else 0 for a, b in zip(one_way, two_way, strict=True)
    ]


@settings(UNTIMED, max_examples=100)
@given(spans=SPANS)
def test_amounts_that_overlap_add_up(spans: list[tuple[int, int, int]]) -> None:
    canvas = [0] * END
    for start, end, amount in spans:
        for t in range(start, end):
            canvas[t] += amount
    assert read(add_up(spans)) == canvas


@settings(UNTIMED, max_examples=100)
@given(spans=SPANS, asked=st.tuples(st.integers(-3, END + 3), st.integers(0, 9)))
def test_cover_counts_the_painted_time(
    spans: list[tuple[int, int, int]], asked: tuple[int, int]
) -> None:
    start, length = asked
    canvas = painted(spans)
    inside = sum(canvas[t] > 0 for t in range(max(start, 0), min(start + length, END)))
    found = covered_us(stack(layers(spans)), ints([start]), ints([start + length]))
    assert found.tolist() == [inside]


def test_stretches_that_follow_end_where_the_next_begins() -> None:
    found = in_order(ints([0, 5, 5, 9]), ints([7, 6, 8, 12]), ints([1, 2, 3, 1]))
    assert list(zip(found.start_us, found.end_us, found.label, strict=True)) == [
        (0, 5, 1),
        (5, 8, 3),
        (9, 12, 1),
    ]


def test_nothing_is_a_layer_too() -> None:
    some = one(1, 3, 1)
    assert over(EMPTY, some) is some
    assert over(some, EMPTY) is some
    assert one(3, 3, 1) is EMPTY
    assert len(stack([])) == len(add_up([])) == len(in_order(ints([]), ints([]), ints([]))) == 0
    kept, other = cut(some, EMPTY)
    assert len(kept) == len(other) == 0
    assert covered_us(EMPTY, ints([0]), ints([9])).tolist() == [0]
    assert isinstance(over(some, one(4, 5, 1)).start_us, np.ndarray)
