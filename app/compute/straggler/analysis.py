"""Straggler tax, slowdown, and who is slow, from the steps of one job.

    tax        = sum of waiting / sum of paid time = 1 - 1/S, with the mean rank as the ideal
    S          = sum of T / sum of (T - (latest arrival - reference arrival))
    persistent = mean over steps of the waiting of the mean rank, less that of the rank that waits
                 least on average; transient = the waiting of that rank. They add up to the tax.
    between stages = (latest stage mean - mean arrival); within stages = the rest of the tax.
    excess     = a rank's work less the median work of its peers (the others on its stage)

The mean is the only reference for which the tax equals measured idle time; the median, the 10th
percentile and the minimum answer "what if all were like that rank" and are labelled so. Formulas:
Lin et al., OSDI'25, with per-rank totals in place of the dependency graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from steptax.app.compute.causes.hints import Explanation, explain, stage_hint
from steptax.app.compute.causes.majority import slow_majority
from steptax.app.compute.measure import Measure, Ratio
from steptax.app.compute.stats.rows import Floats, column_mean, row_argmax, row_mean
from steptax.app.compute.straggler.arrival import (
    Arrivals,
    Basis,
    arrivals,
    choose_basis,
)
from steptax.app.compute.straggler.coverage import Coverage
from steptax.app.compute.straggler.look import DEFAULT_RULES, look
from steptax.app.compute.straggler.peers import peer_median
from steptax.app.compute.straggler.recover import saved_us
from steptax.app.compute.straggler.recurring import Recurrence
from steptax.app.compute.straggler.result import (
    CurvePoint,
    IdealSlowdown,
    Kind,
    StragglerResult,
    Verdict,
)
from steptax.app.compute.straggler.rules import StragglerRules
from steptax.app.compute.straggler.spells import find_spells
from steptax.app.compute.straggler.steps import StepMatrix, without_inconsistent
from steptax.app.compute.straggler.tables import (
    Used,
    late_steps,
    rank_table,
    stage_table,
    step_table,
)
from steptax.app.compute.straggler.totals import Totals
from steptax.app.compute.straggler.verdict import (
    costly_places,
    flagged_places,
    flagged_stage,
    judge,
    untellable,
)
from steptax.app.errors import UserError

#: Which rank all others are imagined to be like.
Ideal = Literal["mean", "median", "p10", "min"]
IDEALS: tuple[Ideal, ...] = get_args(Ideal)

_NOBODY = "no rank is slow for good, so there is none to repair"
#: Why it is not known there what a repair returns.
_OPEN_KINDS = {
    Kind.STAGE: "a whole pipeline stage is slow, and no rank of it against its peers",
    Kind.MOST: "most ranks are slow alike: their peers' median is theirs",
    Kind.PASSED: "what is slow is so for too short a time to be called slow for good",
}


def analyse_stragglers(
    matrix: StepMatrix,
    *,
    ideal: Ideal = "mean",
    rules: StragglerRules = DEFAULT_RULES,
    curve_ranks: int = 16,
) -> StragglerResult:
    """All straggler statistics of one job.

    ``ideal`` (one of ``IDEALS``) is the reference of slowdown and waste; the tax always has the
    mean. ``curve_ranks`` bounds the length of the recovery curve. What cannot be told is a missing
    measure with its reason, and the verdict is then ``untellable``. Deterministic for the seed in
    ``rules``. Raises UserError for an unknown ideal.
    """
    if ideal not in IDEALS:
        raise UserError(f"no ideal {ideal!r}", hint=f"there are {', '.join(IDEALS)}")
    seen = look(matrix, rules)
    if seen.reason is not None:
        return _unknown(
            seen.matrix, seen.coverage, seen.arrived, ideal, rules, seen.warnings, seen.reason
        )
    used = Used.of(seen.part, seen.arrived, rules)
    each = {name: Totals.of(used, name, seen.warnings) for name in IDEALS}
    ideals = tuple(IdealSlowdown(name, *totals.slowdown()) for name, totals in each.items())
    return _result(seen.matrix, seen.coverage, used, each[ideal], ideals, curve_ranks)


def excess_matrix(matrix: StepMatrix, *, rules: StragglerRules = DEFAULT_RULES) -> Floats:
    """[S, R] work of each report over the median work of its peers in that step, microseconds.

    All reports, those of incomplete steps too. NaN where a rank did not report, has no peer, or
    where work cannot be told (all of it then).
    """
    work, peers = work_and_peers(matrix, rules=rules)
    return work - peers


def work_and_peers(
    matrix: StepMatrix,
    *,
    rules: StragglerRules = DEFAULT_RULES,
    result: StragglerResult | None = None,
) -> tuple[Floats, Floats]:
    """[S, R] work of each report, and the median work of its peers, in microseconds.

    NaN as in ``excess_matrix``. ``result`` is what these rules say of the same ``matrix``: where it
    rests on all of it nothing is compared again.
    """
    matrix, _ = without_inconsistent(matrix)
    if result is not None and result.used is not None:
        used = result.used
        if used.arrived.work_us.shape == matrix.duration_us.shape:
            return used.arrived.work_us, used.peers_us
    choice = choose_basis(matrix, rules)
    if choice.unknown is not None:
        unknown = np.full(matrix.duration_us.shape, np.nan)
        return unknown, unknown
    work = arrivals(matrix, choice).work_us
    return work, peer_median(work, matrix.stage)


def _result(
    matrix: StepMatrix,
    coverage: Coverage,
    used: Used,
    totals: Totals,
    ideals: tuple[IdealSlowdown, ...],
    curve_ranks: int,
) -> StragglerResult:
    arrived, rules = used.arrived, used.rules
    table, stages = rank_table(used), stage_table(used)
    costly = costly_places(table, used.step_us, rules)
    spells = find_spells(used, table, costly)
    flagged = flagged_places(table, costly, spells, used.step_us, rules)
    stage = flagged_stage(stages, used.step_us, rules)
    tax = totals.share(totals.wait_us, arrived.paid_us)
    slowdown, waste = next(
        (i.slowdown_ratio, i.waste_ratio) for i in ideals if i.ideal == totals.ideal
    )
    persistent, transient = totals.lasting()
    between, within = totals.stages()
    majority = slow_majority(arrived.work_us, used.matrix.stage, used.step_us, rules)
    if used.enough:
        verdict = judge(
            table,
            flagged,
            stages,
            stage,
            coverage=coverage,
            tax_ratio=tax.value or 0.0,
            mean_step_us=used.step_us,
            relative_time=used.matrix.time_is_relative,
            durations_only=arrived.choice.basis is Basis.DURATION,
            rules=rules,
            spells=spells,
            majority=majority,
        )
    else:
        verdict = untellable(
            f"{len(used.matrix.steps):,} usable steps are too few to tell a lasting straggler from "
            f"a passing one, {rules.min_steps} would do"
        )
    if len(flagged):
        recoverable = totals.saved(saved_us(arrived.arrival_us, used.excess_us, flagged))
    else:
        recoverable = _nobody(verdict, is_new=spells.passed is not None and spells.passed.is_open)
    return StragglerResult(
        basis=arrived.choice,
        rules=rules,
        coverage=coverage,
        ideal=totals.ideal,
        tax_ratio=tax,
        slowdown_ratio=slowdown,
        waste_ratio=waste,
        ideals=ideals,
        persistent_ratio=persistent,
        transient_ratio=transient,
        persistent_share_ratio=_part_of_tax(persistent, tax),
        between_stage_ratio=between,
        within_stage_ratio=within,
        recoverable_ratio=recoverable,
        curve=_curve(used, totals, flagged, curve_ranks),
        step_us=totals.measure(used.step_us, "us"),
        ideal_step_us=totals.measure(used.step_us - float(totals.saving_us.mean()), "us"),
        wait_us=totals.measure(float(np.nanmean(arrived.wait_us)), "us"),
        verdict=verdict,
        recurring={int(used.matrix.ranks[p]): found for p, found in spells.recurring.items()},
        explanation=_explanation(
            used, verdict, flagged, spells.recurring, _part_of_tax(between, tax)
        ),
        steps=step_table(matrix, coverage, arrived),
        ranks=table,
        stages=stages,
        majority=majority if verdict.kind is Kind.MOST else None,
        used=used,
    )


def _nobody(verdict: Verdict, *, is_new: bool) -> Measure:
    """What a repair returns where no rank is slow for good: nothing, if that is for certain."""
    if verdict.why_open is not None and verdict.kind is not Kind.MOST:
        return Ratio.missing("ratio", f"{verdict.why_open}, and may be slow")
    if verdict.kind in (Kind.NONE, Kind.MOVING, Kind.SELDOM) or (
        verdict.kind is Kind.PASSED and not is_new
    ):
        return Ratio(0.0, warnings=(_NOBODY,))
    reason = _OPEN_KINDS.get(verdict.kind, verdict.text)
    return Ratio.missing("ratio", reason)


def _part_of_tax(part: Measure, tax: Measure) -> Measure:
    if part.value is None or tax.value is None or not tax.value > 0:
        return Ratio.missing("ratio", part.reason or "nobody waits, so there is no tax to split")
    return Ratio(part.value / tax.value, level=tax.level, inputs=tax.inputs, warnings=tax.warnings)


def _curve(
    used: Used, totals: Totals, flagged: NDArray[np.intp], length: int
) -> tuple[CurvePoint, ...]:
    """Recovery by the first 1, 2, ... ranks: the flagged ones, then others by mean excess."""
    excess = np.nan_to_num(column_mean(used.excess_us))
    rest = [p for p in np.argsort(-excess, kind="stable") if excess[p] > 0 and p not in flagged]
    order = np.array([*flagged, *rest][:length], dtype=np.intp)
    points = []
    for k, place in enumerate(order, start=1):
        sooner_us = saved_us(used.arrived.arrival_us, used.excess_us, order[:k])
        points.append(CurvePoint(int(used.matrix.ranks[place]), totals.saved(sooner_us)))
    return tuple(points)


def _explanation(
    used: Used,
    verdict: Verdict,
    flagged: NDArray[np.intp],
    recurring: Mapping[int, Recurrence],
    stage_share: Measure,
) -> Explanation:
    steps = np.arange(len(used.matrix.steps))
    if verdict.kind is Kind.WORKER:
        first = int(flagged[0])
        if first in recurring:
            # Its other steps have nothing to explain.
            steps = np.flatnonzero(used.excess_us[:, first] > 0.5 * recurring[first].level)
        cells = (steps, np.full(len(steps), first))
    elif verdict.kind is Kind.SELDOM:
        place = int(np.flatnonzero(used.matrix.ranks == verdict.mostly)[0])
        steps = late_steps(used, place)
        cells = (steps, np.full(len(steps), place))
    elif verdict.kind in (Kind.MOVING, Kind.PASSED):
        last = row_argmax(used.arrived.arrival_us)
        steps = steps[used.slow[steps, last]]
        cells = (steps, last[steps])
    elif verdict.kind is Kind.STAGE:
        return Explanation(hints=(stage_hint(stage_share.value or 0.0),))
    elif verdict.kind is Kind.MOST:
        return Explanation(reason=_OPEN_KINDS[Kind.MOST])
    else:
        return Explanation(reason="there is no straggler to explain")
    return explain(used.matrix, used.arrived, used.excess_us, cells, used.rules)


def _unknown(
    matrix: StepMatrix,
    coverage: Coverage,
    arrived: Arrivals,
    ideal: str,
    rules: StragglerRules,
    warnings: tuple[str, ...],
    reason: str,
) -> StragglerResult:
    """The result when nobody's waiting can be told: only the step time is known, if that."""
    choice = arrived.choice
    ratio = Ratio.missing("ratio", reason, level=choice.level)
    none_us = Measure.missing("us", reason, level=choice.level)
    slowdown = Measure.missing("x", reason, level=choice.level)
    step = none_us
    if coverage.steps_used:
        value = float(row_mean(matrix.duration_us)[coverage.step_places].mean())
        step = Measure(value, "us", level=choice.level, inputs=("duration_us",), warnings=warnings)
    return StragglerResult(
        basis=choice,
        rules=rules,
        coverage=coverage,
        ideal=ideal,
        tax_ratio=ratio,
        slowdown_ratio=slowdown,
        waste_ratio=ratio,
        ideals=tuple(IdealSlowdown(name, slowdown, ratio) for name in IDEALS),
        persistent_ratio=ratio,
        transient_ratio=ratio,
        persistent_share_ratio=ratio,
        between_stage_ratio=ratio,
        within_stage_ratio=ratio,
        recoverable_ratio=ratio,
        curve=(),
        step_us=step,
        ideal_step_us=none_us,
        wait_us=none_us,
        verdict=untellable(reason),
        recurring={},
        explanation=Explanation(reason=reason),
        steps=step_table(matrix, coverage, None),
        ranks=None,
        stages=None,
    )
