"""Episodes: who was slow from when to when, and nobody who was not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steptax.app.compute.straggler.episodes import (
    crowded,
    excess_ratios,
    find_episodes,
    warm_up_steps,
)
from steptax.app.compute.straggler.rank_episodes import RankEpisode, beside_each_other
from steptax.app.compute.straggler.rules import EPISODE_RULES, EpisodeRules

STEPS, RANKS = 400, 16
UNTIMED = settings(max_examples=25)


def found(excess: np.ndarray, rules: EpisodeRules = EPISODE_RULES) -> list[RankEpisode]:
    return find_episodes(excess, np.full(len(excess), 1e6), rules)


def noise(seed: int, sd: float = 0.01, ranks: int = RANKS) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, sd, (STEPS, ranks))


@UNTIMED
@given(
    seed=st.integers(0, 10_000),
    first=st.integers(20, 250),
    length=st.integers(60, 140),
    size=st.floats(0.06, 0.8),
)
def test_a_slow_stretch_is_found_and_dated(seed: int, first: int, length: int, size: float) -> None:
    excess = noise(seed)
    excess[first : first + length, 3] += size
    (one,) = found(excess)
    assert one.column == 3
    assert abs(one.first - first) <= 4
    assert abs(one.last - (first + length - 1)) <= 4
    assert one.excess_ratio == pytest.approx(size, abs=0.012)
    assert one.first <= one.detected <= one.last
    assert one.is_open == (first + length >= STEPS - EPISODE_RULES.close_window_steps // 2 + 1)


@UNTIMED
@given(seed=st.integers(0, 10_000), sd=st.floats(0.001, 0.05))
def test_noise_is_no_episode(seed: int, sd: float) -> None:
    assert found(noise(seed, sd, 64)) == []


@UNTIMED
@given(seed=st.integers(0, 10_000))
def test_what_is_known_by_then_finds_what_is_known_later(seed: int) -> None:
    """The step of detection is honest: the steps up to it, and a few more, suffice."""
    excess = noise(seed)
    excess[200:, 5] += 0.12
    (whole,) = found(excess)
    (early,) = found(excess[: whole.detected + 5])
    assert early.column == 5
    assert whole.detected - 200 <= 20


def test_a_small_excess_takes_longer_to_see_than_a_large_one() -> None:
    seen = []
    for size in (0.06, 0.3):
        excess = noise(1)
        excess[100:300, 0] += size
        (one,) = found(excess)
        seen.append(one.detected - 100)
    assert seen[0] > seen[1]
    assert seen[1] <= 10


@pytest.mark.parametrize("size", [0.5, 20.0])
def test_single_spikes_open_nothing(size: float) -> None:
    excess = noise(2)
    excess[np.arange(30, STEPS, 40), 7] += size
    assert found(excess) == []


def test_two_stretches_near_each_other_are_one_and_far_ones_are_two() -> None:
    near, far = noise(3), noise(3)
    for excess, second in ((near, 190), (far, 300)):
        excess[100:170, 2] += 0.3
        excess[second : second + 70, 2] += 0.3
    assert [(e.column, e.first, e.last) for e in found(near)] == [(2, 100, 259)]
    assert [(e.first, e.last) for e in found(far)] == [(100, 169), (300, 369)]


def test_it_does_not_flap_around_the_opening_threshold() -> None:
    """Between the two thresholds an open episode stays open: that is what two are for."""
    excess = noise(4, 0.002)
    excess[100:150, 1] += 0.10
    excess[150:200, 1] += 0.028
    excess[200:250, 1] += 0.10
    assert len(found(excess)) == 1


def test_a_rank_that_is_fast_by_nature_is_slow_for_itself() -> None:
    excess = noise(5, 0.003)
    excess[:, 4] -= 0.03
    excess[200:300, 4] += 0.06
    (one,) = found(excess)
    assert (one.column, one.first, one.last) == (4, 200, 299)
    assert one.excess_ratio == pytest.approx(0.06, abs=0.005)


def test_a_rank_without_peers_is_held_against_its_past() -> None:
    rng = np.random.default_rng(6)
    work = 1e6 * (1 + rng.normal(0, 0.003, (STEPS, 3))) * np.array([1.0, 1.4, 0.8])
    work[250:, 1] *= 1.15
    stages = np.arange(3, dtype=np.int32)
    excess = excess_ratios(work, work.max(axis=1), stages)
    (one,) = find_episodes(excess, work.max(axis=1), EPISODE_RULES)
    assert one.column == 1
    assert abs(one.first - 250) <= 3


def test_compiling_steps_are_not_judged() -> None:
    step_us = np.full(STEPS, 1e6)
    step_us[:6] = 4e6
    assert warm_up_steps(step_us, EPISODE_RULES) == 6
    excess = noise(7, 0.003)
    excess[:6, 0] += 3.0
    assert find_episodes(excess, step_us, EPISODE_RULES) == []


def test_more_than_half_of_the_ranks_are_no_stragglers() -> None:
    some = [RankEpisode(c, 10, 19, 12, 0.2, 1.0, False) for c in range(5)]
    busy = crowded(some, 8, 30, EPISODE_RULES)
    assert busy[10:20].all()
    assert not busy[:10].any()
    assert not busy[20:].any()
    assert not crowded(some[:4], 8, 30, EPISODE_RULES).any()


def test_unreported_steps_are_no_excess() -> None:
    excess = noise(8)
    excess[50:350, 2] = np.nan
    assert found(excess) == []


def test_a_rank_that_is_slow_from_the_first_step_on_is_no_warm_up() -> None:
    """Every step is then long, but for what one rank is over its peers."""
    excess = noise(8, 0.003)
    excess[:100, 2] += 0.4
    step_us = 1e6 * (1 + excess.max(axis=1))
    (one,) = find_episodes(excess, step_us, EPISODE_RULES)
    assert (one.column, one.first, one.last) == (2, 0, 99)
    assert one.detected < 20


def test_the_first_burst_that_is_an_episode_by_itself_is_told_at_once() -> None:
    """The others come later, and make one finding of it; nobody has to wait for them."""
    excess = noise(9, 0.003)
    slow = np.flatnonzero(np.arange(STEPS) % 40 < 12)
    excess[slow[slow >= 80], 3] += 0.5
    (one,) = found(excess)
    assert one.again is not None
    assert one.again.stretches > 3
    assert 80 <= one.detected < 92


def test_what_is_told_first_of_two_views_of_a_rank_counts() -> None:
    def episode(first: int, last: int, detected: int) -> RankEpisode:
        return RankEpisode(1, first, last, detected, 0.3, 1.0, False)

    throughout, again = episode(10, 99, 60), episode(5, 120, 20)
    assert beside_each_other([throughout], [again]) == [replace(throughout, detected=20)]
    short = episode(50, 59, 58)
    assert beside_each_other([short], [episode(5, 120, 70)]) == [episode(5, 120, 58)]
    assert beside_each_other([episode(200, 240, 210)], [again]) == [again, episode(200, 240, 210)]
