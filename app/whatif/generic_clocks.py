"""Clocks of ranks from the ends of their collectives: these end everywhere at once.

In each group the offset of a rank is the median, over the collectives that synchronise, of how much
later than the middle member it saw them end; ranks that share no group are compared over others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from steptax.app.whatif.generic_rows import Collective
from steptax.app.whatif.trace import Floats

#: What ends on all members at once: every member needs something of every other.
SYNCHRONISING = frozenset(("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "barrier"))
#: Offsets are corrected above this, and where they are this many times the residual.
_NOTABLE_S = 2e-3
_OVER_RESIDUAL = 5.0
ASSUMPTION = "collectives are taken to end on all of their ranks at once"


@dataclass(frozen=True, eq=False)
class Clocks:
    """By how much each rank's clock is ahead, and what is left of disagreement after that.

    ``offset_s`` [R]; ``residual_s`` is the median over collectives of the spread of their ends
    with the offsets taken out, ``raw_s`` the same without; None where nothing synchronises.
    """

    offset_s: Floats
    residual_s: float | None
    raw_s: float | None
    used: int

    def corrects(self) -> bool:
        """Whether the clocks are so far apart that times of different ranks need correction."""
        if self.residual_s is None:
            return False
        worst = float(np.abs(self.offset_s).max(initial=0.0))
        return worst > max(_NOTABLE_S, _OVER_RESIDUAL * self.residual_s)

    def sentence(self, ranks: Sequence[int], *, applied: bool) -> str:
        """What is assumed, what was found and what was done."""
        if self.residual_s is None:
            return "no collective synchronises ranks: their clocks are taken to agree"
        worst = int(np.argmax(np.abs(self.offset_s)))
        found = (
            f"clocks: {ASSUMPTION}; over {self.used} of them the clock of rank {ranks[worst]} is "
            f"furthest off, by {self.offset_s[worst] * 1e3:+.3g} ms"
        )
        done = "corrected" if applied else "not corrected, as it may be chance"
        return f"{found} ({done}); ends agree to {self.residual_s * 1e3:.3g} ms in the median"


def estimate_clocks(collectives: Sequence[Collective], ranks: int) -> Clocks:
    """The clocks of ``ranks`` ranks; zero where a rank shares no collective with others.

    Groups are joined one after the other, the ones with most ends first, by the ranks that they
    share.
    """
    groups = _groups(collectives)
    offset = np.full(ranks, np.nan)
    if not groups:
        return Clocks(np.zeros(ranks), None, None, 0)
    left = sorted(groups.items(), key=lambda g: -g[1].size)
    while left:
        # Of those that share a rank with what is known the largest; else another island begins.
        at = next((i for i, (m, _) in enumerate(left) if not np.isnan(offset[list(m)]).all()), 0)
        members, ends = left.pop(at)
        here = list(members)
        late = np.median(ends - np.median(ends, axis=1, keepdims=True), axis=0)
        known = ~np.isnan(offset[here])
        shift = float(np.median(offset[here][known] - late[known])) if known.any() else 0.0
        offset[here] = np.where(known, offset[here], late + shift)
    offset = np.nan_to_num(offset - np.nanmedian(offset))
    used = sum(len(ends) for ends in groups.values())
    return Clocks(offset, _spread(groups, offset), _spread(groups, np.zeros(ranks)), used)


def _groups(collectives: Sequence[Collective]) -> dict[tuple[int, ...], Floats]:
    """Ends [N, M] in seconds of the N collectives that the same M ranks share."""
    found: dict[tuple[int, ...], list[list[int]]] = {}
    for one in collectives:
        if one.op in SYNCHRONISING and len(one.rank) > 1:
            order = np.argsort(one.rank)
            members = tuple(one.rank[i] for i in order)
            found.setdefault(members, []).append([one.end_ns[i] for i in order])
    if not found:
        return {}
    base = min(min(row) for rows in found.values() for row in rows)
    return {m: (np.array(rows, np.int64) - base) / 1e9 for m, rows in found.items()}


def _spread(groups: dict[tuple[int, ...], Floats], offset_s: Floats) -> float:
    """Median over collectives of latest less earliest end."""
    return float(
        np.median(
            np.concatenate([np.ptp(e - offset_s[list(m)], axis=1) for m, e in groups.items()])
        )
    )
