"""The numbers of a calculator applied to the recorded operations of a job.

A calculator knows a step by its parts; the simulation knows which operation waits for which. Both
answers side by side show what the parts leave out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal

from steptax.app.compute.measure import Measure
from steptax.app.format import format_value
from steptax.app.views.trace.load import TraceJob
from steptax.app.views.trace.models import RailAnswer
from steptax.app.views.trace.rail import rail_answer
from steptax.app.views.whatif.job import JobInputs
from steptax.app.views.whatif.models import WhatIfView
from steptax.app.views.whatif.words import title_of

#: Calculators that have a counterpart in the simulation, and the number that both of them tell.
APPLICABLE = {
    "kernel-speedup": "step_speedup",
    "remove-worst": "recovered_ratio",
    "waste": "waste_ratio",
}
#: So much faster that a transfer takes no time.
_NO_TIME = 1e6
_MS_PER_S = 1e3


@dataclass(frozen=True)
class Applied:
    """The same number from a calculator and from the simulation.

    ``calculated`` is None where the calculator lacks an input. ``fixes`` are what was simulated,
    empty where the number is that of the job as it is; ``text`` says it in words.
    """

    job_id: str
    title: str
    calculated: Measure | None
    simulated: Measure
    fixes: tuple[str, ...]
    text: str
    sim_error: Measure
    warnings: tuple[str, ...] = ()


def applied(job: TraceJob, view: WhatIfView, price: Decimal | None = None) -> Applied | None:
    """What the simulation of ``job`` says to the question of ``view``.

    None for a calculator without counterpart, or while it lacks what the question is made of.
    UserError for a job without dependency graph.
    """
    name = APPLICABLE.get(view.name)
    fixes = None if name is None else _fixes(view)
    if name is None or fixes is None:
        return None
    named = () if view.answer is None else (view.answer.headline, *view.answer.measures)
    calculated = next((item.measure for item in named if item.name == name), None)
    answer = rail_answer(job, fixes, price)
    measure = {
        "kernel-speedup": answer.speedup,
        "remove-worst": answer.recovered.share,
        "waste": job.result.waste,
    }[view.name]
    return Applied(
        job_id=job.job_id,
        title=title_of(name),
        calculated=calculated,
        simulated=measure,
        fixes=answer.fixes,
        text=answer.text if answer.fixes else _as_it_is(job, measure),
        sim_error=answer.sim_error,
        warnings=answer.warnings,
    )


def with_trace(source: JobInputs, job: TraceJob) -> JobInputs:
    """``source`` with what the simulation knows better: S, and communication that is exposed."""
    if job.analysis is None:
        return source
    more: dict[str, dict[str, Measure]] = {}
    if job.result.S.value is not None:
        more["waste"] = {"slowdown": job.result.S}
    comm = source.of("kernel-speedup").get("comm_ms")
    if isinstance(comm, Measure) and comm.value is None:
        answer = rail_answer(job, [f"network:{_NO_TIME:g}"])
        more["kernel-speedup"] = {"comm_ms": _exposed(answer)}
    inputs = {**source.inputs}
    for name, known in more.items():
        inputs[name] = {**source.of(name), **known}
    return replace(source, inputs=inputs)


def _exposed(answer: RailAnswer) -> Measure:
    """Communication that lengthens the step, in ms: what goes away if no transfer took time."""
    saved = answer.recovered.s_per_step
    return saved.map(lambda s: max(0.0, s * _MS_PER_S), "ms")


def _as_it_is(job: TraceJob, waste: Measure) -> str:
    slowdown = job.result.S
    if slowdown.value is None or waste.value is None:
        return f"Not known: {slowdown.reason or waste.reason}."
    return (
        f"Simulated from its operations the job takes {slowdown.value:.3f} times its ideal: "
        f"{format_value(waste.value, 'ratio')} of its time is lost."
    )


def _fixes(view: WhatIfView) -> list[str] | None:
    """The question as changes to the job; None while an input of it is missing."""
    values = {field.name: field.value for field in view.fields}
    if view.name == "waste":
        return []
    if view.name == "remove-worst":
        worst = _number(values, "worst")
        return None if worst is None or worst < 1 else [f"worst:{worst:.0f}"]
    return _faster(values)


def _faster(values: Mapping[str, object]) -> list[str] | None:
    """A kernel of which a share is faster, and what it does to the network."""
    speedup, share = _number(values, "speedup"), _number(values, "accelerated_ratio")
    if speedup is None or speedup <= 0:
        return None
    share = 1.0 if share is None else share
    fixes = [f"kernel:*-compute:{1.0 / (1.0 - share + share / speedup):.6g}"]
    contention = _number(values, "comm_contention")
    if contention is not None and contention > 0 and contention != 1.0:
        fixes.append(f"network:{1.0 / contention:.6g}")
    return fixes


def _number(values: Mapping[str, object], name: str) -> float | None:
    value = values.get(name)
    return float(value) if isinstance(value, (int, float)) else None
