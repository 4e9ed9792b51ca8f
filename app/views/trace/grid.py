"""Grids of workers, per-step series and bars of a trace view."""

from __future__ import annotations

import numpy as np

from steptax.app.compute.measure import Measure
from steptax.app.format import format_share, format_value
from steptax.app.views.trace.load import TraceJob
from steptax.app.views.trace.models import FloatArray, StepSeries, TraceBar, WorkerGrid, WorkerLine
from steptax.app.whatif.analysis import Analysis
from steptax.app.whatif.pattern import Pattern, PatternKind
from steptax.app.whatif.playback import step_index
from steptax.app.whatif.signs import slowest_of_steps

#: Colours of a grid run from 1 to at least this, as in the paper.
COLOUR_HIGH = 1.5
#: Bars of data-parallel ranks, and lines of workers.
LISTED_DPS = 64
LISTED_WORKERS = 50


def trace_grid(job: TraceJob, step: int | None = None) -> WorkerGrid | None:
    """The grid of all steps, or of one.

    None where workers have no place in a grid, or, without the dependency graph of a pipeline, for
    a single step. NotFoundError for a step that was not analysed.
    """
    analysis = job.analysis
    if analysis is not None:
        return _grid(analysis, job.pattern, step)
    if step is not None:
        return None
    return _coarse_grid(job)


def _grid(analysis: Analysis, pattern: Pattern, step: int | None) -> WorkerGrid:
    trace = analysis.model.trace
    whole = analysis.worker_slowdown()
    score, slowdown = whole, analysis.slowdown
    if step is not None:
        at = step_index(trace, step)
        by_dp, by_stage = analysis.by_dp_s[at], analysis.by_stage_s[at]
        score = np.minimum(by_dp[:, None], by_stage) / analysis.ideal_finish_s
        slowdown = float(analysis.nodelay_s[at] / analysis.ideal_finish_s)
    hot = score.argmax()
    dp, stage = np.unravel_index(hot, score.shape)
    where = "all steps" if step is None else f"step {step}"
    return WorkerGrid(
        slowdown=np.ascontiguousarray(score.T),
        ranks=np.ascontiguousarray(trace.ranks.T).astype(np.int64),
        dps=np.array(trace.dps, np.int64),
        stages=np.arange(trace.stages, dtype=np.int64),
        highlighted=_marks(pattern, trace.dps, trace.stages),
        step=step,
        S=slowdown,
        colour_low=1.0,
        colour_high=max(COLOUR_HIGH, float(whole.max())),
        text=(
            f"{where}: S {slowdown:.3f}; slowest is rank {trace.ranks[dp, stage]} "
            f"(DP {trace.dps[dp]}, stage {stage}) with {score[dp, stage]:.3f}"
        ),
    )


def _marks(pattern: Pattern, dps: tuple[int, ...], stages: int) -> np.ndarray:
    marks = np.zeros((stages, len(dps)), bool)
    place = {label: i for i, label in enumerate(dps)}
    for label, stage in pattern.cells:
        if label in place and stage < stages:
            marks[stage, place[label]] = True
    return marks


def _coarse_grid(job: TraceJob) -> WorkerGrid | None:
    """Own work over the peers' median, where the place of every rank is known."""
    coarse = job.coarse
    if coarse is None or coarse.result.ranks is None:
        return None
    table = coarse.result.ranks
    if table.stage is None or table.dp is None:
        return None
    stages, dps = np.unique(table.stage), np.unique(table.dp)
    at = np.searchsorted(stages, table.stage), np.searchsorted(dps, table.dp)
    values = np.full((len(stages), len(dps)), np.nan)
    ranks = np.full(values.shape, -1, np.int64)
    marks = np.zeros(values.shape, bool)
    values[at] = coarse_slowdown(job)
    ranks[at] = table.ranks
    marks[at] = np.isin(table.ranks, coarse.result.verdict.ranks)
    slowdown = coarse.result.slowdown_ratio.value
    return WorkerGrid(
        slowdown=values,
        ranks=ranks,
        dps=dps.astype(np.int64),
        stages=stages.astype(np.int64),
        highlighted=marks,
        step=None,
        S=np.nan if slowdown is None else slowdown,
        colour_low=1.0,
        colour_high=max(COLOUR_HIGH, float(np.nan_to_num(values).max())),
        text="work of each rank over the median of its peers (per-rank estimate)",
    )


def coarse_slowdown(job: TraceJob) -> FloatArray:
    """[R] mean work of each rank over its peers' median; NaN where it has none."""
    assert job.coarse is not None
    table = job.coarse.result.ranks
    assert table is not None
    out: FloatArray = table.mean_work_us / (table.mean_work_us - table.excess_us)
    return out


def worker_lines(job: TraceJob) -> tuple[tuple[WorkerLine, ...], int]:
    """The slowest workers, and how many there are."""
    marked = set(job.pattern.cells)
    rows = job.result.S_by_worker
    if job.result.generic is not None:
        # A profiler's trace does not say which place in the grid a rank has.
        slow = job.result.slowest_ranks if job.pattern.kind is PatternKind.WORKER else ()
        return tuple(
            WorkerLine(r.rank, None, None, job.hosts.get(r.rank), r.slowdown, r.rank in slow)
            for r in rows[:LISTED_WORKERS]
        ), len(rows)
    if rows:
        lines = [
            WorkerLine(
                r.rank, r.dp, r.stage, job.hosts.get(r.rank), r.slowdown, (r.dp, r.stage) in marked
            )
            for r in rows[:LISTED_WORKERS]
        ]
        return tuple(lines), len(rows)
    if job.coarse is None or job.coarse.result.ranks is None:
        return (), 0
    table = job.coarse.result.ranks
    slowdown = coarse_slowdown(job)
    order = np.argsort(-np.nan_to_num(slowdown, nan=-np.inf), kind="stable")
    order = order[np.isfinite(slowdown[order])]
    flagged = set(job.coarse.result.verdict.ranks)
    return tuple(
        WorkerLine(
            rank=int(table.ranks[i]),
            dp=None if table.dp is None else int(table.dp[i]),
            stage=None if table.stage is None else int(table.stage[i]),
            host=job.hosts.get(int(table.ranks[i])),
            slowdown=float(slowdown[i]),
            highlighted=int(table.ranks[i]) in flagged,
        )
        for i in order[:LISTED_WORKERS].tolist()
    ), len(table.ranks)


def step_series(job: TraceJob) -> StepSeries | None:
    """Every analysed step; None in an estimate."""
    analysis, generic = job.analysis, job.result.generic
    if generic is not None:
        ideal_s = float(generic.ideal_s.mean())
        return StepSeries(
            steps=np.array(generic.model.step_labels, np.int64),
            measured_ms=generic.model.measured_s * 1e3,
            original_ms=generic.nodelay_s * 1e3,
            ideal_ms=ideal_s * 1e3,
            S=generic.nodelay_s / ideal_s,
            slowest_rank=np.array(generic.ranks, np.int64)[generic.by_rank_s.argmax(axis=0)],
        )
    if analysis is None:
        return None
    work = analysis.model.work
    return StepSeries(
        steps=np.array(analysis.model.trace.steps, np.int64),
        measured_ms=work.base_s * 1e3,
        original_ms=analysis.nodelay_s * 1e3,
        ideal_ms=analysis.ideal_span_s * 1e3,
        S=analysis.nodelay_s / analysis.ideal_finish_s,
        slowest_rank=slowest_of_steps(analysis),
    )


def optype_bars(job: TraceJob) -> tuple[TraceBar, ...]:
    """Operation types, largest first."""
    items = sorted(job.result.S_by_optype.items(), key=lambda item: -(item[1].value or 0.0))
    return tuple(_bar(job, name, name.replace("-", " "), m) for name, m in items)


def stage_bars(job: TraceJob) -> tuple[TraceBar, ...]:
    """Pipeline stages, in order."""
    items = sorted(job.result.S_by_stage.items())
    return tuple(_bar(job, str(p), f"stage {p}", m) for p, m in items)


def dp_bars(job: TraceJob) -> tuple[tuple[TraceBar, ...], str | None]:
    """Data-parallel ranks in order, the slowest where there are too many to draw, and that note."""
    items = sorted(job.result.S_by_dp_rank.items(), key=lambda item: -(item[1].value or 0.0))
    note = None
    if len(items) > LISTED_DPS:
        note = f"the {LISTED_DPS} slowest of {len(items):,} data-parallel ranks"
    return tuple(_bar(job, str(d), f"DP {d}", m) for d, m in sorted(items[:LISTED_DPS])), note


def _bar(job: TraceJob, key: str, label: str, measure: Measure) -> TraceBar:
    if measure.value is None:
        return TraceBar(key, label, f"{label}: {measure.reason}", measure)
    total = job.result.S.value
    part = ""
    if total is not None and total > 1:
        share = (measure.value - 1) / (total - 1)
        part = f", {format_share(share)} of what the job loses"
    title = (
        f"with all but {label} ideal a step takes {format_value(measure.value, 'x')} the ideal "
        f"step{part}"
    )
    return TraceBar(key, label, title, measure)
