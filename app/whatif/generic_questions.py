"""Questions to a profiler's trace: ranks like the others, faster kernels, devices and networks.

A faster kernel shortens a lane only where nothing else of the lane runs at the same time, and what
it hid of communication becomes exposed. When hidden communication is needed is not recorded, so
that the interval reaches from needing it at once to needing it at the end of the step.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
import numpy.typing as npt

from steptax.app.compute.measure import Level, Measure
from steptax.app.errors import NotFoundError, UserError
from steptax.app.intervals import length_until, minus, union
from steptax.app.whatif.combine import Combination, ordered
from steptax.app.whatif.fixes import Fix, FixKind
from steptax.app.whatif.generic import OWN, GenericAnalysis
from steptax.app.whatif.generic_balance import balanced
from steptax.app.whatif.generic_lanes import Chain
from steptax.app.whatif.generic_model import GenericModel, Work, recorded
from steptax.app.whatif.generic_rows import LANE
from steptax.app.whatif.generic_sim import Plan
from steptax.app.whatif.interval import BASIS, INPUTS, mean_measure
from steptax.app.whatif.money import recovered
from steptax.app.whatif.optypes import canonical
from steptax.app.whatif.questions import Answer, Price, positive
from steptax.app.whatif.trace import Floats

Flags = npt.NDArray[np.bool_]

#: What can be asked of a trace without a pipeline schedule.
KINDS = (
    FixKind.RANKS,
    FixKind.WORST,
    FixKind.OPTYPE,
    FixKind.DEVICE,
    FixKind.KERNEL,
    FixKind.NETWORK,
)
HIDDEN = (
    "and from needing hidden communication at once to needing it at the end of the step, as a "
    "profile does not record which"
)
HOST = (
    "launches of the host count as before: where it launches too slowly, the device waits for it "
    "and less comes back"
)
_LEAST_STEP = 1e-6


def fix_ranks(analysis: GenericAnalysis, ranks: Sequence[int], price: Price = None) -> Answer:
    """These ranks do as much by themselves as the mean of the others."""
    return combine_generic(analysis, [Fix(FixKind.RANKS, tuple(ranks))], price).answer


def faster(analysis: GenericAnalysis, pattern: str, factor: float, price: Price = None) -> Answer:
    """Operations whose type or name matches are ``factor`` times as fast.

    UserError when nothing matches or the factor is not positive.
    """
    fix = Fix(FixKind.KERNEL, name=pattern, factor=positive(factor))
    return combine_generic(analysis, [fix], price).answer


def faster_network(analysis: GenericAnalysis, factor: float, price: Price = None) -> Answer:
    """Every communication is ``factor`` times as fast once all of its ranks are there."""
    fix = Fix(FixKind.NETWORK, factor=positive(factor))
    return combine_generic(analysis, [fix], price).answer


def combine_generic(
    analysis: GenericAnalysis, fixes: Sequence[Fix | str], price: Price = None
) -> Combination:
    """All ``fixes`` together; none at all is the job as it is.

    UserError for what needs a pipeline schedule or matches nothing, NotFoundError for a rank that
    is not in the trace.
    """
    asked = ordered(fixes)
    for fix in asked:
        if fix.kind not in KINDS:
            raise UserError(
                f"{fix.text} needs the schedule of a pipeline, which a profiler's trace does not "
                "have",
                where="fix",
                hint="ranks:..., worst:..., optype:..., kernel:..., network:... and device:... "
                "can be asked",
            )
    model = analysis.model
    change = _Change(analysis, asked)
    late = model.play(lambda _, plan: [change.of(plan)])[0]
    early = model.play(lambda _, plan: [recorded(plan), change.of(plan)], early=True)
    ideal_s = model.play(lambda _, plan: [change.ideal(plan)])[0] if asked else analysis.ideal_s
    question = "; ".join(fix.title for fix in asked) or "nothing is changed"
    saved = _saved(analysis.nodelay_s - late, early[0] - early[1])
    whole = float(analysis.nodelay_s.mean())
    gpus, note = model.gpus()
    warnings = (HOST,) if any(f.kind in (FixKind.KERNEL, FixKind.DEVICE) for f in asked) else ()
    answer = Answer(
        question,
        late,
        saved.map(lambda s: whole / max(whole - s, _LEAST_STEP * whole), "x"),
        recovered(saved, whole, len(late), gpus, note, price),
        warnings,
    )
    return Combination(
        asked,
        answer,
        mean_measure(late, "s", warnings=(BASIS,)),
        mean_measure(late, "x", scale=1 / float(ideal_s.mean()), warnings=(BASIS,)),
    )


def _saved(late: Floats, early: Floats) -> Measure:
    """Seconds saved per step, bounded by both readings of hidden communication."""
    one, two = mean_measure(late, "s"), mean_measure(early, "s")
    bounds = [b for m in (one, two) for b in (m.low, m.high) if b is not None]
    return Measure(
        one.value,
        "s",
        low=min(bounds),
        high=max(bounds),
        level=Level.TRACE,
        inputs=INPUTS,
        warnings=(BASIS, HIDDEN),
    )


@dataclass(frozen=True, eq=False)
class _Change:
    """What fixes make of the work of a chain."""

    analysis: GenericAnalysis
    fixes: tuple[Fix, ...]

    def of(self, plan: Plan) -> Work:
        """The changed work."""
        own, even = recorded(plan), self._even(plan)
        for fix in self.fixes:
            own = self._apply(fix, own, even, plan)
        return own

    def ideal(self, plan: Plan) -> Work:
        """The ideal of the changed job: its work balanced, transfers of its network."""
        changed, even = self.of(plan), self._even(plan)
        for fix in self.fixes:
            if fix.kind in (FixKind.KERNEL, FixKind.NETWORK):
                even = self._apply(fix, even, even, plan)
        own = balanced(plan.chain, changed.own_s, fine=self.analysis.model.alike)
        offset = np.full(len(own), changed.offset_s.mean())
        return Work(own, even.transfer_s, offset)

    def _even(self, plan: Plan) -> Work:
        model = self.analysis.model
        at = next(i for i, p in enumerate(model.plans) if p.chain.steps == plan.chain.steps)
        ideal = model.ideal[at]
        own = balanced(plan.chain, recorded(plan).own_s, fine=model.alike)
        return Work(own, ideal.transfer_s, ideal.offset_s)

    def _apply(self, fix: Fix, work: Work, even: Work, plan: Plan) -> Work:
        model = self.analysis.model
        match fix.kind:
            case FixKind.RANKS:
                return _like_others(work, plan, model, self._places(fix.numbers))
            case FixKind.WORST:
                order = np.argsort(-self.analysis.excess_s.mean(axis=1), kind="stable")
                return _like_others(work, plan, model, order[: fix.numbers[0]].tolist())
            case FixKind.OPTYPE if fix.name == OWN:
                return Work(even.own_s, work.transfer_s, even.offset_s)
            case FixKind.OPTYPE:
                mine = _of_op(plan, fix.name)
                if not mine.any():
                    raise UserError(
                        f"no operation is of type {fix.name!r}",
                        where="fix",
                        hint=f"types are {', '.join(self.analysis.by_type_s)}",
                    )
                transfer = np.where(mine, even.transfer_s, work.transfer_s)
                return Work(work.own_s, transfer, work.offset_s)
            case FixKind.NETWORK:
                return Work(work.own_s, work.transfer_s / fix.factor, work.offset_s)
            case FixKind.DEVICE:
                lane = model.ops.of(*LANE)
                rates = dict.fromkeys(range(len(model.ops.ranks)), fix.factor)
                if fix.rates:
                    places = self._places([rank for rank, _ in fix.rates])
                    rates = dict(zip(places, [rate for _, rate in fix.rates], strict=True))
                return _shorter(work, plan, model, lane, rates)
            case _:
                return self._kernel(fix, work, plan)

    def _kernel(self, fix: Fix, work: Work, plan: Plan) -> Work:
        model = self.analysis.model
        mask = matching_ops(model, fix.name)
        rates = dict.fromkeys(range(len(model.ops.ranks)), fix.factor)
        work = _shorter(work, plan, model, mask, rates)
        kinds = {model.ops.types[t] for t in np.unique(model.ops.op_type[mask]).tolist()}
        named = {n for n in kinds if n not in LANE}
        mine = np.repeat(
            [c.op in named for c in plan.chain.collectives], np.diff(plan.first)
        ).astype(bool)
        transfer = np.where(mine, work.transfer_s / fix.factor, work.transfer_s)
        return Work(work.own_s, transfer, work.offset_s)

    def _places(self, ranks: Collection[int]) -> list[int]:
        have = self.analysis.ranks
        for rank in ranks:
            if rank not in have:
                some = ", ".join(map(str, have[:8])) + (", ..." if len(have) > 8 else "")
                raise NotFoundError(
                    f"rank {rank} is not in the trace", where="fix", hint=f"recorded are {some}"
                )
        return [have.index(rank) for rank in ranks]


def matching_ops(model: GenericModel, pattern: str) -> Flags:
    """[N] operations whose type or name matches a shell pattern; UserError when none does."""
    ops = model.ops
    types = [i for i, t in enumerate(ops.types) if fnmatchcase(t, canonical(pattern))]
    names = [i for i, n in enumerate(ops.names) if fnmatchcase(n.lower(), pattern.lower())]
    useful = ~ops.of("step", "ready", "input", "h2d-copy", "copy", "memset")
    mask: Flags = (np.isin(ops.op_type, types) | np.isin(ops.name, names)) & useful
    if not mask.any():
        known = ", ".join(sorted({ops.types[t] for t in np.unique(ops.op_type[useful]).tolist()}))
        raise UserError(
            f"no operation matches {pattern!r}",
            where="fix",
            hint=f"types are {known}; names match as *gemm*",
        )
    return mask


def _like_others(work: Work, plan: Plan, model: GenericModel, places: Sequence[int]) -> Work:
    """The own work of ``places`` is the mean of the others'; UserError when none is left."""
    rest = [r for r in range(len(plan.chain.lanes)) if r not in places]
    if not rest:
        raise UserError(
            "all ranks cannot be like the others", where="fix", hint="name fewer of them"
        )
    others = balanced(plan.chain, work.own_s, fine=model.alike, without=places)
    offset = work.offset_s.copy()
    offset[list(places)] = work.offset_s[rest].mean()
    own = [others[r] if r in places else mine for r, mine in enumerate(work.own_s)]
    return Work(own, work.transfer_s, offset)


def _shorter(
    work: Work, plan: Plan, model: GenericModel, mask: Flags, rates: dict[int, float]
) -> Work:
    """Work with the operations of ``mask`` faster on some ranks, where they run alone."""
    own = list(work.own_s)
    for r, rate in rates.items():
        share = _share_alone(plan.chain, model, mask, r)
        own[r] = own[r] * (1 - share * (1 - 1 / rate))
    return Work(own, work.transfer_s, work.offset_s)


def _share_alone(chain: Chain, model: GenericModel, mask: Flags, rank: int) -> Floats:
    """[I] share of a lane's own time before each item in which only operations of ``mask`` run."""
    ops, lane = model.ops, chain.lanes[rank]
    here = (ops.rank == rank) & ops.of(*LANE)
    inside, outside = here & mask, here & ~mask
    alone = minus(
        union(ops.start_ns[inside], ops.end_ns[inside]),
        union(ops.start_ns[outside], ops.end_ns[outside]),
    )
    edges = np.append(lane.begin_ns, lane.at_ns)
    taken = np.diff(length_until(alone, edges)) / 1e9
    share: Floats = np.divide(
        taken, lane.own_s, out=np.zeros_like(lane.own_s), where=lane.own_s > 0
    )
    return np.clip(share, 0.0, 1.0)


def _of_op(plan: Plan, op: str) -> Flags:
    """[M] members of communications of one kind."""
    out: Flags = np.repeat(
        [c.op == op for c in plan.chain.collectives], np.diff(plan.first)
    ).astype(bool)
    return out
