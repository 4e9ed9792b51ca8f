"""How often jobs of a fleet are interrupted, and whether that goes as 1/N.

The rate per GPU-hour is failures / GPU-hours of jobs whose outcome is known, with its exact Poisson
interval (Garwood 1936). If failures are independent and belong to single devices, a job of N
devices fails N times as often as one of one device, so that its mean time between failures is 1/N
of it. Two checks of that:

    observed / expected   by class of size; given all failures, those of a class are binomial with
                          its share of the GPU-hours
    exponent b            rate per job-hour = c N^b, fitted by maximum likelihood; 1 is the 1/N
                          model, 0 a rate that does not depend on the size
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import bdtr, bdtrc, gammaincinv

from steptax.app.compute.fleet.states import SUMMED, JobFact, size_class, size_order
from steptax.app.compute.measure import Level, Measure
from steptax.app.compute.stats.event_rate import rate_of_count, time_between
from steptax.app.compute.stats.rows import Floats
from steptax.app.words import count_text

#: Probability below which a class of size does not go with the model, shared by all classes.
SURPRISE = 0.01
#: Chi-squared of one degree of freedom at 95 %.
_CHI2_95 = 3.841458820694124
_STEEPEST = 10.0
#: Sizes for which the 1/N model is asked.
ASKED_GPUS = (8, 64, 512, 4_096, 16_384)


@dataclass(frozen=True)
class SizeRate:
    """Failures of one class of size against the 1/N model."""

    size: str
    jobs: int
    gpu_hours: float
    job_hours: float
    failures: int
    mtbf_h: Measure
    """Of a job of this class, as counted."""
    expected: float
    """Failures if each GPU-hour of the fleet were as likely to fail."""
    over_expected: Measure
    """Observed / expected."""
    chance: float
    """How likely a count at least as far off is under the model, two-sided."""
    off_model: bool


@dataclass(frozen=True)
class ModelPoint:
    """What the 1/N model says for jobs of ``gpus`` devices."""

    gpus: int
    mtbf_h: Measure
    beyond_h: bool
    """No job of the fleet was this large: extrapolated."""


@dataclass(frozen=True)
class FailureRate:
    """Failures of a fleet per GPU-hour, and how far 1/N carries."""

    failures: int
    gpu_hours: float
    jobs: int
    """Jobs whose failures and GPU-hours are known."""
    left_out: int
    mtbf_gpu_hours: Measure
    sizes: tuple[SizeRate, ...]
    exponent: Measure
    model: tuple[ModelPoint, ...]
    limits: tuple[str, ...]


def failure_rate(facts: Sequence[JobFact]) -> FailureRate:
    """The rate over the jobs that held devices and whose failures are known."""
    told = [f for f in facts if f.gpu_hours and f.state != "pending"]
    held = [f for f in told if not f.is_sum]
    known = [f for f in held if f.failures is not None]
    count = sum(f.failures or 0 for f in known)
    hours = float(np.sum([f.gpu_hours for f in known])) if known else 0.0
    left = len(held) - len(known)
    if not known:
        reason = "of no job that held a GPU is it known whether it failed"
        if told and not held:
            reason = f"how often jobs failed is not known: {SUMMED}"
        none = Measure.missing("GPU-hours", reason)
        nothing = Measure.missing("", reason)
        return FailureRate(0, 0.0, 0, left, none, (), nothing, (), ())
    rate = rate_of_count(count, hours)
    of_one = time_between(rate)
    mtbf = Measure(
        of_one.value, "GPU-hours", of_one.low, of_one.high, Level.LOG, reason=of_one.reason
    )
    sized = [f for f in known if f.gpus]
    rates = _sizes(sized)
    exponent = size_exponent(sized)
    largest = max((f.gpus or 0 for f in sized), default=0)
    model = tuple(ModelPoint(gpus, time_between(rate, gpus), gpus > largest) for gpus in ASKED_GPUS)
    limits = _limits(rates, exponent, largest, left)
    return FailureRate(count, hours, len(known), left, mtbf, rates, exponent, model, limits)


def _sizes(facts: Sequence[JobFact]) -> tuple[SizeRate, ...]:
    groups: dict[str, list[JobFact]] = defaultdict(list)
    for fact in facts:
        groups[size_class(fact.gpus)].append(fact)
    total = sum(f.failures or 0 for f in facts)
    whole = float(np.sum([f.gpu_hours for f in facts])) if facts else 0.0
    rows = []
    for size in sorted(groups, key=size_order):
        own = groups[size]
        count = sum(f.failures or 0 for f in own)
        hours = float(np.sum([f.gpu_hours for f in own]))
        job_hours = float(np.sum([(f.gpu_hours or 0.0) / (f.gpus or 1) for f in own]))
        share = min(hours / whole, 1.0)
        chance = two_sided(count, total, share)
        rows.append(
            SizeRate(
                size,
                len(own),
                hours,
                job_hours,
                count,
                time_between(rate_of_count(count, job_hours)),
                total * share,
                over_expected(count, total * share),
                chance,
                total > 0 and chance < SURPRISE / len(groups),
            )
        )
    return tuple(rows)


def two_sided(count: int, total: int, share: float) -> float:
    """Twice the smaller tail of a binomial, at most 1: how odd ``count`` of ``total`` is."""
    below = float(bdtr(count, total, share))
    above = float(bdtrc(count - 1, total, share)) if count else 1.0
    return min(1.0, 2.0 * min(below, above))


def over_expected(count: int, expected: float) -> Measure:
    """Observed / expected with the exact Poisson interval of the count."""
    if expected <= 0:
        return Measure.missing("x", "no failure is expected")
    low = float(gammaincinv(count, 0.025)) if count else 0.0
    high = float(gammaincinv(count + 1, 0.975))
    return Measure(count / expected, "x", low / expected, high / expected)


def size_exponent(facts: Sequence[JobFact]) -> Measure:
    """Maximum-likelihood b of rate per job-hour = c N^b, with its likelihood-ratio interval."""
    totals: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for fact in facts:
        if fact.gpus and fact.gpu_hours and fact.failures is not None:
            own = totals[fact.gpus]
            own[0] += fact.gpu_hours / fact.gpus
            own[1] += fact.failures
    if len(totals) < 2:
        return Measure.missing("", "all jobs have the same number of devices")
    log_n = np.log(np.array(list(totals), dtype=float))
    hours, counts = np.array(list(totals.values())).T
    if not counts.sum():
        return Measure.missing("", "no failure was counted")

    def likelihood(b: float) -> float:
        # c is profiled out; the constant is left off.
        powers = np.log(hours) + b * log_n
        top = powers.max()
        return float(b * counts @ log_n - counts.sum() * (top + np.log(np.exp(powers - top).sum())))

    def slope(b: float) -> float:
        return float(counts @ log_n - counts.sum() * (_weights(hours, log_n, b) @ log_n))

    if slope(-_STEEPEST) <= 0 or slope(_STEEPEST) >= 0:
        return Measure.missing("", "all failures are of the smallest or of the largest jobs")
    best = _root(slope, -_STEEPEST, _STEEPEST)
    top = likelihood(best)

    def short(b: float) -> float:
        return 2.0 * (top - likelihood(b)) - _CHI2_95

    low = _root(short, -_STEEPEST, best) if short(-_STEEPEST) > 0 else None
    high = _root(short, best, _STEEPEST) if short(_STEEPEST) > 0 else None
    return Measure(best, "", low, high, Level.LOG)


def _weights(hours: Floats, log_n: Floats, b: float) -> Floats:
    powers = np.log(hours) + b * log_n
    weights = np.exp(powers - powers.max())
    return np.asarray(weights / weights.sum())


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    from scipy.optimize import brentq  # a third of a second, and few lakes need it

    return float(brentq(function, low, high))


def _limits(
    rates: Sequence[SizeRate], exponent: Measure, largest: int, left: int
) -> tuple[str, ...]:
    said = []
    off = [rate for rate in rates if rate.off_model]
    if off:
        worst = max(off, key=lambda rate: abs(np.log(max(rate.over_expected.value or 0.0, 1e-3))))
        said.append(
            f"1/N does not hold here: jobs of {worst.size} GPUs fail "
            f"{worst.over_expected.value or 0.0:.2g} times as often per GPU-hour as the fleet does"
        )
    elif rates:
        said.append("the counts by size do not speak against 1/N")
    if exponent.value is not None and exponent.low is not None and exponent.high is not None:
        text = f"failures per job-hour go as N^{exponent.value:.2f}"
        text += f" ({exponent.low:.2f} to {exponent.high:.2f}); 1/N would be N^1"
        said.append(text)
    said.append(
        "1/N takes failures as independent and each device's own: a fault of the program, a "
        "switch or the storage stops a job whatever its size"
    )
    said.append("intervals are those of independent failures; retries of one bad job are not")
    if largest:
        said.append(f"the largest job had {largest:,} GPUs: beyond them 1/N is extrapolated")
    if left:
        said.append(
            f"left out: {count_text(left, 'job')} of which nobody knows whether they failed"
        )
    return tuple(said)
