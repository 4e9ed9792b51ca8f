"""The what-if view of a job: what stragglers cost it, where they are, and what could be done.

See ``trace_models`` for how the functions go together.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from steptax.app.compute.measure import Measure
from steptax.app.format import format_share, format_value
from steptax.app.views.models import Price
from steptax.app.views.pricing.given import price_view
from steptax.app.views.trace.fixes import rail_fixes
from steptax.app.views.trace.gantt import trace_step
from steptax.app.views.trace.grid import (
    dp_bars,
    optype_bars,
    stage_bars,
    step_series,
    trace_grid,
    worker_lines,
)
from steptax.app.views.trace.load import StepRanges, TraceJob, open_trace, open_trace_file
from steptax.app.views.trace.models import ESTIMATE, GRAPH, TraceView
from steptax.app.views.trace.rail import rail_answer, worst_curve
from steptax.app.whatif.analysis import Analysis
from steptax.app.whatif.interval import mean_measure
from steptax.app.whatif.money import Recovered, at_price
from steptax.app.whatif.pattern import PatternKind

#: Share of a step from which on a repair returns notably more than the waste.
_NEAR = 0.02
_MORE_THAN_WASTE = "repairs return more than the waste: "
_MEAN_OF_OTHERS = (
    "a repaired rank works like the other ranks, and the ideal step takes the mean of all of them, "
    "the slow ones included"
)
_LIGHT_STAYS_LIGHT = (
    "they leave ranks and stages alone that have less to do than the mean, which the ideal step "
    "gives them too"
)

__all__ = [
    "StepRanges",
    "TraceJob",
    "open_trace",
    "open_trace_file",
    "rail_answer",
    "trace_grid",
    "trace_step",
    "trace_view",
]


def trace_view(
    job: TraceJob, price: Decimal | Price | None = None, *, price_note: str | None = None
) -> TraceView:
    """Everything that is shown of ``job`` at ``price`` in USD per GPU-hour.

    A job of a lake has a price of its own (``job_price``), which says whose it is.
    """
    cost = price if isinstance(price, Price) else price_view(price, price_note)
    price = cost.usd_per_gpu_hour
    result, coarse = job.result, job.coarse
    bars, note = dp_bars(job)
    workers, count = worker_lines(job)
    worth = _worth(job, price)
    step, ideal_step = _step_times(job)
    reliable = result.reliable if coarse is None else False
    doubts = () if reliable else _doubts(job)
    warnings = (*job.notes, *result.warnings())
    if coarse is not None:
        warnings += (*coarse.warnings, *coarse.result.basis.warnings)
    curve = worst_curve(job, price)
    waste = result.waste.value if coarse is None else coarse.result.waste_ratio.value
    if waste is not None and any((p.share.value or 0.0) > max(waste, 0.0) + _NEAR for p in curve):
        simulated = isinstance(result.analysis, Analysis)
        warnings += (_MORE_THAN_WASTE + (_LIGHT_STAYS_LIGHT if simulated else _MEAN_OF_OTHERS),)
    return TraceView(
        job_id=job.job_id,
        basis=GRAPH if coarse is None else ESTIMATE,
        sentence=_sentence(job, worth, step, ideal_step, doubts),
        reliable=reliable,
        doubts=doubts,
        price=cost,
        steps_note=job.steps_note,
        S=result.S,
        waste=result.waste,
        launch_slowdown=result.launch_slowdown,
        M_W=result.M_W,
        M_S=result.M_S,
        sim_error=result.sim_error,
        step_ms=step,
        ideal_step_ms=ideal_step,
        recovered=worth,
        by_optype=optype_bars(job),
        by_stage=stage_bars(job),
        by_dp_rank=bars,
        bars_note=note,
        workers=workers,
        worker_count=count,
        heat=trace_grid(job),
        steps=step_series(job),
        pattern=job.pattern,
        fixes=rail_fixes(job),
        worst_k=curve,
        estimate=result.estimate,
        no_graph=job.no_graph,
        findings=result.findings,
        warnings=tuple(dict.fromkeys(warnings)),
        version=job.version,
    )


def _worth(job: TraceJob, price: Decimal | None) -> Recovered:
    """What comes back without stragglers; in an estimate, without waiting for slower ranks."""
    if job.coarse is None:
        return at_price(job.result.recovered, price)
    from steptax.app.whatif.coarse import worth

    return worth(job.coarse, job.coarse.result.waste_ratio, price)


def _step_times(job: TraceJob) -> tuple[Measure, Measure]:
    """Mean step as measured, and the ideal one, in ms."""
    series = step_series(job)
    if series is not None:
        measured = mean_measure(series.measured_ms, "ms")
        return measured, replace(measured, value=series.ideal_ms, low=None, high=None)
    if job.coarse is None:
        gone = Measure.missing("ms", job.result.S.reason or "not told by this kind of trace")
        return gone, gone
    from steptax.app.whatif.coarse import in_ms

    found = job.coarse.result
    return in_ms(job.coarse, found.step_us), in_ms(job.coarse, found.ideal_step_us)


def _doubts(job: TraceJob) -> tuple[str, ...]:
    """Why there is no verdict."""
    if job.no_graph is not None:
        return (job.no_graph,)
    from_errors = tuple(w for w in job.result.S.warnings if not w.startswith("interval"))
    return from_errors or ((job.result.S.reason,) if job.result.S.reason else ())


def _sentence(
    job: TraceJob, worth: Recovered, step: Measure, ideal_step: Measure, doubts: tuple[str, ...]
) -> str:
    """The answer in words."""
    if job.coarse is not None:
        return _estimate_sentence(job, worth, step, ideal_step)
    result = job.result
    if result.S.value is None:
        return f"No answer: {result.S.reason}."
    why = doubts[0].removesuffix(": no verdict") if doubts else ""
    head = f"No verdict, since {why}. As simulated: w" if doubts else "W"
    if job.pattern.kind is PatternKind.NONE:
        return f"{job.pattern.text} S {result.S.value:.3f}."
    series = step_series(job)
    times = f"S {result.S.value:.3f}"
    if series is not None:
        # Both are simulated without launch delays; S is their ratio.
        original = format_value(float(series.original_ms.mean()), "ms")
        times = (
            f"{head}ithout stragglers a step would take {format_value(ideal_step.value, 'ms')} "
            f"instead of {original}: {times}"
        )
    text = f"{times}, waste {format_share(result.waste.value)}{_money(worth)}."
    return text if doubts else f"{text} {job.pattern.text}"


def _estimate_sentence(job: TraceJob, worth: Recovered, step: Measure, ideal_step: Measure) -> str:
    assert job.coarse is not None
    found = job.coarse.result
    if found.slowdown_ratio.value is None:
        return f"No answer: {found.slowdown_ratio.reason}."
    times = ""
    if step.value is not None and ideal_step.value is not None:
        times = (
            f"if no rank waited for slower ones a step would take about "
            f"{format_value(ideal_step.value, 'ms')} instead of {format_value(step.value, 'ms')}, "
        )
    return (
        f"Per-rank estimate, no dependency graph: {times}S about "
        f"{found.slowdown_ratio.value:.2f}, waste {format_share(found.waste_ratio.value)}"
        f"{_money(worth)}. {found.verdict.text}"
    )


def _money(worth: Recovered) -> str:
    usd, hours = worth.usd_per_day.value, worth.gpu_hours_per_day.value
    if usd is not None:
        return f", worth {format_value(usd, 'USD')} a day"
    if hours is not None:
        return f", {format_value(hours, 'GPU-hours')} a day"
    return ""
