"""How often a job of this size is interrupted, and what that costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from steptax.app.compute.calculators.base import Result, calculator
from steptax.app.compute.calculators.money import PRICE, PRICE_HIGH, priced
from steptax.app.compute.calculators.parameter import Kind, Parameter
from steptax.app.compute.measure import Measure, Ratio
from steptax.app.compute.stats.event_rate import rate_of_count, time_between
from steptax.app.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Failures(Result):
    """Mean time between failures of the job, and what follows for a run of ``run_h``."""

    headline: str = "mtbf_h"

    mtbf_h: Measure
    mtbf_gpu_h: Measure
    failures_per_day: Measure
    expected_failures: Measure
    no_failure_ratio: Ratio
    lost_gpu_hours: Measure
    lost_usd: Measure
    counted: Measure
    largest_cause_ratio: Ratio
    causes: tuple[float, ...] = ()
    """Share of each count in all of them, in the order given."""


@calculator(
    name="failures",
    title="Failures at scale",
    formula="MTBF(N) = MTBF of one GPU / N; expected = run / MTBF(N); none: e^(-run/MTBF(N))",
    source="Poisson process, interval by Garwood 1936; at scale: Llama Team 2024, The Llama 3 Herd "
    "of Models (419 unexpected interruptions in 54 days of 16,384 GPUs)",
    page="Twice the GPUs, half the time between failures: this holds while failures are "
    "independent and belong to single GPUs or nodes. A switch, a storage system or a software "
    "fault stops the job whatever its size, so small jobs do worse than this says. Count "
    "interruptions of your own where you can: the band is what that count allows.",
    parameters=(
        Parameter("gpus", "", "GPUs of the job asked about", Kind.INT, minimum=1),
        Parameter("observed_failures", "", "failures counted", Kind.INT, minimum=0),
        Parameter(
            "counts",
            "",
            "failures counted by cause, instead of their sum; gives the share of each",
            Kind.REALS,
            minimum=0,
        ),
        Parameter("observed_h", "h", "hours in which they were counted", above=0),
        Parameter("observed_gpus", "", "GPUs that ran in those hours", Kind.INT, minimum=1),
        Parameter(
            "mtbf_gpu_h", "h", "mean time between failures of one GPU, instead of a count", above=0
        ),
        Parameter("run_h", "h", "length of the run", above=0),
        Parameter("lost_per_failure_s", "s", "time that one failure costs the job", minimum=0),
        PRICE,
        PRICE_HIGH,
    ),
)
def failures(
    *,
    gpus: int,
    observed_failures: int | None = None,
    counts: Sequence[float] | None = None,
    observed_h: float | None = None,
    observed_gpus: int | None = None,
    mtbf_gpu_h: float | None = None,
    run_h: float | None = None,
    lost_per_failure_s: float | None = None,
    usd_per_gpu_hour: float | None = None,
    usd_per_gpu_hour_high: float | None = None,
) -> Failures:
    """Rates, and with ``run_h`` the expected failures and their cost.

    With a count the rate has its exact 95 % Poisson interval; with none counted only its upper end
    is known, so that the mean time between failures is missing and has a lower bound.

    Raises:
        UserError: neither or both of a count and a mean time; a count without its hours and GPUs;
            counts that are not whole numbers, or beside their sum.
    """
    if counts is not None:
        observed_failures = _sum(counts, observed_failures)
    rate = _rate_per_gpu_h(observed_failures, observed_h, observed_gpus, mtbf_gpu_h)
    per_day = rate.map(lambda r: r * gpus * 24, "1/d")
    if run_h is None:
        expected = Measure.missing("failures", "the length of the run was not given")
        none = Ratio(None, reason="the length of the run was not given")
    else:
        expected = rate.map(lambda r: r * gpus * run_h, "failures")
        none = _none_in(expected)
    if lost_per_failure_s is None:
        lost = Measure.missing("GPU-hours", "the time that a failure costs was not given")
    elif (rate.value or 0) * gpus * lost_per_failure_s > 3600:
        # More would be lost than the run lasts.
        lost = Measure.missing("GPU-hours", "the next failure comes before one is made good")
    else:
        lost = expected.map(lambda n: n * lost_per_failure_s / 3600 * gpus, "GPU-hours")
    mtbf = time_between(rate, gpus)
    if mtbf.value is None:
        sentence = f"No failure was counted: {gpus:,} GPUs run at least {mtbf.low:.3g} h (95 %)."
    else:
        sentence = f"{gpus:,} GPUs are interrupted every {_spoken(mtbf.value)}"
        if expected.value is not None:
            sentence += f", {expected.value:,.1f} times in the run"
        sentence += "."
    return Failures(
        mtbf_h=mtbf,
        mtbf_gpu_h=time_between(rate),
        failures_per_day=per_day,
        expected_failures=expected,
        no_failure_ratio=none,
        lost_gpu_hours=lost,
        lost_usd=priced(lost, usd_per_gpu_hour, usd_per_gpu_hour_high),
        counted=Measure.missing("failures", "failures were not counted")
        if observed_failures is None
        else Measure(float(observed_failures), "failures"),
        largest_cause_ratio=Ratio(None, reason="failures were not counted by cause")
        if not observed_failures or counts is None
        else Ratio(max(counts) / observed_failures),
        causes=()
        if not observed_failures or counts is None
        else tuple(count / observed_failures for count in counts),
        sentence=sentence,
        warnings=("scaled as 1/N: failures are taken as independent and each GPU's own",),
    )


def _sum(counts: Sequence[float], observed_failures: int | None) -> int:
    if observed_failures is not None:
        raise UserError("expected counts by cause or their sum, not both", where="counts")
    if any(count != int(count) for count in counts):
        raise UserError("expected whole numbers of failures", where="counts")
    return int(sum(counts))


def _rate_per_gpu_h(
    count: int | None, hours: float | None, observed_gpus: int | None, mtbf_gpu_h: float | None
) -> Measure:
    if (count is None) == (mtbf_gpu_h is None):
        raise UserError(
            "expected either a count of failures or the mean time between failures of one GPU",
            where="observed_failures",
        )
    if mtbf_gpu_h is not None:
        return Measure(1 / mtbf_gpu_h, "1/h")
    if count is None or hours is None or observed_gpus is None:
        absent = "observed_h" if hours is None else "observed_gpus"
        raise UserError("expected beside a count of failures", where=absent)
    return rate_of_count(count, hours * observed_gpus)


def _none_in(expected: Measure) -> Ratio:
    def chance(value: float | None) -> float | None:
        return None if value is None else math.exp(-value)

    return Ratio(
        chance(expected.value),
        low=chance(expected.high),
        high=chance(expected.low),
        warnings=expected.warnings,
        reason=expected.reason,
    )


def _spoken(hours: float) -> str:
    return f"{hours:.2f} h" if hours >= 1 else f"{hours * 60:.1f} min"


CALCULATORS = (failures,)
