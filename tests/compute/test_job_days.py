"""Time cut into days for many jobs at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steptax.app.compute.bill.apportion import GpuSpan, Unit, apportion
from steptax.app.compute.bill.attempt_layer import State
from steptax.app.compute.bill.job_days import DAY_US, UNDATED, Stretches, job_days

stretch = st.tuples(
    st.integers(0, 4),
    st.integers(-3 * DAY_US, 40 * DAY_US),
    st.integers(0, 5 * DAY_US),
    st.integers(0, 64),
    st.sampled_from(list(State)),
)


def stretches(rows: Sequence[tuple[int, int, int, int, int]]) -> Stretches:
    job, start, length, gpus, state = (
        np.array([row[k] for row in rows], dtype=np.int64) for k in range(5)
    )
    return Stretches(job, start, start + length, gpus, state)


@given(st.lists(stretch, max_size=30))
def test_days_add_up_to_the_jobs_exactly_and_are_those_of_one_job(rows: list[tuple]) -> None:  # type: ignore[type-arg]
    made = job_days(stretches(rows))
    for job in range(5):
        own = [row for row in rows if row[0] == job]
        assert made.held_us[made.job == job].sum() == sum(n * g for _, _, n, g, _ in own)
        spans = [GpuSpan(s, s + n, g) for _, s, n, g, _ in own]
        want = apportion(spans, Unit.DAY)
        days = made.day[made.job == job].astype("datetime64[D]").astype(str)
        found = dict(zip(days.tolist(), made.held_us[made.job == job].tolist(), strict=True))
        assert found == want
    keys = list(zip(made.job.tolist(), made.day.tolist(), strict=True))
    assert keys == sorted(set(keys))
    parts = made.step_us + made.open_us + made.unscheduled_us
    assert (parts <= made.held_us).all()


def test_states_are_told_apart_and_undated_time_lies_in_no_period() -> None:
    rows = [
        (0, 0, 10, 2, State.PENDING),
        (0, 10, 20, 2, State.SPLIT),
        (0, 30, 5, 2, State.LOST),
        (1, 0, 7, 1, State.UNEXPLAINED),
    ]
    made = job_days(stretches(rows), np.array([1]))
    assert made.held_us.tolist() == [70, 7]
    assert (made.step_us[0], made.unscheduled_us[0], made.open_us[1]) == (40, 20, 7)
    assert made.day.tolist() == [0, UNDATED]
    assert made.inside(None, None).tolist() == [True, True]
    assert made.inside(None, 3).tolist() == [True, False]


def test_nothing_has_no_days() -> None:
    assert len(job_days(stretches([]))) == 0
    assert len(job_days(stretches([(0, 5, 0, 8, State.SPLIT)]))) == 0
    with pytest.raises(AttributeError):
        job_days(None)  # type: ignore[arg-type]
