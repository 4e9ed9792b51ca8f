"""When a rule fires and clears: thresholds, durations, hysteresis, gaps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.compute.alerting import US_PER_S, Change, Limit, Phase, Standing, advance
from steptax.app.errors import UserError

LIMIT = Limit(0.10, True, 0.08, for_s=60, clear_for_s=60)


def told(limit: Limit, values: list[float | None], every_s: float = 30) -> list[Change | None]:
    standing: Standing | None = None
    changes = []
    for place, value in enumerate(values):
        standing, change = advance(limit, standing, value, int(place * every_s * US_PER_S))
        changes.append(change)
    return changes


def test_it_fires_once_after_its_time_and_clears_once() -> None:
    changes = told(LIMIT, [0.05, 0.2, 0.2, 0.2, 0.3, 0.05, 0.05, 0.05, 0.05])
    assert changes == [None, None, None, Change.FIRED, None, None, None, Change.CLEARED, None]


def test_a_short_excess_is_nothing() -> None:
    assert told(LIMIT, [0.2, 0.2, 0.05, 0.2, 0.2, 0.05]) == [None] * 6


def test_between_the_thresholds_nothing_moves() -> None:
    assert told(LIMIT, [0.2, 0.2, 0.2, 0.09, 0.09, 0.09, 0.09]).count(Change.CLEARED) == 0
    assert told(LIMIT, [0.09] * 9) == [None] * 9


def test_a_relapse_while_it_clears_is_no_second_alert() -> None:
    changes = told(LIMIT, [0.2, 0.2, 0.2, 0.05, 0.2, 0.05, 0.05, 0.05])
    assert [c for c in changes if c] == [Change.FIRED, Change.CLEARED]


def test_what_is_not_known_moves_nothing() -> None:
    assert told(LIMIT, [None] * 5) == [None] * 5
    changes = told(LIMIT, [0.2, None, None, 0.2, None, None, None])
    assert [c for c in changes if c] == [Change.FIRED]


def test_below_is_the_mirror_of_above() -> None:
    limit = Limit(0.9, False, 0.92)
    assert told(limit, [0.95, 0.89, 0.91, 0.92]) == [None, Change.FIRED, None, Change.CLEARED]


def test_a_clock_that_goes_back_waits_anew() -> None:
    pending = Standing(Phase.PENDING, 100 * US_PER_S)
    after, change = advance(LIMIT, pending, 0.2, 40 * US_PER_S)
    assert change is None
    assert after == Standing(Phase.PENDING, 40 * US_PER_S)


def test_a_clear_threshold_on_the_wrong_side_is_refused() -> None:
    with pytest.raises(UserError, match="at most the threshold"):
        Limit(0.1, True, 0.2)
    with pytest.raises(UserError, match="at least the threshold"):
        Limit(0.9, False, 0.8)


@given(
    st.lists(st.one_of(st.none(), st.floats(0, 0.3)), max_size=60),
    st.floats(0, 300),
    st.floats(0, 300),
    st.floats(1, 120),
)
def test_fired_and_cleared_take_turns(
    values: list[float | None], for_s: float, clear_for_s: float, every_s: float
) -> None:
    limit = Limit(0.10, True, 0.08, for_s, clear_for_s)
    changes = told(limit, values, every_s)
    seen = [c for c in changes if c is not None]
    assert seen[::2] == [Change.FIRED] * len(seen[::2])
    assert seen[1::2] == [Change.CLEARED] * len(seen[1::2])
    for place, change in enumerate(changes):
        value = values[place]
        if change is Change.FIRED:
            assert value is not None
            assert value > 0.10
        if change is Change.CLEARED:
            assert value is not None
            assert value <= 0.08
