"""Burn rates of the newest hours against their alarms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.compute.bill.attempt_layer import State
from steptax.app.compute.bill.job_days import Stretches
from steptax.app.compute.spend.burn import FAST, SLOW, burn, goodput_between

HOUR_US = 3_600_000_000
NOON_US = 500_000 * HOUR_US
BOTH = np.ones(2, dtype=np.bool_)


def stretches(*rows: tuple[int, float, float, int, State]) -> Stretches:
    """(job, hours from and to before noon, devices, state) per stretch."""
    told = [
        (job, NOON_US - round(a * HOUR_US), NOON_US - round(b * HOUR_US), gpus, int(state))
        for job, a, b, gpus, state in rows
    ]
    return Stretches(*np.array(told, dtype=np.int64).reshape(-1, 5).T)


def test_both_windows_by_hand() -> None:
    held = stretches(
        (0, 6.0, 0.5, 8, State.SPLIT),
        (0, 0.5, 0.0, 8, State.STARTUP),
        (1, 1.0, 0.0, 8, State.SPLIT),
    )
    fast = burn(FAST, held, BOTH, 0.95, NOON_US)
    slow = burn(SLOW, held, BOTH, 0.95, NOON_US)
    # 4 of 16 GPU-hours of the hour were lost, and 4 of 56 of the six.
    assert fast.rate.value == pytest.approx(0.25 / 0.05)
    assert slow.rate.value == pytest.approx((4 / 56) / 0.05)
    assert not fast.rings
    only = burn(FAST, held, np.array([True, False]), 0.95, NOON_US)
    assert only.rate.value == pytest.approx(0.5 / 0.05)


def test_an_alarm_rings_at_its_level_and_where_no_rate_can_reach_it() -> None:
    lost = stretches((0, 6.0, 0.0, 8, State.LOST), (1, 6.0, 0.0, 1, State.SPLIT))
    strict = burn(FAST, lost, BOTH, 0.99, NOON_US)
    assert (strict.level, strict.rings) == (14.0, True)
    # 8 of 9 is just below nine tenths; 10x is all that an objective of 0.9 lets anything burn at.
    loose = burn(FAST, lost, BOTH, 0.9, NOON_US)
    assert loose.level == pytest.approx(9.0)
    assert not loose.rings
    assert burn(SLOW, lost, BOTH, 0.9, NOON_US).rings
    assert burn(FAST, lost, np.array([True, False]), 0.9, NOON_US).rings


def test_old_hours_are_told_and_ring_nothing() -> None:
    held = stretches((0, 30.0, 20.0, 8, State.LOST), (1, 30.0, 20.0, 1, State.SPLIT))
    found = burn(SLOW, held, BOTH, 0.99, NOON_US)
    assert found.is_stale
    assert found.rate.value == pytest.approx((8 / 9) / 0.01)
    assert not found.rings
    assert found.end_us == NOON_US - 20 * HOUR_US


def test_without_time_steps_or_an_objective_there_is_no_rate() -> None:
    none = burn(FAST, stretches(), BOTH, 0.9, NOON_US)
    assert none.rate.value is None
    assert "no job held a device" in (none.rate.reason or "")
    blind = burn(FAST, stretches((0, 2.0, 0.0, 8, State.UNEXPLAINED)), BOTH, 0.9, NOON_US)
    assert blind.rate.value is None
    held = stretches((0, 2.0, 0.0, 8, State.SPLIT))
    assert burn(FAST, held, BOTH, None, NOON_US).rate.reason == "no objective is set"


@given(
    st.lists(
        st.tuples(
            st.integers(0, 1), st.floats(0, 9), st.floats(0, 9), st.integers(1, 64),
            st.sampled_from([State.SPLIT, State.LOST, State.STARTUP, State.UNALLOCATED]),
        ),
        min_size=1,
        max_size=20,
    )
)  # fmt: skip
def test_a_window_is_what_its_halves_add_up_to(
    rows: list[tuple[int, float, float, int, State]],
) -> None:
    held = stretches(*((j, max(a, b), min(a, b), n, s) for j, a, b, n, s in rows))
    own = np.ones(len(held.job), dtype=np.bool_)

    def part(first: float, last: float) -> tuple[float, float]:
        begin, end = (NOON_US - round(hours * HOUR_US) for hours in (first, last))
        us = np.clip(np.minimum(held.end_us, end) - np.maximum(held.start_us, begin), 0, None)
        share = goodput_between(held, own, begin, end).value
        paid = float((us * held.gpus).sum())
        return paid, paid * (share or 0.0)

    whole, halves = part(6, 0), [part(6, 3), part(3, 0)]
    assert whole[0] == pytest.approx(sum(paid for paid, _ in halves))
    assert whole[1] == pytest.approx(sum(useful for _, useful in halves), rel=1e-9, abs=1.0)
