"""Launch delays: what it costs that operations start later than their inputs allow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steptax.app.whatif.graph import Graph
from steptax.app.whatif.program import Program
from steptax.app.whatif.scenarios import launch_groups
from steptax.app.whatif.simulate import Choice, Stack, simulate
from steptax.app.whatif.trace import Floats, Trace
from steptax.app.whatif.work import Delays, Work

#: Most data-parallel ranks of which the delays are told apart: the work grows with the square.
MOST_DP = 256
#: Most delays held at once: half a megabyte, so that they stay in the cache.
_CELLS = 65_536
#: Scenarios in one stack.
_ROWS = 32


@dataclass(frozen=True, eq=False)
class LaunchTimes:
    """Finishes in seconds with the launch delays of one part alone.

    ``by_dp_s`` [S, D], None where there are too many; ``by_stage_s`` [S, P]; ``by_type_s`` one [S]
    for each group.
    """

    by_dp_s: Floats | None
    by_stage_s: Floats
    by_type_s: dict[str, Floats]


def step_parts(trace: Trace) -> list[slice]:
    """Steps in blocks small enough to hold their delays."""
    operations, steps, dps = trace.shape
    width = max(1, _CELLS // (operations * dps))
    return [slice(i, min(i + width, steps)) for i in range(0, steps, width)]


def replay(trace: Trace, graph: Graph, program: Program, work: Work) -> tuple[float, int]:
    """Largest relative error of a step replayed with its own work and delays, and how many
    delays were set to zero.

    Start is the predecessors' end plus the delay, and end the group's start plus the transfer: so
    the replay is the measurement itself, unless a negative transfer or delay was set to zero.
    Only then is there anything to simulate.
    """
    worst, clamped = 0.0, 0
    delays = Delays(trace, graph, work.clamp_s)
    for part in step_parts(trace):
        delay, count = delays.of(part)
        clamped += count
        if not count and not work.clamped:
            continue
        none = np.zeros((len(delay), 1), np.intp)
        stack = Stack(Choice((work.own_s[:, part],), none), 1, delay=Choice((delay,), none))
        times = simulate(program, stack, (delay.shape[1], trace.shape[2]))
        error = np.abs(times.span_s[0] / work.base_s[part] - 1)
        worst = max(worst, float(error.max()))
    return worst, clamped


def launch_times(
    trace: Trace, graph: Graph, program: Program, work: Work
) -> tuple[LaunchTimes, str | None]:
    """Finishes with the delays of each type, stage and data-parallel rank alone.

    The second value says why there are none by data-parallel rank, if so.
    """
    _, steps, dps = trace.shape
    groups = launch_groups(trace, graph)
    masks = []
    for ops in groups.values():
        mask = np.zeros(len(trace.op_type), bool)
        mask[ops] = True
        masks.append(mask)
    masks += [trace.op_stage == p for p in range(trace.stages)]
    finish = np.empty((len(masks), steps))
    by_dp = np.empty((dps, steps)) if dps <= MOST_DP else None
    delays = Delays(trace, graph, work.clamp_s)
    for part in step_parts(trace):
        delay, _ = delays.of(part)
        own = work.own_s[:, part]
        zero = np.zeros(len(delay))
        for begin in range(0, len(masks), _ROWS):
            some = masks[begin : begin + _ROWS]
            pick = np.stack([mask.astype(np.intp) for mask in some], axis=1)
            finish[begin : begin + len(some), part] = _finish(program, own, (zero, delay), pick)
        for begin in range(0, dps if by_dp is not None else 0, _ROWS):
            some_dp = range(begin, min(begin + _ROWS, dps))
            alone = [np.where(np.arange(dps) == d, delay, 0.0) for d in some_dp]
            pick = np.tile(np.arange(len(alone), dtype=np.intp), (len(delay), 1))
            assert by_dp is not None
            by_dp[begin : begin + len(alone), part] = _finish(program, own, tuple(alone), pick)
    reason = None
    if by_dp is None:
        reason = f"delays are told apart for at most {MOST_DP} data-parallel ranks, here {dps}"
    count = len(groups)
    return (
        LaunchTimes(
            None if by_dp is None else by_dp.T,
            finish[count:].T,
            dict(zip(groups, finish[:count], strict=True)),
        ),
        reason,
    )


def _finish(
    program: Program,
    own: Floats,
    delays: tuple[Floats, ...],
    pick: npt.NDArray[np.intp],
) -> Floats:
    """[R, steps] finishes with measured work and the picked delays."""
    none = np.zeros_like(pick)
    stack = Stack(Choice((own,), none), pick.shape[1], delay=Choice(delays, pick))
    return simulate(program, stack, (own.shape[1], own.shape[2])).finish_s
