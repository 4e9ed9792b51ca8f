"""Whether two benchmark figures differ by more than their noise, and what follows from it.

gap = 1 - own / base for what is better when larger, 1 - base / own for times: the share that is
missing. Its 95 % interval is a bootstrap of the medians over the repeats of both sides. A
difference is called one only where

* the medians lie on one side in an exact one-sided test at p <= 0.05: rank sum (Mann-Whitney)
  between two sets of repeats, sign test against a single number; and
* half the width of the interval is smaller than the gap.

Three repeats on both sides are the fewest that can reach p = 0.05 (1 of 20 orders), five against a
single number (1 of 32). A single figure is told from those of at least 19 other devices, whose
spread is then the noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import comb
from statistics import median

import numpy as np
import numpy.typing as npt

from steptax.app.compute.measure import Measure
from steptax.app.compute.spoken import spoken_ratio

#: Below the base by more than this: watch; by more than that: reject.
WATCH_RATIO = 0.05
REJECT_RATIO = 0.10
P_MOST = 0.05
_NO_SPREAD = "one repeat has no spread"
_DRAWS = 2000
#: Units of what is better when smaller.
TIME_UNITS = ("ns", "us", "ms", "s")


class Status(StrEnum):
    """What a comparison or a node comes to, the mildest first."""

    PASS = "pass"
    UNCLEAR = "unclear"
    WATCH = "watch"
    REJECT = "reject"


_ORDER: list[Status] = list(Status)


def gravity(status: Status) -> int:
    """For sorting: the graver, the larger."""
    return _ORDER.index(status)


def worst(statuses: Sequence[Status]) -> Status:
    """The gravest; of none it is unclear."""
    return max(statuses, key=gravity, default=Status.UNCLEAR)


@dataclass(frozen=True)
class Comparison:
    """One figure against its base."""

    status: Status
    gap: Measure
    """Share that is missing against the base; negative where it is better."""
    differs: bool
    """Whether the gap, in either direction, is more than noise."""
    p: float | None
    reason: str
    unjudged: str | None = None
    """Why no gap, however large, could have been told from noise; None where one could."""


def compare(own: Sequence[float], base: Sequence[float], unit: str) -> Comparison:
    """Compare medians of repeats; ``base`` of one value is a number without a spread.

    Values must be positive; where one is not, or ``own`` has no spread, nothing can be said.
    """
    if not own or not base or min(*own, *base) <= 0:
        return _unclear("a figure is missing or not positive")
    if not unit:
        return _unclear("its unit is not known, so neither is which direction is better")
    mine, theirs = np.asarray(own, np.float64), np.asarray(base, np.float64)
    if unit in TIME_UNITS:
        mine, theirs = 1 / mine, 1 / theirs
    gap = 1 - float(np.median(mine) / np.median(theirs))
    if len(own) < 2 and len(base) < 2:
        reason = f"{_NO_SPREAD}, so the gap may be noise: repeat it"
        kept = Measure(gap, "ratio", warnings=(reason,))
        return Comparison(Status.UNCLEAR, kept, False, None, reason, _NO_SPREAD)
    low, high = _interval(mine, theirs)
    noise = (high - low) / 2
    p = _p_value(mine, theirs, lower=gap > 0)
    differs = p <= P_MOST and noise < abs(gap)
    status, reason = _judge(gap, high, noise, p, differs=differs, is_time=unit in TIME_UNITS)
    unjudged = None
    if _least_p(len(own), len(base)) > P_MOST:
        unjudged = f"repeats are too few ({len(own)} against {len(base)})"
    measure = Measure(gap, "ratio", low=low, high=high)
    return Comparison(status, measure, differs, p, reason, unjudged)


def _least_p(own: int, base: int) -> float:
    """The smallest p that so many repeats can reach: one order of all, see the module's text."""
    return 0.5**own if base == 1 else 1 / comb(own + base, own)


def _judge(
    gap: float, high: float, noise: float, p: float, *, differs: bool, is_time: bool
) -> tuple[Status, str]:
    around = f"noise ±{spoken_ratio(noise)}"
    if gap > WATCH_RATIO:
        if not differs:
            why = around if noise >= gap else f"p = {p:.2g} with so few repeats"
            return Status.UNCLEAR, f"{spoken_gap(gap, is_time)}, which may be chance: {why}"
        grave = gap > REJECT_RATIO
        limit = REJECT_RATIO if grave else WATCH_RATIO
        slower = " slower" if is_time and gap >= _MULTIPLE_RATIO else ""
        beyond = f"more than {spoken_ratio(limit)}{slower}"
        return (
            Status.REJECT if grave else Status.WATCH,
            f"{spoken_gap(gap, is_time)}, {beyond}, {around}, p = {p:.2g}",
        )
    said = spoken_gap(gap, is_time)
    if high > REJECT_RATIO:
        most = f"{spoken_gap(high, is_time)} cannot be excluded"
        return Status.UNCLEAR, f"{said}, but {most}, {around}"
    return Status.PASS, f"{said}, {around}"


#: From this gap on a longer time is told as a multiple of its base.
_MULTIPLE_RATIO = 0.5


def spoken_gap(gap: float, is_time: bool) -> str:
    """``12 % below``, ``12 % slower``, ``27 times as long``; ``20 % better``, ``3 times as fast``.

    ``gap`` is the share that is missing, as `compare` counts it.
    """
    if is_time and gap >= _MULTIPLE_RATIO:
        return f"{_times(1 / max(1 - gap, 1e-12))} as long"
    if gap <= -1:
        return f"{_times(1 - gap)} as {'fast' if is_time else 'much'}"
    if gap > 0:
        return f"{spoken_ratio(gap)} {'slower' if is_time else 'below'}"
    return f"{spoken_ratio(abs(gap))} better"


def _times(factor: float) -> str:
    return f"{factor:,.0f} times" if factor >= 99.5 else f"{factor:.3g} times"


def _unclear(reason: str) -> Comparison:
    missing = Measure.missing("ratio", reason)
    return Comparison(Status.UNCLEAR, missing, False, None, reason, reason)


def _interval(
    mine: npt.NDArray[np.float64], theirs: npt.NDArray[np.float64]
) -> tuple[float, float]:
    """95 % interval of the gap over resampled repeats; the seed is fixed, so it is repeatable.

    One value against many has the spread of the many.
    """
    if len(mine) == 1:
        low, high = np.percentile(1 - mine[0] / theirs, (2.5, 97.5))
        return float(low), float(high)
    dice = np.random.default_rng(0)

    def medians(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        drawn = values[dice.integers(0, len(values), (_DRAWS, len(values)))]
        return np.asarray(np.median(drawn, axis=1))

    gaps = 1 - medians(mine) / medians(theirs)
    low, high = np.percentile(gaps, (2.5, 97.5))
    return float(low), float(high)


def _p_value(
    mine: npt.NDArray[np.float64], theirs: npt.NDArray[np.float64], *, lower: bool
) -> float:
    """One-sided p of ``mine`` being lower (or higher) than ``theirs``."""
    from scipy.stats import binom, mannwhitneyu

    if len(theirs) == 1:
        beyond = int((mine < theirs[0]).sum() if lower else (mine > theirs[0]).sum())
        return float(binom.sf(beyond - 1, len(mine), 0.5))
    side = "less" if lower else "greater"
    # Ties make the exact test a little too strict, never too lax.
    return float(mannwhitneyu(mine, theirs, alternative=side, method="exact").pvalue)


def best_value(values: Sequence[float], unit: str) -> float:
    """The best of figures in ``unit``."""
    return min(values) if unit in TIME_UNITS else max(values)


def median_of(values: Sequence[float]) -> float:
    """Median of at least one value."""
    return float(median(values))
