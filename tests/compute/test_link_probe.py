"""Slow ranks and slow links from probes of a ring."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.compute.collectives.link_probe import LinkFindings, judge_links

Time = Callable[[int, int], float]


def probes(
    ranks: int, count: int, time_us: Time, seed: int = 0, noise: float = 0.1
) -> LinkFindings:
    """What is found where link (a, b) takes ``time_us``; noise as on the ranks' own clocks."""
    return judge_links(columns(ranks, count, time_us, seed, noise), {})


def columns(
    ranks: int, count: int, time_us: Time, seed: int = 0, noise: float = 0.1
) -> dict[str, np.ndarray]:
    dice = np.random.default_rng(seed)
    rows = []
    for step in range(100, 100 * (count + 1), 100):
        for a in range(ranks if ranks > 2 else 1):
            b = (a + 1) % ranks
            took = time_us(min(a, b), max(a, b)) * (1 + noise * dice.random())
            rows += [(0, step, a, b, took), (0, step, b, a, took * (1 + 0.01 * dice.random()))]
    names = ("attempt", "step", "rank", "peer", "duration_us")
    table = np.array(rows).round().astype(np.int64)
    return {name: table[:, k] for k, name in enumerate(names)}


@given(st.integers(3, 24), st.integers(0, 23), st.floats(2.0, 50.0), st.integers(0, 99))
def test_a_rank_that_is_slow_on_both_links_is_named(
    ranks: int, place: int, factor: float, seed: int
) -> None:
    slow = place % ranks
    found = probes(ranks, 5, lambda a, b: 1000 * (factor if slow in (a, b) else 1.0), seed)
    assert [one.ranks for one in found.ranks] == [(slow,)]
    assert found.links == ()
    [named] = found.ranks
    assert named.is_rank
    assert (named.probes, named.slow_probes, named.first_step) == (5, 5, 100)
    assert len(named.links) == 2
    assert all(slow in link for link, _ in named.links)
    assert named.saved_ratio == pytest.approx(1 - 1 / factor, abs=0.11)


@given(st.integers(4, 24), st.integers(0, 23), st.floats(2.0, 50.0), st.integers(0, 99))
def test_a_slow_link_accuses_neither_of_its_ends(
    ranks: int, place: int, factor: float, seed: int
) -> None:
    a, b = sorted((place % ranks, (place + 1) % ranks))
    found = probes(ranks, 5, lambda p, q: 1000 * (factor if (p, q) == (a, b) else 1.0), seed)
    assert found.ranks == ()
    assert [one.ranks for one in found.links] == [(a, b)]
    assert not found.links[0].is_rank


@given(st.integers(3, 24), st.floats(1.0, 1e6), st.integers(0, 99))
def test_a_network_that_is_slow_for_all_accuses_nobody(
    ranks: int, time_us: float, seed: int
) -> None:
    found = probes(ranks, 5, lambda a, b: 10 + time_us, seed)
    assert (found.ranks, found.links, found.reason) == ((), (), None)


def test_a_busy_processor_is_no_slow_link() -> None:
    # Every third exchange takes 2 to 20 times as long, on any link.
    accused = 0
    for seed in range(200):
        dice = np.random.default_rng(seed)

        def took(a: int, b: int, dice: np.random.Generator = dice) -> float:
            return 1000 * (dice.uniform(2, 20) if dice.random() < 1 / 3 else 1.0)

        found = probes(4, 8, took, seed)
        accused += bool(found.ranks) + bool(found.links)
    assert accused <= 2


def test_links_between_hosts_are_compared_with_their_like() -> None:
    hosts = {rank: f"node-{rank // 4}" for rank in range(12)}

    def between(a: int, b: int) -> float:
        return 9000.0 if hosts[a] != hosts[b] else 1000.0

    assert judge_links(columns(12, 5, between), hosts).ranks == ()
    assert judge_links(columns(12, 5, between), hosts).links == ()
    # One rank to a node: both of its links are between hosts, and none is like another's.
    alone = {0: "a", 1: "b", 2: "b", 3: "b", 4: "b"}
    found = judge_links(columns(5, 5, lambda a, b: 9000.0 if a == 0 else 1000.0), alone)
    assert found.ranks == ()


def test_two_slow_ranks_side_by_side_are_both_named() -> None:
    found = probes(8, 5, lambda a, b: 5000.0 if {a, b} & {2, 3} else 1000.0)
    assert sorted(one.ranks[0] for one in found.ranks) == [2, 3]


def test_what_cannot_be_told_says_why() -> None:
    two = probes(2, 5, lambda a, b: 1000.0)
    assert two.ranks == two.links == ()
    assert "no other link" in str(two.reason)
    few = probes(4, 3, lambda a, b: 5000.0 if 2 in (a, b) else 1000.0)
    assert few.ranks == ()
    assert "3 link probes are too few" in str(few.reason)
