"""Expected maxima from observed values: the step function of the sample, and a fitted tail.

Values carry weights (how often a bootstrap drew each of them), so a sample is sorted once and
every resample costs one pass.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import beta, betainc

from steptax.app.errors import UserError

Array = npt.NDArray[np.float64]

#: Share of the sample that the tail is fitted to, and the fewest values that it may rest on.
TAIL_RATIO = 0.10
MIN_EXCEEDANCES = 30
#: Below this shape the two terms of the tail mean cancel; the limit is reached to ten digits.
_LEAST_SHAPE = 1e-6


def ecdf_max_mean(values: Array, n: int, weights: Array | None = None) -> float:
    """E[max of n draws] from the empirical distribution of ``values``.

    Sum of x(k) * (F(k)^n - F(k-1)^n). It can never exceed the largest value seen, so for n above
    the sample it is a floor and must be called one.

    Args:
        values: sorted ascending, shape (m,), any unit; the result has the same.
        n: ranks at the barrier.
        weights: not negative, shape (m,); equal when left out.

    Raises:
        UserError: there are no values, or no weight.
    """
    level = _levels(values, weights)
    return float(np.diff(level**n, prepend=0.0) @ values)


def _levels(values: Array, weights: Array | None) -> Array:
    """F at each value."""
    if values.size == 0:
        raise UserError("an expected maximum needs at least one observed value", where="values")
    cumulative = np.arange(1.0, values.size + 1) if weights is None else np.cumsum(weights)
    if not cumulative[-1] > 0:
        raise UserError("all weights are zero", where="weights")
    return np.asarray(cumulative / cumulative[-1])


@dataclass(frozen=True)
class Tail:
    """Generalised Pareto tail: P(X > u + y | X > u) = (1 + shape * y / scale)^(-1/shape).

    ``threshold`` and ``scale`` have the unit of the values; ``exceed_ratio`` = P(X > threshold).
    """

    threshold: float
    scale: float
    shape: float
    exceed_ratio: float

    def max_mean(self, n: int, values: Array, weights: Array | None = None) -> float | None:
        """E[max of n draws]: the sample below the threshold, the fitted tail above it.

        With v = P(X <= x), the tail part is the integral of x(v) n v^(n-1) over v above
        1 - exceed_ratio, an incomplete beta function. None when the shape is 1 or more: the mean
        of such a tail is infinite.
        """
        if self.shape >= 1:
            return None
        shape = self.shape if abs(self.shape) > _LEAST_SHAPE else _LEAST_SHAPE
        level = _levels(values, weights)
        body = values <= self.threshold
        below = float(np.diff(level[body] ** n, prepend=0.0) @ values[body])
        share = 1 - (1 - self.exceed_ratio) ** n
        grown = n * beta(n, 1 - shape) * betainc(1 - shape, n, self.exceed_ratio)
        excess = self.scale / shape * (self.exceed_ratio**shape * float(grown) - share)
        return float(below + self.threshold * share + excess)


def fit_tail(values: Array, weights: Array | None = None) -> Tail | None:
    """Fit the top tenth by probability-weighted moments (Hosking & Wallis 1987).

    None when fewer than ``MIN_EXCEEDANCES`` values lie in it or when they do not differ: no tail
    can be read off them.

    Args:
        values: sorted ascending, shape (m,).
        weights: as for ``ecdf_max_mean``.
    """
    level = _levels(values, weights)
    threshold = float(values[np.searchsorted(level, 1 - TAIL_RATIO)])
    first = int(np.searchsorted(values, threshold, side="right"))
    excess = values[first:] - threshold
    weight = np.ones_like(excess) if weights is None else weights[first:]
    if np.count_nonzero(weight) < MIN_EXCEEDANCES:
        return None
    weight = weight / weight.sum()
    above = 1 - (np.cumsum(weight) - weight / 2)
    a0 = float(weight @ excess)
    a1 = float(weight @ (above * excess))
    spread = a0 - 2 * a1
    if spread <= 1e-9 * a0:
        return None
    exceed_ratio = 1 - (float(level[first - 1]) if first else 0.0)
    return Tail(threshold, 2 * a0 * a1 / spread, 2 - a0 / spread, exceed_ratio)
