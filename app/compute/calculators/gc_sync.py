"""Letting all ranks collect garbage in the same step."""

from __future__ import annotations

from dataclasses import dataclass

from steptax.app.compute.calculators.base import Result, calculator
from steptax.app.compute.calculators.parameter import Kind, Parameter
from steptax.app.compute.measure import Measure, Ratio
from steptax.app.compute.stats.order_stats import any_slow_ratio
from steptax.app.format import format_share


@dataclass(frozen=True, kw_only=True)
class GcSync(Result):
    """Mean cost of garbage collection per step, each rank on its own against all at once."""

    headline: str = "saved_ms"

    saved_ms: Measure
    ceiling: Measure
    """Saved if there were no pauses at all."""
    unsynchronised_ms: Measure
    synchronised_ms: Measure
    any_pause_ratio: Ratio
    step_speedup: Measure


@calculator(
    name="gc-sync",
    title="Garbage collection together",
    formula="apart: g (1 - (1 - 1/k)^N) per step; together: g/k",
    source="Lin et al., OSDI'25 (planned garbage collection)",
    page="A pause of one rank holds up all. When each of N ranks pauses once in k steps at moments "
    "of its own, nearly every step has one; when all pause together, one step in k does. Pauses "
    "are taken as equal and as striking at random. Collecting less often also needs more memory.",
    parameters=(
        Parameter("pause_ms", "ms", "one pause of one rank", above=0),
        Parameter(
            "every_steps", "steps", "steps between two pauses of a rank, k", Kind.INT, minimum=1
        ),
        Parameter("ranks", "", "ranks that wait for each other, N", Kind.INT, minimum=1),
        Parameter("step_ms", "ms", "step without any pause", above=0),
    ),
)
def gc_sync(
    *, pause_ms: float, every_steps: int, ranks: int, step_ms: float | None = None
) -> GcSync:
    """What pausing together saves per step, and the speed-up where the step is given."""
    hit = any_slow_ratio(1 / every_steps, ranks)
    apart, together = pause_ms * hit, pause_ms / every_steps
    return GcSync(
        saved_ms=Measure(apart - together, "ms"),
        ceiling=Measure(apart, "ms"),
        unsynchronised_ms=Measure(apart, "ms"),
        synchronised_ms=Measure(together, "ms"),
        any_pause_ratio=Ratio(hit),
        step_speedup=Measure.missing("x", "the step without pauses was not given")
        if step_ms is None
        else Measure((step_ms + apart) / (step_ms + together), "x"),
        sentence=f"{format_share(hit)} of steps meet a pause. Pausing together costs "
        f"{together:.3g} ms per step instead of {apart:.3g} ms.",
    )


CALCULATORS = (gc_sync,)
