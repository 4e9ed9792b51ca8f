"""How long a collective should take: alpha-beta models, NCCL's own, and StragglAR's.

alpha is the time that a message takes whatever its size, beta the time per byte, 1 / bandwidth.
Sizes are S as in ``collectives``; n ranks. Times in seconds unless the name says microseconds.
These are models of an idle fabric: they say what to aim at, not what a congested network gives.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from steptax.app.compute.collectives.bus_bandwidth import Collective, require_ranks
from steptax.app.compute.stats.positive import require_positive
from steptax.app.errors import UserError


def _link(size_bytes: float, bytes_per_s: float, alpha_s: float) -> float:
    """Seconds for all S bytes over one link; refuses what cannot be."""
    require_positive(bytes=size_bytes, bytes_per_s=bytes_per_s)
    if not (math.isfinite(alpha_s) and alpha_s >= 0):
        raise UserError(f"must not be negative, got {alpha_s}", where="alpha_s")
    return size_bytes / bytes_per_s


def ring_all_reduce_s(n: int, size_bytes: float, alpha_s: float, bytes_per_s: float) -> float:
    """Ring: 2 (n - 1) alpha + 2 (n - 1) / n * S beta (Patarasuk and Yuan 2009).

    Raises:
        UserError: fewer than two ranks, or a size, speed or latency that cannot be.
    """
    require_ranks(n)
    return 2 * ring_gather_s(n, size_bytes, alpha_s, bytes_per_s)


def ring_gather_s(n: int, size_bytes: float, alpha_s: float, bytes_per_s: float) -> float:
    """Ring all-gather or reduce-scatter: (n - 1) alpha + (n - 1) / n * S beta.

    One rank alone needs no time.

    Raises:
        UserError: no rank, or a size, speed or latency that cannot be.
    """
    require_ranks(n, 1)
    return (n - 1) * alpha_s + (n - 1) / n * _link(size_bytes, bytes_per_s, alpha_s)


def halving_doubling_all_reduce_s(
    n: int, size_bytes: float, alpha_s: float, bytes_per_s: float
) -> float:
    """Recursive halving and doubling: 2 log2(n) alpha + 2 (n - 1) / n * S beta.

    Rabenseifner 2004; n must be a power of two.

    Raises:
        UserError: n is not, or a size, speed or latency that cannot be.
    """
    require_ranks(n)
    if n & (n - 1):
        raise UserError(f"needs a power of two, not {n}", where="ranks")
    return 2 * math.log2(n) * alpha_s + 2 * (n - 1) / n * _link(size_bytes, bytes_per_s, alpha_s)


def double_tree_all_reduce_s(
    nodes: int,
    ranks_per_node: int,
    size_bytes: float,
    *,
    alpha_net_s: float,
    alpha_node_s: float,
    bytes_per_s: float,
) -> float:
    """Pipelined double binary tree (Sanders, Speck, Traeff 2009, as in NCCL), approximate.

    2 (log2(nodes) alpha_net + (ranks_per_node - 1) alpha_node) + 2 S beta.

    Raises:
        UserError: no node or rank, or a size, speed or latency that cannot be.
    """
    require_ranks(nodes, 1)
    require_ranks(ranks_per_node, 1)
    require_ranks(nodes * ranks_per_node)
    _link(size_bytes, bytes_per_s, alpha_node_s)
    hops = math.log2(nodes) * alpha_net_s + (ranks_per_node - 1) * alpha_node_s
    return 2 * hops + 2 * _link(size_bytes, bytes_per_s, alpha_net_s)


def hierarchical_all_reduce_s(
    ranks_per_node: int,
    nodes: int,
    size_bytes: float,
    *,
    node_bytes_per_s: float,
    net_bytes_per_s: float,
    alpha_node_s: float = 0.0,
    alpha_net_s: float = 0.0,
) -> float:
    """Reduce-scatter in the node (g ranks), all-reduce over m nodes, all-gather in the node.

    2 (g - 1) / g * S beta_node + 2 (m - 1) / m * (S / g) beta_net, and the latencies of the rings.
    ``net_bytes_per_s`` is what one rank's share of the network carries.

    Raises:
        UserError: no node or rank, or a size, speed or latency that cannot be.
    """
    require_ranks(ranks_per_node, 1)
    require_ranks(nodes, 1)
    require_ranks(nodes * ranks_per_node)
    inside = ring_gather_s(ranks_per_node, size_bytes, alpha_node_s, node_bytes_per_s)
    across = ring_gather_s(nodes, size_bytes / ranks_per_node, alpha_net_s, net_bytes_per_s)
    return 2 * (inside + across)


class Protocol(StrEnum):
    """How NCCL moves data."""

    LL = "LL"
    LL128 = "LL128"
    SIMPLE = "Simple"


class Algorithm(StrEnum):
    """How NCCL routes an all-reduce."""

    RING = "ring"
    TREE = "tree"
    NVLS = "nvls"


_PROTOCOLS = (Protocol.LL, Protocol.LL128, Protocol.SIMPLE)


def _table(
    *rows: tuple[Algorithm, tuple[float, float, float]],
) -> MappingProxyType[tuple[Algorithm, Protocol], float]:
    return MappingProxyType(
        {(a, p): v for a, values in rows for p, v in zip(_PROTOCOLS, values, strict=True)}
    )


#: NCCL src/graph/tuning.cc (2.2x), microseconds: the part that does not depend on the ring.
NCCL_BASE_US = _table(
    (Algorithm.RING, (6.6, 14.0, 8.4)),
    (Algorithm.TREE, (6.8, 14.0, 8.4)),
)
#: The same, per hop over NVLink and over the network.
NCCL_NVLINK_US = _table(
    (Algorithm.RING, (0.6, 1.9, 3.4)),
    (Algorithm.TREE, (0.6, 1.25, 4.0)),
)
NCCL_NETWORK_US = _table(
    (Algorithm.RING, (2.7, 4.0, 14.0)),
    (Algorithm.TREE, (5.0, 8.5, 14.0)),
)
#: Share of the link bandwidth that NCCL credits to reduction in the switch.
NVLS_EFFICIENCY = MappingProxyType({"hopper": 0.85, "blackwell": 0.74})
#: Share that it credits to its trees.
TREE_EFFICIENCY = 0.92


def nccl_latency_us(
    collective: Collective, algorithm: Algorithm, protocol: Protocol, *, ranks: int, nodes: int
) -> float:
    """Latency that NCCL's tuner expects on NVLink nodes, in microseconds.

    Ring: base + (steps - inter) * NVLink + inter * network, with steps = 2 (n - 1) and inter =
    2 (nodes - 1) for all-reduce, half of both for all-gather and reduce-scatter. Tree, all-reduce
    only: base + 2 ((n / nodes - 1) * NVLink + floor(log2(nodes)) * network). Left out: the CPU's
    posting overhead and the latency of the network card, which depend on the machine.

    Raises:
        UserError: ranks that do not fill the nodes evenly, or what the model does not cover.
    """
    require_ranks(nodes, 1)
    require_ranks(ranks)
    if ranks % nodes:
        raise UserError(f"{ranks} ranks do not fill {nodes} nodes evenly", where="ranks")
    key = (algorithm, protocol)
    if key not in NCCL_BASE_US:
        raise UserError(f"no latency model of {algorithm}", where="algorithm", hint="ring, tree")
    node_us, net_us = NCCL_NVLINK_US[key], NCCL_NETWORK_US[key]
    if algorithm is Algorithm.TREE:
        if collective is not Collective.ALL_REDUCE:
            raise UserError(f"trees do not carry {collective}", where="algorithm", hint="ring")
        hops = (ranks // nodes - 1) * node_us + math.floor(math.log2(nodes)) * net_us
        return NCCL_BASE_US[key] + 2 * hops
    rounds = {
        Collective.ALL_REDUCE: 2,
        Collective.ALL_GATHER: 1,
        Collective.REDUCE_SCATTER: 1,
    }.get(collective)
    if rounds is None:
        known = "all_reduce, all_gather, reduce_scatter"
        raise UserError(f"no latency model of {collective}", where="collective", hint=known)
    steps, inter = rounds * (ranks - 1), rounds * (nodes - 1)
    return NCCL_BASE_US[key] + (steps - inter) * node_us + inter * net_us


def nccl_link_gb_per_s(
    link_gb_per_s: float, algorithm: Algorithm, generation: str | None = None
) -> float:
    """Link bandwidth that NCCL's tuner credits to an algorithm, in GB/s.

    All of it to a ring with the Simple protocol, 92 % to a tree, 85 % (Hopper) or 74 %
    (Blackwell) to reduction in the switch; before channel counts and caps.

    Raises:
        UserError: no bandwidth, or NVLS on a generation that has none.
    """
    _link(1, link_gb_per_s, 0)
    if algorithm is Algorithm.RING:
        return link_gb_per_s
    if algorithm is Algorithm.TREE:
        return link_gb_per_s * TREE_EFFICIENCY
    share = NVLS_EFFICIENCY.get((generation or "").lower())
    if share is None:
        known = ", ".join(NVLS_EFFICIENCY)
        raise UserError(
            f"no reduction in the switch on {generation}", where="generation", hint=known
        )
    return link_gb_per_s * share


#: Rounds of StragglAR's schedule where n is even but no power of two, from its synthesizer.
_SYNTHESIZED_ROUNDS = MappingProxyType({6: 7, 12: 15, 24: 27, 48: 57, 96: 108, 192: 208})


def stragglar_rounds(n: int) -> int:
    """Rounds after the straggler has come: n + log2(n) - 2 for powers of two, else synthesised.

    Raises:
        UserError: no schedule of that many ranks is published.
    """
    if n >= 4 and not n & (n - 1):
        return n + n.bit_length() - 3
    if n in _SYNTHESIZED_ROUNDS:
        return _SYNTHESIZED_ROUNDS[n]
    known = ", ".join(str(k) for k in _SYNTHESIZED_ROUNDS)
    raise UserError(
        f"no StragglAR schedule of {n} ranks",
        where="ranks",
        hint=f"a power of two from 4, or {known}",
    )


@dataclass(frozen=True)
class StragglarTimes:
    """An all-reduce with one late rank, counted from that rank's arrival, in seconds."""

    ring_s: float
    stragglar_s: float
    hidden_s: float
    """Reduce-scatter of the n - 1 others: the delay must be this long for the full gain."""

    @property
    def speedup(self) -> float:
        """Ring time / StragglAR time; below 1 the ring is better."""
        return self.ring_s / self.stragglar_s


def stragglar(
    n: int, size_bytes: float, alpha_s: float, bytes_per_s: float, delay_s: float
) -> StragglarTimes:
    """StragglAR's timing model (Devraj et al. 2025) against a ring that starts when all are there.

    T = max(0, T_RS(n - 1) - delay) + c alpha + c / (n - 1) * S beta. One straggler, any-to-any
    fabric inside a node only, and only the all-reduce gets faster, not the step around it.

    Raises:
        UserError: no schedule of n ranks, or a size, speed, latency or delay that cannot be.
    """
    if not (math.isfinite(delay_s) and delay_s >= 0):
        raise UserError(f"must not be negative, got {delay_s}", where="delay_s")
    rounds = stragglar_rounds(n)
    hidden_s = ring_gather_s(n - 1, size_bytes, alpha_s, bytes_per_s)
    late_s = rounds * alpha_s + rounds / (n - 1) * _link(size_bytes, bytes_per_s, alpha_s)
    return StragglarTimes(
        ring_s=ring_all_reduce_s(n, size_bytes, alpha_s, bytes_per_s),
        stragglar_s=max(0.0, hidden_s - delay_s) + late_s,
        hidden_s=hidden_s,
    )
