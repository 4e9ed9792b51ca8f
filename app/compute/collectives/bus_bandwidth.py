"""Bandwidth of collectives: algorithm and bus bandwidth.

algbw = S / t. busbw = algbw * factor, where the factor makes the figure comparable with a link
whatever the number of ranks n (nccl-tests, PERFORMANCE.md): all-reduce 2 (n - 1) / n; all-gather,
reduce-scatter, all-to-all (n - 1) / n; broadcast, reduce, send and receive 1. S is the size of
the whole result for all-gather and of the whole input for reduce-scatter: n times a rank's part.
GB is 10^9 bytes; a link given in Gbit/s is 8 times the GB/s.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from steptax.app.compute.measure import Measure
from steptax.app.compute.stats.positive import require_positive
from steptax.app.errors import UserError

#: By how much the last size may still gain before it is not the plateau.
_PLATEAU_RATIO = 0.05
#: Half of the last digit that nccl-tests prints.
_PRINTED_HALF_DIGIT = 0.005


class Collective(StrEnum):
    """Collective operations by the name that the tables of the store use."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    SEND_RECV = "send_recv"

    @classmethod
    def read(cls, name: str) -> Collective:
        """The collective that a name means: ``AllReduce``, ``all_reduce_perf``, ``alltoall``, ...

        Raises:
            UserError: none that has a bus bandwidth.
        """
        plain = name.strip().lower().removeprefix("nccl").removesuffix("_perf")
        plain = "".join(c for c in plain if c.isalpha())
        for member in cls:
            if member.value.replace("_", "") == plain.removesuffix("base"):
                return member
        raise UserError(f"no bus bandwidth for {name!r}", where="collective", hint=", ".join(cls))


def require_ranks(n: int, least: int = 2) -> None:
    """Refuse a rank count.

    Raises:
        UserError: fewer than ``least``.
    """
    if n < least:
        raise UserError(f"a collective of at least {least} ranks, not {n}", where="ranks")


def busbw_factor(collective: Collective, n: int) -> float:
    """The factor busbw / algbw at ``n`` ranks.

    Raises:
        UserError: fewer than two ranks.
    """
    require_ranks(n)
    if collective is Collective.ALL_REDUCE:
        return 2 * (n - 1) / n
    if collective in (Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.ALL_TO_ALL):
        return (n - 1) / n
    return 1.0


def algbw_gb_per_s(size_bytes: float, duration_s: float) -> float:
    """S / t in GB/s.

    Raises:
        UserError: no bytes or no time.
    """
    require_positive(bytes=size_bytes)
    require_positive(duration_s=duration_s)
    return size_bytes / duration_s / 1e9


def busbw_gb_per_s(collective: Collective, n: int, size_bytes: float, duration_s: float) -> float:
    """S / t * factor in GB/s.

    Raises:
        UserError: fewer than two ranks, no bytes or no time.
    """
    return algbw_gb_per_s(size_bytes, duration_s) * busbw_factor(collective, n)


def duration_s_at(collective: Collective, n: int, size_bytes: float, busbw: float) -> float:
    """Seconds that a collective takes at a bus bandwidth in GB/s: S * factor / busbw.

    Raises:
        UserError: fewer than two ranks, no bytes or no bandwidth.
    """
    require_positive(bytes=size_bytes)
    require_positive(busbw_gb_per_s=busbw)
    return size_bytes * busbw_factor(collective, n) / (busbw * 1e9)


def ranks_from_bandwidths(collective: Collective, busbw: float, algbw: float) -> Measure:
    """The number of ranks that printed bus and algorithm bandwidths imply.

    All-reduce: n = 2 / (2 - r); parts gathered: n = 1 / (1 - r), with r = busbw / algbw. ``low``
    and ``high`` are the counts that two printed decimals leave possible; missing where the factor
    is 1 whatever n, and where the two do not belong together.

    Raises:
        UserError: a bandwidth that is not positive.
    """
    require_positive(busbw_gb_per_s=busbw)
    require_positive(algbw_gb_per_s=algbw)
    # The factor is 2 - 2 / n or 1 - 1 / n: limit - limit / n.
    limit = 2.0 if collective is Collective.ALL_REDUCE else 1.0
    if busbw_factor(collective, 2) == busbw_factor(collective, 3):
        return Measure.missing("ranks", f"busbw of {collective} is its algbw at any rank count")
    gap = limit - busbw / algbw
    slack = _PRINTED_HALF_DIGIT * (1 + busbw / algbw) / algbw
    if not -slack < gap < limit / 2 + slack:
        return Measure.missing(
            "ranks",
            f"busbw / algbw of {busbw / algbw:.4f} does not occur with {collective}, "
            f"which has {limit / 2:g} to {limit:g}",
        )
    if gap <= slack:
        return Measure.missing("ranks", "two printed decimals do not tell so many ranks apart")
    low, high = math.ceil(limit / (gap + slack)), math.floor(limit / (gap - slack))
    nearest = float(max(2, round(limit / gap)))
    return Measure(
        nearest, "ranks", low=min(float(max(2, low)), nearest), high=max(float(high), nearest)
    )


@dataclass(frozen=True)
class Point:
    """One size of a sweep."""

    size_bytes: int
    duration_s: float


def headline_busbw(collective: Collective, n: int, points: Sequence[Point]) -> Measure:
    """The bus bandwidth of a sweep in GB/s: that of its largest message.

    The mean over sizes says nothing of the network, since small messages measure latency. If the
    largest size still gains on the next smaller one, a warning says that the plateau is not
    reached.

    Raises:
        UserError: fewer than two ranks, no bytes or no time in a point.
    """
    if not points:
        return Measure.missing("GB/s", "no size was measured")
    by_size = sorted(points, key=lambda p: p.size_bytes)
    values = [busbw_gb_per_s(collective, n, p.size_bytes, p.duration_s) for p in by_size]
    warnings = []
    if len(values) == 1:
        warnings.append("one size only: whether it is large enough cannot be seen")
    elif values[-1] > values[-2] * (1 + _PLATEAU_RATIO):
        warnings.append("still rising with size: measure larger messages")
    largest = by_size[-1].size_bytes
    return Measure(
        values[-1],
        "GB/s",
        inputs=(f"{collective}, {n} ranks, {largest} bytes",),
        warnings=tuple(warnings),
    )


def wire_share(
    busbw: float, wire_gb_per_s: float, *, in_network_reduction: bool = False
) -> Measure:
    """Bus bandwidth by what the links of a node carry in one direction, as a ratio.

    With reduction in the switch (NVLS, SHARP) busbw is not wire speed and may exceed it, so the
    ratio is then missing; without, above 1 the two do not belong together.

    Raises:
        UserError: a bandwidth that is not positive.
    """
    require_positive(busbw_gb_per_s=busbw)
    require_positive(wire_gb_per_s=wire_gb_per_s)
    ratio = busbw / wire_gb_per_s
    if in_network_reduction:
        reason = "with reduction in the switch, bus bandwidth is not what the wire carries"
        return Measure.missing("ratio", reason)
    if ratio > 1:
        return Measure.missing(
            "ratio",
            f"{busbw:g} GB/s is more than the wire's {wire_gb_per_s:g}: reduction in the switch, "
            "or a link given in one direction for both or in another unit",
        )
    return Measure(ratio, "ratio")


def nic_gb_per_s(busbw: float, *, nodes: int, ranks: int) -> float:
    """What one rank sends to other nodes of a hierarchical ring: busbw * (nodes - 1) / (n - 1).

    Holds one network card a rank against its line rate (Bekman, Machine Learning Engineering).

    Raises:
        UserError: fewer than two nodes, fewer ranks than nodes, or no bandwidth.
    """
    require_positive(busbw_gb_per_s=busbw)
    require_ranks(nodes)
    require_ranks(ranks, nodes)
    return busbw * (nodes - 1) / (ranks - 1)
