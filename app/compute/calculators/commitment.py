"""A commitment that is paid whether it is used or not, against paying by the hour."""

from __future__ import annotations

import math
from dataclasses import dataclass

from steptax.app.compute.calculators.base import Result, calculator
from steptax.app.compute.calculators.parameter import Parameter
from steptax.app.compute.measure import Measure, Ratio
from steptax.app.compute.spoken import spoken_ratio

_RATE = "USD/GPU-hour"


@dataclass(frozen=True, kw_only=True)
class Commitment(Result):
    """Price of a used hour under the commitment, and from which use on it saves."""

    headline: str = "saved_usd_per_used_gpu_hour"

    saved_usd_per_used_gpu_hour: Measure
    """Below 0 paying by the hour is cheaper."""
    break_even_utilisation_ratio: Measure
    """Use above which the commitment is cheaper."""
    committed_usd_per_used_gpu_hour: Measure
    on_demand_usd_per_gpu_hour_mean: Measure
    """Mean over the term of a price that falls."""
    ceiling: Measure
    """What is saved if every hour is used."""


@calculator(
    name="commitment",
    title="Commitment or by the hour",
    formula="break-even use = committed price / mean price by the hour; mean over n years of a "
    "price that falls by d a year = p (1 - (1 - d)^n) / (-n ln(1 - d)); price of a used hour = "
    "committed price / use",
    source="Break-even of reserved capacity, as the FinOps Foundation defines commitment discounts "
    "(FOCUS: commitment discount, unused amount); exponential fall of the price",
    page="A commitment is paid for every hour of its term. It saves if the share of hours that are "
    "used is above committed over hourly price - and the hourly price is that of the whole term: "
    "where devices get cheaper every year, today's discount shrinks with it.",
    parameters=(
        Parameter("committed_usd_per_gpu_hour", _RATE, "price under the commitment", above=0),
        Parameter("on_demand_usd_per_gpu_hour", _RATE, "price by the hour now", above=0),
        Parameter(
            "utilisation_ratio",
            "ratio",
            "share of the committed hours that are used",
            above=0,
            maximum=1,
        ),
        Parameter("years", "", "years of the term", above=0, maximum=30),
        Parameter(
            "yearly_fall_ratio",
            "ratio",
            "by how much the price by the hour falls in a year",
            minimum=0,
            maximum=0.99,
        ),
    ),
)
def commitment(
    *,
    committed_usd_per_gpu_hour: float,
    on_demand_usd_per_gpu_hour: float,
    utilisation_ratio: float,
    years: float = 1.0,
    yearly_fall_ratio: float | None = None,
) -> Commitment:
    """From which use on the commitment is cheaper, and what it saves at a given use."""
    hourly = on_demand_usd_per_gpu_hour * mean_of_falling(yearly_fall_ratio or 0.0, years)
    share = committed_usd_per_gpu_hour / hourly
    even = (
        Ratio(share)
        if share <= 1
        else Measure.missing("ratio", "by the hour is cheaper even if every hour were used")
    )
    used = committed_usd_per_gpu_hour / utilisation_ratio
    return Commitment(
        break_even_utilisation_ratio=even,
        committed_usd_per_used_gpu_hour=Measure(used, _RATE),
        on_demand_usd_per_gpu_hour_mean=Measure(hourly, _RATE),
        saved_usd_per_used_gpu_hour=Measure(hourly - used, _RATE),
        ceiling=Measure(hourly - committed_usd_per_gpu_hour, _RATE),
        sentence=_sentence(even, used, hourly),
        warnings=()
        if yearly_fall_ratio is not None
        else ("the price by the hour is taken to stay over the term",),
    )


def mean_of_falling(yearly_fall_ratio: float, years: float) -> float:
    """Mean over ``years`` of a price that starts at 1 and falls by so much a year, steadily."""
    if yearly_fall_ratio == 0:
        return 1.0
    rate = -math.log1p(-yearly_fall_ratio)
    return -math.expm1(-rate * years) / (rate * years)


def _sentence(even: Measure, used: float, hourly: float) -> str:
    word = "less" if used < hourly else "more"
    text = f"A used hour costs ${used:.2f}, ${abs(hourly - used):.2f} {word} than by the hour"
    if even.value is None:
        return f"{text}; {even.reason}."
    return f"{text}; the commitment saves from {spoken_ratio(even.value)} use on."


CALCULATORS = (commitment,)
