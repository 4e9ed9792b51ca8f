"""The result of a what-if analysis: measures with intervals, and its printed form."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from steptax.app.compute.measure import Level, Measure
from steptax.app.compute.spoken import spoken_ratio
from steptax.app.format import format_share
from steptax.app.whatif.analysis import Analysis, Effect
from steptax.app.whatif.findings import Findings
from steptax.app.whatif.interval import BASIS, INPUTS, half_width, mean_measure, mean_measures
from steptax.app.whatif.money import Recovered, nothing_known, recovered
from steptax.app.whatif.published import published_effect, published_result
from steptax.app.whatif.trace import Floats

if TYPE_CHECKING:
    from steptax.app.whatif.generic import GenericAnalysis

K = TypeVar("K")
#: Above this discrepancy between simulation and measurement Lin et al. discard a job.
MOST_ERROR = 0.05
#: Bound of an interval: no job is so much faster than its ideal.
_LEAST_SLOWDOWN = 0.1


@dataclass(frozen=True)
class WorkerRow:
    """One worker, and the approximation of its slowdown: min over its DP rank and its stage."""

    rank: int
    dp: int
    stage: int
    slowdown: float


@dataclass(frozen=True, eq=False)
class WhatIfResult:
    """What stragglers cost a job, and where they are. A missing measure says why.

    ``S`` = T/T_ideal without launch delays, ``waste`` = 1 - 1/S, ``launch_slowdown`` measured over
    simulated; ``S_by_*`` with all but one thing ideal; ``M_W`` and ``M_S`` shares of T - T_ideal
    that the slowest few workers and the last stage account for, between removing them and adding
    them alone. ``sim_error`` is simulated against measured step time, ``replay_error`` that of
    the model fed with its own measurements. ``estimate`` is the slowdown from per-rank times only,
    given where no graph could be built. ``reliable`` is false when the errors forbid a verdict.
    """

    S: Measure
    waste: Measure
    launch_slowdown: Measure
    S_by_optype: dict[str, Measure]
    S_by_stage: dict[int, Measure]
    S_by_dp_rank: dict[int, Measure]
    S_by_worker: tuple[WorkerRow, ...]
    M_W: Measure
    M_S: Measure
    slowest_ranks: tuple[int, ...]
    recovered: Recovered
    sim_error: Measure
    replay_error: Measure
    estimate: Measure
    reliable: bool
    findings: Findings
    analysis: Analysis | None
    generic: GenericAnalysis | None = None
    """In place of ``analysis`` where the trace is a profiler's, without a known schedule."""

    def warnings(self) -> tuple[str, ...]:
        """All that is to be known of the trace, once each."""
        return tuple(dict.fromkeys((*self.findings.spoken(), *self.S.warnings)))

    def as_json(self, *, published: bool = True) -> dict[str, Any]:
        """Plain values: our names, and with ``published`` every field of the OSDI'25 artifact."""
        out: dict[str, Any] = {}
        steps: dict[str, dict[str, float]] = {"measured": {}, "original": {}, "ideal": {}}
        analysis = self.analysis
        if analysis is not None:
            model = analysis.model
            labels = [str(s) for s in model.trace.steps]
            for key, values in (
                ("measured", model.work.base_s),
                ("original", analysis.nodelay_s),
                ("ideal", np.full(len(labels), analysis.ideal_span_s)),
            ):
                steps[key] = dict(zip(labels, values.tolist(), strict=True))
            if published:
                out |= published_result(analysis)
        out |= {
            "S": self.S.as_json(),
            "waste": self.waste.as_json(),
            "S_by_optype": _falling(self.S_by_optype),
            "S_by_stage": _falling(self.S_by_stage),
            "S_by_dp_rank": _falling(self.S_by_dp_rank),
            "S_by_worker": [vars(w) for w in self.S_by_worker],
            "M_W": self.M_W.as_json(),
            "M_S": self.M_S.as_json(),
            "slowest_ranks": list(self.slowest_ranks),
            "step_times": steps,
            "sim_error": self.sim_error.as_json(),
            "replay_error": self.replay_error.as_json(),
            "estimate": self.estimate.as_json(),
            "reliable": self.reliable,
            "findings": self.findings.as_json(),
            **self.recovered.as_json(),
        }
        if self.generic is not None:
            out |= self.generic.as_json()
        if not (published and analysis is not None):
            out["launch_slowdown"] = self.launch_slowdown.as_json()
        out["warnings"] = list(self.warnings())
        return out


def build_result(analysis: Analysis, price: Decimal | float | None = None) -> WhatIfResult:
    """Measures of ``analysis``; ``price`` in USD per GPU-hour, None when unknown."""
    model = analysis.model
    trace = model.trace
    measured = float(model.work.base_s.mean())
    per_step_error = np.abs(analysis.nodelay_s - model.work.base_s) / model.work.base_s
    error = abs(float(analysis.nodelay_s.mean()) - measured) / measured
    reliable = error <= MOST_ERROR and analysis.replay_error_ratio <= MOST_ERROR
    doubts = _doubts(error, analysis)

    said = (BASIS, *doubts)
    scale = 1 / analysis.ideal_finish_s

    def slowdowns(keys: Iterable[K], values: Floats) -> dict[K, Measure]:
        rows = mean_measures(values, "x", scale=scale, error_ratio=error)
        return dict(zip(keys, rows, strict=True))

    original = analysis.nodelay_s
    total = mean_measure(original, "x", scale=scale, error_ratio=error, warnings=said)
    loss_s = original - analysis.ideal_span_s
    saved = mean_measure(loss_s, "s", error_ratio=error, warnings=said)
    loss = float(loss_s.mean())
    noise = float(half_width(original)) + error * measured
    gpus, note = trace.gpus()
    return WhatIfResult(
        S=total,
        waste=total.map(lambda s: 1 - 1 / max(s, _LEAST_SLOWDOWN), "ratio"),
        launch_slowdown=mean_measure(
            model.work.base_s, "x", scale=1 / float(analysis.nodelay_finish_s.mean())
        ),
        S_by_optype=slowdowns(analysis.by_type_s, np.stack(list(analysis.by_type_s.values()))),
        S_by_stage=slowdowns(range(trace.stages), analysis.by_stage_s.T),
        S_by_dp_rank=slowdowns(trace.dps, analysis.by_dp_s.T),
        S_by_worker=_workers(analysis),
        M_W=_share(analysis, analysis.slowest_effect, loss, noise),
        M_S=Measure.missing("ratio", "the job has one pipeline stage", level=Level.TRACE)
        if analysis.last_stage is None
        else _share(analysis, analysis.last_stage, loss, noise),
        slowest_ranks=tuple(int(trace.ranks[w]) for w in analysis.slowest),
        recovered=recovered(saved, float(original.mean()), len(trace.steps), gpus, note, price),
        sim_error=Measure(
            error,
            "ratio",
            low=float(per_step_error.min()),
            high=float(per_step_error.max()),
            level=Level.TRACE,
            inputs=INPUTS,
            warnings=("interval: over the steps",),
        ),
        replay_error=Measure(
            analysis.replay_error_ratio, "ratio", level=Level.TRACE, inputs=INPUTS
        ),
        estimate=Measure.missing("x", "the dependency graph gives S itself", level=Level.PHASES),
        reliable=reliable,
        findings=trace.findings,
        analysis=analysis,
    )


def refused_result(findings: Findings, reason: str, estimate: Measure) -> WhatIfResult:
    """What can be said without a graph: the estimate, and why there is no more."""

    def missing(unit: str = "ratio") -> Measure:
        return Measure.missing(unit, reason, level=Level.TRACE)

    return WhatIfResult(
        S=missing("x"),
        waste=missing(),
        launch_slowdown=missing("x"),
        S_by_optype={},
        S_by_stage={},
        S_by_dp_rank={},
        S_by_worker=(),
        M_W=missing(),
        M_S=missing(),
        slowest_ranks=(),
        recovered=nothing_known(reason),
        sim_error=missing(),
        replay_error=missing(),
        estimate=estimate,
        reliable=False,
        findings=findings.also(reason),
        analysis=None,
    )


def _doubts(error: float, analysis: Analysis) -> list[str]:
    said = []
    if error > MOST_ERROR:
        said.append(
            f"simulated and measured steps differ by {format_share(error)}, more than "
            f"{spoken_ratio(MOST_ERROR)}: no verdict"
        )
    if analysis.replay_error_ratio > MOST_ERROR:
        said.append(
            "the model fed with its own measurements is off by "
            f"{format_share(analysis.replay_error_ratio)} "
            "in a step: the dependencies of this job are others"
        )
    if analysis.clamped_delays:
        said.append(
            f"{analysis.clamped_delays} operations start before what they wait for has ended, "
            "and count as starting at once"
        )
    return said


def _share(analysis: Analysis, effect: Effect, loss_s: float, noise_s: float) -> Measure:
    """Share of the loss that ``effect`` accounts for: removing it, bounded by adding it alone."""
    if abs(loss_s) <= noise_s:
        return Measure.missing(
            "ratio",
            f"the job loses {loss_s:.3g} s per step to stragglers, not more than the error of "
            f"{noise_s:.3g} s: there is nothing to take apart",
            level=Level.TRACE,
        )
    values = published_effect(analysis, effect, "share")
    bounds = sorted((values["rem"], values["add"]))
    return Measure(
        values["rem"],
        "ratio",
        low=bounds[0],
        high=bounds[1],
        level=Level.TRACE,
        inputs=INPUTS,
        warnings=("interval: removing the slowness versus adding it alone",),
    )


def _workers(analysis: Analysis) -> tuple[WorkerRow, ...]:
    trace = analysis.model.trace
    score = analysis.worker_slowdown()
    order = np.lexsort((trace.ranks.ravel(), -score.ravel()))
    dps, stages = np.unravel_index(order, score.shape)
    return tuple(
        WorkerRow(*row)
        for row in zip(
            trace.ranks.ravel()[order].tolist(),
            [trace.dps[d] for d in dps.tolist()],
            stages.tolist(),
            score.ravel()[order].tolist(),
            strict=True,
        )
    )


def _falling(measures: dict[Any, Measure]) -> dict[str, Any]:
    items: Iterable[tuple[Any, Measure]] = sorted(
        measures.items(), key=lambda item: -(item[1].value or 0.0)
    )
    return {str(key): m.as_json() for key, m in items}
