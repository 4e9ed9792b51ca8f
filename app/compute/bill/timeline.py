"""What a job was doing at every moment that it held devices.

A job trains on all of its devices together, so outside of steps one state holds for all of them:

    pending      held, and the first training process does not run yet, or the last one ended
    startup      first process start to first step
    recovery     interruption to the next step: detection, rescheduling, initialisation, restore
    lost         steps that were rolled back, and the step that a failure broke off
    checkpoint   blocking part of saves between steps
    blocking     evaluation, pause, maintenance, and any other event that lasts
    steps        steps that count, split into parts or not, recorded or not
    unexplained  none of these

Every moment has one state. Where records overlap: a later attempt counts from its first sign of
life on, a step ends at the latest where the next one starts, and a step holds against an event
that overlaps it. Only an event that lies inside of one step is taken out of it, as far as the
parts of that step leave room.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from steptax.app.compute.bill.attempt_layer import Cover, Layer, State, attempt_layer
from steptax.app.compute.bill.attempts import Attempt, History
from steptax.app.compute.bill.executions import Executions
from steptax.app.compute.bill.job_events import Finding
from steptax.app.compute.bill.segments import (
    EMPTY,
    Segments,
    covered_us,
    cut,
    merged,
    one,
    over,
    stack,
)
from steptax.app.compute.stats.rows import Ints

_FAR = 2**62
#: Labels are attempt index * 16 + state, so that each step finds its own time again.
_STATES = 16


@dataclass(frozen=True)
class Allocation:
    """Devices held, or paid for, from start to end."""

    start_us: int
    end_us: int
    gpus: int


@dataclass(frozen=True, eq=False)
class Timeline:
    """Stretches [N] of time with what went on and on how many devices."""

    start_us: Ints
    end_us: Ints
    state: Ints
    gpus: Ints

    @cached_property
    def _by_state(self) -> dict[int, int]:
        held = (self.end_us - self.start_us) * self.gpus
        totals: dict[int, int] = {}
        for state in set(self.state.tolist()):
            totals[state] = int(held[self.state == state].sum())
        return totals

    def gpu_us(self, *states: State) -> int:
        """GPU-microseconds in these states, of all if none is named."""
        return sum(self._by_state.get(state, 0) for state in states or State)

    def within(self, start_us: int, end_us: int) -> Timeline:
        """The part in [start, end)."""
        start, end = np.maximum(self.start_us, start_us), np.minimum(self.end_us, end_us)
        keep = end > start
        return Timeline(start[keep], end[keep], self.state[keep], self.gpus[keep])

    def at(self, places: NDArray[np.intp]) -> Timeline:
        """The stretches at ``places``."""
        return Timeline(
            self.start_us[places], self.end_us[places], self.state[places], self.gpus[places]
        )

    def segments(self, *states: State) -> Segments:
        """The stretches in these states."""
        keep = np.isin(self.state, states)
        return Segments(self.start_us[keep], self.end_us[keep], self.state[keep])

    @property
    def span_us(self) -> tuple[int, int]:
        """First start and last end; (0, 0) where there is nothing."""
        if not len(self.start_us):
            return 0, 0
        return int(self.start_us.min()), int(self.end_us.max())


@dataclass(frozen=True, eq=False)
class Painted:
    """A timeline, and how much of each execution [N] and of each gap [G] is on it."""

    timeline: Timeline
    own_us: Ints
    """[N] from its start to its end or to the start of the next step of its attempt."""
    visible_us: Ints
    """[N] of this, what is on the timeline as a step that counts."""
    visible_gpu_us: Ints
    """[N]"""
    taken_us: Ints
    """[N] taken out by events inside of the step."""
    gap_steps: Ints
    """[G] steps that were not recorded between two that were."""
    gap_us: Ints
    """[G] time for these, without what events between them take."""
    gap_visible_us: Ints
    """[G]"""
    findings: tuple[Finding, ...]


def held(allocations: Sequence[Allocation]) -> Segments:
    """Devices held over time; where allocations of one job overlap, the later one counts."""
    spans = sorted(allocations, key=lambda a: (a.start_us, a.end_us, a.gpus))
    return stack([one(a.start_us, a.end_us, a.gpus) for a in spans])


def paint(record: History, allocations: Sequence[Allocation], cover: Cover) -> Painted:
    """The timeline of a job that held ``allocations``; see the head of this module for the rules.

    ``cover`` [N] goes with ``record.steps``. The timeline adds up to the allocations exactly.
    """
    alloc = held(allocations)
    attempts = record.attempts
    layers = []
    place = 0
    for k, attempt in enumerate(attempts):
        mine = slice(place, place + len(attempt.steps))
        place = mine.stop
        before = attempts[k - 1] if k else None
        own = Cover(cover.split[mine], cover.room_us[mine])
        layers.append(attempt_layer(attempt, before, own, steps_told=record.steps_told))
    labelled = [
        Segments(s.start_us, s.end_us, s.label + _STATES * k)
        for k, s in enumerate(layer.segments for layer in layers)
    ]
    below = Segments(*(np.array([v], dtype=np.int64) for v in (-_FAR, _FAR, State.UNEXPLAINED)))
    painted, gpus = cut(stack([over(below, _ends(attempts)), *labelled]), alloc)
    line = Timeline(painted.start_us, painted.end_us, painted.label % _STATES, gpus)
    owner = painted.label // _STATES
    order = np.argsort(owner, kind="stable")
    bounds = np.searchsorted(owner[order], np.arange(len(attempts) + 1))
    seen, gaps = [], []
    for k, (attempt, layer) in enumerate(zip(attempts, layers, strict=True)):
        own_line = line.at(order[bounds[k] : bounds[k + 1]])
        seen.append(_visible(own_line, attempt.steps))
        gaps.append(_of_gaps(own_line.segments(State.UNRECORDED), layer))
    return Painted(
        _plain(line),
        _chain(own for own, _, _ in seen),
        _chain(time for _, time, _ in seen),
        _chain(weighted for _, _, weighted in seen),
        _chain(layer.taken_us for layer in layers),
        _chain(layer.gaps[2] for layer in layers),
        _chain(_of_gaps(layer.segments, layer) for layer in layers),
        _chain(gaps),
        (*_overlaps(attempts), *_outside(record, alloc)),
    )


def _of_gaps(segments: Segments, layer: Layer) -> Ints:
    """[G] time of the gaps of an attempt that is there for steps without a record."""
    own = segments.label == State.UNRECORDED
    unrecorded = Segments(segments.start_us[own], segments.end_us[own], segments.label[own])
    return covered_us(unrecorded, *layer.gaps[:2])


def _plain(line: Timeline) -> Timeline:
    """Neighbours in one state on as many devices become one, whichever attempt they are of."""
    both = merged(Segments(line.start_us, line.end_us, line.gpus * _STATES + line.state))
    return Timeline(both.start_us, both.end_us, both.label % _STATES, both.label // _STATES)


def _chain(parts: Iterable[Ints]) -> Ints:
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])


def _ends(attempts: tuple[Attempt, ...]) -> Segments:
    """Before the first process start and after the last process end."""
    if not attempts:
        return EMPTY
    first, last = attempts[0], attempts[-1]
    started = first.moment("process_start")
    stepped = first.first_step_us
    if started is not None:
        head = one(-_FAR, started if stepped is None else min(started, stepped), State.PENDING)
    elif stepped is not None:
        head = one(-_FAR, stepped, State.BEFORE_FIRST)
    else:
        head = EMPTY
    return over(one(last.end_us, _FAR, State.PENDING) if last.is_over else EMPTY, head)


def _visible(line: Timeline, steps: Executions) -> tuple[Ints, Ints, Ints]:
    """[N] own time, and time and GPU-time on the timeline as steps that count; see ``Painted``."""
    order = np.lexsort((steps.step, steps.end_us, steps.start_us))
    end = steps.end_us.copy()
    # Inside an attempt a step ends where the next one starts, so that no time counts for two.
    end[order[:-1]] = np.minimum(end[order[:-1]], steps.start_us[order[1:]])
    time = np.zeros(len(steps), dtype=np.int64)
    weighted = np.zeros(len(steps), dtype=np.int64)
    for level in np.unique(line.gpus):
        part = line.at(np.flatnonzero(line.gpus == level)).segments(State.SPLIT, State.WHOLE)
        seen = covered_us(part, steps.start_us, end)
        time += seen
        weighted += seen * level
    return end - steps.start_us, time, weighted


def _overlaps(attempts: tuple[Attempt, ...]) -> list[Finding]:
    """Attempts that overlap, and steps of one attempt that do."""
    said = []
    latest: Attempt | None = None
    for attempt in attempts:
        if latest is not None and attempt.begin_us < latest.end_us:
            us = min(attempt.end_us, latest.end_us) - max(attempt.begin_us, latest.begin_us)
            if us > 0:
                text = f"attempts {latest.number} and {attempt.number} overlap by {us} us"
                said.append(Finding("overlap", f"{text}: the later attempt counts"))
        if latest is None or attempt.end_us > latest.end_us:
            latest = attempt
        order = np.lexsort((attempt.steps.end_us, attempt.steps.start_us))
        run = attempt.steps.end_us[order][:-1] - attempt.steps.start_us[order][1:]
        if (run > 0).any():
            text = (
                f"{int((run > 0).sum())} steps of attempt {attempt.number} run into the next one, "
                f"by {int(run[run > 0].sum())} us: a step ends where the next one starts"
            )
            said.append(Finding("overlap", text))
    return said


def _outside(record: History, alloc: Segments) -> list[Finding]:
    """Steps outside of the time in which the job held devices."""
    inside = covered_us(alloc, record.steps.start_us, record.steps.end_us)
    beyond = int((record.steps.duration_us - inside).sum())
    if not beyond:
        return []
    text = f"{beyond} us of steps lie outside of the time in which devices were held"
    return [Finding("outside", f"{text}, and count for nothing")]
