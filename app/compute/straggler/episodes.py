"""Slow episodes: which rank was slow from which step to which, and by how much.

The excess of a rank is its work over the median of its peers' in that step, as a share of the usual
step (the lower quartile of all, as slow episodes lengthen the others); a rank without peers is held
against its own past. The excess is averaged over several trailing windows, so that a large one is
seen within a few steps and a small one once there is enough of it. An episode

    opens   at the first step at which the mean of any window is at least ``open_ratio`` and
            ``open_sds`` robust standard deviations of such means, over all ranks and steps
    closes  when the mean over the closing window is below ``close_ratio``, half as much

and is then dated: its steps are the stretch with the largest sum of (excess - half its mean), the
maximum-likelihood place of a shift by that mean (Page 1954). Only the past is used to open it, so
``detected_step`` is when a running collector would have raised it, had it known the noise, which is
that of the whole window.

An episode is slow throughout, or its rank is slow in it again and again (``recurring``); three or
more episodes of a rank that are so together are one. NaN is "not reported", and no excess.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from steptax.app.compute.stats.rows import Flags, Floats, Ints, row_max, row_quantile
from steptax.app.compute.straggler.peers import peer_median
from steptax.app.compute.straggler.rank_episodes import (
    RankEpisode,
    beside_each_other,
    episodes_of_rank,
    joined,
)
from steptax.app.compute.straggler.rules import RECURRING_RULES, EpisodeRules, RecurringRules

#: Scale of the median absolute deviation to a standard deviation.
_MAD_SD = 1.4826
#: Values that the noise is estimated from, at most.
_NOISE_VALUES = 400_000
#: Share of a rank's steps that are its own past when it has no peers.
_OWN_QUANTILE = 0.25
#: Lower quantile that the noise is read off, and its distance from the middle of a normal law.
_TAIL, _TAIL_SDS = 0.002, 2.878
_TAIL_RANKS = 8
#: Stretches of the steps in one of which a rank is taken to have been sound.
_QUARTERS = 4
#: Steps of each that its median is taken from, about, evenly spread.
_QUARTER_STEPS = 64


def excess_ratios(
    values_us: Floats, step_us: Floats, groups: np.ndarray | None, *, own_past: bool = False
) -> Floats:
    """[S, R] excess of ``values_us`` over the peers', as a share of the usual step.

    ``step_us`` is [S]. With ``own_past``, and for ranks without a peer, each rank is first brought
    to its own level: its lower quartile over the steps is taken off, and the peers are all others.
    """
    scale = usual_step_us(step_us)
    if own_past:
        return _over_own_past(values_us) / scale
    excess = values_us - peer_median(values_us, groups)
    alone = np.isnan(excess).all(axis=0)
    if alone.any():
        excess[:, alone] = _over_own_past(values_us)[:, alone]
    return np.asarray(excess / scale)


def usual_step_us(step_us: Floats) -> float:
    """Length of a step when nothing is wrong: the lower quartile."""
    return float(np.quantile(step_us, _OWN_QUANTILE))


def _over_own_past(values_us: Floats) -> Floats:
    over = values_us - _own_quantile(values_us)
    if values_us.shape[1] < 2:
        return np.asarray(over)
    return over - np.nan_to_num(peer_median(over))


def _own_quantile(values_us: Floats) -> Floats:
    """[R] lower quartile of each column; NaN for an empty one.

    Without a loop over the columns, which there may be many thousands of, where none has a hole.
    """
    if not len(values_us):
        return np.full(values_us.shape[1], np.nan)
    holed = np.isnan(values_us).any(axis=0)
    out = np.empty(values_us.shape[1])
    for columns, quantile in ((~holed, np.quantile), (holed, np.nanquantile)):
        if columns.any():
            chosen = values_us if columns.all() else values_us[:, columns]
            out[columns] = quantile(chosen, _OWN_QUANTILE, axis=0)
    return out


def warm_up_steps(step_us: Floats, rules: EpisodeRules) -> int:
    """How many leading steps are warm-up: those before the first one of usual length."""
    usual = np.flatnonzero(step_us <= rules.warm_up_ratio * np.median(step_us))
    return min(int(usual[0]) if len(usual) else 0, rules.warm_up_steps)


def _warm_up_of_all(step_us: Floats, excess: Floats, rules: EpisodeRules) -> int:
    """How many leading steps are warm-up: a rank that is slow from the first step on is none.

    Without what the slowest rank of each step is over its peers warm-up then ends an episode
    sooner; by a few steps it does so through noise alone.
    """
    warm = warm_up_steps(step_us, rules)
    over = np.maximum(np.nan_to_num(row_max(excess)), 0.0)
    without = warm_up_steps(step_us - usual_step_us(step_us) * over, rules)
    return without if warm - without >= rules.min_steps else warm


def find_episodes(
    excess: Floats,
    step_us: Floats,
    rules: EpisodeRules,
    recurring: RecurringRules = RECURRING_RULES,
) -> list[RankEpisode]:
    """Slow episodes of every column of ``excess`` [S, R], by start."""
    warm = _warm_up_of_all(step_us, excess, rules)
    # Noise is skewed, so that the mean of a healthy rank lies above the median of its peers.
    excess = excess - np.median(_clipped(excess, warm, rules)[warm:].mean(axis=0))
    own = own_level(excess[warm:])
    # A rank that is faster than its peers by nature is slow when it is slow for itself.
    excess = excess - np.minimum(own, 0.0)
    clipped = _clipped(excess, warm, rules)
    opened = _opened(clipped, rules)
    opened |= _opened(_clipped(excess - np.maximum(own, 0.0), warm, rules), rules)
    # Silicon that is a little slower for good would neither close an episode nor be dated by one.
    usual = np.where(own < rules.nature_ratio, np.maximum(own, 0.0), 0.0)
    clipped = _clipped(excess - usual, warm, rules)
    found: dict[int, list[RankEpisode]] = {}
    for column in np.flatnonzero(opened.any(axis=0)).tolist():
        found[column] = episodes_of_rank(
            column,
            excess,
            clipped[:, column],
            opened[:, column],
            rules,
            recurring,
            usual=float(usual[column]),
        )
    for column, seldom in _seldom(excess, warm, rules, recurring).items():
        found[column] = beside_each_other(found.get(column, []), seldom)
    out = [e for one in found.values() for e in joined(one, excess, recurring)]
    return sorted(out, key=lambda e: (e.first, e.column))


def _seldom(
    excess: Floats, warm: int, rules: EpisodeRules, recurring: RecurringRules
) -> dict[int, list[RankEpisode]]:
    """Episodes of ranks that are slow again and again, and too seldom for clipped means to tell.

    A step counts for more here, which a spike or two would open: so the rank has to come again.
    """
    often = np.count_nonzero(excess > rules.clip_ratio, axis=0) >= recurring.least_slow_steps
    columns = np.flatnonzero(often)
    if not len(columns):
        return {}
    # The noise is that of all ranks, of some of them where there are many.
    some = np.union1d(columns, np.arange(0, excess.shape[1], max(1, excess.shape[1] // 64)))
    clipped = _clipped(excess[:, some], warm, rules, rules.wide_clip_ratio)
    opened = _opened(clipped, rules)
    out = {}
    for place, column in enumerate(some.tolist()):
        if not opened[:, place].any() or not often[column]:
            continue
        found = episodes_of_rank(
            column, excess, clipped[:, place], opened[:, place], rules, recurring, is_seldom=True
        )
        if found:
            out[column] = found
    return out


def own_level(excess: Floats) -> Floats:
    """[R] what is usual for each rank, against the typical rank.

    The least of its medians over the quarters of the steps; the least of several lies too low, by
    as much for everybody, so the typical rank's is taken off.
    """
    quarters = [q for q in np.array_split(excess, _QUARTERS) if len(q)]
    if not quarters or not excess.shape[1]:
        return np.zeros(excess.shape[1])
    thinned = [q[:: max(1, len(q) // _QUARTER_STEPS)] for q in quarters]
    medians = [row_quantile(np.ascontiguousarray(q.T), 0.5)[0] for q in thinned]
    least = np.nan_to_num(np.fmin.reduce(medians))
    return np.asarray(least - np.median(least))


def _opened(clipped: Floats, rules: EpisodeRules) -> Flags:
    """[S, R] where the mean of any trailing window is enough to open an episode."""
    steps, ranks = clipped.shape
    opened: Flags = np.zeros((steps, ranks), dtype=bool)
    sums = np.concatenate([np.zeros((1, ranks)), np.cumsum(clipped, axis=0)])
    for window in rules.windows_steps:
        if window > steps:
            break
        means = (sums[window:] - sums[:-window]) / window
        least = max(rules.open_ratio, rules.open_sds * _noise_sd(means))
        opened[window - 1 :] |= means >= least
    return opened


def _clipped(
    excess: Floats, warm: int, rules: EpisodeRules, clip_ratio: float | None = None
) -> Floats:
    clip = rules.clip_ratio if clip_ratio is None else clip_ratio
    out = np.nan_to_num(np.clip(excess, -clip, clip))
    out[:warm] = 0.0
    return out


def _noise_sd(means: Floats) -> float:
    """Standard deviation of ``means`` [T, R] without slow ranks, from a sample of them.

    The larger of two robust ones: from the median absolute deviation, and from the lower tail,
    which slow ranks do not reach and which noise that neighbouring steps share widens.
    """
    stride = max(1, means.size // _NOISE_VALUES)
    values = means.ravel()[::stride]
    middle, tail = np.quantile(values, (0.5, _TAIL))
    sd = _MAD_SD * float(np.median(np.abs(values - middle)))
    # Among a few ranks a slow one is a good part of its peers' median, which puts them below it.
    if means.shape[1] < _TAIL_RANKS:
        return sd
    return max(sd, float(middle - tail) / _TAIL_SDS)


def crowded(episodes: Sequence[RankEpisode], ranks: int, steps: int, rules: EpisodeRules) -> Flags:
    """[S] steps in which more ranks are in an episode than can be called stragglers."""
    count: Ints = np.zeros(steps + 1, dtype=np.int64)
    for episode in episodes:
        count[episode.first] += 1
        count[episode.last + 1] -= 1
    return np.cumsum(count)[:steps] > rules.most_ranks_ratio * ranks
