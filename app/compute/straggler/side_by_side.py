"""Whether one run, or one part of a run, is faster than another, noise considered.

What is compared is the cost of the same work: device-time per token where both sides count tokens
and devices, else the step time. With c the cost, the change is c_B / c_A - 1: below zero, B is
faster. Three kinds of noise can make a change out of nothing:

* inside a side, from step to step: the moving-block bootstrap (``resample``), and, for what drifts
  more slowly than its blocks, Student's t over the means of ten long batches; the wider counts;
* between runs of the same: the spread of runs that are alike, t_{n-1} * sqrt(2) * s of the
  logarithms of their mean step times, where three of them are known;
* where no runs that are alike are known, nobody can tell that spread. Sinha et al. (SC'22,
  arXiv:2208.11035) found 8 % between equal devices of five clusters: a smaller change between two
  runs stays open. Two parts of one run share their devices and need none of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from steptax.app.compute.measure import Measure
from steptax.app.compute.stats.resample import block_means, interval
from steptax.app.compute.stats.rows import Floats

#: Spread between equal devices (Sinha et al. 2022), where runs that are alike are not known.
PUBLISHED_SPREAD_RATIO = 0.08
#: Steps that a side must have, and runs that tell their spread.
LEAST_STEPS, LEAST_RUNS = 20, 3
_BATCHES = 10
_REPLICATES, _SEED = 2000, 0


class Outcome(StrEnum):
    """What a comparison comes to; ``B`` is the second side."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "no difference"
    OPEN = "not told"


@dataclass(frozen=True, eq=False)
class Pace:
    """The steps of one side."""

    step_us: Floats
    """[S] step time."""
    tokens: Floats | None
    """[S] tokens of all ranks; None where they are not counted."""
    devices: int | None


@dataclass(frozen=True)
class Spread:
    """How far runs of the same lie apart."""

    runs: int
    """That are alike; fewer than three tell nothing."""
    ratio: float | None
    """Standard deviation of the logarithms of their mean step times."""


@dataclass(frozen=True)
class Contrast:
    """How side B differs from side A."""

    outcome: Outcome
    change: Measure
    """Cost of the same work in B over A, less 1; its interval holds the noise inside the sides."""
    per_token: bool
    """Whether the cost is device-time per token; else it is the step time."""
    inside_ratio: float | None
    """Half the interval that the steps of both sides leave."""
    between_ratio: float | None
    """By how much two runs of the same may differ; None for two parts of one run."""
    between_is_published: bool = False
    """Whether that is the published spread, since runs that are alike are not known."""


def spread_of(mean_step_us: Sequence[float]) -> Spread:
    """How far runs that are alike lie apart, from the mean step time of each."""
    known = [value for value in mean_step_us if value > 0]
    if len(known) < LEAST_RUNS:
        return Spread(len(known), None)
    return Spread(len(known), float(np.std(np.log(known), ddof=1)))


def contrast(a: Pace, b: Pace, *, same_run: bool, repeats: Spread) -> Contrast:
    """Judge B against A; with ``same_run`` both are parts of one run."""
    per_token = all(side.tokens is not None and side.devices for side in (a, b))
    for name, side in (("A", a), ("B", b)):
        if len(side.step_us) < LEAST_STEPS:
            return _open(
                f"{name} has {len(side.step_us)} steps: {LEAST_STEPS} are the fewest that tell "
                "a difference from noise",
                per_token,
            )
    difference = _log_cost(b, per_token=per_token) - _log_cost(a, per_token=per_token)
    drawn = _log_costs(b, per_token=per_token, seed=_SEED + 1)
    drawn = drawn - _log_costs(a, per_token=per_token, seed=_SEED)
    if not (np.isfinite(difference) and np.isfinite(drawn).all()):
        return _open("a side has steps that took no time or made no tokens", per_token)
    low, high = (float(bound) for bound in interval(drawn))
    inside = max((high - low) / 2, _slow_noise(a, b, per_token=per_token))
    change = Measure(
        float(np.expm1(difference)),
        "ratio",
        low=float(np.expm1(difference - inside)),
        high=float(np.expm1(difference + inside)),
    )
    between, published = _between(repeats, same_run=same_run)
    if published:
        limit = inside + PUBLISHED_SPREAD_RATIO
    else:
        limit = float(np.hypot(inside, between or 0.0))
    if abs(difference) > limit:
        outcome = Outcome.SLOWER if difference > 0 else Outcome.FASTER
    elif published and abs(difference) > inside:
        outcome = Outcome.OPEN
    else:
        outcome = Outcome.SAME
    return Contrast(outcome, change, per_token, inside, between, published)


def _open(reason: str, per_token: bool) -> Contrast:
    return Contrast(Outcome.OPEN, Measure.missing("ratio", reason), per_token, None, None)


def _between(repeats: Spread, *, same_run: bool) -> tuple[float | None, bool]:
    """By how much two runs of the same may differ, and whether that is the published spread."""
    from scipy.stats import t

    if same_run:
        return None, False
    if repeats.ratio is None:
        return PUBLISHED_SPREAD_RATIO, True
    return float(t.ppf(0.975, repeats.runs - 1) * np.sqrt(2) * repeats.ratio), False


def _columns(side: Pace, *, per_token: bool) -> Floats:
    """[S, 2] time that is paid for and the work that it did."""
    work = side.tokens if per_token and side.tokens is not None else np.ones(len(side.step_us))
    devices = float(side.devices or 1) if per_token else 1.0
    return np.stack([side.step_us * devices, work], axis=1)


def _ratio_log(sums: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.log(sums[..., 0] / sums[..., 1]))


def _log_cost(side: Pace, *, per_token: bool) -> float:
    return float(_ratio_log(_columns(side, per_token=per_token).sum(axis=0)))


def _log_costs(side: Pace, *, per_token: bool, seed: int) -> Floats:
    """[B] of drawn steps."""
    columns = _columns(side, per_token=per_token)
    return _ratio_log(block_means(columns, replicates=_REPLICATES, seed=seed))


def _slow_noise(a: Pace, b: Pace, *, per_token: bool) -> float:
    """Half the interval from ten long batches of each side, for what drifts slowly."""
    from scipy.stats import t

    variance = 0.0
    for side in (a, b):
        parts = np.array_split(_columns(side, per_token=per_token), _BATCHES)
        logs = _ratio_log(np.stack([part.sum(axis=0) for part in parts]))
        variance += float(np.var(logs[np.isfinite(logs)], ddof=1)) / _BATCHES
    return float(t.ppf(0.975, _BATCHES - 1) * np.sqrt(variance))
