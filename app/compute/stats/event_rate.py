"""How often something happens, from a count: the rate of a Poisson process, exactly.

The 95 % interval of a count is Garwood's (1936). Of nothing counted only the high end of the rate
is known, one-sided, as the rule of three has it.
"""

from __future__ import annotations

from scipy.special import gammaincinv

from steptax.app.compute.measure import Measure


def rate_of_count(count: int, exposure_h: float) -> Measure:
    """Events per hour of exposure, 1/h; ``exposure_h`` is above 0."""
    low = float(gammaincinv(count, 0.025)) if count else 0.0
    high = float(gammaincinv(count + 1, 0.975 if count else 0.95))
    said = () if count else ("no failure was counted: only the high end of the rate is known",)
    return Measure(count / exposure_h, "1/h", low / exposure_h, high / exposure_h, warnings=said)


def time_between(rate: Measure, gpus: int = 1) -> Measure:
    """Mean time between failures of ``gpus``, h: falls as the rate rises, so its ends swap."""
    low = None if rate.high is None else 1 / (rate.high * gpus)
    if not rate.value:
        return Measure(None, "h", low=low, reason="no failure was counted: only a bound is known")
    return Measure(
        1 / (rate.value * gpus), "h", low, None if not rate.low else 1 / (rate.low * gpus)
    )
