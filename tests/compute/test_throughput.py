"""Tokens per second over restarts."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.compute.mfu.throughput import Clock, progress, throughput
from steptax.app.errors import UserError


def test_case_04_no_spike_after_resume(shared: Callable[[str], Path]) -> None:
    folder = "cases/04-throughput-after-resume"
    text = shared(f"{folder}/expected.md").read_text()
    wanted = json.loads(text.split("```json")[1].split("```")[0])
    rows = list(csv.DictReader(shared(f"{folder}/steps.csv").read_text().splitlines()))
    columns = (
        [int(r["step"]) for r in rows],
        [float(r["session_elapsed_s"]) for r in rows],
        [float(r["cumulative_tokens"]) for r in rows],
    )
    for session in (None, [r["session"] for r in rows]):
        log = progress(*columns, session=session)
        assert log.tokens_per_s == pytest.approx(wanted["tokens_per_s_every_row"])
        assert log.sessions == wanted["sessions"]
        assert log.repeated_steps == wanted["steps_repeated_after_restart"]
        assert log.lost_seconds == wanted["lost_step_seconds"]
        (resumed,) = log.resumed_rows
        naive = columns[2][resumed] / columns[1][resumed]
        assert naive == wanted["naive_first_row_of_session_2"]
        rate = throughput(log)
        assert rate.value == pytest.approx(wanted["tokens_per_s_every_row"])
        assert not rate.warnings


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[int], list[float], list[float], float]:
    """A log of a constant rate with restarts from some earlier step."""
    seconds, tokens = draw(st.floats(0.1, 100)), draw(st.integers(1, 10**7))
    steps: list[int] = []
    times: list[float] = []
    at = 0
    for _ in range(draw(st.integers(1, 4))):
        for k in range(1, draw(st.integers(1, 12)) + 1):
            at += 1
            steps.append(at)
            times.append(k * seconds)
        at = draw(st.integers(0, at))
    return steps, times, [float(s * tokens) for s in steps], tokens / seconds


@given(runs())
def test_a_constant_rate_stays_constant_over_any_restarts(
    run: tuple[list[int], list[float], list[float], float],
) -> None:
    *columns, rate = run
    log = progress(*columns)  # type: ignore[arg-type]
    assert log.tokens_per_s == pytest.approx(rate)
    assert throughput(log).value == pytest.approx(rate)
    net = throughput(log, retained=True).value
    assert net is not None
    assert net <= rate * (1 + 1e-9)
    kept = log.step[~log.lost]
    assert list(kept) == sorted(set(kept.tolist()))


def test_lost_steps_cost_time_without_progress() -> None:
    log = progress([1, 2, 3, 3], [10, 20, 30, 10], [100, 200, 300, 300])
    assert throughput(log).value == 10
    assert throughput(log, retained=True).value == 7.5
    assert throughput(log, last=2, retained=True).value == 5


def test_on_a_wall_clock_the_time_between_sessions_is_no_step_time() -> None:
    log = progress(
        [1, 2, 3, 3, 4], [1000, 1010, 1020, 5000, 5010], [100, 200, 300, 300, 400],
        clock=Clock.WALL,
    )  # fmt: skip
    assert np.isnan(log.tokens_per_s[[0, 3]]).all()
    rate = throughput(log)
    assert rate.value == 10
    assert rate.warnings == ("2 rows after a restart are left out",)


def test_a_start_that_is_not_on_record_is_not_guessed() -> None:
    log = progress([81, 82], [20, 40], [81e6, 82e6])
    assert np.isnan(log.tokens[0])
    assert log.tokens_per_s[1] == 50_000
    assert throughput(log).value == 50_000
    alone = throughput(progress([81], [20], [81e6]))
    assert alone.value is None
    assert "no row" in (alone.reason or "")


def test_an_empty_log_has_no_rate() -> None:
    log = progress([], [], [])
    assert log.sessions == 0
    assert throughput(log).value is None


@pytest.mark.parametrize(
    ("columns", "where"),
    [
        (([1, 2], [1.0], [1.0, 2.0]), "step"),
        (([1], [-1.0], [1.0]), "time_s"),
        (([1], [1.0], [float("nan")]), "consumed_tokens"),
        (([1, 2], [1.0, 2.0], [2.0, 1.0]), "row 1"),
    ],
)
def test_a_log_that_cannot_be_is_refused(
    columns: tuple[list[int], list[float], list[float]], where: str
) -> None:
    with pytest.raises(UserError) as caught:
        progress(*columns)
    assert caught.value.where == where


def test_sessions_and_window_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UserError, match="session"):
        progress([1], [1], [1], session=[1, 2])
    with pytest.raises(UserError, match="time falls inside a session"):
        progress([1, 2], [2, 1], [1, 2], session=["a", "a"])
    with pytest.raises(UserError, match="last"):
        throughput(progress([1], [1], [1]), last=0)
