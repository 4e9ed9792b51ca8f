"""Intervals of what-if results: the steps differ, and the simulator errs."""

from __future__ import annotations

import math

import numpy as np

from steptax.app.compute.measure import Level, Measure
from steptax.app.whatif.trace import Floats

_NORMAL = 1.959963984540054
_STUDENT = (
    12.706204736,
    4.302652730,
    3.182446305,
    2.776445105,
    2.570581836,
    2.446911851,
    2.364624252,
    2.306004135,
    2.262157163,
    2.228138852,
    2.200985160,
    2.178812830,
)
INPUTS = ("ops",)
#: What an interval is, said with each.
BASIS = "interval: 95 % over the steps taken as independent, widened by the simulator's error"


def half_width(values: Floats) -> Floats:
    """[K] half the width of the 95 % intervals (Student) of the means of [K, S]; 0 for one step."""
    n = values.shape[-1]
    if n < 2:
        return np.zeros(values.shape[:-1])
    out: Floats = values.std(axis=-1, ddof=1)
    out *= student_95(n - 1) / math.sqrt(n)
    return out


def student_95(freedom: int) -> float:
    """97.5 % quantile of Student's t, to 2e-6 of its value.

    Tabulated where the expansion of Fisher and Cornish (Technometrics 2, 1960) does not yet hold;
    the function of scipy would take half a second and 28 MiB to import.
    """
    if freedom <= len(_STUDENT):
        return _STUDENT[freedom - 1]
    z, n = _NORMAL, freedom
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
        + (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / (92_160 * n**4)
    )


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
