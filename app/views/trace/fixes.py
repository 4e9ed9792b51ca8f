"""Every fix of the what-if rail, and why some cannot be had."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from steptax.app.compute.measure import Measure
from steptax.app.views.trace.load import TraceJob
from steptax.app.views.trace.models import RailFix, RailParameter
from steptax.app.whatif.analysis import Analysis
from steptax.app.whatif.optypes import reported
from steptax.app.whatif.questions import network

_HIGHEST_FACTOR = 1000.0


def rail_fixes(job: TraceJob) -> tuple[RailFix, ...]:
    """Every fix, those that cannot be had with the reason why."""
    analysis = job.analysis
    if analysis is None:
        return tuple(_without_graph(job, fix) for fix in _fixes(job, None))
    return tuple(_fixes(job, analysis))


def _without_graph(job: TraceJob, fix: RailFix) -> RailFix:
    """The fix as far as lanes and communications, or per-rank times, answer it."""
    if job.result.generic is not None:
        from steptax.app.whatif.generic_questions import KINDS

        if fix.id in KINDS:
            return fix
        reason = "needs the schedule of a pipeline, which a profiler's trace does not say"
        return replace(fix, available=False, reason=reason, suggested=False)
    reason = f"needs a dependency graph; {job.no_graph or 'this trace has none of a pipeline'}"
    if fix.id not in ("ranks", "worst", "dp"):
        return replace(fix, available=False, reason=reason, suggested=False)
    if job.coarse is None:
        return replace(fix, available=False, reason=reason)
    if job.coarse.unknown is not None:
        return replace(fix, available=False, reason=job.coarse.unknown)
    if fix.id == "dp" and job.coarse.part.dp is None:
        return replace(fix, available=False, reason="the place of each rank is not recorded")
    return fix


def _fixes(job: TraceJob, analysis: Analysis | None) -> list[RailFix]:
    signs = {s.name for s in job.pattern.signs if s.holds}
    stages, dps, types = _places(job, analysis)
    ranks = _suspects(job, analysis)
    workers = max(1, len(job.result.S_by_worker) or _coarse_ranks(job))
    one_stage = None if len(stages) > 1 else "the job has one pipeline stage"
    no_network = None
    if analysis is not None and not network(analysis.model.trace).any():
        no_network = "no transfer and no collective is recorded"
    hot_stage = _hottest(job.result.S_by_stage, stages)
    hot_dp = _hottest(job.result.S_by_dp_rank, dps)
    factor = RailParameter("factor", "times as fast", "number", "2", low=0.01, high=_HIGHEST_FACTOR)
    per_stage = ",".join([str((job.layers or 0) // len(stages) or 8)] * len(stages))
    known = job.layers is not None and job.layers % max(1, len(stages)) == 0
    out = [
        RailFix(
            "ranks",
            f"Fix rank {', '.join(map(str, ranks)) or '...'}",
            "these ranks take the mean time for everything: a healthy host instead",
            "ranks:{ranks}",
            (RailParameter("ranks", "ranks", "ranks", ",".join(map(str, ranks)) or "0"),),
            suggested="worker" in signs,
        ),
        RailFix(
            "worst",
            "Fix the k slowest ranks",
            "the same for the ranks that are slowest",
            "worst:{k}",
            (RailParameter("k", "ranks", "number", "1", low=1, high=workers),),
        ),
        RailFix(
            "stage",
            "Fix one pipeline stage",
            "every rank of the stage takes the mean time for everything",
            "stage:{stage}",
            (RailParameter("stage", "stage", "choice", hot_stage, tuple(map(str, stages))),),
            reason=one_stage,
        ),
        RailFix(
            "dp",
            "Fix one data-parallel rank",
            "every stage of the replica takes the mean time for everything",
            "dp:{dp}",
            (RailParameter("dp", "data-parallel rank", "choice", hot_dp, tuple(map(str, dps))),),
            reason=None if len(dps) > 1 else "the job has one data-parallel rank",
            suggested="dp_rank" in signs,
        ),
        RailFix(
            "optype",
            "Fix one type of operation",
            "every operation of the type takes its ideal time, the mean or the median",
            "optype:{type}",
            (RailParameter("type", "type", "choice", types[0] if types else "", tuple(types)),),
        ),
        RailFix(
            "stages",
            "Balance the pipeline stages",
            "every stage computes as much as the mean stage: the bound of moving layers",
            "stages",
            reason=one_stage,
            suggested="stage" in signs,
        ),
        RailFix(
            "layers",
            "Move whole layers",
            "stages have other numbers of layers; what the first and last do besides stays",
            "layers:{now}>{then}",
            (
                RailParameter(
                    "now",
                    "layers of each stage now" + ("" if known else " (not recorded: say them)"),
                    "text",
                    per_stage,
                ),
                RailParameter("then", "and then", "text", per_stage),
            ),
            reason=one_stage,
        ),
        RailFix(
            "microbatches",
            "Deal micro-batches evenly",
            "all micro-batches of a step are equal: the bound of dealing sequences anew",
            "microbatches",
            suggested="uneven-sequences" in signs,
        ),
        RailFix(
            "gc",
            "No pauses for garbage collection",
            "recorded collections take no time, and paused forward passes as long as is typical",
            "gc",
            suggested="pauses" in signs,
        ),
        RailFix(
            "kernel",
            "Faster kernels",
            "operations whose type or name matches are so many times as fast, everywhere",
            "kernel:{pattern}:{factor}",
            (RailParameter("pattern", "type or name", "text", "*-compute"), factor),
        ),
        RailFix(
            "network",
            "Faster network",
            "every transfer and collective is so many times as fast",
            "network:{factor}",
            (factor,),
            reason=no_network,
        ),
        RailFix(
            "device",
            "Faster devices",
            "computing on every device is so many times as fast, transfers stay",
            "device:{factor}",
            (replace(factor, default="1.2"),),
        ),
    ]
    return [replace(f, available=f.reason is None) for f in out]


def _suspects(job: TraceJob, analysis: Analysis | None) -> list[int]:
    """Ranks that the pattern names, or else the slowest."""
    if analysis is None:
        if job.result.generic is not None:
            return list(job.result.slowest_ranks)
        if job.coarse is None or job.coarse.unknown is not None:
            return []
        from steptax.app.whatif.coarse import worst_places

        flagged = job.coarse.result.verdict.ranks
        worst = job.coarse.part.ranks[worst_places(job.coarse, 1)]
        return list(flagged[:8]) or [int(r) for r in worst]
    trace = analysis.model.trace
    worker = next((s for s in job.pattern.signs if s.name == "worker" and s.holds), None)
    if worker is None:
        return [int(trace.ranks[w]) for w in analysis.slowest]
    return [int(trace.ranks[trace.dps.index(d), p]) for d, p in worker.cells]


def _places(job: TraceJob, analysis: Analysis | None) -> tuple[list[int], list[int], list[str]]:
    """Stages, data-parallel ranks, reported operation types (the costliest first)."""
    by_type = job.result.S_by_optype
    types = sorted(by_type, key=lambda t: -(by_type[t].value or 0.0))
    if analysis is None:
        part = None if job.coarse is None else job.coarse.part
        if part is None or part.stage is None or part.dp is None or not len(part.ranks):
            return [0], [0], types
        return np.unique(part.stage).tolist(), np.unique(part.dp).tolist(), types
    trace = analysis.model.trace
    return (
        list(range(trace.stages)),
        list(trace.dps),
        types or list(dict.fromkeys(reported(t) for t in trace.types)),
    )


def _hottest(measures: dict[int, Measure], keys: list[int]) -> str:
    best = max(measures, key=lambda k: measures[k].value or 0.0, default=keys[0])
    return str(best)


def _coarse_ranks(job: TraceJob) -> int:
    return 0 if job.coarse is None else len(job.coarse.part.ranks)
