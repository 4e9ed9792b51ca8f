"""When a job or a rank changes its pace: Bayesian online change points, and the ten per cent rule.

Every step updates the posterior of the run length, the number of steps since the last change, with
a constant hazard and a normal model of unknown mean and variance (Adams and MacKay 2007). The most
probable run at the end gives the last change, the most probable one before that the change before,
and so on. A change counts when the means before and after differ by more than ``min_change_ratio``
too, 10 % as FALCON has it (Wu et al. 2024; GREYHOUND, ATC'25): smaller ones are joined, the
smallest first.

Single spikes are no change of pace: a step that lies far from the running median of its
neighbours is replaced by it before the detection (Hampel 1974), not in the means.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy.special import gammaln

from steptax.app.compute.stats.rows import Floats, Ints

#: Means that differ by more than this are a change (FALCON).
FALCON_RATIO = 0.10
#: With fewer steps a change cannot be told from chance.
MIN_STEPS = 20
#: A stretch shorter than this is a spell, not a new pace.
MIN_SEGMENT = 5
#: Steps between two changes, on average, before anything is seen.
EXPECTED_RUN = 250.0
#: The posterior of a change is summed over this many steps either way, and over this share of the
#: run that it begins, if that is more.
NEARBY_STEPS = 2
NEARBY_RATIO = 0.1
#: A change that is less certain than this is none.
LEAST_CONFIDENCE = 0.5

#: Prior standard deviation of a mean, relative to the median of the series.
_PRIOR_SPREAD = 0.25
#: Prior weight of the spread, in half steps.
_ALPHA = 2.0
#: Running median over this many steps; spikes of up to half of it do not count.
_WINDOW = 7
_SPIKE_SDS = 5.0
#: Spread below which a series is called level: recorded times have few digits.
_LEAST_SD = 1e-4
#: Runs less probable than this are forgotten.
_FORGET = -11.0


@dataclass(frozen=True)
class Segment:
    """A stretch of steps with one pace, both ends included; in the unit of the series."""

    first_step: int
    last_step: int
    steps: int
    mean: float
    median: float


@dataclass(frozen=True)
class ChangePoint:
    """A change of pace: ``step`` is the first one at the new pace.

    ``confidence`` is the posterior that the run began there or nearby, seen from its end.
    """

    step: int
    before_mean: float
    after_mean: float
    change_ratio: float
    confidence: float

    @property
    def is_slower(self) -> bool:
        """Whether the pace got slower."""
        return self.change_ratio > 0


@dataclass(frozen=True)
class Changes:
    """Every change of a series; ``reason`` says why none could be looked for."""

    points: tuple[ChangePoint, ...]
    segments: tuple[Segment, ...]
    reason: str | None = None


def change_points(
    steps: Ints, values: Floats, *, min_change_ratio: float = FALCON_RATIO
) -> Changes:
    """Changes of the pace of ``values`` [S], which are positive times or ratios, at ``steps`` [S].

    Steps without a value (NaN) are passed over. With fewer than ``MIN_STEPS`` values nothing is
    said, and the reason is.
    """
    known = np.isfinite(values)
    steps, values = steps[known], values[known]
    if len(values) < MIN_STEPS:
        return Changes(
            (), (), f"{len(values)} steps are too few to date a change, {MIN_STEPS} would do"
        )
    middle = float(np.median(values))
    if not middle > 0:
        return Changes((), (), "the times are zero, so there is no pace to change")
    cleaned, sd = _without_spikes(values / middle)
    starts = _starts(cleaned - 1.0, sd)
    bounds = _join([0, *starts], len(values), values, min_change_ratio)
    segments = tuple(
        Segment(
            int(steps[a]),
            int(steps[b - 1]),
            b - a,
            float(values[a:b].mean()),
            float(np.median(values[a:b])),
        )
        for a, b in pairwise((*bounds, len(values)))
    )
    points = tuple(
        ChangePoint(
            int(steps[at]), before.mean, after.mean, after.mean / before.mean - 1.0, starts[at]
        )
        for at, (before, after) in zip(bounds[1:], pairwise(segments), strict=True)
    )
    return Changes(points, segments)


def _without_spikes(relative: Floats) -> tuple[Floats, float]:
    """The series with its spikes replaced by the running median, and its spread around that."""
    half = _WINDOW // 2
    padded = np.pad(relative, half, mode="reflect")
    running = np.median(sliding_window_view(padded, _WINDOW), axis=1)
    # From differences of neighbours, so that a change of pace does not count as spread.
    steps_apart = np.abs(np.diff(relative))
    sd = max(_LEAST_SD, 1.4826 * float(np.median(steps_apart)) / np.sqrt(2.0))
    spike = np.abs(relative - running) > _SPIKE_SDS * sd
    return np.where(spike, running, relative), sd


def _starts(centred: Floats, sd: float) -> dict[int, float]:
    """Place of the first step of every run but the first, with the posterior of that place."""
    total = len(centred)
    runs, log_posteriors = _run_posteriors(centred, sd)
    found: dict[int, float] = {}
    end = total
    while end > 0:
        begun, log_posterior = runs[end - 1], log_posteriors[end - 1]
        best = int(begun[np.argmax(log_posterior)])
        if best > 0:
            near = np.abs(begun - best) <= max(NEARBY_STEPS, NEARBY_RATIO * (end - best))
            confidence = float(np.exp(log_posterior[near]).sum())
            if confidence >= LEAST_CONFIDENCE:
                found[best] = min(1.0, confidence)
        end = best
    return dict(sorted(found.items()))


def _run_posteriors(centred: Floats, sd: float) -> tuple[list[Ints], list[Floats]]:
    """For each step, where the current run may have begun, and the log posterior of each.

    With a run's sums known from cumulative ones, the marginal likelihood of a whole run is a closed
    form, and the predictive of a step the difference of two of them.
    """
    total = len(centred)
    kappa0 = max(1e-6, min(1.0, (sd / _PRIOR_SPREAD) ** 2))
    beta0 = _ALPHA * sd * sd
    length = np.arange(total + 1)
    kappa, alpha = kappa0 + length, _ALPHA + 0.5 * length
    constant = (
        gammaln(alpha)
        - gammaln(_ALPHA)
        + _ALPHA * np.log(beta0)
        + 0.5 * np.log(kappa0 / kappa)
        - 0.5 * length * np.log(2 * np.pi)
    )
    first = np.concatenate([[0.0], np.cumsum(centred)])
    second = np.concatenate([[0.0], np.cumsum(centred * centred)])
    log_change, log_stay = np.log(1 / EXPECTED_RUN), np.log(1 - 1 / EXPECTED_RUN)
    begun: Ints = np.zeros(1, dtype=np.int64)
    weight: Floats = np.zeros(1)
    evidence: Floats = np.zeros(1)
    runs: list[Ints] = []
    log_posteriors: list[Floats] = []
    for t in range(total):
        held = t + 1 - begun
        one = first[t + 1] - first[begun]
        spread = beta0 + 0.5 * np.maximum(
            second[t + 1] - second[begun] - one * one / kappa[held], 0
        )
        marginal = constant[held] - alpha[held] * np.log(spread)
        posterior = weight + marginal - evidence
        posterior -= posterior.max()
        keep = posterior > _FORGET
        if not keep.all():
            begun, posterior, marginal = begun[keep], posterior[keep], marginal[keep]
        posterior -= np.log(np.exp(posterior).sum())
        runs.append(begun)
        log_posteriors.append(posterior)
        # The next step may begin a run of its own, whatever the present one is.
        begun = np.append(begun, t + 1)
        weight = np.append(posterior + log_stay, log_change)
        evidence = np.append(marginal, 0.0)
    return runs, log_posteriors


def _join(bounds: list[int], total: int, values: Floats, min_change_ratio: float) -> list[int]:
    """The bounds without spells that are too short and changes that are too small."""
    sums = np.concatenate([[0.0], np.cumsum(values)])

    def changes() -> list[float]:
        means = [(sums[b] - sums[a]) / (b - a) for a, b in pairwise((*bounds, total))]
        return [
            abs(after / before - 1.0) if before > 0 else np.inf for before, after in pairwise(means)
        ]

    while len(bounds) > 1:
        sizes = np.diff([*bounds, total])
        change = changes()
        short = int(np.argmin(sizes))
        if sizes[short] < MIN_SEGMENT:
            # A spell goes to the neighbour that it differs least from.
            sides = [i for i in (short - 1, short) if 0 <= i < len(change)]
            gone = min(sides, key=lambda i: change[i])
        else:
            gone = int(np.argmin(change))
            if change[gone] > min_change_ratio:
                break
        del bounds[gone + 1]
    return bounds
