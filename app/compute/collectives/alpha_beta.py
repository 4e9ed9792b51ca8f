"""Latency and bandwidth of a collective from its times by size: t(S) = a + b S.

Small messages take microseconds and large ones seconds, so each point counts by its relative
error: least squares of (a + b S) / t - 1 with a, b >= 0. From the intercept and slope follow the
latency of one step and the bandwidth of one link, if the library runs a ring (Patarasuk and Yuan
2009): all-reduce a = 2 (n - 1) alpha, b = 2 (n - 1) / n * beta; all-gather, reduce-scatter and
all-to-all half of that; broadcast and send-receive a = alpha, b = beta.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from steptax.app.compute.collectives.bus_bandwidth import Collective, Point, busbw_factor
from steptax.app.compute.measure import Level, Measure
from steptax.app.compute.spoken import spoken_ratio

#: A line through fewer sizes says nothing of how well it fits.
LEAST_SIZES = 4
#: From which root mean square of the relative residuals on one line does not hold.
_POOR_RATIO = 0.25


@dataclass(frozen=True)
class AlphaBeta:
    """A fitted line, or why there is none."""

    intercept_us: Measure
    """Time of an empty message."""
    alpha_us: Measure
    """Latency of one step of a ring."""
    bus_gb_per_s: Measure
    """Bus bandwidth that the slope tends to."""
    residuals: tuple[tuple[int, float], ...]
    """Size in bytes and (measured - fitted) / measured."""
    rms_ratio: float | None
    warnings: tuple[str, ...] = ()


def steps_of(collective: Collective, n: int) -> int:
    """Messages that follow one another in a ring of ``n`` ranks."""
    if collective is Collective.ALL_REDUCE:
        return 2 * (n - 1)
    gathered = (Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.ALL_TO_ALL)
    return n - 1 if collective in gathered else 1


def fit_alpha_beta(collective: Collective, n: int, points: Sequence[Point]) -> AlphaBeta:
    """Fit the line through the times of ``points``.

    Raises:
        UserError: fewer than two ranks.
    """
    factor = busbw_factor(collective, n)
    sizes = np.array([p.size_bytes for p in points], np.float64)
    times = np.array([p.duration_s for p in points], np.float64)
    if len(points) < LEAST_SIZES or not (times > 0).all():
        return _none(f"a fit needs the times of {LEAST_SIZES} sizes, there are {len(points)}")
    from scipy.optimize import nnls

    # Columns of one magnitude, or the solver takes the intercept for noise.
    scale = float(sizes.max()) or 1.0
    matrix = np.column_stack([1 / times, sizes / scale / times])
    (a_s, b_scaled), _ = nnls(matrix, np.ones(len(times)))
    fitted = a_s + b_scaled * sizes / scale
    residuals = (times - fitted) / times
    rms = float(np.sqrt(np.mean(residuals**2)))
    warnings = []
    if rms > _POOR_RATIO:
        warnings.append(
            f"one line leaves {spoken_ratio(rms)} of the times: the library changes its way with "
            "size"
        )
    inputs = (f"{collective}, {n} ranks, {len(points)} sizes",)

    def measure(value: float, unit: str) -> Measure:
        return Measure(value, unit, level=Level.TRACE, inputs=inputs, warnings=tuple(warnings))

    flat = "the times do not grow with size: measure larger messages"
    bus = (
        measure(factor * scale / b_scaled / 1e9, "GB/s")
        if b_scaled > 0
        else Measure.missing("GB/s", flat, level=Level.TRACE)
    )
    return AlphaBeta(
        measure(a_s * 1e6, "us"),
        measure(a_s * 1e6 / steps_of(collective, n), "us"),
        bus,
        tuple((int(s), float(r)) for s, r in zip(sizes, residuals, strict=True)),
        rms,
        tuple(warnings),
    )


def _none(reason: str) -> AlphaBeta:
    us = Measure.missing("us", reason, level=Level.TRACE)
    return AlphaBeta(us, us, Measure.missing("GB/s", reason, level=Level.TRACE), (), None)
