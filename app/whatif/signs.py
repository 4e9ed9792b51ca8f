"""The signs of what makes a job slow, each measured by what goes away with it.

T - T(sign removed) over T - T_ideal, by simulation. A slow worker is also part of a stage and of a
data-parallel rank, so where there is one these count for what they explain beyond it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steptax.app.compute.measure import Level, Measure
from steptax.app.compute.spoken import spoken_ratio
from steptax.app.compute.straggler.peers import peer_median
from steptax.app.format import format_share
from steptax.app.whatif.analysis import Analysis
from steptax.app.whatif.arrays import median
from steptax.app.whatif.balance import (
    SequenceSigns,
    equal_microbatches,
    no_pauses,
    no_recorded_gc,
)
from steptax.app.whatif.interval import INPUTS
from steptax.app.whatif.scenarios import Worker, given
from steptax.app.whatif.simulate import simulate
from steptax.app.whatif.trace import Floats

Cell = tuple[int, int]
"""A cell of the grid of workers: label of the data-parallel rank, pipeline stage."""

#: Share of the loss from which on a sign explains most of it (Lin et al., sections 5.1 and 5.2).
MOST_OF_LOSS = 0.5
#: Share from which on pauses are named: they are rare, and always worth removing.
SOME_OF_LOSS = 0.25
#: Share of the loss below which it is not worth a word.
_NOTHING = 0.1
#: A worker is slow whose excess is this part of the job's.
_PART_OF_EXCESS = 0.25
#: Correlation of forward and backward time that speaks for uneven sequences (section 5.3) ...
UNEVEN_CORRELATION = 0.9
#: ... if micro-batches also differ by so much: in healthy real jobs it is 0.01 to 0.03.
UNEVEN_VARIATION = 0.06
#: Share of steps below which the slowest worker is said to move.
_STAYS = 0.5


@dataclass(frozen=True)
class Sign:
    """One possible reason. Several can hold at once.

    ``name``: worker, stage, dp_rank, uneven-sequences, pauses or elsewhere. ``strength`` is the
    share of the loss (T - T_ideal) that goes away with it; it may exceed 1 or be negative, and is
    missing where it could not be told. ``holds`` says whether it is strong enough to be named.
    """

    name: str
    title: str
    strength: Measure
    holds: bool
    text: str
    cells: tuple[Cell, ...] = ()


def find_signs(analysis: Analysis, loss_s: float, sequence: Sequence[SequenceSigns]) -> list[Sign]:
    """Every sign, each with what goes away with it."""
    model, trace = analysis.model, analysis.model.trace
    own, ideal = model.work.own_s, model.work.ideal_s[:, None, None]
    dps = trace.shape[2]
    busy = _busy(analysis)
    workers = _slow_workers(analysis, busy)

    def share(work: Floats) -> float:
        span = simulate(model.program, given(work), model.lanes).span_s[0]
        return (float(analysis.nodelay_s.mean()) - float(span.mean())) / loss_s

    cells = np.zeros((trace.shape[0], 1, dps), bool)
    for at, p in workers:
        cells[trace.op_stage == p, :, at] = True
    by_workers = share(np.where(cells, ideal, own))
    # A stage or data-parallel rank that holds a slow worker counts for what it explains besides.
    before = by_workers if by_workers >= MOST_OF_LOSS and dps > 1 else 0.0
    beyond = " beyond the slow workers" if before else ""
    held = cells if before else np.zeros_like(cells)
    stage = int(analysis.by_stage_s.mean(axis=0).argmax())
    dp = int(analysis.by_dp_s.mean(axis=0).argmax())
    if before:
        # The slow workers hide the others: who is next is told by what the rest needs.
        rest = busy.copy()
        for at, p in workers:
            rest[p, at] = median(busy[p])
        stage, dp = int(rest.mean(axis=1).argmax()), int(rest.mean(axis=0).argmax())
    row = (trace.op_stage == stage)[:, None, None]
    column = (np.arange(dps) == dp)[None, None, :]
    out = [
        _worker_sign(analysis, workers, by_workers),
        _stage_sign(analysis, stage, share(np.where(held | row, ideal, own)) - before, beyond),
        _dp_sign(analysis, dp, share(np.where(held | column, ideal, own)) - before, beyond),
        _sequence_sign(sequence, share(equal_microbatches(trace, own))),
        _pause_sign(share(no_pauses(trace, no_recorded_gc(trace, own)))),
    ]
    named = sum(s.strength.value or 0.0 for s in out if s.holds)
    out.append(_rest_sign(analysis, 1.0 - named, alone=not any(s.holds for s in out)))
    return out


def _busy(analysis: Analysis) -> Floats:
    """[P, D] mean over steps of what each worker needs by itself, seconds."""
    trace, own = analysis.model.trace, analysis.model.work.own_s
    out = np.empty((trace.stages, trace.shape[2]))
    for p in range(trace.stages):
        out[p] = own[trace.op_stage == p].sum(axis=0).mean(axis=0)
    return out


def _slow_workers(analysis: Analysis, busy: Floats) -> tuple[Worker, ...]:
    """Workers that cost the job time and need longer than the others of their stage.

    The slowdown of a worker is an approximation: where the rows and columns of two slow ones
    cross it is high as well, so both are asked for. A data-parallel rank that is slow on every
    stage is another sign, and left out. Without any, the slowest few of the analysis.
    """
    trace = analysis.model.trace
    if trace.shape[2] == 1:
        return analysis.slowest
    least = 1 + _PART_OF_EXCESS * (analysis.slowdown - 1)
    late = busy >= least * peer_median(busy)
    if trace.stages > 1:
        late &= ~late.all(axis=0)
    score = analysis.worker_slowdown()
    found = [(d, p) for p, d in np.argwhere(late & (least <= score.T)).tolist()]
    return tuple(sorted(found, key=lambda w: (-busy[w[1], w[0]], w))) or analysis.slowest


def _strength(value: float) -> Measure:
    return Measure(value, "ratio", level=Level.TRACE, inputs=INPUTS)


def _worker_sign(analysis: Analysis, workers: Sequence[Worker], share: float) -> Sign:
    trace = analysis.model.trace
    cells = tuple((trace.dps[d], p) for d, p in workers)
    if trace.shape[2] == 1:
        reason = "with one data-parallel rank a slow worker cannot be told from a heavy stage"
        return Sign("worker", "slow workers", _missing(reason), False, reason)
    ranks = [int(trace.ranks[w]) for w in workers]
    named = ", ".join(
        f"rank {r} (DP {d}, stage {p})" for r, (d, p) in zip(ranks[:4], cells[:4], strict=True)
    ) + (f" and {len(ranks) - 4} more" if len(ranks) > 4 else "")
    holds = share >= MOST_OF_LOSS
    one = len(ranks) == 1
    text = (
        f"{'One worker is' if one else 'Few workers are'} slow: {named} "
        f"{'accounts' if one else 'account'} for {spoken_ratio(share)} of the loss."
    )
    if not holds:
        verb = "explains" if one else "explain"
        text = (
            f"No worker is slow alone: the slowest, {named}, {verb} {spoken_ratio(share)} of "
            "the loss."
        )
    return Sign("worker", "slow workers", _strength(share), holds, text, cells)


def _stage_sign(analysis: Analysis, stage: int, share: float, beyond: str) -> Sign:
    trace = analysis.model.trace
    title = "a heavy pipeline stage"
    if trace.stages == 1:
        reason = "the job has one pipeline stage"
        return Sign("stage", title, _missing(reason), False, reason)
    last = ", the last," if stage == trace.stages - 1 else ""
    holds = share >= MOST_OF_LOSS
    text = (
        f"Pipeline stage {stage}{last} has more to do than the others: it accounts for "
        f"{spoken_ratio(share)} of the loss."
        if holds
        else f"Stages are balanced: stage {stage}{last} explains {spoken_ratio(share)} of the "
        f"loss{beyond}."
    )
    if trace.shape[2] == 1:
        text += " With one data-parallel rank this may as well be a slow worker."
    return Sign("stage", title, _strength(share), holds, text, tuple((d, stage) for d in trace.dps))


def _dp_sign(analysis: Analysis, dp: int, share: float, beyond: str) -> Sign:
    trace = analysis.model.trace
    title = "a slow data-parallel rank"
    if trace.shape[2] == 1 or trace.stages == 1:
        reason = (
            "the job has one data-parallel rank"
            if trace.shape[2] == 1
            else "without pipeline each data-parallel rank is one worker"
        )
        return Sign("dp_rank", title, _missing(reason), False, reason)
    label = trace.dps[dp]
    holds = share >= MOST_OF_LOSS
    text = (
        f"Data-parallel rank {label} is slow on all its stages: it accounts for "
        f"{spoken_ratio(share)} of the loss."
        if holds
        else f"No data-parallel rank is slow as a whole: rank {label} explains "
        f"{spoken_ratio(share)} of the loss{beyond}."
    )
    return Sign(
        "dp_rank",
        title,
        _strength(share),
        holds,
        text,
        tuple((label, p) for p in range(trace.stages)),
    )


def _sequence_sign(sequence: Sequence[SequenceSigns], share: float) -> Sign:
    """Correlation alone misleads: micro-batches must differ as well."""
    told = [s for s in sequence if s.correlation is not None]
    strongest = max(told, key=lambda s: s.correlation or 0.0, default=None)
    if strongest is None or strongest.correlation is None:
        reason = "micro-batches do not differ"
        return Sign("uneven-sequences", "uneven sequences", _missing(reason), False, reason)
    holds = share >= _NOTHING and any(
        (s.correlation or 0.0) >= UNEVEN_CORRELATION and s.variation_ratio >= UNEVEN_VARIATION
        for s in told
    )
    varied = max(s.variation_ratio for s in told)
    found = (
        f"forward and backward time of a micro-batch correlate by {strongest.correlation:.2f} "
        f"and micro-batches of a rank differ by {format_share(varied)}"
    )
    text = (
        f"Sequences are dealt unevenly: {found}; equal micro-batches return {spoken_ratio(share)} "
        "of the loss."
        if holds
        else f"Sequences are not the reason: {found}, where {UNEVEN_CORRELATION:g} and "
        f"{spoken_ratio(UNEVEN_VARIATION)} together would speak for it."
    )
    return Sign("uneven-sequences", "uneven sequences", _strength(share), holds, text)


def _pause_sign(share: float) -> Sign:
    holds = share >= SOME_OF_LOSS
    text = (
        f"Forward passes are held up on single ranks while their backward passes are not, as by "
        f"the interpreter's garbage collection: {spoken_ratio(share)} of the loss."
        if holds
        else f"Pauses of the interpreter explain {spoken_ratio(share)} of the loss."
    )
    return Sign("pauses", "pauses of the interpreter", _strength(share), holds, text)


def _rest_sign(analysis: Analysis, share: float, *, alone: bool) -> Sign:
    """What no other sign explains; it holds only where none does."""
    title = "spread over the job"
    if not alone and share < _NOTHING:
        return Sign("elsewhere", title, _strength(share), False, "Nothing else is left to explain.")
    stays, rank = steadiest(analysis)
    moves = (
        f"the slowest worker moves; most often it is rank {rank}, in {spoken_ratio(stays)} of the "
        "steps"
        if stays < _STAYS
        else f"rank {rank} is the slowest worker in {spoken_ratio(stays)} of the steps, but the "
        "others are not far behind"
    )
    lead = "Slowness" if alone else f"{spoken_ratio(share)} of the loss"
    text = f"{lead} is spread over the job: {moves}."
    return Sign("elsewhere", title, _strength(share), alone, text)


def steadiest(analysis: Analysis) -> tuple[float, int]:
    """Share of the steps in which the rank that is slowest most often is it, and that rank."""
    ranks = slowest_of_steps(analysis)
    values, counts = np.unique(ranks, return_counts=True)
    at = int(counts.argmax())
    return float(counts[at] / len(ranks)), int(values[at])


def slowest_of_steps(analysis: Analysis) -> npt.NDArray[np.int64]:
    """[S] rank of the worker with the largest slowdown in each step; the lowest among equals."""
    ranks = analysis.model.trace.ranks
    out = np.empty(len(analysis.by_dp_s), np.int64)
    for i, (by_dp, by_stage) in enumerate(zip(analysis.by_dp_s, analysis.by_stage_s, strict=True)):
        score = np.minimum(by_dp[:, None], by_stage)
        out[i] = ranks[score == score.max()].min()
    return out


def _missing(reason: str) -> Measure:
    return Measure.missing("ratio", reason, level=Level.TRACE)
