"""The work of all ranks in all steps, freed of what a step has in common, ready for resampling.

A bootstrap draws each rank and each step some number of times. Every estimate here takes those
counts as weights, so the work is sorted once, and moments are a matrix product for all draws.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steptax.app.compute.stats.order_stats import Array, lognormal_order_mean
from steptax.app.compute.stats.tails import fit_tail

#: Values whose F^n is below exp(-50) cannot move an expected maximum.
_NEGLIGIBLE = 50.0


@dataclass(frozen=True)
class Draws:
    """How often each draw took each rank, shape (draws, ranks), and each step, (draws, steps)."""

    ranks: Array
    steps: Array

    def sums(self, values: Array) -> Array:
        """Weighted sum of ``values``, shape (steps, ranks), per draw.

        One matrix product for all draws: one per draw would wake every BLAS thread hundreds of
        times, which on a busy machine takes twenty times as long.
        """
        return np.asarray(np.einsum("bn,bn->b", self.steps @ values, self.ranks))


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

    def floors(self, draws: Draws) -> Array:
        """E[max] of the observed step function, shape (draws,); NaN for an empty draw."""
        totals, shifts = self._totals(draws), self._shifts(draws)
        out = np.full(totals.shape, np.nan)
        for i in np.flatnonzero(totals > 0):
            weight = draws.ranks[i, self.top_rank] * draws.steps[i, self.top_step]
            below = max(0.0, 1 - float(weight.sum()) / totals[i])
            level = np.minimum(below + np.cumsum(weight) / totals[i], 1.0)
            start = below**self.target
            jumps = np.diff(level**self.target, prepend=start)
            out[i] = float(jumps @ self.top) + start * float(self.top[0]) + shifts[i]
        return out

    def lognormals(self, draws: Draws) -> Array | None:
        """E[max] of the lognormal with the same mean and variance of the logarithm, per draw.

        Shape (draws,), NaN for an empty draw. None when a value is not positive.
        """
        if np.nanmin(self.centred) <= 0:
            return None
        there = np.isfinite(self.centred)
        logs = np.log(np.where(there, self.centred, self.mean_us) / self.mean_us)
        totals = self._totals(draws)
        totals[totals == 0] = np.nan
        middle = draws.sums(logs) / totals
        variance = np.maximum(0.0, draws.sums(logs * logs) / totals - middle * middle)
        # Centring on the mean of n ranks takes 1/n of the variance away.
        n = draws.ranks.sum(axis=1)
        sigma = np.sqrt(variance * n / np.maximum(n - 1, 1))
        tops = [
            np.nan if np.isnan(s) else lognormal_order_mean(self.target, self.target, float(s))
            for s in sigma
        ]
        return np.asarray(self.mean_us * np.exp(middle) * tops + self._shifts(draws))

    def tail(self) -> float | None:
        """E[max] with a fitted Pareto tail; None where there is no fit or its mean is infinite."""
        values = np.sort(self.centred[np.isfinite(self.centred)])
        fitted = fit_tail(values)
        return None if fitted is None else fitted.max_mean(self.target, values)

    def everything_once(self) -> Draws:
        """The one draw that takes each rank and each step once: the sample itself."""
        steps, ranks = self.centred.shape
        return Draws(np.ones((1, ranks)), np.ones((1, steps)))

    def _totals(self, draws: Draws) -> Array:
        """Weight of all that was reported, per draw."""
        return draws.sums(np.isfinite(self.centred).astype(np.float64))

    def _shifts(self, draws: Draws) -> Array:
        """Drawn steps are longer or shorter as a whole; that belongs to every estimate."""
        return np.asarray(draws.steps @ self.step_mean / draws.steps.sum(axis=1) - self.mean_us)
