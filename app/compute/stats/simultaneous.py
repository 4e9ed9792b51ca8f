"""Bounds that hold for all ranks at once: the slowest of many healthy ranks looks slow as well.

    lower bound = mean - t(1 - a/N; k - 1) * s / sqrt(k) * sqrt((1 + r) / (1 - r))

with k batches of neighbouring steps, s the standard deviation of their means (batch means: Conway
1963; ten to thirty batches suffice: Schmeiser 1982), so that steps may depend on their neighbours;
r the correlation of neighbouring batches, for what they still share (Bayley and Hammersley 1946;
median over ranks and thirds of the steps, so that slowness that begins is none); t the quantile of
Student's law, which few batches widen; and a/N the error of one of N ranks when that of all
together is a (Bonferroni 1936, here one-sided).
"""

from __future__ import annotations

import numpy as np
from scipy.special import stdtrit

from steptax.app.compute.stats.rows import Floats, column_mean

#: Batches that the steps are cut into: at least and at most, of at least so many steps each.
LEAST_BATCHES, MOST_BATCHES, BATCH_STEPS = 10, 30, 3
#: Fewer steps than this have no spread.
LEAST_STEPS = 3
#: Correlation of neighbouring batches that is believed, at most.
_MOST_SHARED = 0.9


def batches_of(steps: int) -> int:
    """How many batches ``steps`` are cut into; a step each where they are few."""
    if steps < 2 * LEAST_BATCHES:
        return steps
    return min(MOST_BATCHES, max(LEAST_BATCHES, steps // BATCH_STEPS))


def lower_bounds(values: Floats, family_error: float) -> Floats:
    """[R] lower bounds of the column means of ``values`` [S, R], all of which hold together.

    NaN is "not reported". ``family_error`` is the probability that any of them does not hold. NaN
    for a column without a value; minus infinity where there are too few steps.
    """
    means = column_mean(values)
    count = batches_of(len(values))
    if count < LEAST_STEPS:
        return np.where(np.isnan(means), np.nan, -np.inf)
    batches = np.stack([column_mean(part) for part in np.array_split(values, count)])
    known = np.count_nonzero(~np.isnan(batches), axis=0)
    centred = batches - column_mean(batches)
    shared = min(max(_shared(batches), 0.0), _MOST_SHARED)
    with np.errstate(invalid="ignore", divide="ignore"):
        variance = np.nansum(centred**2, axis=0) / (known - 1)
        variance *= (1.0 + shared) / (1.0 - shared)
        error = np.where(known > 1, np.sqrt(variance / known), np.inf)
        looked_at = max(1, int(np.count_nonzero(~np.isnan(means))))
        wide = stdtrit(np.maximum(known - 1, 1), 1.0 - family_error / looked_at)
    return np.asarray(np.where(np.isnan(means), np.nan, means - wide * error))


def _shared(batches: Floats) -> float:
    """Correlation of neighbouring ``batches`` [k, R] in the typical third of the typical rank.

    By thirds, so that a rank that became slow in one of them does not look like noise that steps
    share. That of n independent ones is -1/n on average, as their mean is taken off.
    """
    each = []
    for part in np.array_split(batches, 3):
        rest = np.nan_to_num(part - column_mean(part))
        whole = (rest**2).sum(axis=0)
        some = whole > 0
        each.append((rest[1:] * rest[:-1]).sum(axis=0)[some] / whole[some] + 1.0 / len(part))
    every = np.concatenate(each)
    return float(np.median(every)) if len(every) else 0.0
