"""What-if answers from per-rank times alone, where there is no dependency graph.

Ranks are compared with the median of their peers, those on the same pipeline stage where there are
stages. A repaired rank works as long as its peers, and the step ends sooner by what the latest
arrival comes sooner. What lies between stages cannot be told this way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

import numpy as np
import numpy.typing as npt

from steptax.app.compute.measure import Measure
from steptax.app.compute.stats.resample import interval
from steptax.app.compute.stats.rows import Floats, column_mean
from steptax.app.compute.straggler.analysis import analyse_stragglers
from steptax.app.compute.straggler.arrival import Arrivals, arrivals
from steptax.app.compute.straggler.peers import peer_median
from steptax.app.compute.straggler.recover import saved_us
from steptax.app.compute.straggler.result import Kind, StragglerResult
from steptax.app.compute.straggler.steps import StepMatrix, build_matrix, without_inconsistent
from steptax.app.compute.straggler.totals import Totals
from steptax.app.errors import NotFoundError, UserError
from steptax.app.whatif.estimate import computing
from steptax.app.whatif.fixes import Fix, FixKind
from steptax.app.whatif.interval import mean_measure
from steptax.app.whatif.money import Recovered, at_price, nothing_known, recovered
from steptax.app.whatif.pattern import Pattern, PatternKind
from steptax.app.whatif.signs import Cell
from steptax.app.whatif.trace import Trace

LABEL = "per-rank estimate, no dependency graph"
WITHIN = "ranks are compared within their pipeline stage: what lies between stages is not in it"
#: What can be asked without a graph.
KINDS = (FixKind.RANKS, FixKind.WORST, FixKind.DP_RANK)
_RELATIVE = "durations in this source are normalised, so shares hold and absolute values do not"
_IN_BLOCKS = "interval: 95 % over the steps, neighbouring ones drawn together"
_INDEPENDENT = "interval: 95 % over the steps taken as independent"
_US_PER_S = 1e6
_NEXT = "record a per-operation trace of a few steps: it tells what each repair would return"
_PATTERNS = {
    Kind.WORKER: PatternKind.WORKER,
    Kind.STAGE: PatternKind.STAGE,
    Kind.MOVING: PatternKind.EVERYWHERE,
    Kind.MOST: PatternKind.EVERYWHERE,
    Kind.SELDOM: PatternKind.EVERYWHERE,
    Kind.PASSED: PatternKind.EVERYWHERE,
    Kind.NONE: PatternKind.NONE,
    Kind.UNTELLABLE: PatternKind.UNTELLABLE,
}


@dataclass(frozen=True, eq=False)
class Coarse:
    """Per-rank times of a job. ``arrived`` and ``excess_us`` [S, R] are those of ``part``.

    ``unknown`` says why nothing can be told of single ranks, None where it can.
    """

    result: StragglerResult
    part: StepMatrix
    arrived: Arrivals
    excess_us: Floats
    unknown: str | None

    @property
    def warnings(self) -> tuple[str, ...]:
        """What an estimate is, said with each number."""
        said = [LABEL, *((WITHIN,) if self.part.has_pipeline else ())]
        recorded, paid = len(self.part.ranks), self.part.world_size
        if 0 < recorded < paid:
            said.append(
                f"{recorded:,} of {paid:,} ranks are recorded, each stands for its share of them"
            )
        return tuple(said)


def coarse_of(matrix: StepMatrix) -> Coarse:
    """Per-rank times of ``matrix``, compared."""
    result = analyse_stragglers(matrix)
    sound, _ = without_inconsistent(matrix)
    part = sound.select(result.coverage.step_places, result.coverage.rank_places)
    arrived = arrivals(part, result.basis)
    unknown = None if result.ranks is not None else result.verdict.text.rstrip(".")
    return Coarse(
        result, part, arrived, arrived.work_us - peer_median(arrived.work_us, part.stage), unknown
    )


def coarse_of_trace(trace: Trace) -> Coarse:
    """The same of a trace to which no graph fits: computing of each rank, and the steps."""
    busy = computing(trace)
    stages, steps, dps = busy.shape
    span = (trace.start_s + trace.duration_s).max(axis=0).max(axis=1)
    ranks = np.broadcast_to(trace.ranks.T[:, None, :], busy.shape)
    labels = np.broadcast_to(np.array(trace.steps)[None, :, None], busy.shape)
    place = np.broadcast_to(span[None, :, None], busy.shape)
    matrix = build_matrix(
        {
            "step": labels.ravel(),
            "rank": ranks.ravel(),
            "duration_us": place.ravel() * _US_PER_S,
            "compute_us": busy.ravel() * _US_PER_S,
        },
        world_size=max(trace.gpus()[0], trace.ranks.size),
        topology={
            int(trace.ranks[d, p]): (p, trace.dps[d]) for d in range(dps) for p in range(stages)
        },
        expected_ranks=trace.ranks.size,
        work_is_partial=True,
    )
    assert len(matrix.steps) == steps
    return coarse_of(matrix)


def worst_places(coarse: Coarse, count: int) -> npt.NDArray[np.intp]:
    """Positions of the ``count`` ranks with the largest mean excess, largest first."""
    excess = np.nan_to_num(column_mean(coarse.excess_us), nan=-np.inf)
    return np.argsort(-excess, kind="stable")[:count].astype(np.intp)


def repaired_places(coarse: Coarse, fixes: Sequence[Fix]) -> npt.NDArray[np.intp]:
    """Positions of the ranks that ``fixes`` repair.

    UserError for what needs a graph, NotFoundError for a rank that did not report.
    """
    chosen: set[int] = set()
    for fix in fixes:
        if fix.kind not in KINDS:
            raise UserError(
                f"{fix.text} needs a dependency graph, and there is none for this job",
                where="fix",
                hint="per-rank times answer ranks:..., worst:... and dp:...",
            )
        if coarse.unknown is not None:
            raise UserError(coarse.unknown, where="fix", hint="record phases of each rank")
        if fix.kind is FixKind.WORST:
            chosen.update(worst_places(coarse, fix.numbers[0]).tolist())
            continue
        key = coarse.part.ranks if fix.kind is FixKind.RANKS else coarse.part.dp
        if key is None:
            raise UserError(
                "the data-parallel rank of each rank is not recorded", where="fix", hint="use ranks"
            )
        for number in fix.numbers:
            found = np.flatnonzero(key == number)
            if not len(found):
                some = ", ".join(map(str, np.unique(key)[:8].tolist()))
                raise NotFoundError(
                    f"there is no {'rank' if fix.kind is FixKind.RANKS else 'data-parallel rank'} "
                    f"{number}",
                    where="fix",
                    hint=f"recorded are {some}, ...",
                )
            chosen.update(found.tolist())
    return np.array(sorted(chosen), np.intp)


def step_saving_us(coarse: Coarse, places: npt.NDArray[np.intp]) -> Floats:
    """[S] how much sooner each step ends with the ranks at ``places`` like their peers."""
    return saved_us(coarse.arrived.arrival_us, coarse.excess_us, places)


def worth(coarse: Coarse, share: Measure, price: Decimal | float | None) -> Recovered:
    """Value of a ``share`` of the steps' time; of normalised durations per day only."""
    step_us = coarse.arrived.step_us
    if not len(step_us):
        return nothing_known(share.reason or coarse.unknown or "no usable step")
    step_s = float(step_us.mean()) / _US_PER_S
    saved = share.map(lambda r: r * step_s, "s")
    gpus = coarse.part.world_size
    out = recovered(saved, step_s, len(step_us), gpus, None, price)
    if not coarse.part.time_is_relative:
        return out
    gone = [Measure.missing(u, _RELATIVE, level=share.level) for u in ("s", "GPU-hours")]
    return at_price(replace(out, s_per_step=gone[0], gpu_hours=gone[1]), price)


def in_ms(coarse: Coarse, measure_us: Measure) -> Measure:
    """Microseconds as milliseconds; missing where durations are normalised."""
    if coarse.part.time_is_relative:
        return Measure.missing("ms", _RELATIVE, level=measure_us.level)
    return measure_us.map(lambda us: us / 1000.0, "ms")


def coarse_pattern(coarse: Coarse) -> Pattern:
    """The verdict on the ranks as a pattern; stages are told apart as far as their ranks tell."""
    verdict = coarse.result.verdict
    cells: tuple[Cell, ...] = ()
    stage, dp = coarse.part.stage, coarse.part.dp
    if stage is not None and dp is not None:
        at = np.flatnonzero(np.isin(coarse.part.ranks, verdict.ranks))
        cells = tuple((int(dp[i]), int(stage[i])) for i in at)
    return Pattern(_PATTERNS[verdict.kind], f"Per-rank estimate: {verdict.text}", _NEXT, cells)


@dataclass(frozen=True)
class Repaired:
    """Steps before and after a repair; ``share`` of their time comes back."""

    share: Measure
    before_ms: Measure
    after_ms: Measure
    S_before: Measure
    S_after: Measure


def repaired(coarse: Coarse, places: npt.NDArray[np.intp]) -> Repaired:
    """What the ranks at ``places`` like their peers change.

    Intervals are of the same draws as those of the analysis: the same repair has the same one.
    """
    step_us = coarse.arrived.step_us
    saved = step_saving_us(coarse, places) if len(places) else np.zeros(len(step_us))
    columns = [saved, step_us]
    used = coarse.result.used
    slowdown = coarse.result.slowdown_ratio
    if used is not None and slowdown.value is not None:
        columns.append(step_us - Totals.of(used, coarse.result.ideal, ()).saving_us)
    steps = np.stack(columns, axis=1)
    drawn = None if used is None else used.draw(steps)

    def told(unit: str, saved: float, step: float, under: int | None = None) -> Measure:
        return _estimated(coarse, steps, drawn, unit, (saved, step), under)

    gone = Measure.missing("x", slowdown.reason or "unknown", level=slowdown.level)
    known = len(columns) > 2
    return Repaired(
        share=told("ratio", 1.0, 0.0, 1),
        before_ms=told("ms", 0.0, 1e-3),
        after_ms=told("ms", -1e-3, 1e-3),
        S_before=told("x", 0.0, 1.0, 2) if known else gone,
        S_after=told("x", -1.0, 1.0, 2) if known else gone,
    )


def _estimated(
    coarse: Coarse,
    steps: Floats,
    drawn: Floats | None,
    unit: str,
    weights: tuple[float, float],
    under: int | None,
) -> Measure:
    """Mean of the weighted first columns of ``steps`` [S, K] over that of column ``under``.

    Too few steps to draw blocks of them are taken as independent.
    """
    basis = coarse.result.basis
    if coarse.part.time_is_relative and unit not in ("ratio", "x"):
        return Measure.missing(unit, _RELATIVE, level=basis.level)

    def weighted(rows: Floats) -> Floats:
        return np.asarray(rows[:, : len(weights)] @ np.array(weights))

    whole = 1.0 if under is None else float(steps[:, under].mean())
    if drawn is None or (under is not None and not (drawn[:, under] > 0).all()):
        how, out = _INDEPENDENT, mean_measure(weighted(steps), unit, scale=1.0 / whole)
    else:
        parts = 1.0 if under is None else drawn[:, under]
        low, high = map(float, interval(weighted(drawn) / parts))
        how, out = _IN_BLOCKS, Measure(float(weighted(steps).mean()) / whole, unit, low, high)
    return replace(
        out,
        level=basis.level,
        inputs=tuple(basis.inputs),
        warnings=(how, *coarse.warnings),
    )
