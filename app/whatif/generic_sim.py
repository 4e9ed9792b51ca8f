"""Playing chains of steps forward, many scenarios at once.

A rank goes through its items; a communication starts on a rank once that has launched it and the
one before on its stream has ended, and ends ``transfer`` after it has started on all members.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from steptax.app.whatif.errors import GraphError
from steptax.app.whatif.generic_lanes import Chain, Kind
from steptax.app.whatif.trace import Floats


@dataclass(frozen=True, eq=False)
class Plan:
    """What a chain's simulation needs besides own times; collectives [C], their members [M] flat.

    ``first`` [C + 1]: where the members of each begin. ``before`` [M]: the member that precedes on
    the stream, -1 for none. ``transfer_s`` and ``delay_s`` [M]; ``offset_s`` [R] when ranks begin.
    """

    chain: Chain
    first: tuple[int, ...]
    member_rank: tuple[int, ...]
    before: tuple[int, ...]
    transfer_s: Floats
    delay_s: Floats
    offset_s: Floats
    clamped: int


def make_plan(chain: Chain) -> Plan:
    """Transfers and launch delays of ``chain`` from its recorded times."""
    first, rank, before, transfer = [0], [], [], []
    clamped = 0
    starts: list[float] = []
    last: dict[tuple[int, int], tuple[int, int]] = {}
    base = min(lane.begin_ns for lane in chain.lanes)
    flat: list[tuple[int, int]] = []
    for one in chain.collectives:
        meet = max(one.start_ns)
        for at, r in enumerate(one.rank):
            rank.append(r)
            own = (one.end_ns[at] - meet) / 1e9
            clamped += own < -1e-4
            transfer.append(max(0.0, own))
            starts.append((one.start_ns[at] - base) / 1e9)
            flat.append((len(first) - 1, at))
        first.append(len(rank))
    # Streams: in the order of starts on each rank; one that starts before the other has ended
    # runs beside it (gloo's threads, or two communicators on a stream that was reused).
    order = sorted(range(len(rank)), key=lambda m: starts[m])
    before = [-1] * len(rank)
    for m in order:
        index, at = flat[m]
        one = chain.collectives[index]
        key = rank[m], one.stream[at]
        if key in last and last[key][1] <= one.start_ns[at]:
            before[m] = last[key][0]
        if key not in last or one.end_ns[at] >= last[key][1]:
            last[key] = m, one.end_ns[at]
    plan = Plan(
        chain,
        tuple(first),
        tuple(rank),
        tuple(before),
        np.array(transfer),
        np.zeros(len(rank)),
        np.array([(lane.begin_ns - base) / 1e9 for lane in chain.lanes]),
        clamped,
    )
    return _with_delays(plan, base)


def _with_delays(plan: Plan, base_ns: int) -> Plan:
    """Launch delay of each member: its start after the launch and what was on the stream."""
    delay = plan.delay_s
    chain = plan.chain
    member = _members(plan)
    reached = np.zeros(len(delay))
    for r, lane in enumerate(chain.lanes):
        moments = _resumed(lane.at_ns, lane.kind, lane.which, chain, r)
        for i in np.flatnonzero(lane.kind == Kind.LAUNCH).tolist():
            reached[member[lane.which[i][0], r]] = (moments[i] - base_ns) / 1e9
    ends_s = [(end - base_ns) / 1e9 for one in chain.collectives for end in one.end_ns]
    for index, one in enumerate(chain.collectives):
        for at in range(len(one.rank)):
            m = plan.first[index] + at
            earliest = reached[m]
            if plan.before[m] >= 0:
                earliest = max(earliest, ends_s[plan.before[m]])
            wait = (one.start_ns[at] - base_ns) / 1e9 - earliest
            delay[m] = max(0.0, wait)
    return plan


def _resumed(
    at_ns: np.ndarray, kind: np.ndarray, which: tuple[tuple[int, ...], ...], chain: Chain, rank: int
) -> np.ndarray:
    """[I] when the lane got to each item: after what it awaited at the same moment."""
    out = at_ns.copy()
    floor = -(2**63)
    for i in range(len(out)):
        out[i] = max(int(out[i]), floor)
        if kind[i] == Kind.AWAIT:
            for c in which[i]:
                one = chain.collectives[c]
                floor = max(floor, one.end_ns[one.rank.index(rank)])
    return out


def _members(plan: Plan) -> dict[tuple[int, int], int]:
    """Member number by collective and rank."""
    return {
        (index, plan.member_rank[m]): m
        for index in range(len(plan.first) - 1)
        for m in range(plan.first[index], plan.first[index + 1])
    }


def simulate(
    plan: Plan, own_s: list[Floats], transfer_s: Floats, offset_s: Floats, *, delays: bool
) -> Floats:
    """[S, K] length of each step, mean over ranks, in K scenarios.

    ``own_s`` one [I, K] for each rank, ``transfer_s`` [M, K], ``offset_s`` [R, K]; with ``delays``
    launch delays are as recorded, else none. GraphError when ranks wait for each other in a circle.
    """
    chain = plan.chain
    ranks, scenarios = len(chain.lanes), transfer_s.shape[1]
    count = len(plan.first) - 1
    member = _members(plan)
    now = [offset_s[r].copy() for r in range(ranks)]
    item, entered = [0] * ranks, [False] * ranks
    launched: list[Floats | None] = [None] * len(plan.member_rank)
    end: list[Floats | None] = [None] * len(plan.member_rank)
    missing = [plan.first[i + 1] - plan.first[i] for i in range(count)]
    waiting: dict[int, list[int]] = {}
    owner = np.repeat(np.arange(count), np.diff(plan.first))
    after: dict[int, list[int]] = {}
    for m, b in enumerate(plan.before):
        if b >= 0:
            after.setdefault(b, []).append(int(owner[m]))
    marks = np.zeros((ranks, len(chain.steps) + 1, scenarios))
    marked = [1] * ranks
    for r in range(ranks):
        marks[r, 0] = now[r]
    todo = deque(range(ranks))

    def settle(first: int) -> None:
        """End a collective if all that it needs is there, and then what follows on streams."""
        queue = [first]
        while queue:
            c = queue.pop()
            begin, stop = plan.first[c], plan.first[c + 1]
            if missing[c] or end[begin] is not None:
                continue
            starts = []
            for m in range(begin, stop):
                start = launched[m]
                assert start is not None
                if plan.before[m] >= 0:
                    previous = end[plan.before[m]]
                    if previous is None:
                        break
                    start = np.maximum(start, previous)
                starts.append(start + plan.delay_s[m] if delays else start)
            if len(starts) < stop - begin:
                continue
            meet = np.maximum.reduce(starts)
            for m in range(begin, stop):
                end[m] = meet + transfer_s[m]
                queue += after.get(m, ())
                todo.extend(waiting.pop(m, ()))

    while todo:
        r = todo.popleft()
        lane = chain.lanes[r]
        while item[r] < len(lane.kind):
            i = item[r]
            if not entered[r]:
                now[r] = now[r] + own_s[r][i]
                entered[r] = True
            kind = lane.kind[i]
            if kind == Kind.AWAIT:
                needed = [member[c, r] for c in lane.which[i]]
                open_ = [m for m in needed if end[m] is None]
                if open_:
                    waiting.setdefault(open_[0], []).append(r)
                    break
                for m in needed:
                    ended = end[m]
                    assert ended is not None
                    now[r] = np.maximum(now[r], ended)
            elif kind == Kind.LAUNCH:
                c = lane.which[i][0]
                launched[member[c, r]] = now[r]
                missing[c] -= 1
                settle(c)
            else:
                marks[r, marked[r]] = now[r]
                marked[r] += 1
            item[r] += 1
            entered[r] = False
    stuck = [r for r in range(ranks) if item[r] < len(chain.lanes[r].kind)]
    if stuck:
        lane = chain.lanes[stuck[0]]
        one = chain.collectives[lane.which[item[stuck[0]]][0]]
        raise GraphError(
            f"ranks wait for each other in a circle, at {one}: the clocks disagree, or "
            "communications are matched wrongly",
            where="ops",
        )
    out: Floats = np.diff(marks, axis=1).mean(axis=0)
    return out
