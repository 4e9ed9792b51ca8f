"""Questions to a model: what if some operations took another time.

Each answer is one simulation without launch delays, compared with the measured work simulated the
same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import numpy.typing as npt

from steptax.app.compute.measure import Level, Measure
from steptax.app.errors import NotFoundError, UserError
from steptax.app.whatif.analysis import Analysis, effect_of, slowest_workers
from steptax.app.whatif.interval import BASIS, INPUTS, mean_measure
from steptax.app.whatif.money import Recovered, recovered
from steptax.app.whatif.optypes import MEAN_IDEAL, NETWORK, canonical
from steptax.app.whatif.scenarios import Worker, given
from steptax.app.whatif.simulate import simulate
from steptax.app.whatif.trace import Floats, Trace

#: Arrays of work that are simulated together; each is as large as the trace.
_TOGETHER = 4
#: Bound of a saving: a step does not become shorter than this share of itself.
_LEAST_STEP = 1e-6
Price = Decimal | float | None
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Answer:
    """A counterfactual: its steps [S] in seconds, how much faster they are, and what it is worth.

    ``saved_s`` per step may be negative: the change makes the job slower.
    """

    question: str
    step_s: Floats
    speedup: Measure
    recovered: Recovered
    warnings: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "question": self.question,
            "step_s": float(self.step_s.mean()),
            "speedup": self.speedup.as_json(),
            **self.recovered.as_json(),
            "warnings": list(self.warnings),
        }


def simulated_error(analysis: Analysis) -> float:
    """Relative difference of the mean simulated and measured step."""
    measured = float(analysis.model.work.base_s.mean())
    return abs(float(analysis.nodelay_s.mean()) - measured) / measured


def answer(
    analysis: Analysis,
    question: str,
    step_s: Floats,
    price: Price,
    *,
    other_s: Floats | None = None,
    warnings: tuple[str, ...] = (),
) -> Answer:
    """Compare spans [S] with the measured work's.

    ``other_s`` [S]: what each step saves by the opposite reckoning (adding the slowness alone);
    the interval then reaches from one to the other.
    """
    original = analysis.nodelay_s
    error = simulated_error(analysis)
    saved = mean_measure(original - step_s, "s", error_ratio=error, warnings=(BASIS,))
    if other_s is not None:
        other = mean_measure(other_s, "s", error_ratio=error)
        bounds = [b for m in (saved, other) for b in (m.low, m.high) if b is not None]
        saved = Measure(
            saved.value,
            "s",
            low=min(bounds),
            high=max(bounds),
            level=Level.TRACE,
            inputs=INPUTS,
            warnings=(BASIS, "and by removing the slowness versus adding it alone"),
        )
    whole = float(original.mean())
    model = analysis.model
    gpus, note = model.trace.gpus()
    return Answer(
        question,
        step_s,
        saved.map(lambda s: whole / max(whole - s, _LEAST_STEP * whole), "x"),
        recovered(saved, whole, len(original), gpus, note, price),
        warnings,
    )


def ask(
    analysis: Analysis, works: Sequence[tuple[str, Callable[[], Floats]]], price: Price
) -> tuple[Answer, ...]:
    """One answer for each (question, maker of the work [O, S, D]).

    The makers are called a few at a time, since each array is as large as the trace.
    """
    model = analysis.model
    out = []
    for begin in range(0, len(works), _TOGETHER):
        some = works[begin : begin + _TOGETHER]
        stack = given(*(make() for _, make in some))
        spans = simulate(model.program, stack, model.lanes).span_s
        out += [
            answer(analysis, question, span, price)
            for (question, _), span in zip(some, spans, strict=True)
        ]
    return tuple(out)


def worker_of(trace: Trace, rank: int) -> Worker:
    """Place of a global rank; NotFoundError when it is not in the trace."""
    dp, stage = np.nonzero(trace.ranks == rank)
    if not len(dp):
        some = ", ".join(map(str, np.sort(trace.ranks.ravel())[:8].tolist()))
        raise NotFoundError(f"rank {rank} is not in the trace", hint=f"recorded are {some}, ...")
    return int(dp[0]), int(stage[0])


def fix_ranks(analysis: Analysis, ranks: Sequence[int], price: Price = None) -> Answer:
    """These ranks are ideal. NotFoundError for a rank that was not recorded."""
    workers = [worker_of(analysis.model.trace, rank) for rank in ranks]
    named = ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")
    return _fix(analysis, workers, f"ranks {named} are like the others", price)


def fix_worst(analysis: Analysis, most: int = 8, price: Price = None) -> tuple[Answer, ...]:
    """The curve over k = 1, 2, ... ``most`` of fixing the k slowest workers."""
    trace = analysis.model.trace
    score = (analysis.by_dp_s.mean(axis=0), analysis.by_stage_s.mean(axis=0))
    order = slowest_workers(trace, *score, count=min(most, trace.ranks.size))
    return tuple(
        _fix(analysis, order[:k], f"the {k} slowest ranks are like the others", price)
        for k in range(1, len(order) + 1)
    )


def _fix(analysis: Analysis, workers: Sequence[Worker], question: str, price: Price) -> Answer:
    effect = effect_of(analysis.model, workers)
    alone = effect.added_s - analysis.ideal_span_s
    return answer(analysis, question, effect.removed_s, price, other_s=alone)


def faster(analysis: Analysis, pattern: str, factor: float, price: Price = None) -> Answer:
    """Operations whose type or name matches ``pattern`` are ``factor`` times as fast.

    ``*-compute`` or ``*flash*``. UserError when nothing matches or the factor is not positive.
    """
    trace = analysis.model.trace
    mask = matching(trace, pattern)
    return _scaled(analysis, mask, factor, f"{pattern} is {factor:g} times as fast", price)


def faster_network(analysis: Analysis, factor: float, price: Price = None) -> Answer:
    """Every transfer and collective is ``factor`` times as fast."""
    trace = analysis.model.trace
    return _scaled(
        analysis, network(trace), factor, f"the network is {factor:g} times as fast", price
    )


def network(trace: Trace) -> Flags:
    """[O] operations that move data."""
    return np.isin(trace.op_type, [i for i, t in enumerate(trace.types) if t in NETWORK])


def faster_device(
    analysis: Analysis, rates: float | Mapping[int, float], price: Price = None
) -> Answer:
    """All devices, or those of some ranks, compute at another rate.

    ``rates`` is the new rate over the present one, 1.2 for a fifth faster, for all or by rank.
    Computing, garbage collection and the optimiser scale; transfers do not.
    """
    trace = analysis.model.trace
    by_op = device_rates(trace, rates)
    if isinstance(rates, Mapping):
        question = f"{len(rates)} ranks compute at another rate"
    else:
        question = f"every device computes {rates:g} times as fast"

    def work() -> Floats:
        out: Floats = analysis.model.work.own_s / by_op[:, None, :]
        return out

    return ask(analysis, [(question, work)], price)[0]


def device_rates(trace: Trace, rates: float | Mapping[int, float]) -> Floats:
    """[O, D] what the work of each operation is divided by; see ``faster_device``."""
    scale = np.ones((trace.stages, trace.shape[2]))
    if isinstance(rates, Mapping):
        for rank, rate in rates.items():
            dp, stage = worker_of(trace, rank)
            scale[stage, dp] = positive(rate)
    else:
        scale[:] = positive(rates)
    kinds = [i for i, t in enumerate(trace.types) if t in MEAN_IDEAL or t in trace.in_stream]
    computing = np.isin(trace.op_type, kinds)
    out: Floats = np.where(computing[:, None], scale[trace.op_stage], 1.0)
    return out


def matching(trace: Trace, pattern: str) -> Flags:
    """[O] operations whose type or name matches a shell pattern; UserError when none does."""
    wanted = canonical(pattern)
    types = [i for i, t in enumerate(trace.types) if fnmatchcase(t, wanted)]
    mask = np.isin(trace.op_type, types)
    if trace.op_name is not None:
        mask |= np.array([fnmatchcase(n.lower(), pattern.lower()) for n in trace.op_name])
    if not mask.any():
        raise UserError(
            f"no operation matches {pattern!r}", hint=f"types are {', '.join(trace.types)}"
        )
    return mask


def _scaled(analysis: Analysis, mask: Flags, factor: float, question: str, price: Price) -> Answer:
    scale = np.where(mask, 1.0 / positive(factor), 1.0)

    def work() -> Floats:
        out: Floats = analysis.model.work.own_s * scale[:, None, None]
        return out

    return ask(analysis, [(question, work)], price)[0]


def positive(factor: float) -> float:
    """The factor; UserError when it is no positive number."""
    if not (np.isfinite(factor) and factor > 0):
        raise UserError(f"a factor must be positive, not {factor}", hint="2 means twice as fast")
    return float(factor)
