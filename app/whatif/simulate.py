"""Run a step on paper: start when the predecessors have ended, move data when all have started.

    start = max(end of predecessors) + launch delay;  alone: end = start + work
    in a group: end = max(start of the members, over all data-parallel ranks if synced) + work

(Lin et al., OSDI'25, section 3.3.) Scenarios are stacked as a leading axis and steps are taken in
blocks, so that one walk over the operations serves all of them and stays in the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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

    The first ``full`` run from the start of the step. The others follow ``ideal`` until the tail
    begins. With ``each_dp`` the last two are no scenarios of their own but stand for "all ideal but
    one data-parallel rank", for every such rank at once: what the rank does that is not, and what
    all others, which are alike, do.
    """

    work: Choice
    full: int
    delay: Choice | None = None
    each_dp: bool = False

    @property
    def rows(self) -> int:
        """R."""
        return int(self.work.pick.shape[1])


@dataclass(frozen=True, eq=False)
class Ideal:
    """The run in which every operation takes its ideal work: the same in every lane."""

    end_s: list[float]
    finish_s: float
    span_s: float


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


def run_ideal(program: Program, ideal_s: Floats) -> Ideal:
    """One lane with ideal work, in plain floats."""
    work = ideal_s.tolist()
    end = [0.0] * len(work)
    last, first = -np.inf, 0.0
    preds = program.preds
    for node in (*program.head, *program.tail):
        begin = -np.inf
        for op in node.members:
            start = max([end[p] for p in preds[op]], default=0.0)
            first = min(first, start)
            begin = max(begin, start)
        for op in node.members:
            end[op] = begin + work[op]
            last = max(last, end[op])
    finish = max(end[op] for op in program.finish_ops)
    return Ideal(end, finish, last - first)


def simulate(
    program: Program,
    stack: Stack,
    ideal: Ideal,
    shape: tuple[int, int],
    *,
    block: int = BLOCK,
) -> Times:
    """Run ``stack`` on all steps. ``shape`` is (steps, data-parallel ranks)."""
    steps, dps = shape
    width = max(1, block // (stack.rows * dps))
    finish = np.empty((stack.rows, steps))
    span = np.empty((stack.full, steps))
    each = np.empty((steps, dps)) if stack.each_dp else None
    plan = watch(program, stack)
    for begin in range(0, steps, width):
        part = slice(begin, min(begin + width, steps))
        run = _Run(program, plan, stack, ideal, part, dps)
        run.walk()
        run.store(finish[:, part], span[:, part], None if each is None else each[part])
    return Times(finish, span, each)


class _Run:
    """Buffers of one block of steps. An array is [R, lanes], lanes running over (step, dp)."""

    def __init__(
        self,
        program: Program,
        plan: Watch,
        stack: Stack,
        ideal: Ideal,
        part: slice,
        dps: int,
    ) -> None:
        self.program = program
        self.plan = plan
        self.stack = stack
        self.ideal = ideal
        self.dps = dps
        self.work = _bank(stack.work.sources, part, dps)
        self.delay = None if stack.delay is None else _bank(stack.delay.sources, part, dps)
        lanes = (part.stop - part.start) * dps
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
            for op, slot in self.program.live:
                self.slots[slot, full:] = self.ideal.end_s[op]
                if self.stack.each_dp:
                    # The rank that is not ideal has met no other: it is as in the first scenario.
                    self.slots[slot, -2] = self.slots[slot, 0]
        run(self.program.tail, rows)

    def _plain(self, nodes: Sequence[Node], rows: int) -> None:
        """The first ``rows`` scenarios through ``nodes``, without launch delays."""
        full, last, first = self.stack.full, self.last, self.first
        slots = list(self.slots[:, :rows])
        work, pick = list(self.work), list(np.ascontiguousarray(self.stack.work.pick[:, :rows]))
        buffer = np.empty_like(slots[0])
        watch_last, watch_first = self.plan.last, self.plan.first
        maximum, add = np.maximum, np.add
        for node in nodes:
            union = node.union
            if not union:
                for op, slot in node.outs:
                    work[op].take(pick[op], 0, slots[slot], "clip")
                    if op in watch_last:
                        maximum(last, slots[slot][:full], last)
                continue
            begin = slots[union[0]]
            for slot in union[1:]:
                begin = maximum(begin, slots[slot], buffer)
            if node.rooted:
                begin = maximum(begin, 0.0, buffer)
            if node.members[0] in watch_first:
                np.minimum(first, begin[:full], first)
            if node.synced:
                begin = self._meet(begin, buffer)
            for op, slot in node.outs:
                end = slots[slot]
                work[op].take(pick[op], 0, end, "clip")
                add(end, begin, end)
                if op in watch_last:
                    maximum(last, end[:full], last)

    def _delayed(self, nodes: Sequence[Node], rows: int) -> None:
        """The same with launch delays; everything is watched, as delays may be negative."""
        assert self.delay is not None
        assert self.stack.delay is not None
        slots = list(self.slots[:, :rows])
        buffer, start = np.empty_like(slots[0]), np.empty_like(slots[0])
        for node in nodes:
            buffer.fill(-np.inf)
            for op, preds in zip(node.members, node.starts, strict=True):
                self.delay[op].take(self.stack.delay.pick[op], 0, start, "clip")
                if preds:
                    ready = slots[preds[0]]
                    for slot in preds[1:]:
                        ready = np.maximum(ready, slots[slot])
                    start += ready
                np.minimum(self.first, start, self.first)
                np.maximum(buffer, start, buffer)
            begin = self._meet(buffer, buffer) if node.synced else buffer
            for op, slot in node.outs:
                end = slots[slot]
                self.work[op].take(self.stack.work.pick[op], 0, end, "clip")
                np.add(end, begin, end)
                np.maximum(self.last, end, self.last)

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
    whose work is never negative does not end last; what cannot start before the step's begin does
    not start first. Watching only the rest saves a third of the time and changes no result.
    """

    last: frozenset[int]
    first: frozenset[int]


def watch(program: Program, stack: Stack) -> Watch:
    """Bounds from the least work of each operation in any scenario of ``stack``."""
    least = np.min(
        [s if s.ndim == 1 else s.min(axis=(1, 2)) for s in stack.work.sources], axis=0
    ).tolist()
    outlasted: set[int] = set()
    early: set[int] = set()
    end = [0.0] * len(least)
    for node in (*program.head, *program.tail):
        start = max(max((end[p] for p in program.preds[op]), default=0.0) for op in node.members)
        if start < 0:
            early.add(node.members[0])
        for op in node.members:
            end[op] = start + least[op]
            if least[op] >= 0:
                outlasted.update(program.preds[op])
    return Watch(frozenset(range(len(least))) - outlasted, frozenset(early))


def _bank(sources: Sequence[Floats], part: slice, dps: int) -> Floats:
    """Sources side by side, [O, sources, lanes], for the steps in ``part``."""
    count = len(sources[0])
    width = part.stop - part.start
    bank = np.empty((count, len(sources), width, dps))
    for i, source in enumerate(sources):
        bank[:, i] = source[:, None, None] if source.ndim == 1 else source[:, part]
    return bank.reshape(count, len(sources), width * dps)
