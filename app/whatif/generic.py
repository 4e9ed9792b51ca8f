"""The what-if analysis of traces without a known schedule, with the same result as of others.

S = T / T_ideal, with T the simulated step without launch delays and T_ideal that of balanced work
(Lin et al., "Understanding Stragglers in Large Model Training Using What-if Analysis", OSDI'25,
carried from pipeline operations to lanes and communications).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from steptax.app.compute.measure import Level, Measure
from steptax.app.compute.spoken import spoken_ratio
from steptax.app.format import format_share
from steptax.app.whatif.analysis import SLOWEST_SHARE
from steptax.app.whatif.errors import GraphError
from steptax.app.whatif.findings import Findings
from steptax.app.whatif.generic_model import GenericModel, Work, prepare_generic
from steptax.app.whatif.generic_rows import Ops, read_ops
from steptax.app.whatif.generic_sim import Plan
from steptax.app.whatif.interval import BASIS, INPUTS, half_width, mean_measure
from steptax.app.whatif.money import recovered
from steptax.app.whatif.report import MOST_ERROR, WhatIfResult, WorkerRow, refused_result
from steptax.app.whatif.trace import Floats, JobSizes

#: Type under which a rank's own work is reported.
OWN = "own-work"


@dataclass(frozen=True, eq=False)
class GenericAnalysis:
    """Step lengths [S] in seconds: without launch delays, of ideal work, with one thing not ideal.

    ``by_rank_s`` [R, S] all ranks ideal but one; ``by_type_s`` likewise for own work and each kind
    of communication; ``excess_s`` [R, S] own time of a rank beyond the mean of the others.
    """

    model: GenericModel
    threshold: float
    nodelay_s: Floats
    ideal_s: Floats
    by_rank_s: Floats
    by_type_s: dict[str, Floats]
    excess_s: Floats
    slowest: tuple[int, ...]
    without_slowest_s: Floats
    only_slowest_s: Floats
    replay_error_ratio: float

    @property
    def ranks(self) -> tuple[int, ...]:
        """[R] global ranks."""
        return self.model.ops.ranks

    def excess(self) -> dict[int, Measure]:
        """Own time per step beyond the mean of the other ranks, by rank, seconds."""
        return {
            rank: mean_measure(values, "s", warnings=(BASIS,))
            for rank, values in zip(self.ranks, self.excess_s, strict=True)
        }

    def as_json(self) -> dict[str, Any]:
        """Plain values: step lengths, excess by rank, clocks."""
        labels = [str(s) for s in self.model.step_labels]
        clocks = self.model.clocks
        return {
            "step_times": {
                name: dict(zip(labels, values.tolist(), strict=True))
                for name, values in (
                    ("measured", self.model.measured_s),
                    ("original", self.nodelay_s),
                    ("ideal", self.ideal_s),
                )
            },
            "excess_by_rank": {str(rank): m.as_json() for rank, m in self.excess().items()},
            "clocks": {
                "offset_s": dict(zip(map(str, self.ranks), clocks.offset_s.tolist(), strict=True)),
                "residual_s": clocks.residual_s,
                "collectives_used": clocks.used,
            },
        }


def analyse_generic(
    table: pa.Table,
    sizes: JobSizes,
    *,
    price: Decimal | float | None,
    threshold: float,
    steps: Sequence[int] | None,
    align_clocks: bool,
) -> WhatIfResult:
    """Analyse a profiler's ``ops`` rows of one job; see ``api.analyse_ops``."""
    ops = read_ops(table)
    try:
        model = prepare_generic(ops, sizes, steps=steps, align_clocks=align_clocks)
        analysis = analyse_model(model, threshold)
    except GraphError as error:
        reason = f"no dependency graph: {error.message}"
        estimate = Measure.missing("x", error.message, level=Level.PHASES)
        return refused_result(_findings(ops), reason, estimate)
    return result_of(analysis, price)


def analyse_model(model: GenericModel, threshold: float) -> GenericAnalysis:
    """Run the scenarios of the main analysis."""
    ranks = range(len(model.ops.ranks))
    kinds = sorted({c.op for p in model.plans for c in p.chain.collectives})
    totals = model.own_totals_s()
    excess = np.stack([totals[r] - np.delete(totals, r, axis=0).mean(axis=0) for r in ranks])
    count = math.ceil(SLOWEST_SHARE * len(ranks))
    slowest = tuple(np.argsort(-excess.mean(axis=1), kind="stable")[:count].tolist())

    def scenarios(at: int, _plan: Plan) -> list[Work]:
        own, ideal = model.own[at], model.ideal[at]
        out = [own, ideal]
        out += [mixed(ideal, own, (r,)) for r in ranks]
        out.append(Work(own.own_s, ideal.transfer_s, own.offset_s))
        out += [_transfers_of(model, at, kind) for kind in kinds]
        out += [mixed(own, ideal, slowest), mixed(ideal, own, slowest)]
        return out

    played = model.play(scenarios)
    replayed = model.play(lambda at, _: [model.own[at]], delays=True)[0]
    measured = model.measured_s
    n = len(ranks)
    types = dict(zip((OWN, *kinds), played[2 + n : 3 + n + len(kinds)], strict=True))
    return GenericAnalysis(
        model,
        threshold,
        played[0],
        played[1],
        played[2 : 2 + n],
        types,
        excess,
        slowest,
        played[-2],
        played[-1],
        float((np.abs(replayed - measured) / measured).max()),
    )


def mixed(work: Work, other: Work, ranks: Sequence[int]) -> Work:
    """``work``, but the own work of ``ranks`` from ``other``."""
    offset = work.offset_s.copy()
    offset[list(ranks)] = other.offset_s[list(ranks)]
    own = [other.own_s[r] if r in ranks else mine for r, mine in enumerate(work.own_s)]
    return Work(own, work.transfer_s, offset)


def _transfers_of(model: GenericModel, at: int, kind: str) -> Work:
    """Everything ideal but the transfers of one kind."""
    plan, own, ideal = model.plans[at], model.own[at], model.ideal[at]
    mine = np.repeat([c.op == kind for c in plan.chain.collectives], np.diff(plan.first))
    return Work(ideal.own_s, np.where(mine, own.transfer_s, ideal.transfer_s), ideal.offset_s)


def result_of(analysis: GenericAnalysis, price: Decimal | float | None = None) -> WhatIfResult:
    """Measures of ``analysis``; ``price`` in USD per GPU-hour."""
    model = analysis.model
    measured, original, ideal = model.measured_s, analysis.nodelay_s, analysis.ideal_s
    error = abs(float(original.mean() - measured.mean())) / float(measured.mean())
    doubts = []
    if error > MOST_ERROR:
        doubts.append(
            f"simulated and measured steps differ by {format_share(error)}, more than "
            f"{spoken_ratio(MOST_ERROR)}: no verdict"
        )
    if analysis.replay_error_ratio > MOST_ERROR:
        doubts.append(
            "the model fed with its own measurements is off by "
            f"{format_share(analysis.replay_error_ratio)} in a step: the dependencies are others"
        )
    if model.clamped_ratio > MOST_ERROR:
        doubts.append(
            f"{spoken_ratio(model.clamped_ratio)} of the communications end before all of their "
            "ranks have started: they are matched wrongly, or clocks are off"
        )
    if model.absent:
        doubts.append(
            "ranks of the job's groups are not in the trace, and waiting for them counts as "
            "transfer: no verdict on the whole job"
        )
    said = (BASIS, *doubts)
    scale = 1 / float(ideal.mean())

    def ratio(values: Floats, warnings: tuple[str, ...] = ()) -> Measure:
        return mean_measure(values, "x", scale=scale, error_ratio=error, warnings=warnings)

    total = ratio(original, said)
    loss = original - ideal
    saved = mean_measure(loss, "s", error_ratio=error, warnings=said)
    noise = float(half_width(original)) + error * float(measured.mean())
    gpus, note = model.gpus()
    by_rank = analysis.by_rank_s.mean(axis=1) * scale
    order = np.lexsort((analysis.ranks, -by_rank))
    return WhatIfResult(
        S=total,
        waste=total.map(lambda s: 1 - 1 / max(s, 0.1), "ratio"),
        launch_slowdown=mean_measure(measured, "x", scale=1 / float(original.mean())),
        S_by_optype={name: ratio(values) for name, values in analysis.by_type_s.items()},
        S_by_stage={},
        S_by_dp_rank={},
        S_by_worker=tuple(
            WorkerRow(analysis.ranks[r], r, 0, float(by_rank[r])) for r in order.tolist()
        ),
        M_W=_share(analysis, float(loss.mean()), noise),
        M_S=Measure.missing(
            "ratio", "a profiler's trace does not say which stage a rank is", level=Level.TRACE
        ),
        slowest_ranks=tuple(analysis.ranks[r] for r in analysis.slowest),
        recovered=recovered(saved, float(original.mean()), len(original), gpus, note, price),
        sim_error=Measure(error, "ratio", level=Level.TRACE, inputs=INPUTS),
        replay_error=Measure(
            analysis.replay_error_ratio, "ratio", level=Level.TRACE, inputs=INPUTS
        ),
        estimate=Measure.missing("x", "the dependency graph gives S itself", level=Level.PHASES),
        reliable=not doubts,
        findings=model.findings,
        analysis=None,
        generic=analysis,
    )


def _share(analysis: GenericAnalysis, loss_s: float, noise_s: float) -> Measure:
    """Share of the loss that goes away with the slowest ranks, bounded by adding them alone."""
    if abs(loss_s) <= noise_s:
        return Measure.missing(
            "ratio",
            f"the job loses {loss_s:.3g} s per step to stragglers, not more than the error of "
            f"{noise_s:.3g} s: there is nothing to take apart",
            level=Level.TRACE,
        )
    removed = float((analysis.nodelay_s - analysis.without_slowest_s).mean()) / loss_s
    added = float((analysis.only_slowest_s - analysis.ideal_s).mean()) / loss_s
    return Measure(
        removed,
        "ratio",
        low=min(removed, added),
        high=max(removed, added),
        level=Level.TRACE,
        inputs=INPUTS,
        warnings=("interval: removing the slowness versus adding it alone",),
    )


def _findings(ops: Ops) -> Findings:
    return replace(Findings(), recorded_steps=len(ops.steps))
