"""What a job did, attempt by attempt, and which of its executed steps count.

A step is lost when a rollback or a restore names a lower step that training went back to, or when
the same or a lower step was executed later. Its time was paid and its work is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from steptax.app.compute.bill.executions import Executions, read_steps
from steptax.app.compute.bill.job_events import BREAKS, RETURNS, Event, Finding, Rows, read_events
from steptax.app.compute.learning.curve import superseded
from steptax.app.compute.stats.rows import Flags, Ints


@dataclass(frozen=True, eq=False)
class Attempt:
    """One attempt of a job: from its first to its last sign of life."""

    number: int
    events: tuple[Event, ...]
    steps: Executions
    """Its executions, in order."""

    def moment(self, kind: str) -> int | None:
        """When the first event of a kind happened; None if none was recorded."""
        return next((e.start_us for e in self.events if e.kind == kind), None)

    @cached_property
    def begin_us(self) -> int:
        """First sign of life."""
        signs = [e.start_us for e in self.events]
        return min(signs + ([int(self.steps.start_us.min())] if len(self.steps) else []))

    @cached_property
    def end_us(self) -> int:
        """Last sign of life."""
        signs = [e.last_us for e in self.events]
        return max(signs + ([int(self.steps.end_us.max())] if len(self.steps) else []))

    @cached_property
    def first_step_us(self) -> int | None:
        """Start of its first step, as an event or a step says; None if it never came to one."""
        said = self.moment("first_step")
        if not len(self.steps):
            return said
        start = int(self.steps.start_us.min())
        return start if said is None else min(said, start)

    @cached_property
    def interrupted_us(self) -> int:
        """When it stopped training for good: a failure that no step follows, else its end."""
        last = int(self.steps.start_us.max()) if len(self.steps) else self.begin_us
        breaks = [e.start_us for e in self.events if e.kind in BREAKS and e.start_us >= last]
        return min(breaks) if breaks else self.end_us

    @property
    def is_over(self) -> bool:
        """Whether an event says that its processes ended, and nothing began after that."""
        ends = [e.last_us for e in self.events if e.kind in ("process_end", *BREAKS)]
        begun = [e.start_us for e in self.events]
        if len(self.steps):
            begun.append(int(self.steps.start_us.max()))
        return bool(ends) and max(ends) >= max(begun)


@dataclass(frozen=True, eq=False)
class History:
    """Events and executions of one job, in order, and what was found on the way."""

    events: tuple[Event, ...]
    steps: Executions
    findings: tuple[Finding, ...] = ()

    @property
    def steps_told(self) -> bool:
        """Whether the first step of any attempt is on record."""
        return any(attempt.first_step_us is not None for attempt in self.attempts)

    @cached_property
    def attempts(self) -> tuple[Attempt, ...]:
        """Attempts that anything was recorded of, by number."""
        numbers = {e.attempt for e in self.events} | set(self.steps.attempt.tolist())
        found = []
        for number in sorted(numbers):
            mine = slice(*np.searchsorted(self.steps.attempt, [number, number + 1]))
            steps = Executions(
                self.steps.attempt[mine],
                self.steps.step[mine],
                self.steps.start_us[mine],
                self.steps.end_us[mine],
                self.steps.lost[mine],
            )
            events = tuple(e for e in self.events if e.attempt == number)
            found.append(Attempt(number, events, steps))
        return tuple(found)

    def counts(self, attempt: Sequence[int] | Ints, step: Sequence[int] | Ints) -> Flags:
        """Which (attempt, step) [N] count: the rows that a split of retained steps rests on."""
        kept = ~self.steps.lost
        pairs = set(
            zip(self.steps.attempt[kept].tolist(), self.steps.step[kept].tolist(), strict=True)
        )
        asked = zip(np.asarray(attempt).tolist(), np.asarray(step).tolist(), strict=True)
        return np.array([pair in pairs for pair in asked], dtype=np.bool_)


def history(events: Rows, steps: Rows, *, origin_us: int = 0) -> History:
    """Events and steps of one job in order, with lost steps marked.

    ``events`` and ``steps`` are rows or columns of these tables (see ``read_events`` and
    ``read_steps``); ``origin_us`` is where steps without any start are laid from. What cannot be
    used is left out and named in ``findings``; the order of rows changes nothing.
    """
    told, rejected = read_events(events)
    executed, said = read_steps(steps, told, origin_us=origin_us)
    redone = superseded(executed.step)
    returned, unnamed = _returned(told, executed)
    found = [*rejected, *said, *_clock(executed)]
    if unnamed:
        text = f"{unnamed} rollbacks or restores do not say to which step training went back"
        found.append(Finding("inferred", text))
    if inferred := int((redone & ~returned).sum()):
        text = f"{inferred} steps are lost because the same or a lower one was executed later"
        found.append(Finding("inferred", text))
    return History(told, replace(executed, lost=redone | returned), tuple(found))


def _returned(events: tuple[Event, ...], steps: Executions) -> tuple[Flags, int]:
    """[N] steps beyond one that training went back to, and how many returns name no step."""
    lost = np.zeros(len(steps), dtype=np.bool_)
    unnamed = 0
    for event in events:
        if event.kind not in RETURNS:
            continue
        same = steps.attempt == event.attempt
        before = (steps.attempt < event.attempt) | (same & (steps.start_us < event.start_us))
        if event.restored_step is None:
            unnamed += bool(before.any())
        else:
            lost |= before & (steps.step > event.restored_step)
    return lost, unnamed


def _clock(steps: Executions) -> list[Finding]:
    """Whether the clock goes back between executions that follow each other."""
    back = np.diff(steps.start_us) < 0
    if not back.any():
        return []
    inside = int((back & (np.diff(steps.attempt) == 0)).sum())
    text = (
        f"the clock goes back {int(back.sum())} times from step to step ({inside} of them inside "
        "an attempt); the order is that of attempts and steps"
    )
    return [Finding("clock", text)]
