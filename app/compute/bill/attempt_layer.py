"""What one attempt of a job puts on the timeline, from its events and its executed steps."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from steptax.app.compute.bill.attempts import Attempt
from steptax.app.compute.bill.job_events import BREAKS, RETURNS, SAVE
from steptax.app.compute.bill.segments import EMPTY, Segments, in_order, one, stack
from steptax.app.compute.stats.rows import Flags, Ints

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


@dataclass(frozen=True, eq=False)
class Cover:
    """Which executions [N] have measured parts, and how much time these leave open."""

    split: Flags
    room_us: Ints


@dataclass(frozen=True, eq=False)
class Layer:
    """What one attempt puts on the timeline."""

    segments: Segments
    """Labelled with states."""
    taken_us: Ints
    gaps: tuple[Ints, Ints, Ints]
    """Start, end and number of steps of each gap in the record."""


def attempt_layer(
    attempt: Attempt, before: Attempt | None, cover: Cover, *, steps_told: bool
) -> Layer:
    """All that is known of an attempt, the surest on top.

    ``steps_told``: whether any attempt of the job has a first step on record. Where none has, as
    with accounting alone, an attempt without one may have trained all the time.
    """
    stepped = attempt.first_step_us
    if stepped is None and not steps_told:
        return _untold(attempt, before)
    until = attempt.interrupted_us if stepped is None else stepped
    if before is not None:
        since = min(before.interrupted_us, attempt.begin_us)
        opening = one(since, attempt.end_us if stepped is None else stepped, State.RECOVERY)
    else:
        started = attempt.moment("process_start")
        opening = EMPTY if started is None else one(started, until, State.STARTUP)
    if stepped is None:
        after = one(attempt.interrupted_us, attempt.end_us, State.RECOVERY)
        none = np.zeros(0, dtype=np.int64)
        return Layer(stack([opening, after]), none, (none, none, none))
    order = np.lexsort((attempt.steps.step, attempt.steps.end_us, attempt.steps.start_us))
    gaps, gap_layer = _gaps(attempt, order)
    layers = [opening, one(stepped, attempt.end_us, State.UNEXPLAINED), gap_layer]
    layers += _interruptions(attempt)
    states = np.where(cover.split, State.SPLIT, State.WHOLE)
    states = np.where(attempt.steps.lost, State.LOST, states).astype(np.int64)
    start, end = attempt.steps.start_us[order], attempt.steps.end_us[order]
    steps = in_order(start, end, states[order])
    outside, inside, taken = _blocking(attempt, stepped, order, cover)
    return Layer(stack([*layers, outside, steps, inside]), taken, gaps)


def _untold(attempt: Attempt, before: Attempt | None) -> Layer:
    """An attempt of a job whose steps nobody recorded: only what passed before it began is told."""
    none = np.zeros(0, dtype=np.int64)
    opening = EMPTY
    if before is not None:
        since = min(before.interrupted_us, attempt.begin_us)
        opening = one(since, attempt.begin_us, State.RECOVERY)
    run = one(attempt.begin_us, attempt.end_us, State.UNEXPLAINED)
    return Layer(stack([opening, run]), none, (none, none, none))


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
    end = np.minimum(attempt.steps.end_us[order], np.append(start[1:], np.iinfo(np.int64).max))
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
