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
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from steptax.app.compute.peers import peer_median
from steptax.app.compute.rows import Flags, Floats, Ints
from steptax.app.compute.rules import EpisodeRules

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


@dataclass(frozen=True)
class RankEpisode:
    """One slow stretch of one rank; places are positions in the matrix, both ends included."""

    column: int
    first: int
    last: int
    detected: int
    """The step at which it opened, from what was known then."""
    excess_ratio: float
    """Mean excess over its steps, as a share of the usual step."""
    persistence_ratio: float
    """Share of its steps in which the rank exceeds half of that mean."""
    is_open: bool
    """It had not closed at the newest step."""

    @property
    def steps(self) -> int:
        """Length."""
        return self.last - self.first + 1


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
    over = values_us - np.nanquantile(values_us, _OWN_QUANTILE, axis=0)
    if values_us.shape[1] < 2:
        return np.asarray(over)
    return over - np.nan_to_num(peer_median(over))


def warm_up_steps(step_us: Floats, rules: EpisodeRules) -> int:
    """How many leading steps are warm-up: those before the first one of usual length."""
    usual = np.flatnonzero(step_us <= rules.warm_up_ratio * np.median(step_us))
    return min(int(usual[0]) if len(usual) else 0, rules.warm_up_steps)


def find_episodes(excess: Floats, step_us: Floats, rules: EpisodeRules) -> list[RankEpisode]:
    """Slow episodes of every column of ``excess`` [S, R], by start."""
    steps, ranks = excess.shape
    warm = warm_up_steps(step_us, rules)
    # Noise is skewed, so that the mean of a healthy rank lies above the median of its peers.
    excess = excess - np.median(_clipped(excess, warm, rules)[warm:].mean(axis=0))
    own = own_level(excess[warm:])
    # A rank that is faster than its peers by nature is slow when it is slow for itself.
    excess = excess - np.minimum(own, 0.0)
    opened: Flags = np.zeros((steps, ranks), dtype=bool)
    clipped = _clipped(excess, warm, rules)
    for values in (clipped, _clipped(excess - np.maximum(own, 0.0), warm, rules)):
        sums = np.concatenate([np.zeros((1, ranks)), np.cumsum(values, axis=0)])
        for window in rules.windows_steps:
            if window > steps:
                break
            means = (sums[window:] - sums[:-window]) / window
            least = max(rules.open_ratio, rules.open_sds * _noise_sd(means))
            opened[window - 1 :] |= means >= least
    found = [
        episode
        for column in np.flatnonzero(opened.any(axis=0))
        for episode in _of_rank(
            int(column), excess[:, column], clipped[:, column], opened[:, column], rules
        )
    ]
    return sorted(found, key=lambda e: (e.first, e.column))


def own_level(excess: Floats) -> Floats:
    """[R] what is usual for each rank, against the typical rank.

    The least of its medians over the quarters of the steps; the least of several lies too low, by
    as much for everybody, so the typical rank's is taken off.
    """
    quarters = [q for q in np.array_split(excess, _QUARTERS) if len(q)]
    if not quarters or not excess.shape[1]:
        return np.zeros(excess.shape[1])
    thinned = [q[:: max(1, len(q) // _QUARTER_STEPS)] for q in quarters]
    medians = [np.median(np.ascontiguousarray(q.T), axis=1) for q in thinned]
    least = np.nan_to_num(np.min(medians, axis=0))
    return np.asarray(least - np.median(least))


def _clipped(excess: Floats, warm: int, rules: EpisodeRules) -> Floats:
    out = np.nan_to_num(np.clip(excess, -rules.clip_ratio, rules.clip_ratio))
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


def _of_rank(
    column: int, excess: Floats, clipped: Floats, opened: Flags, rules: EpisodeRules
) -> list[RankEpisode]:
    spans = _spans(clipped, opened, rules)
    merged: list[list[int]] = []
    for start, end, at in spans:
        if merged and start - merged[-1][1] <= rules.merge_gap_steps:
            merged[-1][1] = end
        else:
            merged.append([start, end, at])
    out = []
    for i, (start, end, at) in enumerate(merged):
        floor = merged[i - 1][1] + 1 if i else 0
        first, last = _dated(clipped, max(floor, start - max(rules.windows_steps)), end, start)
        mine = excess[first : last + 1]
        mean = float(np.nanmean(mine)) if len(mine) else 0.0
        often = float(np.mean(np.nan_to_num(mine) > 0.5 * mean)) if len(mine) else 0.0
        if (
            last - first + 1 >= rules.min_steps
            and mean >= rules.report_ratio
            and often >= rules.persistence_ratio
            and float(np.nansum(mine)) >= rules.least_cost_steps
        ):
            is_open = last >= len(excess) - rules.close_window_steps // 2
            cost = np.cumsum(np.nan_to_num(mine))
            costly = first + int(np.argmax(cost >= rules.least_cost_steps))
            out.append(RankEpisode(column, first, last, max(at, costly), mean, often, is_open))
    return out


def _spans(clipped: Floats, opened: Flags, rules: EpisodeRules) -> list[tuple[int, int, int]]:
    """Start, end and step of detection of each open stretch, before it is dated."""
    window = min(rules.close_window_steps, len(clipped))
    sums = np.concatenate([[0.0], np.cumsum(clipped)])
    recent = np.full(len(clipped), np.inf)
    recent[window - 1 :] = (sums[window:] - sums[:-window]) / window
    calm = np.flatnonzero(recent < rules.close_ratio)
    hot = np.flatnonzero(opened)
    out = []
    at = 0
    while at < len(hot):
        begun = int(hot[at])
        # The closing window must lie behind the opening, or it would hold what was before it.
        after = calm[calm >= begun + window // 2]
        end = int(after[0]) if len(after) else len(clipped) - 1
        out.append((begun, end, begun))
        at = int(np.searchsorted(hot, end + 1))
    return out


def _dated(clipped: Floats, low: int, high: int, begun: int) -> tuple[int, int]:
    """First and last step of the stretch in [low, high] with the largest shifted sum."""
    part = clipped[low : high + 1]
    level = float(np.mean(clipped[max(low, begun - 7) : begun + 1]))
    for _ in range(2):
        sums = np.concatenate([[0.0], np.cumsum(part - 0.5 * level)])
        lowest = np.minimum.accumulate(sums)
        end = int(np.argmax(sums - lowest))
        start = int(np.argmin(sums[: end + 1]))
        if end > start:
            level = float(part[start:end].mean())
    return low + start, low + max(end - 1, start)


def crowded(episodes: Sequence[RankEpisode], ranks: int, steps: int, rules: EpisodeRules) -> Flags:
    """[S] steps in which more ranks are in an episode than can be called stragglers."""
    count: Ints = np.zeros(steps + 1, dtype=np.int64)
    for episode in episodes:
        count[episode.first] += 1
        count[episode.last + 1] -= 1
    return np.cumsum(count)[:steps] > rules.most_ranks_ratio * ranks
