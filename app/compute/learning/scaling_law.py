"""Scaling laws: what a model of that size should have learned, and at which price.

L(N, D) = E + A / N^alpha + B / D^beta in nats per token, N parameters and D tokens. The published
fits disagree, most of all on how many tokens a parameter is worth, so all are given side by side.
A prior says what is usual, not what a run does: measured velocity comes first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from steptax.app.compute.measure import Level, Measure
from steptax.app.compute.stats.positive import require_positive
from steptax.app.compute.stats.rows import Floats
from steptax.app.errors import UserError
from steptax.app.words import count_text

#: Exponents that a fit may have; published ones lie between 0.03 and 0.4.
_EXPONENTS = (0.005, 2.0)
_LEAST_POINTS = 4


@dataclass(frozen=True)
class ScalingConstants:
    """One published fit of L(N, D)."""

    name: str
    E: float
    A: float
    B: float
    alpha: float
    beta: float
    source: str

    def loss(self, params: float, tokens: float) -> float:
        """E + A / N^alpha + B / D^beta.

        Raises:
            UserError: no parameters or no tokens.
        """
        require_positive(params=params, tokens=tokens)
        return (
            self.E + self.A * math.pow(params, -self.alpha) + self.B * math.pow(tokens, -self.beta)
        )

    def velocity(self, tokens: float, tokens_per_usd: float) -> float:
        """-dL/d$ = beta B D^(-beta - 1) * tokens / $ at D tokens, in loss/USD.

        Raises:
            UserError: no tokens or no rate.
        """
        require_positive(tokens=tokens, tokens_per_usd=tokens_per_usd)
        return self.beta * self.B * math.pow(tokens, -self.beta - 1) * tokens_per_usd

    def optimal_tokens_per_param(self, flops: float) -> float:
        """D / N that is best for a budget of 6 N D FLOPs (Hoffmann et al. 2022, equation 4).

        Raises:
            UserError: no budget.
        """
        require_positive(flops=flops)
        both = self.alpha + self.beta
        balance = math.pow(self.alpha * self.A / (self.beta * self.B), 1 / both)
        params = balance * math.pow(flops / 6, self.beta / both)
        return flops / 6 / params**2


HOFFMANN = ScalingConstants(
    "Hoffmann 2022", 1.69, 406.4, 410.7, 0.34, 0.28, "Hoffmann et al. 2022, approach 3"
)
BESIROGLU = ScalingConstants(
    "Besiroglu 2024",
    1.8172,
    482.01,
    2085.43,
    0.3478,
    0.3658,
    "Besiroglu et al. 2024, a refit of the same runs; quoted from a secondary source",
)
SCALING_CONSTANTS = (HOFFMANN, BESIROGLU)


def tokens_per_usd(
    *,
    peak_flops_per_s: float,
    mfu_ratio: float,
    goodput_ratio: float,
    flops_per_token: float,
    usd_per_device_hour: float,
) -> float:
    """Tokens that a dollar trains on: 3600 * peak * MFU * goodput / (FLOPs per token * price).

    Raises:
        UserError: a value that is not positive, or a share above 1.
    """
    require_positive(
        peak_flops_per_s=peak_flops_per_s,
        mfu_ratio=mfu_ratio,
        goodput_ratio=goodput_ratio,
        flops_per_token=flops_per_token,
        usd_per_device_hour=usd_per_device_hour,
    )
    for name, share in (("mfu_ratio", mfu_ratio), ("goodput_ratio", goodput_ratio)):
        if share > 1:
            raise UserError(f"a share of at most 1, not {share}", where=name)
    useful_per_hour = 3600 * peak_flops_per_s * mfu_ratio * goodput_ratio
    return useful_per_hour / (flops_per_token * usd_per_device_hour)


@dataclass(frozen=True)
class Prior:
    """What one published fit expects of a run."""

    constants: ScalingConstants
    loss: float
    velocity_loss_per_usd: float


def scaling_prior(params: float, tokens: float, usd_tokens: float) -> tuple[Prior, ...]:
    """Expected loss, and -dL/d$ at ``usd_tokens`` tokens per dollar, by every published fit.

    Raises:
        UserError: a value that is not positive.
    """
    return tuple(
        Prior(fit, fit.loss(params, tokens), fit.velocity(tokens, usd_tokens))
        for fit in SCALING_CONSTANTS
    )


@dataclass(frozen=True)
class PowerLaw:
    """Baseline L = floor + k * C^-gamma, with the compute C that it was fitted on."""

    floor: float
    k: float
    gamma: float
    rms_error: float
    low_compute: float
    high_compute: float

    def loss(self, compute: float) -> float:
        """Loss at ``compute``, in the unit of the fit.

        Raises:
            UserError: no compute.
        """
        require_positive(compute=compute)
        return self.floor + self.k * math.pow(compute, -self.gamma)

    def compute_for(self, loss: float) -> float | None:
        """Compute at which the baseline has that loss; None at or below its floor."""
        if loss <= self.floor or self.k == 0:
            return None
        log_compute = math.log(self.k / (loss - self.floor)) / self.gamma
        return math.exp(log_compute) if log_compute < 700 else None


def fit_power_law(compute: Sequence[float], loss: Sequence[float]) -> PowerLaw:
    """Least squares of L = floor + k * C^-gamma with floor, k >= 0.

    For a given gamma, floor and k are linear; gamma is found by a search over its whole range, then
    refined, so no start value is needed.

    Raises:
        UserError: fewer than 4 points, compute that is not positive, or one value of it only.
    """
    c, y = np.asarray(compute, dtype=np.float64), np.asarray(loss, dtype=np.float64)
    if len(c) != len(y) or len(c) < _LEAST_POINTS:
        raise UserError(
            f"{count_text(len(c), 'point')} of compute and {len(y)} of loss; at least "
            f"{_LEAST_POINTS} pairs",
            where="baseline",
        )
    if not (np.all(np.isfinite(c) & (c > 0)) and np.all(np.isfinite(y))):
        raise UserError("compute must be positive and loss a number", where="baseline")
    if c.min() == c.max():
        raise UserError("all points have the same compute", where="baseline")
    from scipy.optimize import minimize_scalar, nnls

    # In units of the geometric mean, so that neither C nor C^-gamma overflows.
    scale = float(np.exp(np.log(c).mean()))

    def solve(log_gamma: float) -> tuple[Floats, float]:
        basis = np.stack([np.ones_like(c), (c / scale) ** -math.exp(log_gamma)], axis=1)
        weights, error = nnls(basis, y)
        return weights, float(error)

    grid = np.linspace(math.log(_EXPONENTS[0]), math.log(_EXPONENTS[1]), 61)
    best = int(np.argmin([solve(g)[1] for g in grid]))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    found = minimize_scalar(
        lambda g: solve(g)[1], bounds=(low, high), method="bounded", options={"xatol": 1e-10}
    )
    (floor, factor), error = solve(float(found.x))
    gamma = math.exp(float(found.x))
    return PowerLaw(
        float(floor),
        float(factor * scale**gamma),
        gamma,
        error / math.sqrt(len(c)),
        float(c.min()),
        float(c.max()),
    )


def compute_equivalent_gain(
    baseline: PowerLaw, loss_now: float, compute_used: float, *, paid_usd: float | None = None
) -> Measure:
    """Compute that the baseline would have needed for this loss / compute used.

    Above 1 the run learns faster than its baseline. With ``paid_usd`` the gain per dollar. Missing
    where the baseline never reaches the loss.

    Raises:
        UserError: no compute, or dollars that are not positive.
    """
    require_positive(compute_used=compute_used)
    unit = "x" if paid_usd is None else "x/USD"
    if paid_usd is not None:
        require_positive(paid_usd=paid_usd)
    needed = baseline.compute_for(loss_now)
    if needed is None:
        reason = f"the baseline does not reach {loss_now:g}: its floor is {baseline.floor:.4g}"
        return Measure.missing(unit, reason, level=Level.LOG)
    warnings: tuple[str, ...] = ()
    if not baseline.low_compute <= needed <= baseline.high_compute:
        warnings = ("the baseline is extrapolated beyond the compute it was fitted on",)
    gain = needed / compute_used / (paid_usd or 1)
    return Measure(gain, unit, level=Level.LOG, warnings=warnings)
