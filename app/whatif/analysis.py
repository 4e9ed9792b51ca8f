"""The main analysis: what the stragglers of a job cost, and where they are.

Formulas of Lin et al., "Understanding Stragglers in Large Model Training Using What-if Analysis",
OSDI'25: S = T / T_ideal; S_x = T with all but x ideal / T_ideal; M_x = share of T - T_ideal that
goes away when x alone becomes ideal. T is the simulated step without launch delays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from steptax.app.errors import InputError
from steptax.app.whatif.clocks import aligned, clock_offsets, clock_warnings
from steptax.app.whatif.estimate import computing
from steptax.app.whatif.graph import Graph, build_graph
from steptax.app.whatif.launch import LaunchTimes, launch_times, replay
from steptax.app.whatif.program import Program, compile_program
from steptax.app.whatif.scenarios import (
    FIXED,
    IDEAL,
    KEPT,
    ORIGINAL,
    Worker,
    given,
    main_rows,
    mixed,
)
from steptax.app.whatif.simulate import Watch, make_watch, simulate
from steptax.app.whatif.trace import Floats, Trace
from steptax.app.whatif.work import Work, measure_work

#: Decompositions are published from this slowdown on.
THRESHOLD = 1.03
#: Share of the workers that counts as the slowest few.
SLOWEST_SHARE = 0.03


@dataclass(frozen=True, eq=False)
class Model:
    """A job ready for questions: its graph and its work.

    ``plan`` holds for every scenario whose work is measured or ideal.
    """

    trace: Trace
    graph: Graph
    program: Program
    work: Work
    plan: Watch

    @property
    def lanes(self) -> tuple[int, int]:
        """Steps, data-parallel ranks."""
        return self.trace.shape[1:]


@dataclass(frozen=True, eq=False)
class Effect:
    """Spans per step [S], seconds: with the slowness of some operations removed, or it alone."""

    removed_s: Floats
    added_s: Floats


@dataclass(frozen=True, eq=False)
class Analysis:
    """Times per step, in seconds; the decompositions are finishes with one thing not ideal.

    ``ideal_finish_s`` and ``ideal_span_s`` are the same in every step. ``nodelay_s`` and
    ``nodelay_finish_s`` [S]: span and finish without launch delays. ``by_dp_s`` [S, D],
    ``by_stage_s`` [S, P], ``by_type_s`` one [S] for each reported type. ``slowest`` are the workers
    behind ``slowest_effect``; ``last_stage`` is None without pipeline. ``launch`` is None below the
    threshold, ``launch_reason`` says why.
    """

    model: Model
    threshold: float
    ideal_finish_s: float
    ideal_span_s: float
    nodelay_s: Floats
    nodelay_finish_s: Floats
    by_dp_s: Floats
    by_stage_s: Floats
    by_type_s: dict[str, Floats]
    last_stage: Effect | None
    slowest: tuple[Worker, ...]
    slowest_effect: Effect
    launch: LaunchTimes | None
    launch_reason: str | None
    replay_error_ratio: float
    clamped_delays: int

    @property
    def slowdown(self) -> float:
        """S: mean span without launch delays over the ideal finish."""
        return float(self.nodelay_s.mean() / self.ideal_finish_s)

    @property
    def launch_slowdown(self) -> float:
        """Mean measured step over mean finish without launch delays."""
        return float(self.model.work.base_s.mean() / self.nodelay_finish_s.mean())

    def worker_slowdown(self) -> Floats:
        """[D, P] the smaller of the slowdowns of a worker's data-parallel rank and stage."""
        by_dp = self.by_dp_s.mean(axis=0) / self.ideal_finish_s
        by_stage = self.by_stage_s.mean(axis=0) / self.ideal_finish_s
        out: Floats = np.minimum(by_dp[:, None], by_stage)
        return out


def prepare(
    trace: Trace, *, steps: Sequence[int] | None = None, align_clocks: bool = False
) -> Model:
    """Build the model of ``trace``.

    ``steps`` restricts means and ideal work to these step labels; the graph is that of the whole
    trace. GraphError when the operations form no such graph; InputError for unknown steps.
    """
    graph = build_graph(trace)
    program = compile_program(trace, graph)
    offsets = clock_offsets(trace, graph)
    notes = clock_warnings(trace, offsets)
    if align_clocks and notes:
        trace = aligned(trace, offsets)
        notes = [n.split(": transfer")[0] + ": aligned" for n in notes]
    if steps is not None:
        trace = _only_steps(trace, steps)
    work = measure_work(trace, graph)
    if work.clamped:
        notes.append(
            f"{work.clamped} transfers end before all have started, by {work.clamp_s * 1e3:.3g} ms "
            "or more, and count as immediate: the clocks disagree, or the schedule is another"
        )
    findings = trace.findings.also(*graph.warnings, *notes)
    return Model(
        replace(trace, findings=findings),
        graph,
        program,
        work,
        make_watch(program, (work.own_s, work.ideal_s)),
    )


def _only_steps(trace: Trace, steps: Sequence[int]) -> Trace:
    wanted = set(steps)
    absent = sorted(wanted - set(trace.steps))
    if absent or not wanted:
        raise InputError(
            f"no usable step {', '.join(map(str, absent[:5]))}" if absent else "no step chosen",
            where="steps",
            hint=f"usable are {', '.join(map(str, trace.steps[:10]))}"
            + (", ..." if len(trace.steps) > 10 else ""),
        )
    at = [i for i, label in enumerate(trace.steps) if label in wanted]
    return replace(
        trace,
        start_s=np.ascontiguousarray(trace.start_s[:, at]),
        duration_s=np.ascontiguousarray(trace.duration_s[:, at]),
        steps=tuple(trace.steps[i] for i in at),
    )


def analyse(model: Model, *, threshold: float = THRESHOLD) -> Analysis:
    """Run all scenarios of the main analysis on ``model``."""
    trace, work = model.trace, model.work
    likely = _likely_slowest(trace)
    rows = main_rows(trace, model.program, work.own_s, work.ideal_s, likely)
    times = simulate(model.program, rows.stack, model.lanes, plan=model.plan)
    finish, span = times.finish_s, times.span_s
    original = finish[ORIGINAL]
    by_dp = original[:, None] if times.each_dp_s is None else times.each_dp_s
    by_stage = finish[list(rows.stages)].T if rows.stages else original[:, None]
    slowest = slowest_workers(trace, by_dp.mean(axis=0), by_stage.mean(axis=0))
    launch, reason = None, None
    launch_slowdown = float(work.base_s.mean() / original.mean())
    if launch_slowdown < threshold:
        reason = f"launch slowdown {launch_slowdown:.4f} is below the threshold {threshold:g}"
    else:
        launch, reason = launch_times(trace, model.graph, model.program, work)
    error, clamped = replay(trace, model.graph, model.program, work)
    return Analysis(
        model=model,
        threshold=threshold,
        ideal_finish_s=float(finish[IDEAL, 0]),
        ideal_span_s=float(span[IDEAL, 0]),
        nodelay_s=span[ORIGINAL],
        nodelay_finish_s=original,
        by_dp_s=by_dp,
        by_stage_s=by_stage,
        by_type_s={name: finish[row] for name, row in rows.types.items()},
        last_stage=None
        if rows.fix_last is None
        else Effect(span[rows.fix_last], span[rows.stages[-1]]),
        slowest=slowest,
        slowest_effect=Effect(span[FIXED], span[KEPT])
        if set(slowest) == set(likely)
        else effect_of(model, slowest),
        launch=launch,
        launch_reason=reason,
        replay_error_ratio=error,
        clamped_delays=clamped,
    )


def _likely_slowest(trace: Trace) -> tuple[Worker, ...]:
    """Who the slowest few workers probably are, by computing time alone.

    They go into the first run; where it finds others, those cost a second one.
    """
    busy = computing(trace).mean(axis=1)
    return slowest_workers(trace, busy.max(axis=0), busy.max(axis=1))


def slowest_workers(
    trace: Trace, by_dp: Floats, by_stage: Floats, *, count: int | None = None
) -> tuple[Worker, ...]:
    """The ``count`` slowest workers, by score, then by rank; by default the slowest few.

    A worker's score is the smaller of its data-parallel rank's [D] and its stage's [P].
    """
    score = np.minimum(by_dp[:, None], by_stage)
    if count is None:
        count = math.ceil(SLOWEST_SHARE * trace.ranks.size)
    order = np.lexsort((trace.ranks.ravel(), -score.ravel()))[:count]
    dp, stage = np.unravel_index(order, score.shape)
    return tuple(zip(dp.tolist(), stage.tolist(), strict=True))


def effect_of(model: Model, workers: Sequence[Worker]) -> Effect:
    """Spans with ``workers`` ideal, and with all others ideal."""
    own, ideal = model.work.own_s, model.work.ideal_s
    stack = given(mixed(model.trace, ideal, own, workers), mixed(model.trace, own, ideal, workers))
    times = simulate(model.program, stack, model.lanes, plan=model.plan)
    return Effect(times.span_s[0], times.span_s[1])
