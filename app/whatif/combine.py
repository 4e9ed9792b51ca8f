"""Any combination of changes to a job, answered by one simulation of all of them together.

The savings of single changes do not add up: two slow ranks hide each other, and a faster kernel
shortens what a slow rank is slow at. So the changes are made to the same work, one after the other:

    pauses of the collector, told from what was measured
    repairs: these operations take their ideal work
    other devices
    micro-batches, then stages: the work that there now is gets dealt evenly
    faster kernels and networks

It makes no difference in which order they are named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt

from steptax.app.compute.measure import Measure
from steptax.app.errors import NotFoundError, UserError
from steptax.app.whatif.analysis import Analysis, slowest_workers
from steptax.app.whatif.balance import (
    check_layers,
    equal_microbatches,
    equal_stages,
    no_pauses,
    no_recorded_gc,
    with_layers,
)
from steptax.app.whatif.fixes import Fix, FixKind, parse_fix
from steptax.app.whatif.interval import BASIS, mean_measure
from steptax.app.whatif.optypes import reported
from steptax.app.whatif.questions import (
    Answer,
    Price,
    answer,
    device_rates,
    matching,
    network,
    simulated_error,
    worker_of,
)
from steptax.app.whatif.scenarios import Worker, given
from steptax.app.whatif.simulate import simulate
from steptax.app.whatif.trace import Floats, Trace

Flags = npt.NDArray[np.bool_]

#: Kinds in the order in which they are applied.
_ORDER = (
    FixKind.GC,
    FixKind.RANKS,
    FixKind.WORST,
    FixKind.STAGE,
    FixKind.DP_RANK,
    FixKind.OPTYPE,
    FixKind.DEVICE,
    FixKind.MICROBATCHES,
    FixKind.STAGES,
    FixKind.LAYERS,
    FixKind.KERNEL,
    FixKind.NETWORK,
)
_REPAIRS = frozenset(_ORDER[1:6])


@dataclass(frozen=True, eq=False)
class Combination:
    """The answer to all of ``fixes`` at once.

    ``step`` is the mean simulated one in seconds. ``slowdown`` is the changed step over the ideal
    of the changed job: where something is faster everywhere, so is the ideal; repairs and dealing
    anew leave it as it is.
    """

    fixes: tuple[Fix, ...]
    answer: Answer
    step: Measure
    slowdown: Measure


def combine(analysis: Analysis, fixes: Sequence[Fix | str], price: Price = None) -> Combination:
    """Simulate all ``fixes`` together; none at all is the job as it is.

    The interval of repairs alone reaches from removing the slowness to adding it alone. UserError
    or NotFoundError for what does not fit the trace, or when two fixes contradict each other.
    """
    asked = ordered(fixes)
    _refuse_contradictions(asked)
    model = analysis.model
    repaired = _repaired(analysis, asked)
    scale = _ideal_scale(model.trace, asked)
    step_s, ideal_s = analysis.nodelay_s, analysis.ideal_finish_s
    added: Floats | None = None
    if asked:
        sources = [_changed(analysis, asked, repaired)]
        only_repairs = all(fix.kind in _REPAIRS for fix in asked)
        if only_repairs:
            own, ideal = model.work.own_s, model.work.ideal_s[:, None, None]
            sources.append(np.where(repaired[:, None, :], own, ideal))
        if scale is not None:
            sources.append(model.work.ideal_s * scale)
        # Mixtures of measured and ideal work are what the plan was made for.
        plan = model.plan if only_repairs else None
        times = simulate(model.program, given(*sources), model.lanes, plan=plan)
        step_s = times.span_s[0]
        if only_repairs:
            added = times.span_s[1] - analysis.ideal_span_s
        if scale is not None:
            ideal_s = float(times.finish_s[-1].mean())
    question = "; ".join(fix.title for fix in asked) or "nothing is changed"
    error = simulated_error(analysis)
    return Combination(
        asked,
        answer(analysis, question, step_s, price, other_s=added),
        mean_measure(step_s, "s", error_ratio=error, warnings=(BASIS,)),
        mean_measure(step_s, "x", scale=1 / ideal_s, error_ratio=error, warnings=(BASIS,)),
    )


def ordered(fixes: Sequence[Fix | str]) -> tuple[Fix, ...]:
    """Each of ``fixes`` once, in the order in which they are applied."""
    parsed = {fix.text: fix for fix in (parse_fix(f) if isinstance(f, str) else f for f in fixes)}
    return tuple(sorted(parsed.values(), key=lambda fix: (_ORDER.index(fix.kind), fix.text)))


def worst_workers(analysis: Analysis, count: int) -> tuple[Worker, ...]:
    """The ``count`` slowest workers, slowest first; all where there are fewer."""
    score = (analysis.by_dp_s.mean(axis=0), analysis.by_stage_s.mean(axis=0))
    trace = analysis.model.trace
    return slowest_workers(trace, *score, count=min(count, trace.ranks.size))


def _refuse_contradictions(fixes: Sequence[Fix]) -> None:
    moving = [fix for fix in fixes if fix.kind in (FixKind.STAGES, FixKind.LAYERS)]
    if len(moving) > 1:
        raise UserError(
            f"{moving[0].text} and {moving[1].text} both deal the layers anew",
            where="fix",
            hint="take one of them",
        )


def _repaired(analysis: Analysis, fixes: Sequence[Fix]) -> Flags:
    """[O, D] operations that some of ``fixes`` makes ideal, in every step."""
    trace = analysis.model.trace
    out = np.zeros((trace.shape[0], trace.shape[2]), bool)
    for fix in fixes:
        match fix.kind:
            case FixKind.RANKS:
                _mark(trace, out, [worker_of(trace, rank) for rank in fix.numbers])
            case FixKind.WORST:
                _mark(trace, out, worst_workers(analysis, fix.numbers[0]))
            case FixKind.STAGE:
                out[trace.op_stage == _known(fix.numbers[0], range(trace.stages), "stage")] = True
            case FixKind.DP_RANK:
                dp = _known(fix.numbers[0], trace.dps, "data-parallel rank")
                out[:, trace.dps.index(dp)] = True
            case FixKind.OPTYPE:
                out[_of_type(trace, fix.name)] = True
    return out


def _mark(trace: Trace, out: Flags, workers: Sequence[Worker]) -> None:
    for dp, stage in workers:
        out[trace.op_stage == stage, dp] = True


def _known(number: int, there: Sequence[int], what: str) -> int:
    if number not in there:
        listed = ", ".join(map(str, there[:10])) + (", ..." if len(there) > 10 else "")
        raise NotFoundError(f"there is no {what} {number}", where="fix", hint=f"there are {listed}")
    return number


def _of_type(trace: Trace, name: str) -> Flags:
    """[O] operations of a type, by its own name or by that under which it is reported."""
    kinds = [i for i, t in enumerate(trace.types) if name in (t, reported(t))]
    if not kinds:
        known = dict.fromkeys(reported(t) for t in trace.types)
        raise NotFoundError(
            f"there is no operation type {name!r}",
            where="fix",
            hint=f"there are {', '.join(known)}",
        )
    return np.isin(trace.op_type, kinds)


def _changed(analysis: Analysis, fixes: Sequence[Fix], repaired: Flags) -> Floats:
    """[O, S, D] the work after all of ``fixes``, which are in order."""
    trace = analysis.model.trace
    work = analysis.model.work.own_s
    if any(fix.kind is FixKind.GC for fix in fixes):
        work = no_pauses(trace, no_recorded_gc(trace, work))
    if repaired.any():
        work = np.where(repaired[:, None, :], analysis.model.work.ideal_s[:, None, None], work)
    for fix in fixes:
        work = _applied(trace, work, fix)
    return work


def _applied(trace: Trace, work: Floats, fix: Fix) -> Floats:
    match fix.kind:
        case FixKind.DEVICE:
            rates = device_rates(trace, dict(fix.rates) if fix.rates else fix.factor)
            return work / rates[:, None, :]
        case FixKind.MICROBATCHES:
            return equal_microbatches(trace, work)
        case FixKind.STAGES:
            return equal_stages(trace, work)
        case FixKind.LAYERS:
            check_layers(trace, fix.numbers, fix.moved)
            return with_layers(trace, work, fix.numbers, fix.moved)
        case FixKind.KERNEL | FixKind.NETWORK:
            return work * _speed(trace, fix)[:, None, None]
        case _:
            return work


def _speed(trace: Trace, fix: Fix) -> Floats:
    """[O] what a faster kernel or network multiplies the work by."""
    mask = network(trace) if fix.kind is FixKind.NETWORK else matching(trace, fix.name)
    out: Floats = np.where(mask, 1.0 / fix.factor, 1.0)
    return out


def _ideal_scale(trace: Trace, fixes: Sequence[Fix]) -> Floats | None:
    """[O] what ``fixes`` multiply the ideal work by; None where they leave it."""
    parts = [
        _speed(trace, fix)
        if fix.kind in (FixKind.KERNEL, FixKind.NETWORK)
        else 1.0 / device_rates(trace, fix.factor)[:, 0]
        for fix in fixes
        if fix.kind in (FixKind.KERNEL, FixKind.NETWORK)
        or (fix.kind is FixKind.DEVICE and not fix.rates)
    ]
    return reduce(np.multiply, parts) if parts else None
