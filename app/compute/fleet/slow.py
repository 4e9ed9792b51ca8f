"""How slow the jobs of a fleet are, and how often and how long one of their parts is slower.

A fail-slow is an episode in which a rank, a host or the whole job is slower than it was or than its
peers are, and the cause may lie in a device, a host, a link or the storage. What a program does to
itself (stages of unequal work, sequences, experts, garbage, checkpoints) is none.

Shares and quantiles are of jobs, and once more of GPU-hours: one large slow job costs more than
many small ones.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv

from steptax.app.compute.causes.model import Cause, Finding, Scope
from steptax.app.compute.fleet.states import size_class, size_order
from steptax.app.compute.measure import Level, Measure, Ratio
from steptax.app.words import count_text

#: A job this many times as slow as its ideal is called slow (Lin et al., OSDI'25).
SLOW = 1.10
#: Causes that a program makes for itself.
OF_PROGRAM = frozenset(
    {Cause.STAGE, Cause.SEQUENCE, Cause.EXPERT, Cause.GC, Cause.CHECKPOINT, Cause.LAUNCH_BOUND}
)
CAUSE_UNKNOWN = "not named"


@dataclass(frozen=True)
class Episode:
    """A fail-slow of one job."""

    place: str
    ranks: tuple[int, ...]
    """Empty where it is the whole job."""
    hosts: tuple[str, ...]
    devices: tuple[str, ...]
    cause: str
    excess_ratio: float
    """Share of a step by which it was slower."""
    duration_s: float | None
    """Length of its steps; None where times are not real. A lower bound where it is open."""
    is_open: bool
    lost_gpu_hours: float | None


@dataclass(frozen=True)
class SlowFact:
    """What the steps of one job say."""

    job_id: str
    gpus: int | None
    gpu_hours: float | None
    """Of the recorded steps."""
    slowdown: Measure
    waste: Measure
    episodes: tuple[Episode, ...]
    reason: str | None = None
    """Why fail-slow could not be looked for; None where it could."""
    waiting_gpu_hours: float | None = None
    """In which ranks waited for a slower one, as the ledger of the job has it."""


@dataclass(frozen=True)
class Spread:
    """How a value is spread over jobs, each once or by its GPU-hours."""

    jobs: int
    unknown: int
    mean: Measure
    """By GPU-hours."""
    quantiles: tuple[tuple[float, Measure, Measure], ...]
    """(q, of jobs, of GPU-hours)"""


@dataclass(frozen=True)
class FailSlowRow:
    """Fail-slow in one class of size."""

    size: str
    jobs: int
    """In which it could be told."""
    affected: int
    share: Measure
    episodes: int
    median_s: Measure
    longest_s: Measure
    lost_gpu_hours: Measure


def is_fail_slow(finding: Finding) -> bool:
    """Whether a finding is a fail-slow."""
    return finding.scope in (Scope.RANKS, Scope.JOB) and finding.cause.cause not in OF_PROGRAM


def share_of_slow(facts: Sequence[SlowFact], *, by_hours: bool) -> Measure:
    """Share of jobs whose steps are at least ``SLOW`` times their ideal, or of GPU-hours."""
    known = [(f.slowdown.value, f.gpu_hours) for f in facts if f.slowdown.value is not None]
    if not known:
        return _unknown("ratio", [f.slowdown.reason for f in facts])
    if by_hours:
        weights = [hours or 0.0 for _, hours in known]
        if not sum(weights):
            return Measure.missing("ratio", "GPU-hours of these jobs are unknown")
    else:
        weights = [1.0] * len(known)
    slow = sum(w for (value, _), w in zip(known, weights, strict=True) if value >= SLOW)
    left = len(facts) - len(known)
    said = (f"without {count_text(left, 'job')}, in which it cannot be told",) if left else ()
    return Ratio(min(slow / sum(weights), 1.0), level=Level.STEP_TIME, warnings=said)


def spread(
    pairs: Sequence[tuple[Measure, float | None]], quantiles: Sequence[float], unit: str = "ratio"
) -> Spread:
    """Quantiles of the values over jobs, and over their GPU-hours; unknown values are counted."""
    known = [(m.value, hours) for m, hours in pairs if m.value is not None]
    unknown = len(pairs) - len(known)
    if not known:
        none = _unknown(unit, [m.reason for m, _ in pairs])
        return Spread(0, unknown, none, tuple((q, none, none) for q in quantiles))
    values = np.array([value for value, _ in known])
    weights = np.array([hours or 0.0 for _, hours in known])
    weighed = weights.sum() > 0
    no_weights = Measure.missing(unit, "GPU-hours of these jobs are unknown")
    rows = []
    for q in quantiles:
        # The p-th quantile of fewer than 1/p jobs is the last of them.
        few = min(q, 1 - q) * len(known) < 1
        said = (f"of {count_text(len(known), 'job')}: it is the outermost one",) if few else ()
        of_jobs = weighted_quantile(values, np.ones(len(values)), q)
        of_hours = (
            Measure(weighted_quantile(values, weights, q), unit, warnings=said)
            if weighed
            else no_weights
        )
        rows.append((q, Measure(of_jobs, unit, warnings=said), of_hours))
    mean = Measure(float(values @ weights / weights.sum()), unit) if weighed else no_weights
    return Spread(len(known), unknown, mean, tuple(rows))


def weighted_quantile(values: np.ndarray, weights: np.ndarray, q: float) -> float:
    """Least value at or below which a share ``q`` of the weight lies."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    # Rounding may leave the sum a hair below its share.
    place = int(np.searchsorted(reached, q * reached[-1] * (1 - 1e-12)))
    return float(values[order][min(place, len(values) - 1)])


def fail_slow_rows(facts: Sequence[SlowFact]) -> tuple[FailSlowRow, ...]:
    """Fail-slow by class of size, and last of all jobs together."""
    groups: dict[str, list[SlowFact]] = defaultdict(list)
    for fact in facts:
        groups[size_class(fact.gpus)].append(fact)
    rows = [_row(size, groups[size]) for size in sorted(groups, key=size_order)]
    return (*rows, _row("all", facts))


def _row(size: str, facts: Sequence[SlowFact]) -> FailSlowRow:
    told = [f for f in facts if f.reason is None]
    affected = sum(bool(f.episodes) for f in told)
    episodes = [e for f in told for e in f.episodes]
    lasted = [e.duration_s for e in episodes if e.duration_s is not None]
    lost = [e.lost_gpu_hours for e in episodes if e.lost_gpu_hours is not None]
    none = "no job has per-rank steps" if not facts else "it can be told in none of these jobs"
    if told:
        none = "no episode was found"
    untimed = "times of these steps are not real" if episodes else none
    is_open = sum(e.is_open for e in episodes)
    said = (f"{is_open:,} of {len(episodes):,} still go on: at least",) if is_open else ()
    return FailSlowRow(
        size,
        len(told),
        affected,
        share_with_interval(affected, len(told), [f.reason for f in facts]),
        len(episodes),
        Measure(float(np.median(lasted)), "s", warnings=said)
        if lasted
        else Measure.missing("s", untimed),
        Measure(max(lasted), "s", warnings=said) if lasted else Measure.missing("s", untimed),
        Measure(float(np.sum(lost)), "GPU-hours", level=Level.STEP_TIME)
        if lost
        else Measure.missing("GPU-hours", none if not episodes else "what would return is unknown"),
    )


def share_with_interval(count: int, of: int, reasons: Sequence[str | None] = ()) -> Measure:
    """A share with its exact 95 % interval (Clopper and Pearson 1934)."""
    if not of:
        return _unknown("ratio", reasons)
    low = float(betaincinv(count, of - count + 1, 0.025)) if count else 0.0
    high = float(betaincinv(count + 1, of - count, 0.975)) if count < of else 1.0
    return Ratio(count / of, low=low, high=high, level=Level.STEP_TIME)


def causes(facts: Sequence[SlowFact]) -> tuple[tuple[str, int, float | None], ...]:
    """(cause, episodes, GPU-hours that they cost), costliest first."""
    counts: Counter[str] = Counter()
    lost: dict[str, float] = defaultdict(float)
    unknown: set[str] = set()
    for episode in (e for f in facts for e in f.episodes):
        counts[episode.cause] += 1
        if episode.lost_gpu_hours is None:
            unknown.add(episode.cause)
        else:
            lost[episode.cause] += episode.lost_gpu_hours
    rows = [(cause, n, None if cause in unknown else lost[cause]) for cause, n in counts.items()]
    return tuple(sorted(rows, key=lambda row: (-(row[2] or 0.0), -row[1], row[0])))


def _unknown(unit: str, reasons: Sequence[str | None]) -> Measure:
    """Why nothing is known, in the words of the most."""
    said = Counter(reason for reason in reasons if reason).most_common(2)
    text = "; ".join(reason for reason, _ in said)
    return Measure.missing(unit, text or "no job has per-rank steps")
