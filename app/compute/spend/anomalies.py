"""Days on which spend was not what the days before it let expect, and what moved it.

Expected is the median of the 28 complete days before, its spread 1.4826 times their median absolute
deviation, at least 5 % of the median: a level series has none. A day is an anomaly when it is more
than 3.5 spreads away (Iglewicz and Hoaglin 1993) and by more than a quarter of what was expected,
unless three of those days, before the anomaly began, were about as far away to the same side: free
weekends, and work every second day, are a habit. With fewer than 14 days before it a day cannot be
told; neither can a day that is not over, which the newest on record may be.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from steptax.app.compute.spoken import spoken_ratio
from steptax.app.compute.stats.rows import Floats

HISTORY_DAYS = 28
MIN_DAYS = 14
SPREADS = 3.5
MIN_CHANGE_RATIO = 0.25
#: Days like it among those before, which make a day usual, and how far they are at least.
HABIT_DAYS = 3
LIKE_RATIO = 0.9
_MAD_TO_SD = 1.4826
_LEAST_SPREAD_RATIO = 0.05
RULE = (
    f"a day more than {SPREADS:g} spreads and {spoken_ratio(MIN_CHANGE_RATIO)} away from the "
    "median of the "
    f"{HISTORY_DAYS} days before, if fewer than {HABIT_DAYS} of those were about as far; at least "
    f"{MIN_DAYS} days are needed"
)


@dataclass(frozen=True)
class Anomaly:
    """Days in a row; amounts are sums over them, in the unit of the series."""

    first: int
    """Place of its first day in the series."""
    last: int
    actual: float
    expected: float
    low: float
    high: float
    """What would not have been an anomaly."""

    @property
    def impact(self) -> float:
        """What was spent beyond what was expected; below zero it is less."""
        return self.actual - self.expected


def anomalies(values: Floats) -> tuple[Anomaly, ...]:
    """Anomalies of a series [D] of complete days without gaps, NaN where a day is not known."""
    median, spread = trailing(values)
    away = values - median
    with np.errstate(invalid="ignore"):
        odd = (np.abs(away) > SPREADS * spread) & (np.abs(away) > MIN_CHANGE_RATIO * median)
    side = np.where(odd, np.sign(away), 0.0)
    found: list[Anomaly] = []
    at = 0
    while at < len(values):
        if not side[at]:
            at += 1
            continue
        if _is_habit(values, at, at, float(median[at])):
            at += 1
            continue
        end = at
        while (
            end + 1 < len(values)
            and side[end + 1] == side[at]
            and not _is_habit(values, at, end + 1, float(median[end + 1]))
        ):
            end += 1
        part = slice(at, end + 1)
        allowed = np.maximum(SPREADS * spread[part], MIN_CHANGE_RATIO * median[part])
        expected = float(median[part].sum())
        found.append(
            Anomaly(
                at,
                end,
                float(values[part].sum()),
                expected,
                max(0.0, expected - float(allowed.sum())),
                expected + float(allowed.sum()),
            )
        )
        at = end + 1
    return tuple(found)


def _is_habit(values: Floats, begin: int, at: int, median: float) -> bool:
    """Whether enough days before ``begin`` were about as far from ``median`` as the day ``at``."""
    before = values[max(0, at - HISTORY_DAYS) : begin] - median
    away = float(values[at]) - median
    with np.errstate(invalid="ignore"):
        like = before * np.sign(away) >= LIKE_RATIO * abs(away)
    return int(np.count_nonzero(like)) >= HABIT_DAYS


def trailing(values: Floats) -> tuple[Floats, Floats]:
    """Median and spread [D] of the days before each; NaN where too few of them are known."""
    none = np.full(len(values), np.nan)
    if len(values) <= MIN_DAYS:
        return none, none.copy()
    padded = np.append(np.full(HISTORY_DAYS, np.nan), values[:-1])
    before = sliding_window_view(padded, HISTORY_DAYS)
    known = np.count_nonzero(~np.isnan(before), axis=1) >= MIN_DAYS
    median, spread = none, none.copy()
    inside = before[known]
    middle = _medians(inside)
    median[known] = middle
    deviation = _medians(np.abs(inside - middle[:, None]))
    spread[known] = np.maximum(_MAD_TO_SD * deviation, _LEAST_SPREAD_RATIO * middle)
    return median, spread


def _medians(rows: Floats) -> Floats:
    """Median of the known values of each row; ``nanmedian`` takes thirty times as long."""
    ordered = np.sort(rows, axis=1)  # what is not known is last
    count = np.count_nonzero(~np.isnan(rows), axis=1)
    at = np.arange(len(rows))
    return np.asarray((ordered[at, (count - 1) // 2] + ordered[at, count // 2]) / 2)
