"""Findings about no rank that is slow for good: a stage, all ranks alike, one each time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from steptax.app.compute.causes.attribution import moving_cause
from steptax.app.compute.causes.groups import Coordinates
from steptax.app.compute.causes.hints import measured_parts
from steptax.app.compute.causes.job import job_slow
from steptax.app.compute.causes.majority import Majority
from steptax.app.compute.causes.model import Cause, CauseVerdict, Finding, Scope, named
from steptax.app.compute.spoken import spoken_list, spoken_ratio
from steptax.app.compute.stats.rows import Ints, column_mean, row_quantile
from steptax.app.compute.straggler.recover import saved_us
from steptax.app.compute.straggler.result import Kind, StragglerResult
from steptax.app.compute.straggler.rules import CONFIDENCES, CauseRules, EpisodeRules
from steptax.app.compute.straggler.tables import Used, late_steps
from steptax.app.compute.straggler.verdict import flagged_stage


def stage_finding(used: Used, result: StragglerResult) -> list[Finding]:
    """The heavy stage, if there is one; no cause is named where one rank is the whole stage."""
    stages, stage = result.stages, used.matrix.stage
    place = flagged_stage(stages, used.step_us, used.rules)
    if stages is None or stage is None or place is None:
        return []
    heavy = int(stages.stages[place])
    ranks = used.matrix.ranks[stage == heavy]
    ratio = float(stages.excess_us[place]) / used.step_us
    alone = int(stages.ranks[place]) == 1
    cause = named(
        Cause.STAGE,
        CONFIDENCES.stage_of_one if alone else CONFIDENCES.stage,
        (
            f"stage {heavy} works {spoken_ratio(ratio)} of a step longer "
            f"than the others in {spoken_ratio(float(stages.persistence_ratio[place]))} of "
            "the steps, by the median of its ranks",
        ),
    )
    if alone:
        cause = CauseVerdict(
            None,
            "cause not named: with one rank on a stage, a heavy stage and a slow device look alike",
            cause.confidence,
            cause.evidence_for,
            cause.evidence_against,
            ("a second data-parallel replica, or samples of the device", *cause.settle),
            cause.action,
        )
    steps = used.matrix.steps
    between = result.between_stage_ratio.value
    return [
        Finding(
            Scope.STAGE,
            f"pipeline stage {heavy} "
            f"(rank{'s' if len(ranks) > 1 else ''} {spoken_list([int(r) for r in ranks])})",
            tuple(int(r) for r in ranks),
            int(steps[0]),
            int(steps[-1]),
            int(steps[-1]),
            True,
            float(stages.excess_us[place]),
            ratio,
            "compute" if "compute" in used.matrix.phases else None,
            between,
            cause,
        )
    ]


def job_findings(
    used: Used,
    places: Coordinates,
    rules: EpisodeRules,
    cause_rules: CauseRules,
    told: Mapping[str, frozenset[int]] | None = None,
) -> list[Finding]:
    """What slows all ranks alike.

    ``told`` are by part of the step the ranks (positions) that are found to be slow in it: what
    all ranks have is what the others have.
    """
    parts = measured_parts(used.matrix, used.arrived, used.rules)
    steps = used.matrix.steps
    return [
        Finding(
            Scope.JOB,
            "all ranks",
            (),
            int(steps[slow.first]),
            int(steps[slow.last]),
            int(steps[slow.last]),
            slow.is_open,
            slow.excess_us,
            slow.excess_ratio,
            slow.part,
            slow.lost_us / float(used.arrived.step_us.sum()),
            slow.cause,
            in_steps=None
            if slow.slow_steps == slow.last - slow.first + 1
            else (slow.slow_steps, slow.last - slow.first + 1),
        )
        for slow in job_slow(
            used.arrived,
            parts,
            rules,
            cause_rules,
            ranks=used.matrix.ranks,
            stage=used.matrix.stage,
            has_groups=_has_groups(places),
            told=told or {},
        )
    ]


def _has_groups(places: Coordinates) -> bool:
    """Whether ranks communicate in several groups, as far as is known."""
    return any(len(np.unique(places[k])) > 1 for k in ("tp", "pp") if k in places)


def moving_finding(used: Used, result: StragglerResult, cause_rules: CauseRules) -> list[Finding]:
    """Waiting for nobody who is slow for good, if that is the verdict."""
    if result.majority is not None:
        return _majority_finding(used, result.majority, cause_rules)
    if result.verdict.kind not in (Kind.MOVING, Kind.SELDOM):
        return []
    mostly = result.verdict.mostly
    left_out = result.verdict.left_out
    verdict, also = moving_cause(result.explanation, cause_rules, mostly=mostly, left_out=left_out)
    tax = result.tax_ratio.value or 0.0
    if mostly is not None:
        return [_seldom_finding(used, result, mostly, verdict, also)]
    steps = used.matrix.steps
    dominant = result.explanation.dominant
    return [
        Finding(
            Scope.MOVING,
            "a different rank from step to step"
            if left_out is None
            else "a rank that is not compared, or a different one from step to step",
            (),
            int(steps[0]),
            int(steps[-1]),
            int(steps[-1]),
            True,
            tax * used.step_us,
            tax,
            None if dominant is None else dominant.phase,
            tax,
            verdict,
            also,
        )
    ]


def _majority_finding(used: Used, found: Majority, rules: CauseRules) -> list[Finding]:
    """The same ranks all along, more than half of them."""
    part, share = _longer_part(used, found, rules)
    steps = used.matrix.steps
    ranks = [int(r) for r in used.matrix.ranks[found.slow]]
    ratio = found.gap_us / used.step_us
    text = f"these ranks work {spoken_ratio(ratio)} of a step longer than the others"
    where = "" if part is None else f", {spoken_ratio(min(1.0, share))} of it in {part}"
    cause = CauseVerdict(
        None,
        f"cause not named: more than half of the ranks are slow alike{where}",
        0.0,
        (f"{text} in {spoken_ratio(found.steps_ratio)} of the steps{where}",),
        (),
        ("what these ranks share and the others do not: host, rack, device model, data",),
        "compare a slow rank with one of the others: host, device, clock, data",
    )
    return [
        Finding(
            Scope.MOVING,
            f"the same {len(ranks):,} of {len(used.matrix.ranks):,} ranks ({spoken_list(ranks)})",
            (),
            int(steps[0]),
            int(steps[-1]),
            int(steps[-1]),
            True,
            found.gap_us,
            ratio,
            part,
            _like_the_fast(used, found),
            cause,
        )
    ]


def _like_the_fast(used: Used, found: Majority) -> float:
    """Share of the paid time that comes back where the slower ranks are like the typical other."""
    work = used.arrived.work_us
    over = work - row_quantile(work[:, found.fast], 0.5)[0][:, None]
    saved = saved_us(used.arrived.arrival_us, over, found.slow)
    return float(np.nansum(saved)) / float(used.arrived.step_us.sum())


def majority_part(used: Used, found: Majority, rules: CauseRules) -> tuple[str | None, list[int]]:
    """The part of the step in which most ranks are slow, and their positions."""
    return _longer_part(used, found, rules)[0], [int(c) for c in found.slow]


def _longer_part(used: Used, found: Majority, rules: CauseRules) -> tuple[str | None, float]:
    """The measured part that carries most of the difference, and its share of it."""
    best: tuple[str | None, float] = (None, 0.0)
    for name, values in measured_parts(used.matrix, used.arrived, used.rules).items():
        means = column_mean(values)
        longer = float(np.nanmedian(means[found.slow]) - np.nanmedian(means[found.fast]))
        if longer / found.gap_us > best[1]:
            best = name, longer / found.gap_us
    return best if best[1] >= rules.carries_ratio else (None, best[1])


def _seldom_finding(
    used: Used,
    result: StragglerResult,
    rank: int,
    verdict: CauseVerdict,
    also: tuple[CauseVerdict, ...],
) -> Finding:
    """Waiting that is mostly for ``rank``, from the first to the last of its slow steps."""
    place = int(np.flatnonzero(used.matrix.ranks == rank)[0])
    slow = late_steps(used, place)
    first, last = int(slow[0]), int(slow[-1])
    steps = used.matrix.steps
    excess_us = float(np.nanmean(used.excess_us[slow, place]))
    dominant = result.explanation.dominant
    return Finding(
        Scope.MOVING,
        f"mostly rank {rank}, in too few steps to be slow for good",
        (),
        int(steps[first]),
        int(steps[last]),
        int(steps[last]),
        last == len(steps) - 1,
        excess_us,
        excess_us / used.step_us,
        None if dominant is None else dominant.phase,
        _lost_ratio(used, slow, place),
        verdict,
        also,
        in_steps=None if len(slow) == last - first + 1 else (len(slow), last - first + 1),
    )


def _lost_ratio(used: Used, slow: Ints, place: int) -> float:
    """Share of the paid time that comes back where the rank is like its peers in ``slow`` steps."""
    saved = saved_us(
        used.arrived.arrival_us[slow], used.excess_us[slow], np.array([place], dtype=np.intp)
    )
    return float(np.nansum(saved)) / float(used.arrived.step_us.sum())
