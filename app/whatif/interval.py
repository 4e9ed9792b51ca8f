"""Intervals of what-if results: the steps differ, and the simulator errs."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import stdtrit

from steptax.app.compute.measure import Level, Measure
from steptax.app.whatif.trace import Floats

#: What an interval is, said with each.
BASIS = "interval: 95 % over the steps taken as independent, widened by the simulator's error"


def standard_error(values: Floats) -> float:
    """Half the width of the 95 % interval of the mean (Student), 0 for a single value."""
    n = len(values)
    if n < 2:
        return 0.0
    return float(stdtrit(n - 1, 0.975) * values.std(ddof=1) / math.sqrt(n))


def mean_measure(
    values: Floats,
    unit: str,
    *,
    scale: float = 1.0,
    error_ratio: float = 0.0,
    inputs: tuple[str, ...] = (),
    warnings: tuple[str, ...] = (),
) -> Measure:
    """Mean of per-step ``values`` times ``scale``, with its interval.

    ``error_ratio`` is the simulator's relative error, which is added on both sides.
    """
    value = float(np.mean(values)) * scale
    half = standard_error(values) * abs(scale) + abs(value) * error_ratio
    if len(values) < 2:
        warnings = (*warnings, "one step only: the interval holds the simulator's error alone")
    return Measure(
        value,
        unit,
        low=value - half,
        high=value + half,
        level=Level.TRACE,
        inputs=inputs,
        warnings=warnings,
    )
