"""From seconds saved in each step to GPU-hours and dollars."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from steptax.app.compute.measure import Level, Measure

_HOUR_S = 3600.0
_DAY_S = 86_400.0
NO_PRICE = "no price per GPU-hour is known"


@dataclass(frozen=True)
class Recovered:
    """What comes back: over the analysed steps, and per day of running alike."""

    s_per_step: Measure
    share: Measure
    gpu_hours: Measure
    gpu_hours_per_day: Measure
    usd: Measure
    usd_per_day: Measure

    def as_json(self) -> dict[str, Any]:
        """By name, with ``recovered_`` before it."""
        return {f"recovered_{name}": m.as_json() for name, m in vars(self).items()}


def recovered(
    saved_s: Measure,
    step_s: float,
    steps: int,
    gpus: int,
    gpus_warning: str | None,
    price: Decimal | float | None,
) -> Recovered:
    """Value of ``saved_s`` per step of ``step_s`` on ``gpus`` devices.

    ``price`` in USD per GPU-hour; without one the dollars are missing.
    """
    share = saved_s.map(lambda s: s / step_s, "ratio")
    hours = saved_s.map(lambda s: s * steps * gpus / _HOUR_S, "GPU-hours", "world_size")
    per_day = share.map(lambda r: r * gpus * _DAY_S / _HOUR_S, "GPU-hours/day", "world_size")
    if gpus_warning is not None:
        hours, per_day = (warned(m, gpus_warning) for m in (hours, per_day))
    return at_price(
        Recovered(saved_s, share, hours, per_day, _unpriced("USD"), _unpriced("USD/day")), price
    )


def at_price(what: Recovered, price: Decimal | float | None) -> Recovered:
    """The same at another ``price`` in USD per GPU-hour; without one the dollars are missing."""
    if price is None:
        return replace(what, usd=_unpriced("USD"), usd_per_day=_unpriced("USD/day"))
    rate = float(price)
    return replace(
        what,
        usd=what.gpu_hours.map(lambda h: h * rate, "USD", "usd_per_gpu_hour"),
        usd_per_day=what.gpu_hours_per_day.map(lambda h: h * rate, "USD/day", "usd_per_gpu_hour"),
    )


def _unpriced(unit: str) -> Measure:
    return Measure.missing(unit, NO_PRICE, level=Level.TRACE)


def nothing_known(reason: str) -> Recovered:
    """Every value missing for ``reason``."""
    units = ("s", "ratio", "GPU-hours", "GPU-hours/day", "USD", "USD/day")
    return Recovered(*(Measure.missing(unit, reason, level=Level.TRACE) for unit in units))


def warned(measure: Measure, warning: str) -> Measure:
    """The same with one more warning."""
    return Measure(
        measure.value,
        measure.unit,
        low=measure.low,
        high=measure.high,
        level=measure.level,
        inputs=measure.inputs,
        warnings=(*measure.warnings, warning),
        reason=measure.reason,
    )
