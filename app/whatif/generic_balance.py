"""The ideal work of a profiled job: balanced over its ranks.

The ideal own time of a rank between two launches is the mean over the ranks in that place of that
step, which is what perfect balance would give; where ranks communicate differently (pipeline
stages, say) only whole steps are balanced. The ideal transfer is the median over all alike.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from steptax.app.whatif.generic_lanes import Chain, Kind, Lane
from steptax.app.whatif.generic_sim import Plan
from steptax.app.whatif.trace import Floats


def balanced(
    chain: Chain, own_s: Sequence[Floats], *, fine: bool, without: Sequence[int] = ()
) -> list[Floats]:
    """Own work of each rank, were it the mean of ``own_s`` over all ranks but ``without``.

    With ``fine`` between any two launches, else in each step.
    """
    others = [r for r in range(len(chain.lanes)) if r not in without]
    place = _places(chain) if fine else [_segments(e, (Kind.STEP_END,)) for e in chain.lanes]
    count = max(int(at.max()) for at in place) + 1
    pairs = list(zip(place, own_s, strict=True))
    total = np.stack([np.bincount(at, own, minlength=count) for at, own in pairs])
    mean = total[others].mean(axis=0)
    out = []
    for r, (at, own) in enumerate(pairs):
        had = total[r][at]
        scaled = np.divide(own * mean[at], had, out=np.zeros_like(own), where=had > 0)
        # Where the rank did nothing in a stretch, the mean goes to its end.
        last = np.append(at[1:] != at[:-1], True)
        out.append(np.where((had <= 0) & last, mean[at], scaled))
    return out


def _places(chain: Chain) -> list[np.ndarray]:
    """[I] of each lane: which stretch each item closes, comparable over lanes that launch alike.

    Stretches end with launches and steps, and where all lanes wait alike in between with waits too.
    """
    launches = (Kind.LAUNCH, Kind.STEP_END)
    coarse = [_segments(lane, launches) for lane in chain.lanes]
    bounds = [np.append(0, np.flatnonzero(np.diff(at)) + 1).tolist() for at in coarse]
    tokens = [
        [
            (kind, *(chain.collectives[c].signature for c in which))
            for kind, which in zip(lane.kind.tolist(), lane.which, strict=True)
        ]
        for lane in chain.lanes
    ]
    out: list[list[int]] = [[] for _ in chain.lanes]
    done = 0
    for begins in zip(*(zip(b, [*b[1:], None], strict=True) for b in bounds), strict=True):
        parts = [t[a:b] for t, (a, b) in zip(tokens, begins, strict=True)]
        same = all(part == parts[0] for part in parts[1:])
        for found, part in zip(out, parts, strict=True):
            found += range(done, done + len(part)) if same else [done] * len(part)
        done += len(parts[0]) if same else 1
    return [np.array(found, np.int64) for found in out]


def alike(chain: Chain) -> bool:
    """Whether all ranks communicate alike, so that work between launches can be compared."""
    first = _signature(chain, 0)
    return all(_signature(chain, r) == first for r in range(1, len(chain.lanes)))


def _segments(lane: Lane, ends: Sequence[Kind]) -> np.ndarray:
    """[I] which stretch each item closes or lies in; a stretch ends with an item of ``ends``."""
    closes = np.isin(lane.kind, [int(k) for k in ends])
    out: np.ndarray = np.cumsum(closes) - closes
    return out


def _signature(chain: Chain, rank: int) -> list[object]:
    """What a rank launches, in order, and where its steps end."""
    lane = chain.lanes[rank]
    out: list[object] = []
    for kind, which in zip(lane.kind.tolist(), lane.which, strict=True):
        if kind == Kind.LAUNCH:
            out.append(chain.collectives[which[0]].signature)
        elif kind == Kind.STEP_END:
            out.append("end")
    return out


def ideal_transfers(plans: Sequence[Plan]) -> list[Floats]:
    """[M] of each chain: the median over all communications of one kind and size."""
    seen: dict[object, list[float]] = {}
    for plan in plans:
        for c, one in enumerate(plan.chain.collectives):
            some = plan.transfer_s[plan.first[c] : plan.first[c + 1]]
            seen.setdefault(one.signature, []).extend(some.tolist())
    middle = {key: float(np.median(values)) for key, values in seen.items()}
    return [
        np.repeat(
            np.array([middle[c.signature] for c in plan.chain.collectives]),
            np.diff(plan.first),
        )
        for plan in plans
    ]
