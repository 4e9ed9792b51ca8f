"""Since when a rank is slow: from the change points of its work over that of its peers."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from steptax.app.compute.spoken import spoken_ratio
from steptax.app.compute.stats.changepoint import change_points
from steptax.app.compute.stats.rows import Floats, Ints


@dataclass(frozen=True)
class Onset:
    """Since when a rank is slow: ``text`` in words, and the first slow step where there is one.

    ``first_step`` is None when it was slow from the first step that is looked at, when it is not
    slow for long at a time, and when that cannot be told; ``text`` says which.
    """

    text: str
    first_step: int | None = None
    last_step: int | None = None
    """Last slow step, when it is no longer slow."""
    confidence: float | None = None


def onset(steps: Ints, over_peers: Floats, *, slow_ratio: float) -> Onset:
    """Since when the work of a rank over its peers' [S], 1 for equal work, exceeds ``slow_ratio``.

    Of several slow stretches, the last one.
    """
    found = change_points(steps, over_peers, min_change_ratio=slow_ratio)
    if found.reason is not None:
        return Onset(f"unknown: {found.reason}")
    # By the median: slow in most of the steps of the stretch.
    slow = [segment.median > 1.0 + slow_ratio for segment in found.segments]
    if not any(slow):
        return Onset("it comes and goes: no stretch of steps is slow throughout")
    last = max(i for i, is_slow in enumerate(slow) if is_slow)
    first = last
    while first > 0 and slow[first - 1]:
        first -= 1
    begun: int | None = None
    confidence: float | None = None
    text = f"from the first step looked at, {found.segments[first].first_step}"
    if first > 0:
        point = found.points[first - 1]
        begun, confidence = point.step, point.confidence
        text = (
            f"since step {begun}: from {_over(point.before_mean)} its peers to "
            f"{_over(point.after_mean)} (posterior {spoken_ratio(confidence)})"
        )
    ended = None
    if last < len(slow) - 1:
        ended = found.segments[last].last_step
        text += f"; not after step {ended}"
    stretches = sum(now and not before for before, now in pairwise((False, *slow)))
    if stretches > 1:
        text += f"; {stretches} slow stretches in all"
    return Onset(text, begun, ended, confidence)


def _over(ratio: float) -> str:
    return f"{spoken_ratio(abs(ratio - 1.0))} {'above' if ratio >= 1 else 'below'}"
