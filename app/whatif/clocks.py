"""Whether the hosts' clocks agree: both ends of a transfer end together, so they tell.

Over a pair of stages, a forward transfer shows offset + lag and a backward one lag - offset; half
the difference is the offset, as in NTP (Mills, RFC 5905). Over data-parallel ranks a collective
ends everywhere at once.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from steptax.app.whatif.arrays import median, median_last
from steptax.app.whatif.graph import Graph
from steptax.app.whatif.optypes import FORWARD_SEND, P2P
from steptax.app.whatif.trace import Floats, Trace, earliest

#: Offsets below this are lag; on real clusters ends agree to a fifth of a millisecond.
_NOTABLE_S = 2e-3
_NOTABLE_SHARE = 1e-3
#: Steps that are looked at; an offset lasts.
_STEPS = 4


def clock_offsets(trace: Trace, graph: Graph) -> Floats:
    """[D, P] seconds by which each worker's clock is ahead of the median worker's.

    Zero where nothing connects a worker to others.
    """
    _, steps, dps = trace.shape
    part = slice(None, None, max(1, steps // _STEPS))
    offset = np.zeros((dps, trace.stages))
    ends: dict[bool, list[tuple[int, ...]]] = {False: [], True: []}
    for group in graph.groups:
        if group.synced or len(group.members) == 2:
            ends[group.synced].append(group.members)
    first = [ops[0] for ops in ends[True] if trace.op_stage[ops[0]] == 0]
    if first and dps > 1:
        end = _ends(trace, np.array(first), part)
        offset[:, 0] = _middle(end - median_last(end)[:, :, None])
    pairs = np.array([m for m in ends[False] if _is_p2p(trace, m[0])], np.intp).reshape(-1, 2)
    forward = trace.op_type[pairs[:, 0]] == _code(trace, FORWARD_SEND)
    send, recv = (trace.op_stage[pairs[:, i]] for i in (0, 1))
    for stage in range(trace.stages - 1):
        ahead = pairs[forward & (send == stage) & (recv == stage + 1)]
        back = pairs[~forward & (send == stage + 1) & (recv == stage)]
        offset[:, stage + 1] = offset[:, stage]
        if len(ahead) and len(back):
            offset[:, stage + 1] += (_lag(trace, ahead, part) - _lag(trace, back, part)) / 2
    out: Floats = offset - median(offset)
    return out


def clock_warnings(trace: Trace, offset_s: Floats) -> list[str]:
    """One sentence on the worst clock where it is notably off; empty where all agree."""
    span = float((trace.start_s[:, 0] + trace.duration_s[:, 0]).max())
    limit = max(_NOTABLE_S, _NOTABLE_SHARE * span)
    late = np.abs(offset_s) > limit
    if not late.any():
        return []
    dp, stage = np.unravel_index(np.argmax(np.abs(offset_s)), offset_s.shape)
    return [
        f"the clocks of {int(late.sum())} of {late.size} ranks are off by more than "
        f"{limit * 1e3:.3g} ms, rank {trace.ranks[dp, stage]} by "
        f"{offset_s[dp, stage] * 1e3:+.3g} ms: transfer times are wrong by as much unless the "
        "clocks are aligned"
    ]


def aligned(trace: Trace, offset_s: Floats) -> Trace:
    """The trace as one clock would have seen it."""
    start = trace.start_s - offset_s.T[trace.op_stage][:, None, :]
    start -= earliest(start)[:, None]
    return replace(trace, start_s=start)


def _lag(trace: Trace, pairs: npt.NDArray[np.intp], part: slice) -> Floats:
    """[D] median over pairs and steps of: end of the second minus end of the first."""
    gap = _ends(trace, pairs[:, 1], part) - _ends(trace, pairs[:, 0], part)
    return _middle(gap)


def _middle(values: Floats) -> Floats:
    """[D] the middle of [N, steps, D] over the first two axes; faster than numpy's median."""
    flat = values.reshape(-1, values.shape[2])
    out: Floats = np.partition(flat, len(flat) // 2, axis=0)[len(flat) // 2]
    return out


def _ends(trace: Trace, ops: npt.NDArray[np.intp], part: slice) -> Floats:
    out: Floats = trace.start_s[:, part][ops] + trace.duration_s[:, part][ops]
    return out


def _is_p2p(trace: Trace, op: int) -> bool:
    return trace.types[trace.op_type[op]] in P2P


def _code(trace: Trace, name: str) -> int:
    return trace.types.index(name) if name in trace.types else -1
