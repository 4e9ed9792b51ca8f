"""A job's metrics by their registry id."""

from __future__ import annotations

import numpy as np

from steptax.app.compute.bill.ledger import Ledger
from steptax.app.compute.collectives.link_probe import SlowLinks
from steptax.app.compute.measure import Level, Measure, Ratio
from steptax.app.compute.stats.rows import Floats
from steptax.app.compute.straggler.onset import Onset
from steptax.app.compute.straggler.result import Kind, RankTable, StragglerResult
from steptax.app.compute.straggler.since import recoverable_since
from steptax.app.views.job.load import LoadedJob
from steptax.app.views.models import Price
from steptax.app.views.pricing.given import NO_WORLD, RELATIVE_TIME, dollars

HOURS_PER_DAY = 24.0
US_PER_HOUR = 3.6e9
_NOT_MIDWAY = "no rank became slow for good within the steps looked at"


def job_metrics(
    loaded: LoadedJob, result: StragglerResult, ledger: Ledger, price: Price
) -> dict[str, Measure]:
    """Every metric of a job's window; a missing one carries its reason."""
    matrix, level = loaded.matrix, result.basis.level
    relative = matrix.time_is_relative
    paid_gpu_hours = float(ledger.paid_gpu_us) / US_PER_HOUR
    no_hours = RELATIVE_TIME if relative else NO_WORLD if loaded.world_is_unknown else None
    gpu_hours = (
        Measure.missing("GPU-hours", no_hours, level=level)
        if no_hours is not None
        else Measure(paid_gpu_hours, "GPU-hours", level=level, inputs=("duration_us",))
    )
    recoverable = result.recoverable_ratio
    hours_per_hour = recoverable.map(
        lambda share: share * matrix.world_size, "GPU-hours per hour", "world_size"
    )
    recoverable_hours = (
        Measure.missing("GPU-hours", RELATIVE_TIME, level=level)
        if relative
        else recoverable.map(lambda share: share * paid_gpu_hours, "GPU-hours", "duration_us")
    )
    metrics: dict[str, Measure] = {
        "straggler_tax_ratio": result.tax_ratio,
        "slowdown_ratio": result.slowdown_ratio,
        "waste_ratio": result.waste_ratio,
        "job_utilisation_ratio": result.slowdown_ratio.map(_inverse, "ratio"),
        "persistent_share_ratio": result.persistent_share_ratio,
        "persistent_ratio": result.persistent_ratio,
        "transient_ratio": result.transient_ratio,
        "between_stage_ratio": result.between_stage_ratio,
        "within_stage_ratio": result.within_stage_ratio,
        "recoverable_ratio": recoverable,
        "step_ms": _ms(result.step_us, relative=relative),
        "ideal_step_ms": _ms(result.ideal_step_us, relative=relative),
        "wait_ms": _ms(result.wait_us, relative=relative),
        "window_gpu_hours": gpu_hours,
        "recoverable_gpu_hours": recoverable_hours,
        "window_usd": dollars(gpu_hours, price),
        "recoverable_usd": dollars(recoverable_hours, price),
        "recoverable_usd_per_hour": dollars(hours_per_hour, price, unit="USD/h"),
        "recoverable_usd_per_day": dollars(
            hours_per_hour.map(lambda hours: hours * HOURS_PER_DAY, "GPU-hours per day"),
            price,
            unit="USD/day",
        ),
        "unexplained_ratio": ledger.unexplained_ratio,
    }
    metrics |= _culprit_metrics(result, relative=relative)
    return metrics


def per_day_since(
    loaded: LoadedJob, result: StragglerResult, since: Onset, price: Price
) -> Measure:
    """What a day of steps costs since the culprit became slow, within the window and for good."""
    if since.first_step is None or since.last_step is not None or result.slow_links is not None:
        return Measure.missing("USD/day", _NOT_MIDWAY, level=result.basis.level)
    hours = recoverable_since(result, since.first_step).map(
        lambda share: share * loaded.matrix.world_size * HOURS_PER_DAY,
        "GPU-hours per day",
        "world_size",
    )
    return dollars(hours, price, unit="USD/day")


def _inverse(slowdown: float) -> float:
    return 1.0 / slowdown


def _ms(measure: Measure, *, relative: bool) -> Measure:
    if relative and measure.value is not None:
        return Measure.missing("ms", RELATIVE_TIME, level=measure.level)
    return measure.map(lambda us: us / 1000.0, "ms")


def _culprit_metrics(result: StragglerResult, *, relative: bool) -> dict[str, Measure]:
    table, verdict, level = result.ranks, result.verdict, result.basis.level
    if table is None or verdict.culprit is None:
        reason = {
            Kind.STAGE: "the stage as a whole is heavier, no single rank of it",
            Kind.MOVING: "a different rank is slow from step to step",
            Kind.MOST: "most ranks are slower than the others, no single one",
            Kind.SELDOM: "one rank is slow in too few steps to be slow for good",
            Kind.PASSED: "one rank was slow for a while, and none is for good",
            Kind.NONE: "no rank is slow for good",
        }.get(verdict.kind, verdict.text)
        if verdict.left_out is not None and verdict.kind in (Kind.NONE, Kind.MOVING, Kind.PASSED):
            reason = "no rank that is compared is slow for good"
        return {
            "excess_us": Measure.missing("us", reason, level=level),
            "excess_ms": Measure.missing("ms", reason, level=level),
            "excess_step_ratio": Measure.missing("ratio", reason, level=level),
            "persistence_ratio": Ratio.missing("ratio", reason, level=level),
            "stability_ratio": Ratio.missing("ratio", reason, level=level),
            "last_ratio": Ratio.missing("ratio", reason, level=level),
        }
    if result.slow_links is not None and result.link_excess_us is not None:
        return _link_metrics(result, result.slow_links, result.link_excess_us, relative=relative)
    place = int(np.flatnonzero(table.ranks == verdict.culprit)[0])
    excess = Measure(
        float(table.excess_us[place]),
        "us",
        low=_bound(table, "excess_low_us", place),
        high=_bound(table, "excess_high_us", place),
        level=level,
        inputs=result.basis.inputs,
    )
    step_us = result.step_us.value
    return {
        "excess_us": Measure.missing("us", RELATIVE_TIME, level=level) if relative else excess,
        "excess_ms": _ms(excess, relative=relative),
        "excess_step_ratio": (
            excess.map(lambda us: us / step_us, "ratio")
            if step_us
            else Measure.missing("ratio", "the step time is unknown", level=level)
        ),
        "persistence_ratio": _share(table.persistence_ratio, place, level),
        "stability_ratio": _share(table.stability_ratio, place, level),
        "last_ratio": _share(table.last_ratio, place, level),
    }


def _link_metrics(
    result: StragglerResult, found: SlowLinks, excess: Measure, *, relative: bool
) -> dict[str, Measure]:
    """Of a culprit that link probes name: all ranks are held up alike, so none arrives last."""
    level, step_us = excess.level, result.step_us.value
    alike = "it is slow inside the collectives, where all ranks are held up alike"
    return {
        "excess_us": Measure.missing("us", RELATIVE_TIME, level=level) if relative else excess,
        "excess_ms": _ms(excess, relative=relative),
        "excess_step_ratio": (
            excess.map(lambda us: us / step_us, "ratio")
            if step_us
            else Measure.missing("ratio", "the step time is unknown", level=level)
        ),
        "persistence_ratio": Ratio(found.slow_probes / found.probes, level=level),
        "stability_ratio": Ratio.missing("ratio", alike, level=level),
        "last_ratio": Ratio.missing("ratio", alike, level=level),
    }


def _share(values: Floats, place: int, level: Level) -> Measure:
    """A rank's share of steps; not a number where there are none to take it of."""
    value = float(values[place])
    if not np.isfinite(value):
        return Ratio.missing("ratio", "no step exceeds its peers' by enough to count", level=level)
    return Ratio(value, level=level)


def _bound(table: RankTable, name: str, place: int) -> float | None:
    value = float(getattr(table, name)[place])
    return value if np.isfinite(value) else None
