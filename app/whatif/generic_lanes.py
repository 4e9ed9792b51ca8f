"""What each rank does by itself, cut where it launches or awaits a communication.

A lane waits where it is idle and a communication ends: what follows is taken to need what ended.
Idle time in which none ends is the rank's own, such as a host that launches too slowly. A
communication that ends while the lane is busy is hidden; when its result is needed is not recorded,
so that it is awaited *late*, at the end of its step, or *early*, by the first operation that
starts after it. The truth lies between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from steptax.app.intervals import Ints, Spans, both, length_until, minus, union, within
from steptax.app.whatif.errors import GraphError
from steptax.app.whatif.generic_rows import LANE, STEP, Collective, Ops
from steptax.app.whatif.trace import Floats

#: The host goes on when a communication tells that it is done, and its event ends a little later.
_HOST_SLACK_NS = 500_000


class Kind(IntEnum):
    """What happens at an item of a lane; the order is that of items of one moment."""

    LAUNCH = 0
    AWAIT = 1
    STEP_END = 2


@dataclass(frozen=True, eq=False)
class Lane:
    """One rank's items [I] in order, over consecutive steps.

    ``own_s`` [I] is what the rank does by itself before each item; ``at_ns`` [I] when the item was
    reached. ``which`` are the collectives that an item is about.
    """

    rank: int
    begin_ns: int
    end_ns: Ints
    """[S] ends of the steps."""
    kind: Ints
    which: tuple[tuple[int, ...], ...]
    at_ns: Ints
    own_s: Floats
    busy: Spans

    def own_per_step_s(self, values: Floats | None = None) -> Floats:
        """[S] own time of each step, of the recorded work or of other ``values`` [I]."""
        values = self.own_s if values is None else values
        ends = np.flatnonzero(self.kind == Kind.STEP_END)
        done = np.append(0.0, np.cumsum(values)[ends])
        out: Floats = np.diff(done)
        return out


@dataclass(frozen=True, eq=False)
class Chain:
    """Consecutive steps of all ranks [R]; ``steps`` index those of the trace."""

    steps: tuple[int, ...]
    lanes: tuple[Lane, ...]
    collectives: tuple[Collective, ...]

    @property
    def measured_s(self) -> Floats:
        """[S] length of each step, mean over ranks."""
        lengths = [np.diff(np.append(lane.begin_ns, lane.end_ns)) for lane in self.lanes]
        out: Floats = np.mean(lengths, axis=0) / 1e9
        return out


def make_chains(
    ops: Ops, steps: Sequence[int], collectives: Sequence[Collective], *, early: bool = False
) -> list[Chain]:
    """One chain for each run of consecutive step numbers.

    GraphError where a rank has no boundaries of a step.
    """
    runs: list[list[int]] = []
    for step in steps:
        if runs and ops.steps[step] == ops.steps[runs[-1][-1]] + 1 and step == runs[-1][-1] + 1:
            runs[-1].append(step)
        else:
            runs.append([step])
    out = []
    for run in runs:
        mine = [c for c in collectives if c.step in run]
        lanes = [_lane(ops, rank, run, mine, early=early) for rank in range(len(ops.ranks))]
        out.append(Chain(tuple(run), tuple(lanes), tuple(mine)))
    return out


def _lane(
    ops: Ops, rank: int, run: Sequence[int], collectives: Sequence[Collective], *, early: bool
) -> Lane:
    here = (ops.rank == rank) & np.isin(ops.step, run)
    work = here & ops.of(*LANE)
    start = np.sort(ops.start_ns[work])
    busy = union(ops.start_ns[work], ops.end_ns[work])
    mine = [(i, c.rank.index(rank)) for i, c in enumerate(collectives) if rank in c.rank]
    begin, ends = _boundaries(ops, here, run, collectives, mine)
    if not mine:
        empty: tuple[tuple[int, ...], ...] = ((),) * len(ends)
        own = np.diff(np.append(begin, ends)) / 1e9
        kinds = np.full(len(ends), int(Kind.STEP_END))
        return Lane(rank, begin, ends, kinds, empty, ends, own, busy)
    c_start = np.array([collectives[i].start_ns[at] for i, at in mine])
    c_end = np.array([collectives[i].end_ns[at] for i, at in mine])
    slack = 0 if (work & ops.of("kernel")).any() else _HOST_SLACK_NS
    awaited, blocked = _awaited(busy, c_start, c_end, (begin, int(ends[-1])), slack)
    items: list[tuple[int, int, tuple[int, ...]]] = []
    for moment, which in awaited:
        items.append((moment, Kind.AWAIT, tuple(mine[k][0] for k in which)))
    exposed = {k for _, which in awaited for k in which}
    late: dict[int, list[int]] = {}
    for k, (i, at) in enumerate(mine):
        ready = collectives[i].ready_ns[at]
        moment = int(c_start[k]) if ready is None else min(ready, int(c_start[k]))
        items.append((_unblocked(blocked, max(moment, begin)), Kind.LAUNCH, (i,)))
        if k in exposed:
            continue
        place = int(np.searchsorted(start, c_end[k]))
        step = run.index(collectives[i].step)
        if early and place < len(start) and start[place] < ends[step]:
            items.append((int(start[place]), Kind.AWAIT, (i,)))
        else:
            late.setdefault(step, []).append(i)
    for step, end in enumerate(ends.tolist()):
        if step in late:
            items.append((end, Kind.AWAIT, tuple(late[step])))
        items.append((end, Kind.STEP_END, ()))
    items.sort(key=lambda item: (item[0], item[1]))
    at_ns = np.array([item[0] for item in items])
    progress = at_ns - length_until(blocked, at_ns)
    own = np.diff(np.append(begin, progress)) / 1e9
    kinds = np.array([int(item[1]) for item in items])
    return Lane(rank, begin, ends, kinds, tuple(i[2] for i in items), at_ns, own, busy)


def _boundaries(
    ops: Ops,
    here: np.ndarray,
    run: Sequence[int],
    collectives: Sequence[Collective],
    mine: Sequence[tuple[int, int]],
) -> tuple[int, Ints]:
    """Begin of the first step and ends of all: the host's, or the device's where that is later."""
    begin = 0
    ends: list[int] = []
    reach = -(2**63)
    marks = ops.of(STEP) & here
    work = here & ops.of(*LANE)
    for step in run:
        rows = np.flatnonzero(marks & (ops.step == step))
        if not len(rows):
            rank = ops.ranks[int(ops.rank[np.flatnonzero(here)[0]])] if here.any() else "?"
            raise GraphError(
                f"rank {rank} has no boundaries of step {ops.steps[step]}", where="ops"
            )
        if not ends:
            begin = int(ops.start_ns[rows[0]])
        last = ops.end_ns[work & (ops.step == step)].max(initial=reach)
        last = max(
            [
                int(last),
                *(collectives[i].end_ns[at] for i, at in mine if collectives[i].step == step),
            ]
        )
        reach = max(reach, last, int(ops.end_ns[rows[0]]))
        ends.append(reach)
    return begin, np.array(ends, np.int64)


def _awaited(
    busy: Spans, start: Ints, end: Ints, whole: tuple[int, int], slack_ns: int
) -> tuple[list[tuple[int, list[int]]], Spans]:
    """Where the lane waits and for which communications, and the stretches in which it waits.

    With ``slack_ns`` one that ends that much after the lane goes on was awaited too.
    """
    idle = minus((np.array([whole[0]]), np.array([whole[1]])), busy)
    pieces = both(idle, within(union(start, end), *whole))
    order = np.argsort(end, kind="stable")
    ordered = end[order]
    found, low, high = [], [], []
    for a, b in zip(pieces[0].tolist(), pieces[1].tolist(), strict=True):
        first, last = np.searchsorted(ordered, (a, b), side="right")
        if last == first and slack_ns:
            # Only if it has been waited for longer than that, else it is chance.
            last = first + int(np.sum(ordered[first:] <= b + min(slack_ns, (b - a) // 10)))
            # What began after the lane went on was not waited for.
            last = first if any(start[k] >= b for k in order[first:last]) else last
        if last > first:
            found.append((a, order[first:last].tolist()))
            low.append(a)
            high.append(min(b, int(ordered[last - 1])))
    return found, (np.array(low, np.int64), np.array(high, np.int64))


def _unblocked(blocked: Spans, moment: int) -> int:
    """``moment``, or the begin of the stretch in which the lane waits then."""
    place = int(np.searchsorted(blocked[0], moment, side="right")) - 1
    if place >= 0 and moment < blocked[1][place]:
        return int(blocked[0][place])
    return moment
