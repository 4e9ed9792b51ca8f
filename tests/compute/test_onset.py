"""Since when a rank is slow, in words and as a step."""

from __future__ import annotations

import numpy as np

from steptax.app.compute.straggler.onset import onset


def ratio(*stretches: tuple[int, float]) -> np.ndarray:
    """Work over the peers' with 1 % of noise, in stretches of so many steps at so much."""
    level = np.concatenate([np.full(steps, value) for steps, value in stretches])
    return np.asarray(level * np.random.default_rng(4).normal(1, 0.01, len(level)))


def told(values: np.ndarray, first: int = 0) -> tuple[str, int | None, int | None]:
    found = onset(np.arange(first, first + len(values)), values, slow_ratio=0.05)
    return found.text, found.first_step, found.last_step


def test_a_rank_that_became_slow() -> None:
    text, first, last = told(ratio((80, 1.0), (70, 1.4)), first=500)
    assert (first, last) == (580, None)
    assert text.startswith("since step 580: from 0")
    assert "to 40 % above" in text
    assert "posterior" in text


def test_a_rank_that_was_always_slow() -> None:
    text, first, last = told(ratio((80, 1.3)), first=500)
    assert (first, last) == (None, None)
    assert text == "from the first step looked at, 500"


def test_a_rank_that_recovered() -> None:
    text, first, last = told(ratio((60, 1.0), (60, 1.5), (60, 1.0)))
    assert (first, last) == (60, 119)
    assert text.endswith("not after step 119")


def test_the_last_of_several_stretches_counts() -> None:
    text, first, _ = told(ratio((60, 1.0), (60, 1.5), (60, 1.0), (60, 1.2)))
    assert first == 180
    assert "2 slow stretches in all" in text


def test_slower_and_slower_counts_from_where_it_began() -> None:
    _, first, _ = told(ratio((60, 1.0), (60, 1.2), (60, 1.6)))
    assert first == 60


def test_now_and_then_is_not_since() -> None:
    values = ratio((200, 1.0))
    values[::10] *= 1.5
    text, first, _ = told(values)
    assert first is None
    assert "comes and goes" in text


def test_too_few_steps_are_unknown() -> None:
    text, first, _ = told(ratio((5, 1.5)))
    assert first is None
    assert text.startswith("unknown: 5 steps are too few")
