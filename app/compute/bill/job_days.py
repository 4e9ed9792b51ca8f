"""The time that jobs held devices, cut into days, for many jobs at once.

A job counts on each UTC day with the part of its time that lies in it, in whole GPU-microseconds;
the days add up to the job exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steptax.app.compute.bill.attempt_layer import State
from steptax.app.compute.stats.rows import Flags, Floats, Ints

DAY_US = 86_400_000_000
#: Day of time of which it is not known when it was.
UNDATED = -(2**31)
#: In place of a job: what was paid for and held by none.
NOBODY = -1
#: In place of a job: what was charged for what no job is known to have used.
OTHER = -2

#: States of time in steps that count.
STEPS = (State.SPLIT, State.WHOLE, State.UNRECORDED)
#: States of time that no training process had.
NOT_SCHEDULED = (State.UNALLOCATED, State.PENDING)


@dataclass(frozen=True, eq=False)
class Stretches:
    """Stretches [N] of time: which job (its place in a list) held how many devices, and how."""

    job: Ints
    start_us: Ints
    end_us: Ints
    gpus: Ints
    state: Ints


@dataclass(frozen=True, eq=False)
class JobDays:
    """One row [N] per job and day on which it held devices, by job and day; GPU-microseconds."""

    job: Ints
    day: Ints
    """Days since 1970, UTC; ``UNDATED`` where that is not known."""
    held_us: Ints
    step_us: Ints
    """Of it, in steps that count."""
    open_us: Ints
    """Of it, nobody knows what happened."""
    unscheduled_us: Ints
    """Of it, held by no job, or before the first training process ran."""
    lost_us: Ints
    """Of it, in steps that were rolled back or executed again."""

    def __len__(self) -> int:
        """Rows."""
        return len(self.job)

    def inside(self, first_day: int | None, last_day: int | None) -> Flags:
        """Which rows [N] lie between two days, both included; all where there is no bound.

        With a bound, time of which the day is not known lies in no period.
        """
        keep = np.ones(len(self), dtype=np.bool_)
        if first_day is not None:
            keep &= self.day >= first_day
        if last_day is not None:
            keep &= (self.day <= last_day) & (self.day != UNDATED)
        return keep


def spread_over_days(start_us: Ints, end_us: Ints, amounts: Floats) -> tuple[Ints, Floats]:
    """``amounts`` [N], each spread evenly over its time [start, end), by UTC day [M] and part."""
    first, last = start_us // DAY_US, (end_us - 1) // DAY_US
    count = last - first + 1
    row = np.repeat(np.arange(len(first)), count)
    day = first[row] + np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    us = np.minimum(end_us[row], (day + 1) * DAY_US) - np.maximum(start_us[row], day * DAY_US)
    return day, amounts[row] * us / (end_us - start_us)[row]


def job_days(held: Stretches, undated: Ints | None = None) -> JobDays:
    """``held`` by job and day. ``undated`` are places of jobs whose time has no known day."""
    if not len(held.job):
        none = np.zeros(0, dtype=np.int64)
        return JobDays(none, none, none, none, none, none, none)
    some = held.end_us > held.start_us
    job, start, end, gpus, state = (
        values[some] for values in (held.job, held.start_us, held.end_us, held.gpus, held.state)
    )
    first, last = start // DAY_US, (end - 1) // DAY_US
    count = last - first + 1
    row = np.repeat(np.arange(len(job)), count)
    within = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    day = first[row] + within
    us = np.minimum(end[row], (day + 1) * DAY_US) - np.maximum(start[row], day * DAY_US)
    us *= gpus[row]
    owner, state = job[row], state[row]
    if undated is not None and len(undated):
        day = np.where(np.isin(owner, undated), UNDATED, day)
    order = np.lexsort((day, owner))
    owner, day, us, state = owner[order], day[order], us[order], state[order]
    new = np.append(True, (np.diff(owner) != 0) | (np.diff(day) != 0))[: len(owner)]
    at = np.flatnonzero(new)

    def added(values: Ints) -> Ints:
        return np.add.reduceat(values, at) if len(at) else values[:0]

    return JobDays(
        owner[at],
        day[at],
        added(us),
        added(np.where(np.isin(state, STEPS), us, 0)),
        added(np.where(state == State.UNEXPLAINED, us, 0)),
        added(np.where(np.isin(state, NOT_SCHEDULED), us, 0)),
        added(np.where(state == State.LOST, us, 0)),
    )
