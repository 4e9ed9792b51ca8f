"""A run to its planned steps, from its measured progress."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.compute.spend.completion import BLOCKS, MIN_BLOCKS, completion
from steptax.app.compute.stats.rows import Floats

HOUR = 3_600_000_000


def run(seconds: Floats, target: int | None, **money: float) -> Any:
    end = np.cumsum(seconds * 1e6).astype(np.int64)
    return completion(
        np.arange(len(seconds)),
        end,
        target,
        spent_usd=money.get("spent", 100.0),
        usd_per_hour=money.get("rate", 16.0),
    )


@given(st.integers(40, 400), st.floats(0.5, 500), st.integers(1, 5000))
def test_steps_of_one_length_go_on_like_that(done: int, seconds: float, left: int) -> None:
    made = run(np.full(done, seconds), done + left)
    hours = left * seconds / 3600
    assert made.left_hours.value == pytest.approx(hours, rel=1e-3)
    assert made.left_usd.value == pytest.approx(16 * hours, rel=1e-3)
    assert made.at_end_usd.value == pytest.approx(100 + 16 * hours, rel=1e-3)
    assert made.left_hours.low == pytest.approx(hours, rel=2e-3)


@given(st.integers(0, 2**32 - 1), st.integers(1, 3000))
def test_the_band_holds_the_value_and_nothing_is_below_zero(seed: int, left: int) -> None:
    seconds = np.random.default_rng(seed).exponential(10.0, 300)
    made = run(seconds, 300 + left)
    hours, usd = made.left_hours, made.at_end_usd
    assert 0 <= hours.low <= hours.value <= hours.high
    assert 100 <= usd.low <= usd.value <= usd.high


def test_the_band_covers_what_comes() -> None:
    """95 % of 400 runs whose steps are random end inside of it; blocks make it somewhat wider."""
    generator = np.random.default_rng(1)
    inside = 0
    for _ in range(400):
        seconds = generator.gamma(2.0, 5.0, 600)
        made = run(seconds[:400], 600)
        inside += made.left_hours.low <= seconds[400:].sum() / 3600 <= made.left_hours.high
    assert 0.90 <= inside / 400 <= 0.99


def test_interruptions_and_repeated_steps_are_in_it() -> None:
    """Every tenth step is followed by an hour of nothing, and the five before it run again."""
    step: list[int] = []
    end: list[int] = []
    now = 0
    for start in range(0, 400, 10):
        for number in [*range(max(0, start - 5), start + 10)]:
            now += 60_000_000
            step.append(number)
            end.append(now)
        now += HOUR
    made = completion(
        np.array(step), np.array(end), 800, spent_usd=None, usd_per_hour=None, no_price="none set"
    )
    assert made.done_steps == 400
    assert made.left_hours.value == pytest.approx(40 * (1 + 15 / 60), rel=0.05)
    assert (made.at_end_usd.value, made.at_end_usd.reason) == (None, "none set")


@pytest.mark.parametrize(
    ("steps", "target", "why"),
    [
        (100, None, "planned is not known"),
        (100, 100, "are done"),
        (MIN_BLOCKS, 100, "are needed"),
        (0, 100, "are needed"),
    ],
)
def test_none_where_it_cannot_be_told(steps: int, target: int | None, why: str) -> None:
    made = run(np.full(steps, 1.0), target)
    assert made.left_hours.value is None
    assert why in (made.left_hours.reason or "")
    assert made.at_end_usd.value is None


def test_only_the_newest_blocks_count_of_a_short_block() -> None:
    """With fewer steps than blocks twice over each step is a block; the newest twenty count."""
    made = run(np.append(np.full(15, 1000.0), np.full(BLOCKS, 10.0)), 45)
    assert made.left_hours.value == pytest.approx(10 * 10 / 3600)
