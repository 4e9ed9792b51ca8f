"""Stalls of synchronisation and of GPUs, in jobs whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.compute.straggler.quiet_failures import (
    first_steady,
    stalled_gpus,
    sync_stalls,
    warm_up,
)

S = 100
MS = 1000.0


def steps(duration_ms: float = 100.0, count: int = S) -> np.ndarray:
    rng = np.random.default_rng(3)
    return (duration_ms + rng.normal(0, 0.5, count)) * MS


def test_a_stall_is_a_wait_far_beyond_the_usual() -> None:
    wait = np.full((S, 4), 5 * MS)
    wait[40] = 300 * MS
    wait[41] = 16 * MS  # above three times the usual, and above a tenth of the step
    wait[42] = 9 * MS
    step = steps()
    found = sync_stalls(np.arange(S) + 1000, wait, step)
    assert found.steps.value == 2
    assert found.worst_step == 1040
    assert found.longest_ms.value == pytest.approx(300)
    assert found.lost_ratio.value == pytest.approx((295 + 11) * MS / step.sum())


def test_an_even_job_does_not_stall() -> None:
    found = sync_stalls(np.arange(S), np.full((S, 4), 5 * MS), steps())
    assert found.steps.value == 0
    assert found.lost_ratio.value == 0
    assert found.longest_ms.reason == "no step stalled"
    assert sync_stalls(np.arange(S), None, steps()).steps.value is None
    few = sync_stalls(np.arange(9), np.full((9, 4), 5 * MS), steps(count=9))
    assert "fewer than 30" in str(few.steps.reason)


def stalled(duration: np.ndarray, **more: object):  # type: ignore[no-untyped-def]
    count = len(duration)
    given: dict[str, object] = {
        "attempts": np.zeros(count, np.int64),
        "start_us": np.concatenate([[0.0], np.cumsum(duration)[:-1]]),
        "saves_us": [],
        "input_us": None,
        "window_us": duration,
    } | more
    attempts, start, saves = (given.pop(k) for k in ("attempts", "start_us", "saves_us"))
    return stalled_gpus(attempts, start, duration, saves, **given)  # type: ignore[arg-type]


def test_a_job_that_warms_up() -> None:
    duration = steps()
    duration[:7] += np.array([5000, 900, 400, 300, 200, 100, 50]) * MS
    found = stalled(duration)
    assert found.steady_s.value == pytest.approx(duration[:7].sum() / 1e6, rel=1e-6)
    assert found.warm_up_lost_s.value == pytest.approx(6.95, abs=0.02)
    assert stalled(steps()).steady_s.value == 0
    assert stalled(steps(count=20)).steady_s.value is None


def test_a_spike_after_the_warm_up_is_not_the_warm_up() -> None:
    duration = steps()
    duration[:3] += 1000 * MS
    duration[50] += 5000 * MS
    assert first_steady(duration) == 3


def test_spikes_and_what_explains_them() -> None:
    duration = steps()
    read = np.full(S, 2 * MS)
    duration[30] += 200 * MS
    read[30] += 190 * MS
    duration[60] += 200 * MS
    found = stalled(duration, input_us=read)
    assert (found.spikes.value, found.input_spikes.value) == (2, 1)
    assert stalled(duration).input_spikes.reason == "input_us was not recorded"


def test_warm_up_is_no_spike_in_any_attempt() -> None:
    duration = steps()
    duration[:4] += 400 * MS
    duration[60:63] += 300 * MS
    duration[80] += 300 * MS
    attempts = np.repeat([0, 1], [60, 40])
    warm = warm_up(attempts, duration)
    np.testing.assert_array_equal(np.flatnonzero(warm), [0, 1, 2, 3, 60, 61, 62])
    assert stalled(duration, is_warm_up=warm).spikes.value == 1
    assert stalled(duration).spikes.value == 8
    assert not warm_up(attempts[:20], duration[:20]).any()


def test_pauses_are_within_an_attempt() -> None:
    duration = steps()
    start = np.concatenate([[0.0], np.cumsum(duration)[:-1]])
    start[20:] += 3e6
    start[50:] += 60e6
    attempts = np.repeat([0, 1], [50, 50])
    found = stalled(duration, start_us=start, attempts=attempts)
    assert found.pauses_s.value == pytest.approx(3.0)
    assert found.longest_pause_s.value == pytest.approx(3.0)
    assert stalled(duration, start_us=None).pauses_s.value is None


def test_saves_have_a_mean_and_a_spread() -> None:
    found = stalled(steps(), saves_us=[10e6, 12e6, 20e6])
    assert found.checkpoint_s.value == pytest.approx(14)
    assert (found.checkpoint_s.low, found.checkpoint_s.high) == (10, 20)
    assert found.checkpoint_cv_ratio.value == pytest.approx(np.std([10, 12, 20], ddof=1) / 14)
    one = stalled(steps(), saves_us=[10e6])
    assert one.checkpoint_cv_ratio.value is None
    assert stalled(steps()).checkpoint_s.value is None


@given(st.integers(30, 200), st.floats(1, 1e4), st.integers(0, 20), st.floats(1.2, 50))
def test_the_warm_up_is_found_wherever_it_ends(
    count: int, usual_ms: float, warm: int, times: float
) -> None:
    warm = min(warm, count // 2 - 1)
    duration = np.full(count, usual_ms * MS)
    duration[:warm] *= times
    assert first_steady(duration) == warm


def test_a_job_that_becomes_slow_later_was_steady_from_its_first_step() -> None:
    duration = np.repeat([120.0, 165.0], [60, 140]) * 1e6
    assert first_steady(duration) == 0
    assert stalled(duration).warm_up_lost_s.value == 0
