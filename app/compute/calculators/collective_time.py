"""How long a collective should take on an idle fabric, by every model of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from steptax.app.compute.calculators.base import Result, calculator
from steptax.app.compute.calculators.parameter import Kind, Parameter
from steptax.app.compute.collectives.bus_bandwidth import Collective, busbw_factor, busbw_gb_per_s
from steptax.app.compute.collectives.times import (
    NVLS_EFFICIENCY,
    Algorithm,
    Protocol,
    double_tree_all_reduce_s,
    halving_doubling_all_reduce_s,
    hierarchical_all_reduce_s,
    nccl_latency_us,
    nccl_link_gb_per_s,
    ring_all_reduce_s,
    ring_gather_s,
)
from steptax.app.compute.measure import Measure
from steptax.app.errors import UserError

COLLECTIVES = (Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.REDUCE_SCATTER)
ALGORITHMS = ("ring", "halving-doubling", "double-tree", "hierarchical")


@dataclass(frozen=True, kw_only=True)
class CollectiveTime(Result):
    """Time by each algorithm; ``duration_ms`` is that of the one asked for, else of the ring.

    ``nccl_ring_ms`` and ``nccl_tree_ms`` are what NCCL's tuner expects with the Simple protocol;
    the latencies are those of the protocol asked for.
    """

    headline: str = "duration_ms"

    duration_ms: Measure
    busbw_gb_per_s: Measure
    bandwidth_ms: Measure
    """The same without any latency: no size and no tuning makes it shorter."""
    latency_share_ratio: Measure
    ring_ms: Measure
    halving_doubling_ms: Measure
    double_tree_ms: Measure
    hierarchical_ms: Measure
    nccl_ring_latency_us: Measure
    nccl_tree_latency_us: Measure
    nccl_ring_ms: Measure
    nccl_tree_ms: Measure
    nvls_link_gb_per_s: Measure
    of_model_ratio: Measure
    algorithm: str


@dataclass(frozen=True)
class _Fabric:
    """Ranks and links: latencies in seconds, bandwidths in bytes per second of one rank."""

    ranks: int
    nodes: int
    alpha_s: float
    bytes_per_s: float
    net_alpha_s: float
    net_bytes_per_s: float

    @property
    def per_node(self) -> int:
        return self.ranks // self.nodes

    @property
    def slowest(self) -> tuple[float, float]:
        """Latency and bandwidth that a flat algorithm runs at: those of its slowest link."""
        if self.nodes == 1:
            return self.alpha_s, self.bytes_per_s
        return max(self.alpha_s, self.net_alpha_s), min(self.bytes_per_s, self.net_bytes_per_s)

    def without_latency(self) -> _Fabric:
        """The same fabric, messages free."""
        return dataclasses.replace(self, alpha_s=0.0, net_alpha_s=0.0)


@calculator(
    name="collective-time",
    title="Time of a collective",
    formula="all-reduce: ring 2(n-1) alpha + 2(n-1)/n S beta; halving-doubling 2 log2(n) alpha + "
    "2(n-1)/n S beta; double tree 2 (log2(nodes) alpha_net + (g-1) alpha) + 2 S beta; hierarchical "
    "2(g-1)/g S beta + 2(m-1)/m (S/g) beta_net + latencies of the rings; all-gather, "
    "reduce-scatter: half of the ring; NCCL: base + (steps - inter) NVLink + inter network, "
    "bandwidth x 0.92 for trees",
    source="Patarasuk & Yuan 2009; Rabenseifner 2004; Sanders, Speck & Träff 2009; NCCL "
    "src/graph/tuning.cc",
    page="What an idle fabric should give, to hold a measured time against: congestion is not in "
    "it. Over several nodes a flat ring, halving and doubling, and the tree run at their slowest "
    "link; only the hierarchy uses both. Give links in one direction, and the network as what one "
    "rank's share of it carries. S is the whole result of an all-gather and the whole input of a "
    "reduce-scatter. Without an algorithm the answer is the ring's, and the band goes over all "
    "that apply. NCCL's own figures leave out the posting overhead and the network card.",
    parameters=(
        Parameter("collective", "", "operation", Kind.CHOICE, choices=COLLECTIVES),
        Parameter("ranks", "", "ranks in the communicator, n", Kind.INT, minimum=2),
        Parameter("size_bytes", "bytes", "message size S", above=0),
        Parameter("link_gb_per_s", "GB/s", "bandwidth of a rank in its node, one way", above=0),
        Parameter("alpha_us", "us", "latency of a message in the node", minimum=0),
        Parameter("nodes", "", "nodes, m", Kind.INT, minimum=1),
        Parameter("net_gb_per_s", "GB/s", "bandwidth of a rank's share of the network", above=0),
        Parameter("net_alpha_us", "us", "latency of a message over the network", minimum=0),
        Parameter("algorithm", "", "algorithm", Kind.CHOICE, choices=ALGORITHMS),
        Parameter("protocol", "", "protocol of NCCL", Kind.CHOICE, choices=tuple(Protocol)),
        Parameter(
            "generation",
            "",
            "generation of a switch that reduces",
            Kind.CHOICE,
            choices=tuple(NVLS_EFFICIENCY),
        ),
        Parameter("measured_ms", "ms", "measured time, to hold against the model", above=0),
    ),
)
def collective_time(
    *,
    collective: str,
    ranks: int,
    size_bytes: float,
    link_gb_per_s: float,
    alpha_us: float,
    nodes: int = 1,
    net_gb_per_s: float | None = None,
    net_alpha_us: float | None = None,
    algorithm: str | None = None,
    protocol: str = Protocol.SIMPLE.value,
    generation: str | None = None,
    measured_ms: float | None = None,
) -> CollectiveTime:
    """Time by every algorithm that applies, and what NCCL expects.

    Raises:
        UserError: ranks that do not fill the nodes; several nodes without their network; an
            algorithm that does not carry this operation, or not this number of ranks.
    """
    operation = Collective(collective)
    if ranks % nodes:
        raise UserError(f"expected a divisor of {ranks} ranks", where="nodes")
    if nodes > 1 and (net_gb_per_s is None or net_alpha_us is None):
        absent = "net_gb_per_s" if net_gb_per_s is None else "net_alpha_us"
        raise UserError("expected beside more than one node", where=absent)
    fabric = _Fabric(
        ranks,
        nodes,
        alpha_us * 1e-6,
        link_gb_per_s * 1e9,
        (net_alpha_us or 0.0) * 1e-6,
        (net_gb_per_s or link_gb_per_s) * 1e9,
    )
    times = {name: _time(name, operation, fabric, size_bytes) for name in ALGORITHMS}
    asked = algorithm or "ring"
    chosen = times[asked]
    if chosen.value is None:
        raise UserError(f"expected another algorithm: {chosen.reason}", where="algorithm")
    free = _time(asked, operation, fabric.without_latency(), size_bytes)
    known = {name: time.value for name, time in times.items() if time.value is not None}
    banded = algorithm is None and min(known.values()) < max(known.values())
    own = Measure(
        chosen.value,
        "ms",
        min(known.values()) if banded else None,
        max(known.values()) if banded else None,
    )
    latency = {
        how: _nccl_latency(operation, how, Protocol(protocol), ranks, nodes)
        for how in (Algorithm.RING, Algorithm.TREE)
    }
    slowest_gb_per_s = fabric.slowest[1] / 1e9
    if generation is None:
        in_switch = Measure.missing("GB/s", "the generation of the switch was not given")
    else:
        credited = nccl_link_gb_per_s(link_gb_per_s, Algorithm.NVLS, generation)
        in_switch = Measure(credited, "GB/s")
    sentence = (
        f"{operation.value.replace('_', '-').capitalize()} over {ranks:,} ranks takes "
        f"{chosen.value:.4g} ms by {asked}"
    )
    if banded:
        sentence += f", {own.low:.4g} to {own.high:.4g} ms over all algorithms"
    return CollectiveTime(
        duration_ms=own,
        busbw_gb_per_s=own.map(
            lambda ms: busbw_gb_per_s(operation, ranks, size_bytes, ms / 1e3), "GB/s"
        ),
        bandwidth_ms=free,
        latency_share_ratio=free.map(lambda ms: 1 - ms / (chosen.value or ms), "ratio"),
        ring_ms=times["ring"],
        halving_doubling_ms=times["halving-doubling"],
        double_tree_ms=times["double-tree"],
        hierarchical_ms=times["hierarchical"],
        nccl_ring_latency_us=latency[Algorithm.RING],
        nccl_tree_latency_us=latency[Algorithm.TREE],
        nccl_ring_ms=_nccl_ms(
            latency[Algorithm.RING],
            protocol,
            size_bytes * busbw_factor(operation, ranks),
            nccl_link_gb_per_s(slowest_gb_per_s, Algorithm.RING),
        ),
        nccl_tree_ms=_nccl_ms(
            latency[Algorithm.TREE],
            protocol,
            2 * size_bytes,
            nccl_link_gb_per_s(slowest_gb_per_s, Algorithm.TREE),
        ),
        nvls_link_gb_per_s=in_switch,
        of_model_ratio=_of_model(chosen.value, measured_ms),
        algorithm=asked,
        sentence=f"{sentence}.",
        band_basis="over the algorithms that apply: " + ", ".join(known) if banded else None,
        warnings=("an idle fabric: congestion and late ranks come on top",),
    )


def _time(name: str, operation: Collective, fabric: _Fabric, size_bytes: float) -> Measure:
    """Milliseconds by one algorithm; missing where it does not apply."""
    ranks, (alpha_s, bytes_per_s) = fabric.ranks, fabric.slowest
    flat = (ranks, size_bytes, alpha_s, bytes_per_s)
    if operation is not Collective.ALL_REDUCE:
        if name != "ring":
            return Measure.missing("ms", f"{name} carries all_reduce only")
        return Measure(1e3 * ring_gather_s(*flat), "ms")
    if name == "halving-doubling" and ranks & (ranks - 1):
        return Measure.missing("ms", f"{name} needs a power of two, not {ranks} ranks")
    by: dict[str, Callable[[], float]] = {
        "ring": lambda: ring_all_reduce_s(*flat),
        "halving-doubling": lambda: halving_doubling_all_reduce_s(*flat),
        "double-tree": lambda: double_tree_all_reduce_s(
            fabric.nodes,
            fabric.per_node,
            size_bytes,
            alpha_net_s=fabric.net_alpha_s,
            alpha_node_s=fabric.alpha_s,
            bytes_per_s=bytes_per_s,
        ),
        "hierarchical": lambda: hierarchical_all_reduce_s(
            fabric.per_node,
            fabric.nodes,
            size_bytes,
            node_bytes_per_s=fabric.bytes_per_s,
            net_bytes_per_s=fabric.net_bytes_per_s,
            alpha_node_s=fabric.alpha_s,
            alpha_net_s=fabric.net_alpha_s,
        ),
    }
    return Measure(1e3 * by[name](), "ms")


def _nccl_latency(
    operation: Collective, algorithm: Algorithm, protocol: Protocol, ranks: int, nodes: int
) -> Measure:
    try:
        return Measure(
            nccl_latency_us(operation, algorithm, protocol, ranks=ranks, nodes=nodes), "us"
        )
    except UserError as fault:
        return Measure.missing("us", fault.message)


def _nccl_ms(latency: Measure, protocol: str, wire_bytes: float, gb_per_s: float) -> Measure:
    """Latency and the bytes on the wire at what NCCL credits the link with."""
    if protocol != Protocol.SIMPLE.value:
        return Measure.missing("ms", f"the bandwidth that NCCL credits to {protocol} is not known")
    return latency.map(lambda us: us / 1e3 + wire_bytes / gb_per_s / 1e6, "ms")


def _of_model(model_ms: float, measured_ms: float | None) -> Measure:
    """Model / measured time: 1 where nothing is left to gain."""
    if measured_ms is None:
        return Measure.missing("ratio", "no measured time was given")
    if measured_ms < model_ms * (1 - 1e-9):
        return Measure.missing(
            "ratio",
            f"{measured_ms:g} ms is faster than the model's {model_ms:.4g} ms: another algorithm, "
            "reduction in the switch, or a link that carries more",
        )
    return Measure(min(1.0, model_ms / measured_ms), "ratio")


CALCULATORS = (collective_time,)
