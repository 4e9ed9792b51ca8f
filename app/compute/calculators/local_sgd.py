"""Synchronising every H steps instead of every step."""

from __future__ import annotations

import math
from dataclasses import dataclass

from steptax.app.compute.calculators.base import Result, calculator
from steptax.app.compute.calculators.parameter import Kind, Parameter
from steptax.app.compute.measure import Measure
from steptax.app.compute.stats.order_stats import normal_max_mean
from steptax.app.errors import UserError


@dataclass(frozen=True, kw_only=True)
class LocalSgd(Result):
    """``slowdown``: mean step / mean work of a rank; the two parts of its excess add up to it."""

    headline: str = "step_speedup"

    step_speedup: Measure
    ceiling: Measure
    """Speed-up for endless intervals: only the lasting part is left."""
    slowdown: Measure
    slowdown_every_step: Measure
    persistent_part: Measure
    transient_part: Measure
    step_ms: Measure


@calculator(
    name="local-sgd",
    title="Synchronising less often",
    formula="E[step]/mean = 1 + a_max + cv m_N / sqrt(H) + comm / (H mean)",
    source="Stich 2019, Local SGD Converges Fast and Communicates Little; order statistics as in "
    "expected-max",
    page="Between synchronisations a rank that was slow once can catch up, so random slowness "
    "averages out as the root of H. A rank that is always slow stays as slow as it was: that part "
    "does not shrink. Averaging parameters instead of gradients changes the optimisation; nothing "
    "is said here about the quality of the model.",
    parameters=(
        Parameter("ranks", "", "ranks that synchronise", Kind.INT, minimum=1),
        Parameter(
            "cv_ratio", "ratio", "random spread between ranks in a step: sd / mean", minimum=0
        ),
        Parameter("every_steps", "steps", "steps between synchronisations, H", Kind.INT, minimum=1),
        Parameter(
            "persistent_ratio",
            "ratio",
            "lasting excess of the slowest rank, of the mean",
            minimum=0,
        ),
        Parameter("mean_ms", "ms", "mean work of a rank per step", above=0),
        Parameter("comm_ms", "ms", "communication of one synchronisation", minimum=0),
    ),
)
def local_sgd(
    *,
    ranks: int,
    cv_ratio: float,
    every_steps: int,
    persistent_ratio: float | None = None,
    mean_ms: float | None = None,
    comm_ms: float | None = None,
) -> LocalSgd:
    """The mean step when ranks meet every ``every_steps`` steps.

    Raises:
        UserError: communication without the mean work that it is compared with.
    """
    if comm_ms is not None and mean_ms is None:
        raise UserError("expected the mean work beside communication", where="mean_ms")
    comm = 0.0 if comm_ms is None or mean_ms is None else comm_ms / mean_ms
    lasting = persistent_ratio or 0.0
    random = cv_ratio * normal_max_mean(ranks)

    def slowdown(every: int) -> float:
        return 1 + lasting + random / math.sqrt(every) + comm / every

    before, after = slowdown(1), slowdown(every_steps)
    warnings = (
        "parameter averaging changes convergence: no claim about quality",
        *(("lasting slowness not given: taken as none",) if persistent_ratio is None else ()),
        *(("communication not given: left out",) if comm_ms is None else ()),
    )
    return LocalSgd(
        step_speedup=Measure(before / after, "x", warnings=warnings),
        ceiling=Measure(before / (1 + lasting), "x", warnings=warnings),
        slowdown=Measure(after, "x"),
        slowdown_every_step=Measure(before, "x"),
        persistent_part=Measure.missing("ratio", "the lasting excess was not given")
        if persistent_ratio is None
        else Measure(lasting, "ratio"),
        transient_part=Measure(random / math.sqrt(every_steps), "ratio"),
        step_ms=Measure.missing("ms", "the mean work was not given")
        if mean_ms is None
        else Measure(after * mean_ms, "ms"),
        sentence=f"Meeting every {every_steps} steps takes the step from {before:.3f} to "
        f"{after:.3f} times the mean work ({before / after:.3f}x). "
        + (
            "Lasting slowness was not given; it would stay."
            if persistent_ratio is None
            else f"The lasting excess of {lasting:.3f} stays."
        ),
        warnings=warnings,
    )


CALCULATORS = (local_sgd,)
