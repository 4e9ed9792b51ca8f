"""Slowdown, delay and waste are three numbers for one thing; this keeps them apart."""

from __future__ import annotations

from dataclasses import dataclass

from steptax.app.compute.calculators.base import Result, calculator
from steptax.app.compute.calculators.money import PRICE, PRICE_HIGH, priced
from steptax.app.compute.calculators.parameter import Kind, Parameter
from steptax.app.compute.measure import Measure, Ratio
from steptax.app.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Waste(Result):
    """One loss as slowdown (T / T_ideal), delay (slowdown - 1) and waste (1 - 1 / slowdown)."""

    headline: str = "waste_ratio"

    waste_ratio: Ratio
    slowdown: Measure
    delay_ratio: Measure
    actual_h: Measure
    extra_h: Measure
    extra_gpu_hours: Measure
    extra_usd: Measure


@calculator(
    name="waste",
    title="Slowdown and waste",
    formula="S = T/T_ideal; delay = S - 1; waste = 1 - 1/S = delay/(1 + delay)",
    source="Lin et al., OSDI'25 (S and waste)",
    page="A job that takes 34.59 % longer has wasted 25.7 % of its GPU time, not 34.59 %: the "
    "first is measured against the ideal run, the second against the run that was paid. Give one "
    "of the three, or planned and actual hours. With GPUs and a price it says what the extra hours "
    "cost.",
    parameters=(
        Parameter("slowdown", "x", "actual time / ideal time", minimum=1),
        Parameter(
            "delay_ratio", "ratio", "how much longer the job took, of its ideal time", minimum=0
        ),
        Parameter(
            "waste_ratio",
            "ratio",
            "share of the paid GPU time that was lost",
            minimum=0,
            maximum=0.9999,
        ),
        Parameter("planned_h", "h", "ideal or planned run", above=0),
        Parameter("actual_h", "h", "run as it was", above=0),
        Parameter("gpus", "", "GPUs of the job", Kind.INT, minimum=1),
        PRICE,
        PRICE_HIGH,
    ),
)
def waste(
    *,
    slowdown: float | None = None,
    delay_ratio: float | None = None,
    waste_ratio: float | None = None,
    planned_h: float | None = None,
    actual_h: float | None = None,
    gpus: int | None = None,
    usd_per_gpu_hour: float | None = None,
    usd_per_gpu_hour_high: float | None = None,
) -> Waste:
    """All forms of a loss from one of them, and its cost.

    Raises:
        UserError: not exactly one form was given; the actual run is shorter than the planned one.
    """
    factor = _slowdown(slowdown, delay_ratio, waste_ratio, planned_h, actual_h)
    lost = 1 - 1 / factor
    unplanned = "the planned hours were not given"
    if planned_h is None:
        actual, extra = Measure.missing("h", unplanned), Measure.missing("h", unplanned)
    else:
        actual = Measure(planned_h * factor, "h")
        extra = Measure(planned_h * (factor - 1), "h")
    if gpus is None:
        gpu_hours = Measure.missing("GPU-hours", "the number of GPUs was not given")
    else:
        gpu_hours = extra.map(lambda h: h * gpus, "GPU-hours")
    return Waste(
        waste_ratio=Ratio(lost),
        slowdown=Measure(factor, "x"),
        delay_ratio=Measure(factor - 1, "ratio"),
        actual_h=actual,
        extra_h=extra,
        extra_gpu_hours=gpu_hours,
        extra_usd=priced(gpu_hours, usd_per_gpu_hour, usd_per_gpu_hour_high),
        sentence=f"Taking {factor - 1:.2%} longer ({factor:.4g}x) wastes {lost:.1%} of GPU time.",
    )


def _slowdown(
    slowdown: float | None,
    delay_ratio: float | None,
    waste_ratio: float | None,
    planned_h: float | None,
    actual_h: float | None,
) -> float:
    forms = {
        "slowdown": slowdown,
        "delay_ratio": None if delay_ratio is None else 1 + delay_ratio,
        "waste_ratio": None if waste_ratio is None else 1 / (1 - waste_ratio),
    }
    if actual_h is not None:
        if planned_h is None:
            raise UserError("expected the planned hours beside the actual ones", where="planned_h")
        if actual_h < planned_h:
            raise UserError(f"expected at least planned_h, {planned_h:g} h", where="actual_h")
        forms["actual_h"] = actual_h / planned_h
    given = {name: value for name, value in forms.items() if value is not None}
    if len(given) != 1:
        raise UserError(
            "expected one of slowdown, delay_ratio, waste_ratio, or planned_h with actual_h",
            where=", ".join(given) or "slowdown",
        )
    return next(iter(given.values()))


CALCULATORS = (waste,)
