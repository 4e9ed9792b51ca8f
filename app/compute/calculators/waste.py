"""Slowdown, delay and waste are three numbers for one thing; this keeps them apart."""

from __future__ import annotations

from dataclasses import dataclass

from steptax.app.compute.calculators.base import Result, calculator
from steptax.app.compute.calculators.money import PRICE, PRICE_HIGH, priced
from steptax.app.compute.calculators.parameter import Kind, Parameter
from steptax.app.compute.measure import Measure, Ratio
from steptax.app.errors import UserError
from steptax.app.format import format_share


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
    mitigated_ratio: Measure
    """How much of the lost rate a mitigation brought back."""
    mitigation_speedup: Measure


@calculator(
    name="waste",
    title="Slowdown and waste",
    formula="S = T/T_ideal; delay = S - 1; waste = 1 - 1/S = delay/(1 + delay)",
    source="Lin et al., OSDI'25 (S and waste)",
    page="A job that takes 34.59 % longer has wasted 25.7 % of its GPU time, not 34.59 %: the "
    "first is measured against the ideal run, the second against the run that was paid. Give one "
    "of the three, planned and actual hours, or the rates with and without the fault. With GPUs "
    "and a price it says what the extra hours cost; with the rate after a mitigation, how much of "
    "the loss came back.",
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
        Parameter("healthy_per_min", "1/min", "steps per minute without the fault", above=0),
        Parameter("slow_per_min", "1/min", "steps per minute with it", above=0),
        Parameter("mitigated_per_min", "1/min", "steps per minute once it is mitigated", above=0),
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
    healthy_per_min: float | None = None,
    slow_per_min: float | None = None,
    mitigated_per_min: float | None = None,
    gpus: int | None = None,
    usd_per_gpu_hour: float | None = None,
    usd_per_gpu_hour_high: float | None = None,
) -> Waste:
    """All forms of a loss from one of them, and its cost.

    Raises:
        UserError: not exactly one form was given; the actual run is shorter than the planned one.
    """
    forms = {
        "slowdown": slowdown,
        "delay_ratio": None if delay_ratio is None else 1 + delay_ratio,
        "waste_ratio": None if waste_ratio is None else 1 / (1 - waste_ratio),
        "actual_h": _of_hours(planned_h, actual_h),
        "slow_per_min": _of_rates(healthy_per_min, slow_per_min),
    }
    given = {name: value for name, value in forms.items() if value is not None}
    if len(given) != 1:
        raise UserError(
            "expected one of slowdown, delay_ratio, waste_ratio, planned_h with actual_h, or "
            "healthy_per_min with slow_per_min",
            where=", ".join(given) or "slowdown",
        )
    factor = next(iter(given.values()))
    mitigated, faster = _mitigation(healthy_per_min, slow_per_min, mitigated_per_min)
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
        mitigated_ratio=mitigated,
        mitigation_speedup=faster,
        sentence=f"Taking {format_share(factor - 1)} longer ({factor:.4g}x) wastes "
        f"{format_share(lost)} of GPU time.",
    )


def _of_hours(planned_h: float | None, actual_h: float | None) -> float | None:
    if actual_h is None:
        return None
    if planned_h is None:
        raise UserError("expected the planned hours beside the actual ones", where="planned_h")
    if actual_h < planned_h:
        raise UserError(f"expected at least planned_h, {planned_h:g} h", where="actual_h")
    return actual_h / planned_h


def _of_rates(healthy: float | None, slow: float | None) -> float | None:
    if healthy is None and slow is None:
        return None
    if healthy is None or slow is None:
        absent = "healthy_per_min" if healthy is None else "slow_per_min"
        raise UserError("expected both rates, with and without the fault", where=absent)
    if slow > healthy:
        raise UserError(f"expected at most healthy_per_min, {healthy:g}", where="slow_per_min")
    return healthy / slow


def _mitigation(
    healthy: float | None, slow: float | None, mitigated: float | None
) -> tuple[Measure, Measure]:
    """Part of the lost rate that came back, and the speed-up over the faulty state."""
    if mitigated is None:
        reason = "the rate after a mitigation was not given"
        return Measure.missing("ratio", reason), Measure.missing("x", reason)
    if healthy is None or slow is None:
        raise UserError("expected beside the rate of the mitigated job", where="healthy_per_min")
    faster = Measure(mitigated / slow, "x")
    if healthy == slow:
        return Measure.missing("ratio", "no rate was lost"), faster
    if not slow <= mitigated <= healthy:
        what = "slower than without it" if mitigated < slow else "faster than without the fault"
        reason = f"{mitigated:g} per minute is {what}, so it is no part of the lost rate"
        return Measure.missing("ratio", reason), faster
    return Ratio((mitigated - slow) / (healthy - slow)), faster


CALCULATORS = (waste,)
