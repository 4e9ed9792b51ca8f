"""A rank that is slow again and again: not in most steps, and still the one that the others await.

A vote of steps ("slow in most of them") misses a rank that is slow in a third of its steps, every
tenth step, or in bursts. What the others wait for does not: of the mean excess of the slowest rank
of each step, one rank's mean excess is then a good part, while of a straggler that moves from rank
to rank nobody's is. The rank counts as slow in a step when it exceeds half of its level, the mean
excess of its slow steps (two means, Lloyd 1982). Its slow steps count as its own, and not as its
turn among equals, by

    P = N sum_{k>=K} C(E, k) (1/N)^k (1 - 1/N)^(E-k)  <=  ``family_error`` (s / S)^2

with N ranks, E stretches of steps in which anybody exceeds half of that level, and K of them in
which the rank is the slowest: the binomial tail, times the ranks looked at (Bonferroni 1936) and,
where s of S steps were picked for what they show, the stretches that could have been.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtrc

from steptax.app.compute.stats.rows import Flags, Floats, row_argmax, row_max
from steptax.app.compute.straggler.rules import RecurringRules

#: Scale of the median absolute deviation to a standard deviation.
_MAD_SD = 1.4826
#: Values that the noise is estimated from, about.
_NOISE_VALUES = 100_000
_PASSES = 4


@dataclass(frozen=True, eq=False)
class Recurrence:
    """How a rank is slow again and again."""

    places: NDArray[np.intp]
    """Positions of its slow steps."""
    steps: int
    """Steps in which it reported."""
    stretches: int
    """Separate stretches of slow steps."""
    level: float
    """Mean excess of its slow steps, in the unit of the excess."""
    share_ratio: float
    """Of the mean excess of the slowest rank of each step, what this rank's explains."""

    def from_step(self, place: int) -> Recurrence:
        """The same where the rows that were looked at begin at position ``place`` of all."""
        return replace(self, places=self.places + place)

    @property
    def first(self) -> int:
        """Position of its first slow step."""
        return int(self.places[0])

    @property
    def last(self) -> int:
        """Position of its last slow step."""
        return int(self.places[-1])

    @property
    def slow_steps(self) -> int:
        """How many steps it is slow in."""
        return len(self.places)

    @property
    def duty_ratio(self) -> float:
        """Share of its steps in which it is slow."""
        return self.slow_steps / self.steps


def recurrence(
    excess: Floats,
    column: int,
    typical: float,
    rules: RecurringRules,
    *,
    of_steps: int | None = None,
) -> Recurrence | None:
    """How ``column`` of ``excess`` [S, R] is slow again and again; None where it is not.

    ``excess`` is work over the peers', NaN where not reported; ``typical`` the mean excess of the
    typical rank, in the same unit. ``of_steps`` is the length of the window of which these steps
    were picked, where they were.
    """
    mine = excess[:, column]
    known = ~np.isnan(mine)
    steps = int(np.count_nonzero(known))
    if steps < rules.least_slow_steps:
        return None
    slow, level = _slow(mine, known)
    slow = _of_one_time(slow)
    count = int(np.count_nonzero(slow))
    if count < max(rules.least_slow_steps, rules.least_duty_ratio * steps):
        return None
    if level < rules.level_sds * _noise_sd(excess):
        return None
    top = row_max(excess)
    share = (float(mine[known].mean()) - max(0.0, typical)) / float(np.nanmean(top))
    if share < (rules.share_ratio if of_steps is None else rules.picked_share_ratio):
        return None
    places = np.flatnonzero(slow)
    stretches = int(np.count_nonzero(np.diff(places) > 1)) + 1
    # There are about (S / s)^2 stretches as long that could have been picked.
    picked = 1.0 if of_steps is None else (len(excess) / of_steps) ** 2
    chance = _by_chance(excess, top, column, level)
    if stretches < rules.least_stretches or chance > picked * rules.family_error:
        return None
    return Recurrence(places, steps, stretches, level, share)


def first_told(
    excess: Floats,
    column: int,
    found: Recurrence,
    typical: float,
    rules: RecurringRules,
    *,
    of_steps: int | None = None,
) -> int:
    """Position of the slow step with which ``found`` could first be told, from steps up to it."""
    low, high = min(rules.least_slow_steps, found.slow_steps) - 1, found.slow_steps - 1
    while low < high:
        middle = (low + high) // 2
        so_far = excess[: int(found.places[middle]) + 1]
        if recurrence(so_far, column, typical, rules, of_steps=of_steps) is None:
            low = middle + 1
        else:
            high = middle
    return int(found.places[low])


def goes_on(found: Recurrence, steps: int, rules: RecurringRules) -> bool:
    """Whether it has not ended: the time since its last slow step is no longer than usual."""
    gap = (found.last - found.first + 1 - found.slow_steps) / max(1, found.stretches - 1)
    return steps - 1 - found.last <= max(rules.quiet_steps, rules.quiet_gaps * gap)


def _slow(mine: Floats, known: Flags) -> tuple[Flags, float]:
    """[S] the slow steps of a rank, and its mean excess in them."""
    least = float(mine[known].mean())
    slow: Flags = np.zeros(len(mine), dtype=bool)
    level = 0.0
    for _ in range(_PASSES):
        slow = known & (np.nan_to_num(mine) > max(least, 0.0))
        if not slow.any():
            return slow, 0.0
        level = float(mine[slow].mean())
        least = 0.5 * level
    return slow, level


def _of_one_time(slow: Flags) -> Flags:
    """[S] the slow steps of the time in which they are frequent: strays before and after go.

    It is the stretch with the largest sum of (slow - a quarter of how often it is slow), in the way
    that episodes are dated (Page 1954).
    """
    often, first, end = float(slow.mean()), 0, len(slow)
    for _ in range(2):
        sums = np.concatenate([[0.0], np.cumsum(slow - 0.25 * often)])
        end = int(np.argmax(sums - np.minimum.accumulate(sums)))
        first = int(np.argmin(sums[: end + 1]))
        if end <= first:
            return slow
        often = float(slow[first:end].mean())
    out = slow.copy()
    out[:first] = out[end:] = False
    return out


def _noise_sd(excess: Floats) -> float:
    values = excess.ravel()[:: max(1, excess.size // _NOISE_VALUES)]
    values = values[~np.isnan(values)]
    return _MAD_SD * float(np.median(np.abs(values - np.median(values)))) if len(values) else 0.0


def _by_chance(excess: Floats, top: Floats, column: int, level: float) -> float:
    """Probability that any rank has as many of the slow stretches when they go in turns."""
    ranks = int(np.count_nonzero(~np.isnan(excess).all(axis=0)))
    if ranks < 2:
        return 1.0
    bad = np.flatnonzero(np.nan_to_num(top) > 0.5 * level)
    who = row_argmax(excess)[bad]
    # Neighbouring steps of one rank are one event, not several.
    starts = [
        True,
        *(b - a > 1 or v != w for (a, v), (b, w) in pairwise(zip(bad, who, strict=True))),
    ]
    begun = np.array(starts[: len(bad)], dtype=bool)
    events, own = int(begun.sum()), int(np.count_nonzero(begun & (who == column)))
    return float(ranks * bdtrc(own - 1, events, 1.0 / ranks)) if own else 1.0


def usual_steps(work_us: Floats, rules: RecurringRules) -> Flags:
    """[S] False in short stretches of steps that are long for all ranks: they judge nobody.

    An evaluation, a save or a restart gives ranks roles that they have in no other step.
    ``work_us``
    is [S, R]. Where such steps last, or are many, they are the job, and count.
    """
    with np.errstate(invalid="ignore"):
        typical = np.nanmedian(work_us, axis=1)
        long = typical > rules.special_ratio * np.nanmedian(typical)
    if not long.any() or long.mean() > rules.special_share_ratio:
        return np.ones(len(work_us), dtype=bool)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], long, [False]]).astype(np.int8)))
    usual: Flags = np.ones(len(work_us), dtype=bool)
    for first, end in zip(edges[::2], edges[1::2], strict=True):
        if end - first <= rules.special_steps:
            usual[first:end] = False
    return usual
