"""The work of all ranks in all steps, freed of what a step has in common, ready for resampling.

A bootstrap draws each rank and each step some number of times. Every estimate here takes those
counts as weights, so the work is sorted once and moments are two matrix products.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from steptax.app.compute.order_stats import Array, lognormal_order_mean
from steptax.app.compute.tails import fit_tail

#: Values whose F^n is below exp(-50) cannot move an expected maximum.
_NEGLIGIBLE = 50.0


@dataclass(frozen=True)
class Pool:
    """Work in us, less its step's mean plus the overall mean; NaN where a rank did not report.

    ``target`` is the number of ranks that a maximum is wanted over. ``top``, ``top_step`` and
    ``top_rank`` list the values that can matter for it, ascending.
    """

    target: int
    centred: Array
    step_mean: Array
    mean_us: float
    top: Array
    top_step: npt.NDArray[np.intp]
    top_rank: npt.NDArray[np.intp]

    @classmethod
    def of(cls, work_us: Array, target: int) -> Pool:
        """From work of shape (steps, ranks) in which every step has at least two ranks."""
        step_mean = np.nanmean(work_us, axis=1)
        mean = float(step_mean.mean())
        centred = work_us - step_mean[:, None] + mean
        step, rank = np.nonzero(np.isfinite(centred))
        values = centred[step, rank]
        # Twice the share that counts when all weights are one: resampling moves quantiles.
        kept = min(values.size, math.ceil(2 * values.size * -math.expm1(-_NEGLIGIBLE / target)))
        order = np.argsort(values, kind="stable")[values.size - kept :]
        return cls(target, centred, step_mean, mean, values[order], step[order], rank[order])

    def floor(self, ranks: Array | None = None, steps: Array | None = None) -> float:
        """E[max] of the observed step function; ranks and steps are weights, one each if absent."""
        ranks, steps = self._weights(ranks, steps)
        weight = ranks[self.top_rank] * steps[self.top_step]
        total = self.weight(ranks, steps)
        level = (total - weight.sum() + np.cumsum(weight)) / total
        start = max(0.0, float(1 - weight.sum() / total)) ** self.target
        jumps = np.diff(np.minimum(level, 1.0) ** self.target, prepend=start)
        return float(jumps @ self.top) + start * float(self.top[0]) + self._shift(steps)

    def lognormal(self, ranks: Array | None = None, steps: Array | None = None) -> float | None:
        """E[max] of the lognormal with the same mean and variance of the logarithm.

        None when a value is not positive.
        """
        if not self._all_positive:
            return None
        ranks, steps = self._weights(ranks, steps)
        logs, squares = self._logs
        total = self.weight(ranks, steps)
        mid = float(steps @ logs @ ranks) / total
        variance = max(0.0, float(steps @ squares @ ranks) / total - mid * mid)
        # Centring on the mean of n ranks takes 1/n of the variance away.
        n = float(ranks.sum())
        sigma = math.sqrt(variance * n / max(n - 1, 1))
        top = lognormal_order_mean(self.target, self.target, sigma)
        return self.mean_us * math.exp(mid) * top + self._shift(steps)

    def tail(self) -> float | None:
        """E[max] with a fitted Pareto tail; None where there is no fit or its mean is infinite."""
        values = np.sort(self.centred[np.isfinite(self.centred)])
        fitted = fit_tail(values)
        return None if fitted is None else fitted.max_mean(self.target, values)

    def weight(self, ranks: Array, steps: Array) -> float:
        """Weight of all that was reported by these ranks in these steps."""
        return float(steps @ self._there @ ranks)

    @cached_property
    def _there(self) -> Array:
        """1 where a rank reported, else 0; real, so that products with it are plain BLAS calls."""
        return np.isfinite(self.centred).astype(np.float64)

    @cached_property
    def _all_positive(self) -> bool:
        return bool(np.nanmin(self.centred) > 0)

    @cached_property
    def _logs(self) -> tuple[Array, Array]:
        """Logarithm of work / mean and its square; both 0 where a rank did not report."""
        logs = np.log(np.where(self._there > 0, self.centred, self.mean_us) / self.mean_us)
        return logs, logs * logs

    def _weights(self, ranks: Array | None, steps: Array | None) -> tuple[Array, Array]:
        rows, columns = self.centred.shape
        return (
            np.ones(columns) if ranks is None else ranks,
            np.ones(rows) if steps is None else steps,
        )

    def _shift(self, steps: Array) -> float:
        """Drawn steps are longer or shorter as a whole; that belongs to every estimate."""
        return float(steps @ self.step_mean / steps.sum()) - self.mean_us
