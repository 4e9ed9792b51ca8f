"""Bus bandwidth of a collective, and the time that it stands for."""

from __future__ import annotations

from dataclasses import dataclass

from steptax.app.compute.calculators.base import Result, calculator
from steptax.app.compute.calculators.parameter import Kind, Parameter
from steptax.app.compute.collectives.bus_bandwidth import (
    Collective,
    busbw_factor,
    duration_s_at,
    wire_share,
)
from steptax.app.compute.measure import Measure
from steptax.app.errors import UserError

#: Whoever has a time of a communicator knows how many ranks are in it.
_COUNTED = 0.0


@dataclass(frozen=True, kw_only=True)
class Busbw(Result):
    """Bus and algorithm bandwidth, and the duration where the size is given."""

    headline: str = "busbw_gb_per_s"

    busbw_gb_per_s: Measure
    algbw_gb_per_s: Measure
    factor: Measure
    duration_ms: Measure
    wire_ratio: Measure


@calculator(
    name="busbw",
    title="Bus bandwidth",
    formula="algbw = S/t; busbw = algbw x factor; all-reduce 2(n-1)/n; all-gather, "
    "reduce-scatter, all-to-all (n-1)/n; else 1",
    source="nccl-tests, PERFORMANCE.md",
    page="Algorithm bandwidth says how long you wait; bus bandwidth makes runs of different size "
    "comparable with a link. S is the whole result of an all-gather and the whole input of a "
    "reduce-scatter. Where the switch reduces (NVLS, SHARP), bus bandwidth may exceed what the "
    "link carries and is not a share of it. GB is 10^9 bytes; a link in Gbit/s is 8 times GB/s.",
    parameters=(
        Parameter("collective", "", "operation", Kind.CHOICE, choices=tuple(Collective)),
        Parameter(
            "ranks", "", "ranks in the communicator", Kind.INT, minimum=2, swing_ratio=_COUNTED
        ),
        Parameter("size_bytes", "bytes", "message size S", above=0),
        Parameter("duration_ms", "ms", "time of one operation; needs the size", above=0),
        Parameter("algbw_gb_per_s", "GB/s", "algorithm bandwidth, instead of a time", above=0),
        Parameter("busbw_gb_per_s", "GB/s", "bus bandwidth, instead of a time", above=0),
        Parameter("wire_gb_per_s", "GB/s", "what the link carries in one direction", above=0),
        Parameter("reduction", "", "where it is reduced", Kind.CHOICE, choices=("ranks", "switch")),
    ),
)
def busbw(
    *,
    collective: str,
    ranks: int,
    size_bytes: float | None = None,
    duration_ms: float | None = None,
    algbw_gb_per_s: float | None = None,
    busbw_gb_per_s: float | None = None,
    wire_gb_per_s: float | None = None,
    reduction: str = "ranks",
) -> Busbw:
    """All bandwidths of a collective from its time, or from one of them.

    Raises:
        UserError: not exactly one of time and bandwidths; a time without a size.
    """
    operation = Collective(collective)
    factor = busbw_factor(operation, ranks)
    bus = _bus(size_bytes, duration_ms, algbw_gb_per_s, busbw_gb_per_s, factor)
    duration = (
        Measure.missing("ms", "the message size was not given")
        if size_bytes is None
        else Measure(1e3 * duration_s_at(operation, ranks, size_bytes, bus), "ms")
    )
    share = (
        Measure.missing("ratio", "the bandwidth of the link was not given")
        if wire_gb_per_s is None
        else wire_share(bus, wire_gb_per_s, in_network_reduction=reduction == "switch")
    )
    sentence = f"{bus:.4g} GB/s on the bus is {bus / factor:.4g} GB/s for the caller"
    if duration.value is not None:
        sentence += f", {duration.value:.4g} ms"
    return Busbw(
        busbw_gb_per_s=Measure(bus, "GB/s"),
        algbw_gb_per_s=Measure(bus / factor, "GB/s"),
        factor=Measure(factor, "x"),
        duration_ms=duration,
        wire_ratio=share,
        sentence=f"{sentence}.",
    )


def _bus(
    size_bytes: float | None,
    duration_ms: float | None,
    algbw: float | None,
    bus: float | None,
    factor: float,
) -> float:
    given = [v for v in (duration_ms, algbw, bus) if v is not None]
    if len(given) != 1:
        raise UserError(
            "expected one of duration_ms, algbw_gb_per_s, busbw_gb_per_s", where="duration_ms"
        )
    if bus is not None:
        return bus
    if algbw is not None:
        return algbw * factor
    if size_bytes is None:
        raise UserError("expected the message size beside a time", where="size_bytes")
    return size_bytes / (given[0] / 1e3) / 1e9 * factor


CALCULATORS = (busbw,)
