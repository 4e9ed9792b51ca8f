"""Questions about balance: stages, micro-batches, sequences, and garbage collection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steptax.app.compute.spoken import spoken_ratio
from steptax.app.errors import UserError
from steptax.app.whatif.analysis import Analysis
from steptax.app.whatif.arrays import median
from steptax.app.whatif.optypes import BACKWARD, COMPUTE, FORWARD, GC
from steptax.app.whatif.questions import Answer, Price, ask
from steptax.app.whatif.trace import Floats, Trace

#: A forward pass is paused when it takes so much longer than is typical, in ratio and seconds,
_PAUSE_RATIO = 1.5
_PAUSE_S = 0.02
#: while the backward pass of its micro-batch takes at most so much longer.
_CALM_RATIO = 1.2
#: Correlation of time with squared lengths below which they do not explain it.
_LEAST_R2 = 0.25
#: Variation that is rounding and no variation.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class SequenceSigns:
    """Of one stage: correlation of forward and backward time over micro-batches, and the spread.

    Uneven sequences show both: correlation of 0.9 or more (Lin et al., OSDI'25, section 5.3) and a
    coefficient of variation, within a step and data-parallel rank, well above a few hundredths. A
    slow worker or a heavy stage has the correlation alone. None where nothing varies.
    """

    stage: int
    correlation: float | None
    variation_ratio: float


def sequence_signs(trace: Trace) -> tuple[SequenceSigns, ...]:
    """The signs of uneven sequences on each stage."""
    out = []
    for stage in range(trace.stages):
        forward, backward = (
            np.concatenate([trace.duration_s[ops] for ops in passes_of(trace, stage, kind)])
            for kind in COMPUTE
        )
        x, y = (v - v.mean(axis=0, keepdims=True) for v in (forward, backward))
        norm = float(np.sqrt((x * x).sum() * (y * y).sum())) if x.shape == y.shape else 0.0
        mean = np.maximum(forward.mean(axis=0), np.finfo(float).tiny)
        variation = float((forward.std(axis=0) / mean).mean())
        varies = norm > 0 and variation > _ROUNDING
        correlation = float((x * y).sum() / norm) if varies else None
        out.append(SequenceSigns(stage, correlation, variation))
    return tuple(out)


def rebalance_stages(analysis: Analysis, price: Price = None) -> Answer:
    """Every stage computes as much as the mean stage, each operation in proportion.

    The bound of moving layers between stages; see ``move_layers`` for whole layers.
    """
    trace, own = analysis.model.trace, analysis.model.work.own_s
    works = [("all stages compute as much", lambda: equal_stages(trace, own))]
    return ask(analysis, works, price)[0]


def equal_stages(trace: Trace, work: Floats) -> Floats:
    """``work`` [O, S, D] with every stage's computing scaled to the mean over stages."""
    out = work.copy()
    for kind in COMPUTE:
        by_stage = [np.concatenate(passes_of(trace, p, kind)) for p in range(trace.stages)]
        means = [float(work[ops].mean()) for ops in by_stage]
        for ops, mean in zip(by_stage, means, strict=True):
            if mean > 0:
                out[ops] *= sum(means) / len(means) / mean
    return out


def move_layers(
    analysis: Analysis, layers: Sequence[int], moved: Sequence[int], price: Price = None
) -> Answer:
    """Stage p has ``moved[p]`` transformer layers instead of ``layers[p]``.

    The time of a layer is the median over stages of mean time per layer: what the first and last
    stage do besides stays where it is. UserError when the counts do not fit.
    """
    trace, own = analysis.model.trace, analysis.model.work.own_s
    check_layers(trace, layers, moved)
    named = ", ".join(map(str, moved))
    works = [(f"stages have {named} layers", lambda: with_layers(trace, own, layers, moved))]
    return ask(analysis, works, price)[0]


def check_layers(trace: Trace, layers: Sequence[int], moved: Sequence[int]) -> None:
    """UserError when the counts of layers do not fit the stages or each other."""
    if not len(layers) == len(moved) == trace.stages:
        raise UserError(
            f"expected {trace.stages} layer counts, found {len(layers)} and {len(moved)}",
            where="layers",
        )
    if sum(layers) != sum(moved) or min(*layers, *moved) < 0 or min(layers) < 1:
        raise UserError(
            f"{sum(layers)} layers cannot become {sum(moved)}",
            where="layers",
            hint="each stage has one layer or more, and none is lost",
        )


def with_layers(trace: Trace, work: Floats, layers: Sequence[int], moved: Sequence[int]) -> Floats:
    """``work`` [O, S, D] with ``moved`` instead of ``layers`` on the stages."""
    out = work.copy()
    for kind in COMPUTE:
        by_stage = [passes_of(trace, p, kind) for p in range(trace.stages)]
        # Each pass of a virtual stage runs the layers of that chunk only.
        per_pass = [n / len(c) for n, c in zip(layers, by_stage, strict=True)]
        each = [
            float(work[np.concatenate(c)].mean()) / n
            for c, n in zip(by_stage, per_pass, strict=True)
        ]
        layer_s = median(each)
        for p, chunks in enumerate(by_stage):
            ops = np.concatenate(chunks)
            change = (moved[p] - layers[p]) / len(chunks) * layer_s
            out[ops] = np.maximum(out[ops] + change, 0.0)
    return out


def without_gc(analysis: Analysis, price: Price = None) -> tuple[Answer, Answer]:
    """Garbage collection takes no time: the recorded one, and that inside forward passes.

    The second is told by its sign: a forward pass, launched by the interpreter, is held up on one
    rank while the backward pass of the same micro-batch is not (Lin et al., OSDI'25, section 5.4).
    """
    trace, own = analysis.model.trace, analysis.model.work.own_s
    first, second = ask(
        analysis,
        [
            ("recorded garbage collection takes no time", lambda: no_recorded_gc(trace, own)),
            ("forward passes are not paused", lambda: no_pauses(trace, own)),
        ],
        price,
    )
    return first, second


def no_recorded_gc(trace: Trace, work: Floats) -> Floats:
    """``work`` [O, S, D] without what is recorded as garbage collection."""
    out = work.copy()
    if GC in trace.types:
        out[trace.rows_of[GC]] = 0.0
    return out


def no_pauses(trace: Trace, work: Floats) -> Floats:
    """``work`` [O, S, D] with paused forward passes as long as is typical."""
    out = work.copy()
    for stage in range(trace.stages):
        ahead, back = (passes_of(trace, stage, kind) for kind in (FORWARD, BACKWARD))
        if len(ahead) != len(back):
            continue  # Virtual stages are recorded for one direction only: no pairs to compare.
        for some, others in zip(ahead, back, strict=True):
            _calm(out, some, others)
    return out


def _calm(work: Floats, ahead: npt.NDArray[np.intp], back: npt.NDArray[np.intp]) -> None:
    """Set paused forward passes to the typical time, in place."""
    if len(ahead) != len(back):
        return
    forward, backward = work[ahead], work[back]
    usual, usual_back = median(forward), median(backward)
    paused = forward > max(_PAUSE_RATIO * usual, usual + _PAUSE_S)
    paused &= backward <= _CALM_RATIO * usual_back
    forward[paused] = usual
    work[ahead] = forward


def balance_microbatches(analysis: Analysis, price: Price = None) -> Answer:
    """Every micro-batch of a step is as long as the others: the bound of dealing sequences anew.

    What a worker takes on average for a micro-batch stays its own, since no dealing makes a slow
    device fast.
    """
    trace, own = analysis.model.trace, analysis.model.work.own_s
    works = [("all micro-batches of a step are equal", lambda: equal_microbatches(trace, own))]
    return ask(analysis, works, price)[0]


def equal_microbatches(trace: Trace, work: Floats) -> Floats:
    """``work`` [O, S, D] with the micro-batches of a step equal, workers at their own rates."""
    out = work.copy()
    for kind in COMPUTE:
        for stage in range(trace.stages):
            for ops in passes_of(trace, stage, kind):
                rate = np.maximum(work[ops].mean(axis=(0, 1)), np.finfo(float).tiny)
                out[ops] = rate * (work[ops] / rate).mean(axis=(0, 2), keepdims=True)
    return out


def rebalance_sequences(analysis: Analysis, squares: Floats, price: Price = None) -> Answer:
    """Sequences are dealt so that every micro-batch has the same sum of squared lengths.

    ``squares`` [M, S, D]: that sum of each micro-batch, step and data-parallel rank. The time of a
    pass is fitted as a + b * squares on each stage, and b times the difference is moved. UserError
    when the shape does not fit or the squares do not explain the times.
    """
    trace, own = analysis.model.trace, analysis.model.work.own_s
    micro = len(passes_of(trace, 0, FORWARD)[0])
    expected = (micro, *trace.shape[1:])
    passes = [passes_of(trace, p, kind) for p in range(trace.stages) for kind in COMPUTE]
    if any(len(ops) != micro for chunks in passes for ops in chunks):
        raise UserError("stages run different numbers of micro-batches", where="squares")
    if squares.shape != expected:
        raise UserError(
            f"expected squared lengths of shape {expected}, found {squares.shape}",
            where="squares",
            hint="micro-batches, steps, data-parallel ranks",
        )
    excess = squares - squares.mean(axis=(0, 2), keepdims=True)
    variance = float((excess * excess).sum())
    if variance <= 0:
        raise UserError("the squared lengths do not vary within a step", where="squares")
    out = own.copy()
    explained, total = 0.0, 0.0
    for ops in (ops for chunks in passes for ops in chunks):
        times = own[ops]
        about = times - times.mean(axis=(0, 2), keepdims=True)
        slope = max(0.0, float((about * excess).sum()) / variance)
        out[ops] = times - slope * excess
        explained += slope * float((about * excess).sum())
        total += float((about * about).sum())
    r2 = explained / total if total > 0 else 0.0
    if r2 < _LEAST_R2:
        raise UserError(
            f"squared lengths explain {spoken_ratio(r2)} of how micro-batches differ",
            where="squares",
            hint="look for another cause",
        )
    question = f"sequences are dealt evenly ({spoken_ratio(r2)} of the spread is theirs)"
    return ask(analysis, [(question, lambda: out)], price)[0]


def passes_of(trace: Trace, stage: int, kind: str) -> list[npt.NDArray[np.intp]]:
    """Passes of one direction on one stage by virtual stage, in the order of micro-batches."""
    rows = trace.rows_of[kind]
    ops = np.arange(rows.start, rows.stop)
    ops = ops[trace.op_stage[ops] == stage]
    chunks = trace.op_chunk[ops]
    return [ops[chunks == c] for c in np.unique(chunks)]
