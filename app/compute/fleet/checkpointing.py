"""How often to save: expected wall time with failures, and the interval that makes it least.

All arguments are in seconds. ``checkpoint_s`` is the part of a save that blocks training,
``mtbf_s`` the mean time between failures of the whole job, ``recover_s`` all that a failure costs
besides the work since the last save: restart, and for asynchronous saves the time in which the
newest one was not yet durable. Failures are taken as a Poisson process.
"""

from __future__ import annotations

import math

from scipy.special import lambertw

from steptax.app.errors import UserError


def useful_ratio(interval_s: float, checkpoint_s: float, mtbf_s: float, recover_s: float) -> float:
    """Useful time / wall time, exactly: tau / (M e^(R/M) (e^((tau + delta)/M) - 1)), Daly 2006.

    Raises:
        UserError: an interval or a time between failures that is not above zero.
    """
    for name, value in (("interval_s", interval_s), ("mtbf_s", mtbf_s)):
        if not value > 0:
            raise UserError(f"expected a number of s above 0, not {value}", where=name)
    exponent = (interval_s + checkpoint_s) / mtbf_s
    # e^700 is near the largest float; no interval survives such odds.
    if exponent + recover_s / mtbf_s > 700:
        return 0.0
    return interval_s / (mtbf_s * math.exp(recover_s / mtbf_s) * math.expm1(exponent))


def young_interval_s(checkpoint_s: float, mtbf_s: float) -> float:
    """sqrt(2 delta M), save included (Young 1974)."""
    return math.sqrt(2 * checkpoint_s * mtbf_s)


def daly_interval_s(checkpoint_s: float, mtbf_s: float) -> float | None:
    """sqrt(2 delta M) - delta (Daly 2006, first order); None where it is not above zero."""
    interval = young_interval_s(checkpoint_s, mtbf_s) - checkpoint_s
    return interval if interval > 0 else None


def daly_high_order_interval_s(checkpoint_s: float, mtbf_s: float) -> float:
    """Daly 2006, eq. 37: two more terms below delta = 2 M, and M above."""
    if checkpoint_s >= 2 * mtbf_s:
        return mtbf_s
    x = checkpoint_s / (2 * mtbf_s)
    root = young_interval_s(checkpoint_s, mtbf_s)
    return root * (1 + math.sqrt(x) / 3 + x / 9) - checkpoint_s


def best_interval_s(checkpoint_s: float, mtbf_s: float) -> float:
    """The interval of the highest useful ratio: M (1 + W0(-e^(-1 - delta/M))), W0 = Lambert."""
    x = checkpoint_s / mtbf_s
    if x < 1e-9:
        # The argument is then within rounding of the branch point, where W0 = -1 + sqrt(2 x).
        return mtbf_s * math.sqrt(2 * x)
    return mtbf_s * (1 + float(lambertw(-math.exp(-1 - x)).real))
