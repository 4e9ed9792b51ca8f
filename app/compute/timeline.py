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

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from steptax.app.compute.attempts import Attempt, History
from steptax.app.compute.job_events import BREAKS, RETURNS, SAVE, Finding
from steptax.app.compute.rows import Flags, Ints
from steptax.app.compute.segments import (
    EMPTY,
    Segments,
    covered_us,
    cut,
    in_order,
    one,
    over,
    stack,
)

_FAR = 2**62
#: Labels are attempt index * 16 + state, so that each step finds its own time again.
_STATES = 16
#: Events that last and are accounted for by other means than by lasting.
_NOT_BLOCKING = frozenset(
    {*RETURNS, *BREAKS, "restart", "allocated", "process_start", "first_step", "process_end"}
)


class State(IntEnum):
    """States of a job; see the head of this module."""

    UNALLOCATED = 0
    """Paid and held by nobody."""
    PENDING = 1
    BEFORE_FIRST = 2
    """Pending and startup together: no process start was recorded."""
    STARTUP = 3
    RECOVERY = 4
    LOST = 5
    CHECKPOINT = 6
    BLOCKING = 7
    SPLIT = 8
    """Steps whose parts were measured."""
    WHOLE = 9
    """Steps of which the length alone is known."""
    UNRECORDED = 10
    """Steps that were run, as the step numbers show, and not recorded."""
    UNEXPLAINED = 11


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

    def gpu_us(self, *states: State) -> int:
        """GPU-microseconds in these states, of all if none is named."""
        held = (self.end_us - self.start_us) * self.gpus
        return int(held[np.isin(self.state, states)].sum() if states else held.sum())

    def within(self, start_us: int, end_us: int) -> Timeline:
        """The part in [start, end)."""
        start, end = np.maximum(self.start_us, start_us), np.minimum(self.end_us, end_us)
        keep = end > start
        return Timeline(start[keep], end[keep], self.state[keep], self.gpus[keep])

    @property
    def span_us(self) -> tuple[int, int]:
        """First start and last end; (0, 0) where there is nothing."""
        if not len(self.start_us):
            return 0, 0
        return int(self.start_us.min()), int(self.end_us.max())


@dataclass(frozen=True, eq=False)
class Cover:
    """Which executions [N] have measured parts, and how much time these leave open."""

    split: Flags
    room_us: Ints


@dataclass(frozen=True, eq=False)
class Painted:
    """A timeline, and how much of each execution [N] and of each gap [G] is on it."""

    timeline: Timeline
    visible_us: Ints
    """[N]"""
    visible_gpu_us: Ints
    """[N]"""
    taken_us: Ints
    """[N] taken out by events inside of the step."""
    gap_steps: Ints
    """[G] steps that were not recorded between two that were."""
    gap_us: Ints
    """[G]"""
    gap_visible_us: Ints
    """[G]"""
    findings: tuple[Finding, ...]


def held(allocations: Sequence[Allocation]) -> Segments:
    """Devices held over time; where allocations of one job overlap, the later one counts."""
    spans = sorted(allocations, key=lambda a: (a.start_us, a.end_us, a.gpus))
    return stack([one(a.start_us, a.end_us, a.gpus) for a in spans])


@dataclass(frozen=True, eq=False)
class _Layer:
    """What one attempt puts on the timeline."""

    segments: Segments
    """Labelled with states."""
    taken_us: Ints
    gaps: tuple[Ints, Ints, Ints]
    """Start, end and number of steps of each gap in the record."""


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
        layers.append(_attempt_layer(attempt, before, own))
    labelled = [
        Segments(s.start_us, s.end_us, s.label + _STATES * k)
        for k, s in enumerate(layer.segments for layer in layers)
    ]
    below = Segments(*(np.array([v], dtype=np.int64) for v in (-_FAR, _FAR, State.UNEXPLAINED)))
    painted, gpus = cut(stack([over(below, _ends(attempts)), *labelled]), alloc)
    line = Timeline(painted.start_us, painted.end_us, painted.label % _STATES, gpus)
    seen = [_visible(painted, gpus, k, attempt) for k, attempt in enumerate(attempts)]
    gaps = [_gaps_seen(painted, k, layer) for k, layer in enumerate(layers)]
    return Painted(
        line,
        _chain(v for v, _ in seen),
        _chain(g for _, g in seen),
        _chain(layer.taken_us for layer in layers),
        _chain(layer.gaps[2] for layer in layers),
        _chain(layer.gaps[1] - layer.gaps[0] for layer in layers),
        _chain(gaps),
        (*_overlaps(attempts), *_outside(record, alloc)),
    )


def _chain(parts: object) -> Ints:
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])  # type: ignore[misc]


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


def _attempt_layer(attempt: Attempt, before: Attempt | None, cover: Cover) -> _Layer:
    """All that is known of an attempt, the surest on top."""
    stepped = attempt.first_step_us
    until = attempt.interrupted_us if stepped is None else stepped
    if before is not None:
        start = min(before.interrupted_us, attempt.begin_us)
        opening = one(start, attempt.end_us if stepped is None else stepped, State.RECOVERY)
    else:
        started = attempt.moment("process_start")
        opening = EMPTY if started is None else one(started, until, State.STARTUP)
    if stepped is None:
        after = one(attempt.interrupted_us, attempt.end_us, State.RECOVERY)
        none = np.zeros(0, dtype=np.int64)
        return _Layer(stack([opening, after]), none, (none, none, none))
    order = np.lexsort((attempt.steps.step, attempt.steps.end_us, attempt.steps.start_us))
    gaps, gap_layer = _gaps(attempt, order)
    layers = [opening, one(stepped, attempt.end_us, State.UNEXPLAINED), gap_layer]
    layers += _interruptions(attempt)
    states = np.where(cover.split, State.SPLIT, State.WHOLE)
    states = np.where(attempt.steps.lost, State.LOST, states).astype(np.int64)
    start, end = attempt.steps.start_us[order], attempt.steps.end_us[order]
    steps = in_order(start, end, states[order])
    outside, inside, taken = _blocking(attempt, stepped, order, cover)
    return _Layer(stack([*layers, outside, steps, inside]), taken, gaps)


def _gaps(attempt: Attempt, order: Ints) -> tuple[tuple[Ints, Ints, Ints], Segments]:
    """Time between recorded steps of an attempt: of missing steps, of going back, or of nothing."""
    steps = attempt.steps
    start, end = steps.end_us[order][:-1], steps.start_us[order][1:]
    jump = np.diff(steps.step[order])
    lost = steps.lost[order]
    state = np.where(jump <= 0, State.RECOVERY, State.UNEXPLAINED)
    state = np.where(jump > 1, np.where(lost[1:] | lost[:-1], State.LOST, State.UNRECORDED), state)
    keep = end > start
    layer = in_order(start[keep], end[keep], state[keep].astype(np.int64))
    missing = keep & (state == State.UNRECORDED)
    return (start[missing], end[missing], jump[missing] - 1), layer


def _interruptions(attempt: Attempt) -> list[Segments]:
    """Steps that were broken off, and the time until training goes on in the same attempt.

    A step is broken off for as long as the longest step of the attempt takes; what passes beyond
    that until the failure is noticed is detection.
    """
    steps = attempt.steps
    if not len(steps):
        return []
    start = np.sort(steps.start_us)
    ends = np.maximum.accumulate(steps.end_us[np.argsort(steps.start_us, kind="stable")])
    longest = int(steps.duration_us.max())
    layers: list[Segments] = []
    broken_at = -1
    for event in attempt.events:
        if event.kind not in (*RETURNS, *BREAKS, "restart"):
            continue
        # A step that starts at the moment of the event follows it.
        at = int(np.searchsorted(start, event.start_us, side="left"))
        if at == 0 and event.kind not in BREAKS:
            continue
        until = int(start[at]) if at < len(start) else attempt.end_us
        layers.append(one(event.start_us, until, State.RECOVERY))
        if at and event.kind in BREAKS and at != broken_at:
            since = int(ends[at - 1])
            broken = min(event.start_us, since + longest)
            layers.append(one(since, broken, State.LOST))
            layers.append(one(broken, event.start_us, State.RECOVERY))
            broken_at = at
    return layers


def _blocking(
    attempt: Attempt, stepped_us: int, order: Ints, cover: Cover
) -> tuple[Segments, Segments, Ints]:
    """Events that hold training up: the part outside of steps, the part inside, and [N] taken."""
    events = [e for e in attempt.events if e.kind not in _NOT_BLOCKING]
    layer = stack(
        [
            one(
                max(e.start_us, stepped_us),
                e.blocking_end_us,
                State.CHECKPOINT if e.kind == SAVE else State.BLOCKING,
            )
            for e in events
        ]
    )
    taken = np.zeros(len(attempt.steps), dtype=np.int64)
    if not len(layer) or not len(attempt.steps):
        return layer, EMPTY, taken
    start = attempt.steps.start_us[order]
    end = np.minimum(attempt.steps.end_us[order], np.append(start[1:], _FAR))
    inside = []
    found = np.searchsorted(start, layer.start_us, side="right") - 1
    for k, at in enumerate(found):
        if at < 0 or layer.end_us[k] > end[at]:
            continue
        step = order[at]
        left = int(cover.room_us[step] - taken[step])
        length = min(int(layer.end_us[k] - layer.start_us[k]), left)
        taken[step] += max(length, 0)
        begin = int(layer.start_us[k])
        inside.append(one(begin, begin + max(length, 0), int(layer.label[k])))
    return layer, stack(inside), taken


def _visible(painted: Segments, gpus: Ints, k: int, attempt: Attempt) -> tuple[Ints, Ints]:
    """[N] time and GPU-time of each execution that is on the timeline as a step that counts."""
    steps = attempt.steps
    mine = np.isin(painted.label, [k * _STATES + s for s in (State.SPLIT, State.WHOLE)])
    seen = Segments(painted.start_us[mine], painted.end_us[mine], painted.label[mine])
    order = np.lexsort((steps.step, steps.end_us, steps.start_us))
    end = steps.end_us.copy()
    # Inside an attempt a step ends where the next one starts, so that no time counts for two.
    end[order[:-1]] = np.minimum(end[order[:-1]], steps.start_us[order[1:]])
    end = np.maximum(end, steps.start_us)
    time = covered_us(seen, steps.start_us, end)
    weighted = np.zeros(len(steps), dtype=np.int64)
    for level in np.unique(gpus[mine]):
        same = gpus[mine] == level
        part = Segments(seen.start_us[same], seen.end_us[same], seen.label[same])
        weighted += covered_us(part, steps.start_us, end) * level
    return time, weighted


def _gaps_seen(painted: Segments, k: int, layer: _Layer) -> Ints:
    mine = painted.label == k * _STATES + State.UNRECORDED
    seen = Segments(painted.start_us[mine], painted.end_us[mine], painted.label[mine])
    return covered_us(seen, layer.gaps[0], layer.gaps[1])


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
                f"{int((run > 0).sum())} steps of attempt {attempt.number} run into the next one by "
                f"{int(run[run > 0].sum())} us: a step ends where the next one starts"
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
