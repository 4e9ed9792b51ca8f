"""Intervals of what-if results: the steps differ, and the simulator errs."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import stdtrit

from steptax.app.compute.measure import Level, Measure
from steptax.app.whatif.trace import Floats

INPUTS = ("ops",)
#: What an interval is, said with each.
BASIS = "interval: 95 % over the steps taken as independent, widened by the simulator's error"


def half_width(values: Floats) -> Floats:
    """[K] half the width of the 95 % intervals (Student) of the means of [K, S]; 0 for one step."""
    n = values.shape[-1]
    if n < 2:
        return np.zeros(values.shape[:-1])
    out: Floats = values.std(axis=-1, ddof=1)
    out *= stdtrit(n - 1, 0.975) / math.sqrt(n)
    return out


def mean_measures(
    values: Floats,
    unit: str,
    *,
    scale: float = 1.0,
    error_ratio: float = 0.0,
    warnings: tuple[str, ...] = (),
) -> list[Measure]:
    """For each row of per-step ``values`` [K, S] the mean times ``scale``, with its interval.

    ``error_ratio`` is the simulator's relative error, which is added on both sides.
    """
    mean = values.mean(axis=1) * scale
    half = half_width(values) * abs(scale) + np.abs(mean) * error_ratio
    if values.shape[1] < 2:
        warnings = (*warnings, "one step only: the interval holds the simulator's error alone")
    return [
        Measure(value, unit, low, high, Level.TRACE, INPUTS, warnings)
        for value, low, high in zip(
            mean.tolist(), (mean - half).tolist(), (mean + half).tolist(), strict=True
        )
    ]


def mean_measure(
    values: Floats,
    unit: str,
    *,
    scale: float = 1.0,
    error_ratio: float = 0.0,
    warnings: tuple[str, ...] = (),
) -> Measure:
    """The same for one row of values [S]."""
    return mean_measures(
        values[None], unit, scale=scale, error_ratio=error_ratio, warnings=warnings
    )[0]
