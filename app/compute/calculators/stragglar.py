"""An all-reduce that starts before its last rank has come."""

from __future__ import annotations

from dataclasses import dataclass

from steptax.app.compute.calculators.base import Result, calculator
from steptax.app.compute.calculators.parameter import Kind, Parameter
from steptax.app.compute.collectives.times import stragglar as model
from steptax.app.compute.measure import Measure


@dataclass(frozen=True, kw_only=True)
class Stragglar(Result):
    """Times from the late rank's arrival; ``needed_delay_ms`` is the delay for the full gain."""

    headline: str = "all_reduce_speedup"

    all_reduce_speedup: Measure
    ceiling: Measure
    """With a delay that is long enough."""
    ring_ms: Measure
    stragglar_ms: Measure
    saved_ms: Measure
    needed_delay_ms: Measure


@calculator(
    name="stragglar",
    title="All-reduce around one late rank",
    formula="T = max(0, T_RS(n-1) - delay) + c alpha + c/(n-1) S beta, c = n + log2 n - 2; ring "
    "2(n-1) alpha + 2(n-1)/n S beta",
    source="Devraj et al. 2025, StragglAR, arXiv:2505.23523",
    page="While one rank is late the others reduce among themselves, and the late one joins a "
    "shorter exchange. It speeds up the all-reduce only, not the step around it, and only if one "
    "rank is late for long enough, on a fabric in which any two ranks talk at full speed.",
    parameters=(
        Parameter(
            "ranks", "", "ranks, a power of two from 4 or a published size", Kind.INT, minimum=4
        ),
        Parameter("size_bytes", "bytes", "message size", above=0),
        Parameter("link_gb_per_s", "GB/s", "bandwidth of a rank in one direction", above=0),
        Parameter("alpha_us", "us", "latency of a message", minimum=0),
        Parameter("delay_ms", "ms", "how late the rank is; long enough if left out", minimum=0),
    ),
)
def stragglar(
    *,
    ranks: int,
    size_bytes: float,
    link_gb_per_s: float,
    alpha_us: float,
    delay_ms: float | None = None,
) -> Stragglar:
    """Ring and StragglAR after the late rank has come.

    Raises:
        UserError: no schedule of that many ranks is published.
    """
    link = (ranks, size_bytes, alpha_us * 1e-6, link_gb_per_s * 1e9)
    needed_s = model(*link, delay_s=0.0).hidden_s
    times = model(*link, delay_s=needed_s if delay_ms is None else delay_ms / 1e3)
    full = model(*link, delay_s=needed_s)
    verdict = "saves" if times.speedup >= 1 else "loses"
    saved_ms = 1e3 * (times.ring_s - times.stragglar_s)
    return Stragglar(
        all_reduce_speedup=Measure(times.speedup, "x"),
        ceiling=Measure(full.speedup, "x"),
        ring_ms=Measure(1e3 * times.ring_s, "ms"),
        stragglar_ms=Measure(1e3 * times.stragglar_s, "ms"),
        saved_ms=Measure(saved_ms, "ms"),
        needed_delay_ms=Measure(1e3 * needed_s, "ms"),
        sentence=f"The all-reduce takes {1e3 * times.stragglar_s:.3f} ms instead of "
        f"{1e3 * times.ring_s:.3f} ms ({times.speedup:.2f}x): it {verdict} {abs(saved_ms):.3f} ms. "
        f"The full gain needs a rank that is {1e3 * needed_s:.3f} ms late.",
        warnings=(
            "the all-reduce only: the step around it does not get faster by this factor",
            *(("delay not given: taken as long enough",) if delay_ms is None else ()),
        ),
    )


CALCULATORS = (stragglar,)
