"""The episodes of one rank: its open stretches, dated, judged, and put together."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from steptax.app.compute.stats.rows import Flags, Floats
from steptax.app.compute.straggler.recurring import Recurrence, first_told, goes_on, recurrence
from steptax.app.compute.straggler.rules import EpisodeRules, RecurringRules


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
    """Share of its steps in which the rank is slow: exceeds half of that mean, or of its level."""
    is_open: bool
    """It had not closed at the newest step."""
    again: Recurrence | None = None
    """How the rank is slow again and again, where it is not slow throughout."""

    @property
    def steps(self) -> int:
        """Length."""
        return self.last - self.first + 1


def told_until(mine: Floats) -> int:
    """Steps up to the last that a rank reported, of its ``mine`` [S]: what follows ends nothing."""
    known = np.flatnonzero(~np.isnan(mine))
    return int(known[-1]) + 1 if len(known) else len(mine)


def episodes_of_rank(
    column: int,
    excess: Floats,
    clipped: Floats,
    opened: Flags,
    rules: EpisodeRules,
    recurring: RecurringRules,
    *,
    usual: float = 0.0,
    is_seldom: bool = False,
) -> list[RankEpisode]:
    """Episodes of one rank; ``clipped`` [S] is its excess less what is ``usual`` for it.

    With ``is_seldom`` those alone in which it is slow again and again.
    """
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
        level = float(np.mean(clipped[max(floor, start - 7) : start + 1]))
        first, last = _dated(clipped, floor, end, level)
        mine = excess[first : last + 1, column]
        mine = mine[~np.isnan(mine)]
        mean = float(mine.mean()) if len(mine) else 0.0
        if (
            last - first + 1 < rules.min_steps
            or mean < rules.report_ratio
            or float(mine.sum()) < rules.least_cost_steps
        ):
            continue
        if mean - usual < rules.rise_ratio * mean:
            continue
        often, again = float(np.mean(mine > 0.5 * mean)), None
        if is_seldom or often < rules.persistence_ratio:
            again = recurrence(
                excess[first : last + 1], column, 0.0, recurring, of_steps=len(excess)
            )
            if again is None:
                continue
            told = first_told(
                excess[first : last + 1], column, again, 0.0, recurring, of_steps=len(excess)
            )
            begun = _first_alone(excess[first : first + told, column], rules)
            often, again, at = again.duty_ratio, again.from_step(first), max(at, first + begun)
        is_open = last >= told_until(excess[:, column]) - rules.close_window_steps // 2
        cost = np.cumsum(np.nan_to_num(excess[first : last + 1, column]))
        costly = first + int(np.argmax(cost >= rules.least_cost_steps))
        out.append(RankEpisode(column, first, last, max(at, costly), mean, often, is_open, again))
    return out


def _first_alone(mine: Floats, rules: EpisodeRules) -> int:
    """The first step with which what is seen of a rank is an episode; its length where none is.

    Of a rank that comes in bursts, the first of them may be long enough to be reported at once.
    """
    for length in range(rules.min_steps, len(mine) + 1):
        seen = mine[:length][~np.isnan(mine[:length])]
        cost = float(seen.sum())
        if cost < max(rules.least_cost_steps, rules.report_ratio * len(seen)):
            continue
        if float(np.mean(seen > 0.5 * cost / len(seen))) >= rules.persistence_ratio:
            return length - 1
    return len(mine)


def joined(
    found: list[RankEpisode], excess: Floats, recurring: RecurringRules
) -> list[RankEpisode]:
    """The episodes of one rank as one, where it is slow again and again from first to last."""
    if len(found) < recurring.least_stretches:
        return found
    column, first, last = found[0].column, found[0].first, found[-1].last
    span = excess[first : last + 1]
    again = recurrence(span, column, 0.0, recurring, of_steps=len(excess))
    if again is None:
        return found
    again = again.from_step(first)
    is_open = goes_on(again, told_until(excess[:, column]), recurring)
    mean = float(np.nanmean(span[:, column]))
    detected = min(e.detected for e in found)
    return [RankEpisode(column, first, last, detected, mean, again.duty_ratio, is_open, again)]


def beside_each_other(found: list[RankEpisode], seldom: list[RankEpisode]) -> list[RankEpisode]:
    """Both without overlap: a stretch that is slow throughout stays, a part of the other goes.

    What was told of either was told of the rank: the first of those that overlap counts.
    """
    kept = list(found)
    for one in seldom:
        met = sorted(
            (e for e in kept if e.first <= one.last and one.first <= e.last), key=lambda e: e.first
        )
        told = min(e.detected for e in (one, *met))
        if 2 * sum(e.steps for e in met) < one.steps:
            stays, goes = one, met
        else:
            stays, goes = met[0], [met[0]]
        kept = [e for e in kept if e not in goes]
        kept.append(replace(stays, detected=max(stays.first, told)))
    return sorted(kept, key=lambda e: e.first)


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


def dated_span(excess: Floats, rules: EpisodeRules) -> tuple[int, int]:
    """First and last step of the stretch in which a rank's ``excess`` [S] lies.

    For a rank that is slow by its mean, whatever the noise of the others is.
    """
    clipped = np.nan_to_num(np.clip(excess, -rules.clip_ratio, rules.clip_ratio))
    return _dated(clipped, 0, len(clipped) - 1, float(clipped.mean()))


def _dated(clipped: Floats, low: int, high: int, level: float) -> tuple[int, int]:
    """First and last step of the stretch in [low, high] with the largest shifted sum.

    ``level`` is a first guess of its mean.
    """
    part = clipped[low : high + 1]
    for _ in range(2):
        sums = np.concatenate([[0.0], np.cumsum(part - 0.5 * level)])
        lowest = np.minimum.accumulate(sums)
        end = int(np.argmax(sums - lowest))
        start = int(np.argmin(sums[: end + 1]))
        if end > start:
            level = float(part[start:end].mean())
    return low + start, low + max(end - 1, start)
