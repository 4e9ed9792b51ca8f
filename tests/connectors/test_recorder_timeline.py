"""Every nanosecond of a step goes to exactly one bucket."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from steptax.connectors.recorder.timeline import (
    BUCKETS,
    COMM,
    COMPUTE,
    GC,
    HOST,
    INPUT,
    OTHER,
    Timeline,
)

BUCKET = st.integers(COMPUTE, OTHER)
MOVES = st.one_of(
    st.tuples(st.just("enter"), BUCKET),
    st.tuples(st.just("leave"), BUCKET),
    st.tuples(st.just("replace"), BUCKET),
    st.tuples(st.just("collect"), st.integers(0, 10_000)),
)


@given(st.lists(st.tuples(st.integers(0, 5_000), MOVES), max_size=40), st.integers(0, 100))
def test_parts_are_disjoint_and_add_up(
    moves: list[tuple[int, tuple[str, int]]], last_ns: int
) -> None:
    now = 1_000
    timeline = Timeline(now)
    timeline.begin(now)
    collected = 0
    for elapsed, (move, value) in moves:
        now += elapsed
        if move == "enter":
            timeline.enter(value, now)
        elif move == "leave":
            timeline.leave(value, now)
        elif move == "replace" and timeline.stack:
            timeline.replace(value, now)
        elif move == "collect":
            timeline.pause(now)
            now += value
            collected += value
            timeline.resume(now)
    now += last_ns
    assert timeline.end(now) == now - 1_000 == sum(timeline.spent_ns)
    assert min(timeline.spent_ns) >= 0
    assert timeline.spent_ns[GC] == collected


def test_the_inner_phase_is_taken_from_the_outer() -> None:
    timeline = Timeline(0)
    timeline.enter(COMPUTE, 10)
    timeline.enter(INPUT, 30)
    assert timeline.leave(INPUT, 35)
    assert timeline.leave(COMPUTE, 100)
    assert timeline.end(103) == 103
    spent = [0] * BUCKETS
    spent[COMPUTE], spent[INPUT], spent[HOST] = 85, 5, 13
    assert timeline.spent_ns == spent


def test_a_collection_is_taken_from_the_phase_it_fell_in() -> None:
    timeline = Timeline(0)
    timeline.enter(COMM, 0)
    timeline.pause(10)
    timeline.resume(17)
    timeline.leave(COMM, 20)
    timeline.end(20)
    assert (timeline.spent_ns[COMM], timeline.spent_ns[GC]) == (13, 7)


def test_a_collection_between_the_clock_and_the_switch_is_not_counted_twice() -> None:
    timeline = Timeline(0)
    timeline.enter(COMPUTE, 0)
    stamp = 100
    timeline.pause(104)  # runs after the stamp was read and before it is used
    timeline.resume(150)
    timeline.leave(COMPUTE, stamp)
    assert timeline.end(160) == 160
    assert timeline.spent_ns[COMPUTE] == 104
    assert timeline.spent_ns[GC] == 46
    assert timeline.spent_ns[HOST] == 10


def test_closing_an_outer_phase_closes_what_is_open_in_it() -> None:
    timeline = Timeline(0)
    timeline.enter(COMPUTE, 0)
    timeline.enter(INPUT, 10)
    assert not timeline.leave(COMPUTE, 30)
    assert timeline.stack == []
    assert not timeline.leave(INPUT, 31)
    timeline.end(40)
    assert (timeline.spent_ns[COMPUTE], timeline.spent_ns[INPUT]) == (10, 20)
    assert timeline.spent_ns[HOST] == 10


def test_a_resume_without_a_pause_changes_nothing() -> None:
    timeline = Timeline(0)
    timeline.enter(COMPUTE, 0)
    timeline.resume(5)
    timeline.pause(6)
    timeline.resume(7)
    timeline.enter(INPUT, 8)
    timeline.resume(9)
    timeline.end(20)
    assert timeline.spent_ns[COMPUTE] == 7
    assert timeline.spent_ns[GC] == 1
    assert timeline.spent_ns[INPUT] == 12
