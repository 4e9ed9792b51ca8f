"""A rank that is slow again and again is named with its duty cycle; one in turns is not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from steptax.app.compute.causes.diagnose import Evidence, diagnose
from steptax.app.compute.causes.model import Scope
from steptax.app.compute.straggler import recurring
from steptax.app.compute.straggler.analysis import analyse_stragglers
from steptax.app.compute.straggler.recurring import (
    Recurrence,
    first_told,
    goes_on,
    recurrence,
    usual_steps,
)
from steptax.app.compute.straggler.result import Kind
from steptax.app.compute.straggler.rules import RECURRING_RULES
from steptax.app.compute.straggler.steps import StepMatrix, build_matrix

STEPS, RANKS, SLOW = 400, 16, 7
UNTIMED = settings(max_examples=10)


def matrix_of(work: np.ndarray) -> StepMatrix:
    """Work [S, R] in seconds, a barrier, and 50 ms of transfer."""
    steps, ranks = work.shape
    length = np.broadcast_to(work.max(axis=1)[:, None] + 0.05, work.shape)
    columns = {"duration_us": length, "compute_us": work, "comm_us": length - work}
    return build_matrix(
        {
            "step": np.repeat(np.arange(steps), ranks),
            "rank": np.tile(np.arange(ranks), steps),
            **{name: values.ravel() * 1e6 for name, values in columns.items()},
        },
        world_size=ranks,
    )


def healthy(seed: int, steps: int = STEPS, sd: float = 0.03) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.exp(rng.normal(0, 0.008, RANKS)) * rng.lognormal(0, sd, (steps, RANKS))


def slow_steps(pattern: str, duty: float, seed: int) -> np.ndarray:
    steps = np.arange(STEPS)
    if pattern == "random":
        return np.random.default_rng(seed + 1).random(STEPS) < duty
    if pattern == "periodic":
        return steps % max(2, round(1 / duty)) == 0
    return steps % round(10 / duty) < 10


@UNTIMED
@given(
    seed=st.integers(0, 1000),
    pattern=st.sampled_from(["random", "periodic", "bursts"]),
    duty=st.floats(0.12, 0.45),
    size=st.floats(0.5, 1.5),
)
def test_a_rank_that_comes_and_goes_is_named_with_its_duty(
    seed: int, pattern: str, duty: float, size: float
) -> None:
    there = slow_steps(pattern, duty, seed)
    work = healthy(seed)
    work[there, SLOW] *= 1 + size
    matrix = matrix_of(work)
    result = analyse_stragglers(matrix)
    assert (result.verdict.kind, result.verdict.ranks) == (Kind.WORKER, (SLOW,))
    assert "different rank" not in result.verdict.text
    (one,) = (f for f in diagnose(matrix, result, Evidence()).findings if f.scope is Scope.RANKS)
    assert one.ranks == (SLOW,)
    # Chance may give a beginning in which it is slow more seldom.
    is_prompt = one.first_step <= np.flatnonzero(there)[0] + 10 / there.mean()
    assert is_prompt or (there[: one.first_step].mean() < 0.75 * there[one.first_step :].mean())
    # With those in which chance makes it so, it may be slow in most steps.
    assert result.ranks is not None
    assert one.in_steps is not None or result.ranks.persistence_ratio[SLOW] >= 0.5
    if one.in_steps is not None:
        assert one.in_steps[0] / one.in_steps[1] == pytest.approx(
            there[one.first_step : one.last_step + 1].mean(), abs=0.06
        )
        assert one.excess_ratio == pytest.approx(size / 1.05, rel=0.15)


@pytest.mark.parametrize(("seed", "duty", "size"), [(3, 0.4453125, 1.0), (94, 0.447, 0.765)])
def test_bursts_that_are_most_of_the_steps_are_dated_as_a_whole(
    seed: int, duty: float, size: float
) -> None:
    """A single one of the bursts stood out enough to be an episode: it is not all that there is."""
    there = slow_steps("bursts", duty, seed)
    work = healthy(seed)
    work[there, SLOW] *= 1 + size
    matrix = matrix_of(work)
    result = analyse_stragglers(matrix)
    (one,) = (f for f in diagnose(matrix, result, Evidence()).findings if f.scope is Scope.RANKS)
    assert one.first_step == 0
    assert one.last_step >= STEPS - 30


def test_the_verdict_says_how_often_and_by_how_much_then() -> None:
    work = healthy(1)
    work[::5, SLOW] *= 1.6
    text = analyse_stragglers(matrix_of(work)).verdict.text
    assert "in the 20 % of the steps in which it is slow, in 80 separate stretches." in text


@UNTIMED
@given(seed=st.integers(0, 1000), several=st.integers(1, 3))
def test_ranks_in_turns_are_nobody_s_fault(seed: int, several: int) -> None:
    rng = np.random.default_rng(seed)
    work = healthy(seed)
    for _ in range(several):
        work[np.arange(STEPS), rng.integers(RANKS, size=STEPS)] *= 1.5
    matrix = matrix_of(work)
    result = analyse_stragglers(matrix)
    assert result.verdict.kind is Kind.MOVING
    assert [f.scope for f in diagnose(matrix, result, Evidence()).findings] == [Scope.MOVING]


def test_steps_that_are_long_for_everybody_judge_nobody() -> None:
    """Every fifty steps an evaluation of five, in which rank 0 has more to do."""
    work = healthy(2)
    evaluation = np.arange(STEPS) % 50 >= 45
    work[evaluation] *= 2.5
    work[evaluation, 0] *= 1.3
    np.testing.assert_array_equal(usual_steps(work, RECURRING_RULES), ~evaluation)
    verdict = analyse_stragglers(matrix_of(work)).verdict
    assert (verdict.kind, verdict.culprit, verdict.mostly) == (Kind.SELDOM, None, 0)
    assert "of what the slowest ranks cost is rank 0's" in verdict.text
    assert "different rank" not in verdict.text
    half = np.arange(STEPS) % 10 >= 5
    work = healthy(2)
    work[half] *= 2.5
    assert usual_steps(work, RECURRING_RULES).all()


def test_a_rank_that_is_slow_in_too_few_steps_is_named_for_what_it_is() -> None:
    work = healthy(2, sd=0.005)
    work[100:108, 3] *= 4.0
    matrix = matrix_of(work)
    result = analyse_stragglers(matrix)
    assert (result.verdict.kind, result.verdict.mostly) == (Kind.SELDOM, 3)
    assert result.verdict.ranks == ()
    (finding,) = diagnose(matrix, result, Evidence()).findings
    assert (finding.scope, finding.ranks) == (Scope.MOVING, ())
    assert finding.place == "mostly rank 3, in too few steps to be slow for good"
    assert (finding.first_step, finding.last_step, finding.is_open) == (100, 107, False)
    assert finding.excess_ratio > 1
    assert "what rank 3 does in the steps in which it is late" in finding.cause.action


def excess_with(places: np.ndarray, size: float = 0.5, seed: int = 3) -> np.ndarray:
    excess = np.random.default_rng(seed).normal(0, 0.01, (STEPS, RANKS))
    excess[places, SLOW] += size
    return excess


def told(excess: np.ndarray, **more: int) -> Recurrence | None:
    return recurrence(excess, SLOW, 0.0, RECURRING_RULES, **more)


def test_what_is_told_of_it() -> None:
    places = np.arange(20, 300, 7)
    found = told(excess_with(places))
    assert found is not None
    np.testing.assert_array_equal(found.places, places)
    assert (found.first, found.last, found.slow_steps) == (20, 293, 40)
    assert (found.steps, found.stretches) == (STEPS, 40)
    assert found.duty_ratio == 0.1
    assert found.level == pytest.approx(0.5, abs=0.01)
    assert found.share_ratio == pytest.approx(0.05 / (0.05 + 0.9 * 0.0177), abs=0.05)
    later = found.from_step(100)
    assert (later.first, later.last) == (120, 393)


@pytest.mark.parametrize(
    "places",
    [np.array([50]), np.arange(50, 59), np.arange(50, 90), np.array([*range(50, 70), 90])],
    ids=["a spike", "nine steps", "one stretch", "two stretches"],
)
def test_a_few_spikes_or_one_stretch_are_not_again_and_again(places: np.ndarray) -> None:
    assert told(excess_with(places, 5.0)) is None


def test_a_stray_step_long_before_is_not_its_begin() -> None:
    found = told(excess_with(np.array([2, *range(250, 396, 4)])))
    assert found is not None
    assert (found.first, found.last, found.slow_steps) == (250, 394, 37)


def test_missing_reports_are_not_steps() -> None:
    excess = excess_with(np.arange(0, STEPS, 5))
    excess[1::5] = np.nan
    found = told(excess)
    assert found is not None
    assert found.steps == STEPS * 4 // 5
    assert found.duty_ratio == 0.25


@pytest.mark.parametrize(("own", "events"), [(4, 4), (8, 40), (12, 60)])
def test_chance_is_the_binomial_tail_times_the_ranks(own: int, events: int) -> None:
    """The steps are far apart, so that each is an event of its own."""
    excess = np.zeros((STEPS, RANKS))
    at = np.arange(events) * 4
    excess[at[:own], SLOW] = 1.0
    excess[at[own:], 3] = 1.0
    got = recurring._by_chance(excess, excess.max(axis=1), SLOW, 1.0)
    assert got == pytest.approx(RANKS * binom.sf(own - 1, events, 1 / RANKS))


def test_a_stretch_that_was_picked_has_to_show_more() -> None:
    rng = np.random.default_rng(0)
    excess = rng.normal(0, 0.01, (60, RANKS))
    excess[np.arange(0, 60, 5), SLOW] += 0.5
    others = np.setdiff1d(np.arange(60), np.arange(0, 60, 5))
    excess[others, rng.integers(RANKS, size=len(others))] += 0.5
    assert told(excess) is None or told(excess, of_steps=600) is None


def test_it_is_told_as_soon_as_there_is_enough_of_it() -> None:
    excess = excess_with(np.arange(100, STEPS, 6))
    found = told(excess[90:])
    assert found is not None
    at = first_told(excess[90:], SLOW, found, 0.0, RECURRING_RULES)
    assert at == 10 + 6 * (RECURRING_RULES.least_slow_steps - 1)
    assert told(excess[90 : 90 + at + 1]) is not None
    assert told(excess[90 : 90 + at]) is None


def test_it_has_ended_when_it_was_not_seen_for_long() -> None:
    found = told(excess_with(np.arange(0, 200, 8)))
    assert found is not None
    assert goes_on(found, 220, RECURRING_RULES)
    assert not goes_on(found, 300, RECURRING_RULES)


def test_one_that_has_ended_is_no_straggler_now() -> None:
    work = healthy(4)
    work[20:220:6, SLOW] *= 2.5
    verdict = analyse_stragglers(matrix_of(work)).verdict
    assert verdict.kind is Kind.PASSED
    assert f"most of it for rank {SLOW} in steps 20 to 218: it is slow no longer" in verdict.text
