"""The what-if rail: which fixes there are, and what any combination of them does."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import numpy as np

from steptax.app.compute.measure import Measure
from steptax.app.format import format_alike, format_share, format_value
from steptax.app.views.trace.load import TraceJob
from steptax.app.views.trace.models import (
    ESTIMATE,
    GRAPH,
    CurvePoint,
    RailAnswer,
)
from steptax.app.whatif.combine import Combination, combine, ordered, worst_workers
from steptax.app.whatif.fixes import Fix, FixKind
from steptax.app.whatif.money import Recovered
from steptax.app.whatif.questions import fix_worst

#: Points of the curve over the slowest ranks.
CURVE = 8
_PLACES = frozenset({FixKind.RANKS, FixKind.WORST, FixKind.STAGE, FixKind.DP_RANK})
_MEAN_OF_ALL = (
    "repaired operations take the mean or median over all ranks, their own slowness included: "
    "a host that is as fast as the others returns more, the more so the fewer ranks there are"
)
_MS = 1e3


def rail_answer(
    job: TraceJob, fixes: Sequence[Fix | str], price: Decimal | float | None = None
) -> RailAnswer:
    """What all ``fixes`` do together; none at all is the job as it is.

    Without a dependency graph only repairs of ranks can be answered, from per-rank times.
    UserError or NotFoundError for what does not fit the job.
    """
    if job.coarse is None:
        return _simulated(job, fixes, price)
    return _estimated(job, fixes, price)


def _combined(
    job: TraceJob, fixes: Sequence[Fix | str], price: Decimal | float | None
) -> Combination:
    """All ``fixes`` in one simulation of whatever kind the job has."""
    if job.analysis is not None:
        return combine(job.analysis, fixes, price)
    from steptax.app.whatif.generic_questions import combine_generic

    assert job.result.generic is not None
    return combine_generic(job.result.generic, fixes, price)


def _simulated(
    job: TraceJob, fixes: Sequence[Fix | str], price: Decimal | float | None
) -> RailAnswer:
    before = _combined(job, (), price)
    after = _combined(job, fixes, price) if fixes else before
    step_before = before.step.map(lambda s: s * _MS, "ms")
    # Seconds saved carry the interval; the step after is what is left of the step before.
    saved = after.answer.recovered.s_per_step
    whole = before.step.value or 0.0
    step_after = saved.map(lambda s: (whole - s) * _MS, "ms")
    return RailAnswer(
        fixes=tuple(f.text for f in after.fixes),
        titles=tuple(f.title for f in after.fixes),
        text=rail_text(
            after.fixes,
            step_before,
            step_after,
            before.slowdown,
            after.slowdown,
            after.answer.speedup,
            after.answer.recovered,
        ),
        step_before_ms=step_before,
        step_after_ms=step_after,
        S_before=before.slowdown,
        S_after=after.slowdown,
        speedup=after.answer.speedup,
        recovered=after.answer.recovered,
        sim_error=job.result.sim_error,
        basis=GRAPH,
        warnings=(*_doubts(job, after.answer.warnings), *_said_of_ideal(job, after.fixes)),
    )


def _said_of_ideal(job: TraceJob, fixes: Sequence[Fix]) -> tuple[str, ...]:
    """What like the others means where ranks are repaired in a pipeline."""
    repaired = job.analysis is not None and any(fix.kind in _PLACES for fix in fixes)
    return (_MEAN_OF_ALL,) if repaired else ()


def _doubts(job: TraceJob, warnings: tuple[str, ...]) -> tuple[str, ...]:
    said = () if job.result.reliable else job.result.S.warnings[1:]
    return tuple(dict.fromkeys((*said, *warnings)))


def _estimated(
    job: TraceJob, fixes: Sequence[Fix | str], price: Decimal | float | None
) -> RailAnswer:
    from steptax.app.whatif.coarse import repaired, repaired_places, worth

    coarse = job.coarse
    assert coarse is not None
    asked = ordered(fixes)
    done = repaired(coarse, repaired_places(coarse, asked))
    value = worth(coarse, done.share, price)
    speedup = done.share.map(lambda r: 1 / max(1 - r, 1e-6), "x")
    said = (done.before_ms, done.after_ms, done.S_before, done.S_after, speedup, value)
    return RailAnswer(
        fixes=tuple(f.text for f in asked),
        titles=tuple(f.title for f in asked),
        text="Per-rank estimate: " + rail_text(asked, *said),
        step_before_ms=done.before_ms,
        step_after_ms=done.after_ms,
        S_before=done.S_before,
        S_after=done.S_after,
        speedup=speedup,
        recovered=value,
        sim_error=job.result.sim_error,
        basis=ESTIMATE,
        warnings=coarse.warnings,
    )


def rail_text(
    fixes: Sequence[Fix],
    before: Measure,
    after: Measure,
    slowdown: Measure,
    slowdown_after: Measure,
    speedup: Measure,
    worth: Recovered,
) -> str:
    """The answer in a sentence."""
    if not fixes:
        return "Nothing is changed."
    head = "If " + "; ".join(f.title for f in fixes) + ": "
    if before.value is None or after.value is None:
        share = format_share(worth.share.value)
        return f"{head}{share} of each step come back; absolute times are not known."
    then, now = format_alike((after.value, before.value), "ms")
    parts = [f"a step takes {then} instead of {now} ({format_value(speedup.value, 'x')} as fast)"]
    if slowdown.value is not None and slowdown_after.value is not None:
        parts.append(f"S {slowdown.value:.3f} becomes {slowdown_after.value:.3f}")
    text = head + ", ".join(parts) + "."
    hours, usd = worth.gpu_hours_per_day.value, worth.usd_per_day.value
    if hours is None:
        return text
    worse = hours < 0
    money = "" if usd is None else f", {format_value(abs(usd), 'USD')} a day,"
    what = f"{format_value(abs(hours), 'GPU-hours')} a day{money}"
    if abs(worth.share.value or 0.0) < 5e-5:
        return f"{text} Nothing comes back."
    return f"{text} {what} {'are lost: it makes the job slower' if worse else 'come back'}."


def worst_curve(job: TraceJob, price: Decimal | float | None) -> tuple[CurvePoint, ...]:
    """The slowest 1, 2, ... ranks repaired together."""
    analysis = job.analysis
    if analysis is not None:
        trace = analysis.model.trace
        ranks = [int(trace.ranks[w]) for w in worst_workers(analysis, CURVE)]
        whole = float(analysis.nodelay_s.mean())
        return tuple(
            CurvePoint(
                k,
                rank,
                a.recovered.s_per_step.map(lambda s: (whole - s) * _MS, "ms"),
                a.recovered.share,
                a.recovered.gpu_hours_per_day,
                a.recovered.usd_per_day,
            )
            for k, (rank, a) in enumerate(
                zip(ranks, fix_worst(analysis, CURVE, price), strict=True), start=1
            )
        )
    generic = job.result.generic
    if generic is not None:
        # One rank has to be left for the others to be like.
        order = np.argsort(-generic.excess_s.mean(axis=1), kind="stable")
        most = min(CURVE, len(order) - 1)
        return _points(job, [generic.ranks[r] for r in order[:most].tolist()], price)
    if job.coarse is None or job.coarse.unknown is not None:
        return ()
    from steptax.app.whatif.coarse import worst_places

    places = worst_places(job.coarse, CURVE)
    return _points(job, job.coarse.part.ranks[places].tolist(), price)


def _points(
    job: TraceJob, ranks: Sequence[int], price: Decimal | float | None
) -> tuple[CurvePoint, ...]:
    """The curve over ``ranks``, which come slowest first."""
    answers = [rail_answer(job, (Fix(FixKind.WORST, (k + 1,)),), price) for k in range(len(ranks))]
    return tuple(
        CurvePoint(
            k,
            rank,
            a.step_after_ms,
            a.recovered.share,
            a.recovered.gpu_hours_per_day,
            a.recovered.usd_per_day,
        )
        for k, (rank, a) in enumerate(zip(ranks, answers, strict=True), start=1)
    )
