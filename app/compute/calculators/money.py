"""Pricing GPU-hours at a price that the person gave; there is no default price."""

from __future__ import annotations

from steptax.app.compute.calculators.parameter import Parameter
from steptax.app.compute.measure import Measure
from steptax.app.errors import UserError

PRICE = Parameter(
    "usd_per_gpu_hour", "USD/GPU-hour", "what a GPU-hour costs you; no money without it", minimum=0
)
PRICE_HIGH = Parameter(
    "usd_per_gpu_hour_high", "USD/GPU-hour", "a dearer price, for a range", minimum=0
)


def priced(
    gpu_hours: Measure, usd_per_gpu_hour: float | None, usd_per_gpu_hour_high: float | None = None
) -> Measure:
    """GPU-hours in USD at the price; with a dearer price, the high end is at that one.

    Missing, with its reason, without GPU-hours or without a price.

    Raises:
        UserError: the dearer price is lower, or is given alone.
    """
    if usd_per_gpu_hour is None:
        if usd_per_gpu_hour_high is not None:
            raise UserError("expected the lower price too", where="usd_per_gpu_hour")
        return Measure.missing("USD", "no price per GPU-hour was given")
    top = usd_per_gpu_hour if usd_per_gpu_hour_high is None else usd_per_gpu_hour_high
    if top < usd_per_gpu_hour:
        raise UserError(
            f"expected at least {usd_per_gpu_hour}, not {top}", where="usd_per_gpu_hour_high"
        )
    if gpu_hours.value is None:
        return Measure.missing("USD", gpu_hours.reason or "GPU-hours are not known")
    low = gpu_hours.value if gpu_hours.low is None else gpu_hours.low
    high = gpu_hours.value if gpu_hours.high is None else gpu_hours.high
    banded = usd_per_gpu_hour_high is not None or gpu_hours.low is not None
    return Measure(
        gpu_hours.value * usd_per_gpu_hour,
        "USD",
        low * usd_per_gpu_hour if banded else None,
        high * top if banded else None,
        warnings=gpu_hours.warnings,
    )
