"""Run a step on paper: start when the predecessors have ended, move data when all have started.

    start = max(end of predecessors) + launch delay;  alone: end = start + work
    in a group: end = max(start of the members, over all data-parallel ranks if synced) + work

(Lin et al., OSDI'25, section 3.3.) Scenarios are stacked as a leading axis and steps are taken in
blocks, so that one walk over the operations serves all of them and stays in the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from steptax.app.whatif.program import Node, Program
from steptax.app.whatif.trace import Floats

#: Numbers in one buffer, 128 kB: calls are then longer than their overhead, and the two dozen
#: buffers of a pipeline still fit the caches.
BLOCK = 16_384


@dataclass(frozen=True, eq=False)
class Choice:
    """Which work each scenario takes for each operation.

    ``sources``: arrays [O, S, D] or, for one value for all lanes, [O]. ``pick`` [O, R] indexes
    them for each of R scenarios.
    """

    sources: Sequence[Floats]
    pick: npt.NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Stack:
    """R scenarios to run together.

    The first ``full`` run from the start of the step. The others follow row ``ideal`` until the
    tail begins. With ``each_dp`` the last two are no scenarios of their own but stand for "all but
    one data-parallel rank ideal", for every such rank at once: what the rank does that is not (row
    0 until it meets others), and what all others, which are alike, do.
    """

    work: Choice
    full: int
    ideal: int = 0
    delay: Choice | None = None
    each_dp: bool = False

    @property
    def rows(self) -> int:
        """R."""
        return int(self.work.pick.shape[1])


@dataclass(frozen=True, eq=False)
class Times:
    """Per scenario and step, seconds from the step's begin.

    ``finish_s`` [R, S]: the last stage's end over all data-parallel ranks. ``span_s`` [full, S]:
    last end of anything minus first start of anything. ``each_dp_s`` [S, D]: the finish where only
    that data-parallel rank is not ideal.
    """

    finish_s: Floats
    span_s: Floats
    each_dp_s: Floats | None = None


def simulate(
    program: Program,
    stack: Stack,
    shape: tuple[int, int],
    *,
    plan: Watch | None = None,
    block: int = BLOCK,
) -> Times:
    """Run ``stack`` on all steps. ``shape`` is (steps, data-parallel ranks).

    ``plan`` may be given when it is known to hold for the work of the stack.
    """
    steps, dps = shape
    width = max(1, block // (stack.rows * dps))
    finish = np.empty((stack.rows, steps))
    span = np.empty((stack.full, steps))
    each = np.empty((steps, dps)) if stack.each_dp else None
    plan = plan or make_watch(program, stack.work.sources)
    for begin in range(0, steps, width):
        part = slice(begin, min(begin + width, steps))
        run = _Run(program, plan, stack, part, dps)
        run.walk()
        run.store(finish[:, part], span[:, part], None if each is None else each[part])
    return Times(finish, span, each)


class _Run:
    """Buffers of one block of steps. An array is [R, lanes], lanes running over (step, dp)."""

    def __init__(self, program: Program, plan: Watch, stack: Stack, part: slice, dps: int) -> None:
        self.program = program
        self.plan = plan
        self.stack = stack
        self.dps = dps
        shape = (part.stop - part.start, dps)
        lanes = shape[0] * dps
        self.work = _Rows(stack.work, part, shape)
        self.delay = None if stack.delay is None else _Rows(stack.delay, part, shape)
        self.slots = np.empty((program.slots, stack.rows, lanes))
        self.last = np.full((stack.full, lanes), -np.inf)
        # Something starts at the step's begin, unless everything is delayed.
        self.first = np.full((stack.full, lanes), 0.0 if stack.delay is None else np.inf)

    def walk(self) -> None:
        """Head, hand-over, tail."""
        full, rows = self.stack.full, self.stack.rows
        run = self._plain if self.delay is None else self._delayed
        run(self.program.head, full)
        if full < rows:
            for slot in self.program.live:
                ends = self.slots[slot]
                ends[full:] = ends[self.stack.ideal]
                if self.stack.each_dp:
                    ends[-2] = ends[0]
        run(self.program.tail, rows)

    def _plain(self, nodes: Sequence[Node], rows: int) -> None:
        """The first ``rows`` scenarios through ``nodes``, without launch delays."""
        full, last, first = self.stack.full, self.last, self.first
        slots = list(self.slots[:, :rows])
        buffer = np.empty_like(slots[0])
        into = self.work.writer(rows)
        watch_last = self.plan.last
        maximum, add = np.maximum, np.add
        for node in nodes:
            union = node.union
            if not union:
                for op, slot in node.outs:
                    into(op, slots[slot])
                    if op in watch_last:
                        maximum(last, slots[slot][:full], out=last)
                continue
            begin = slots[union[0]]
            for slot in union[1:]:
                begin = maximum(begin, slots[slot], out=buffer)
            if node.rooted:
                begin = maximum(begin, 0.0, out=buffer)
            if node.members[0] in self.plan.first:
                for preds in filter(None, node.starts):
                    start = np.max([slots[slot][:full] for slot in preds], axis=0)
                    np.minimum(first, start, out=first)
            if node.synced:
                begin = self._meet(begin, buffer)
            for op, slot in node.outs:
                end = slots[slot]
                into(op, end)
                add(end, begin, out=end)
                if op in watch_last:
                    maximum(last, end[:full], out=last)

    def _delayed(self, nodes: Sequence[Node], rows: int) -> None:
        """The same with launch delays; everything is watched, as delays may be negative."""
        assert self.delay is not None
        slots = list(self.slots[:, :rows])
        buffer, start = np.empty_like(slots[0]), np.empty_like(slots[0])
        work_into, delay_into = self.work.writer(rows), self.delay.writer(rows)
        for node in nodes:
            buffer.fill(-np.inf)
            for op, preds in zip(node.members, node.starts, strict=True):
                delay_into(op, start)
                if preds:
                    ready = slots[preds[0]]
                    for slot in preds[1:]:
                        ready = np.maximum(ready, slots[slot])
                    start += ready
                np.minimum(self.first, start, out=self.first)
                np.maximum(buffer, start, out=buffer)
            begin = self._meet(buffer, buffer) if node.synced else buffer
            for op, slot in node.outs:
                end = slots[slot]
                work_into(op, end)
                np.add(end, begin, out=end)
                np.maximum(self.last, end, out=self.last)

    def _meet(self, begin: Floats, out: Floats) -> Floats:
        """The latest over data-parallel ranks, for each of them."""
        shape = (len(begin), -1, self.dps)
        alike = len(begin) - 2 * self.stack.each_dp
        if self.stack.each_dp:
            pair = np.maximum(begin[-2], begin[-1])
            latest = begin[:alike].reshape(alike, -1, self.dps).max(axis=2, keepdims=True)
            out[alike:] = pair
        else:
            latest = begin.reshape(shape).max(axis=2, keepdims=True)
        out[:alike].reshape(alike, -1, self.dps)[...] = latest
        return out

    def store(self, finish: Floats, span: Floats, each: Floats | None) -> None:
        """Reduce over data-parallel ranks into the results of this block."""
        end = self.slots[self.program.finish[0]]
        for slot in self.program.finish[1:]:
            end = np.maximum(end, self.slots[slot])
        lanes = (-1, finish.shape[1], self.dps)
        finish[:] = end.reshape(lanes).max(axis=2)
        span[:] = self.last.reshape(lanes).max(axis=2)
        span -= self.first.reshape(lanes).min(axis=2)
        if each is not None:
            each[:] = np.maximum(end[-2], end[-1]).reshape(each.shape)


@dataclass(frozen=True)
class Watch:
    """Operations that may end last of all, and nodes (by first member) that may start first.

    Negative transfers make others than the sinks and the roots possible. What has a successor
    whose work is never negative does not end last; what waits for something that cannot end before
    the step's begin does not start first. Watching only the rest changes no result.
    """

    last: frozenset[int]
    first: frozenset[int]


def make_watch(program: Program, sources: Sequence[Floats]) -> Watch:
    """What to watch in scenarios whose work is taken from ``sources``."""
    least = np.min(
        [s if s.ndim == 1 else s.reshape(len(s), -1).min(axis=1) for s in sources], axis=0
    )
    pred, op, node = program.edges
    outlasted = np.zeros(len(least), bool)
    outlasted[pred[least[op] >= 0]] = True
    # A node starts at or after the begin if a member is a root or waits for something solid, and
    # then a member is solid, ending at or after the begin, if its work is never negative.
    safe = np.ones(len(program.first_member), bool)
    while True:
        solid = (least >= 0) & safe[node]
        now = program.rooted.copy()
        now[node[op[solid[pred]]]] = True
        if (now == safe).all():
            break
        safe = now
    # Each member counts with its own start, so one that waits for nothing solid is watched too.
    held = np.zeros(len(least), bool)
    held[op[solid[pred]]] = True
    waits = np.zeros(len(least), bool)
    waits[op] = True
    early = program.first_member[node[waits & ~held]]
    return Watch(frozenset(np.flatnonzero(~outlasted).tolist()), frozenset(early.tolist()))


class _Rows:
    """The rows of a choice for one block of steps, one operation at a time.

    The sources of an operation are copied side by side into a small buffer that stays in the cache;
    laying all of them out at once would cost as much memory as several traces.
    """

    def __init__(self, choice: Choice, part: slice, shape: tuple[int, int]) -> None:
        self.pick = choice.pick
        self.values: list[list[Any]] = [
            s.tolist() if s.ndim == 1 else list(s[:, part]) for s in choice.sources
        ]
        self.constant = [s.ndim == 1 for s in choice.sources]
        picked = [(choice.pick == i).any(axis=1).tolist() for i in range(len(self.values))]
        self.used = [
            [i for i, here in enumerate(each) if here] for each in zip(*picked, strict=True)
        ]
        self.side = np.empty((len(self.values), *shape))

    def writer(self, rows: int) -> Callable[[int, Floats], None]:
        """``write(op, out)`` puts what the first ``rows`` scenarios take of ``op`` into ``out``."""
        pick = list(np.ascontiguousarray(self.pick[:, :rows]))
        targets = list(self.side)
        take = self.side.reshape(len(targets), -1).take
        values, used, constant, copy = self.values, self.used, self.constant, np.copyto

        def write(op: int, out: Floats) -> None:
            for source in used[op]:
                if constant[source]:
                    targets[source].fill(values[source][op])
                else:
                    copy(targets[source], values[source][op])
            take(pick[op], 0, out, "clip")

        return write
