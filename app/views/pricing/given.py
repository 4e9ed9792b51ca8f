"""The price that a view uses, and how it is said. Nothing is assumed."""

from __future__ import annotations

from decimal import Decimal
from functools import lru_cache

from steptax.app.compute.measure import Level, Measure
from steptax.app.views.models import Price

NO_PRICE = "no price is set: give one per GPU-hour (--price, or the field at the top of the page)"
RELATIVE_TIME = "durations in this source are normalised, so shares hold and absolute values do not"
NO_WORLD = (
    "the log of the job does not say how many ranks it has: ingest it with --world-size as well"
)


def price_text(usd_per_gpu_hour: Decimal) -> str:
    """A price as it was given: cents at least, and no digit of it rounded away."""
    exact = usd_per_gpu_hour.normalize()
    cents = exact.quantize(Decimal("0.01")) if exact < 10**9 else exact
    return f"${cents if cents == exact else exact:,f} per GPU-hour"


def price_brief(price: Price) -> str:
    """The price alone, ``at $2.50 per GPU-hour``; its basis where there is none."""
    if price.usd_per_gpu_hour is None:
        return price.basis
    return f"at {price_text(Decimal(f'{price.usd_per_gpu_hour:.6g}'))}"


@lru_cache(maxsize=64)
def price_view(usd_per_gpu_hour: Decimal | None, note: str | None = None) -> Price:
    """Name the price and who set it."""
    if usd_per_gpu_hour is None:
        return Price(None, "no price is set")
    return Price(
        usd_per_gpu_hour,
        f"{price_text(usd_per_gpu_hour)}, {note or 'you set it'}",
    )


def dollars(
    gpu_hours: Measure, price: Price, *, unit: str = "USD", inputs: tuple[str, ...] = ()
) -> Measure:
    """``gpu_hours`` (or GPU-hours per time) at ``price``; missing with its reason without one."""
    if price.usd_per_gpu_hour is None:
        return Measure.missing(unit, price.no_price or NO_PRICE, level=gpu_hours.level)
    rate = float(price.usd_per_gpu_hour)
    return gpu_hours.map(lambda hours: hours * rate, unit, "price", *inputs)


def level_text(level: Level | None) -> str:
    """Evidence level for people."""
    return "no evidence" if level is None else level.label
