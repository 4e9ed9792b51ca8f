"""A job as lanes and communications, ready for questions, and its ideal work.

See ``generic_balance`` for what is ideal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from steptax.app.compute.spoken import spoken_ratio
from steptax.app.errors import InputError
from steptax.app.whatif.errors import GraphError
from steptax.app.whatif.findings import DroppedStep, Findings
from steptax.app.whatif.generic_balance import alike, balanced, ideal_transfers
from steptax.app.whatif.generic_clocks import Clocks, estimate_clocks
from steptax.app.whatif.generic_lanes import make_chains
from steptax.app.whatif.generic_rows import STEP, Matched, Ops, match
from steptax.app.whatif.generic_sim import Plan, make_plan, simulate
from steptax.app.whatif.trace import Floats, JobSizes

#: Above this share of a step, ends of collectives that disagree forbid any answer.
_MOST_DISAGREEMENT = 0.05


@dataclass(frozen=True, eq=False)
class Work:
    """What the ranks [R] of a chain need by themselves: ``own_s`` one [I] each, ``transfer_s``
    [M], ``offset_s`` [R] when they begin.
    """

    own_s: list[Floats]
    transfer_s: Floats
    offset_s: Floats


@dataclass(frozen=True, eq=False)
class GenericModel:
    """Chains of steps with their plans, recorded and ideal work; ``early`` awaits hidden
    communication as early as can be.
    """

    ops: Ops
    plans: tuple[Plan, ...]
    early: tuple[Plan, ...]
    own: tuple[Work, ...]
    ideal: tuple[Work, ...]
    clocks: Clocks
    sizes: JobSizes
    findings: Findings
    clamped_ratio: float
    """Share of recorded communications that end before all of their ranks have started."""
    absent: bool
    """Whether members of groups are not in the trace, so that waiting for them is not seen."""
    alike: bool
    """Whether all ranks communicate alike, so that their work between launches compares."""

    @property
    def step_labels(self) -> tuple[int, ...]:
        """[S] numbers of the steps."""
        return tuple(self.ops.steps[s] for p in self.plans for s in p.chain.steps)

    @property
    def measured_s(self) -> Floats:
        """[S] length of each step, mean over ranks."""
        return np.concatenate([p.chain.measured_s for p in self.plans])

    def own_totals_s(self) -> Floats:
        """[R, S] own time of each rank in each step."""
        per_chain = [
            np.stack([lane.own_per_step_s() for lane in p.chain.lanes]) for p in self.plans
        ]
        return np.concatenate(per_chain, axis=1)

    def gpus(self) -> tuple[int, str | None]:
        """Devices of the job, and a warning where only the recorded ranks are known."""
        count = len(self.ops.ranks)
        if self.sizes.world is not None:
            return self.sizes.world, None
        return count, f"world size unknown: counts only the {count} recorded ranks"

    def play(
        self,
        make: Callable[[int, Plan], Sequence[Work]],
        *,
        delays: bool = False,
        early: bool = False,
    ) -> Floats:
        """[K, S] step lengths of the K scenarios that ``make(number, plan)`` gives for a chain."""
        out = []
        plans = self.early if early else self.plans
        for at, plan in enumerate(plans):
            works = make(at, plan)
            lanes = range(len(plan.chain.lanes))
            own = [np.stack([w.own_s[r] for w in works], axis=1) for r in lanes]
            transfer = np.stack([w.transfer_s for w in works], axis=1)
            offset = np.stack([w.offset_s for w in works], axis=1)
            out.append(simulate(plan, own, transfer, offset, delays=delays))
        return np.concatenate(out).T


def prepare_generic(
    ops: Ops,
    sizes: JobSizes,
    *,
    steps: Sequence[int] | None = None,
    align_clocks: bool = False,
) -> GenericModel:
    """The model of ``ops``; ``steps`` restricts it to these step numbers.

    GraphError names why there is none: a rank without step boundaries, one rank only, nothing that
    connects ranks, ends of collectives that do not agree.
    """
    usable, dropped, warnings = _usable(ops, steps)
    if len(ops.ranks) < 2:
        raise GraphError(
            f"rank {ops.ranks[0]} is the only one in the trace: nobody to compare it with, and "
            "waiting for others cannot be told from transfer; give the files of all ranks",
            where="ops",
        )
    matched = match(ops, usable)
    findings = Findings(len(ops.steps), (*dropped, *matched.dropped), (), warnings)
    if not matched.steps:
        raise GraphError(
            f"no usable step: {findings.dropped[0].where}: {findings.dropped[0].reason}",
            where="ops",
        )
    if not any(len(c.rank) > 1 for c in matched.collectives):
        raise GraphError(
            "no communication connects two ranks of the trace: who waits for whom is unknown "
            "(0 communications matched)",
            where="ops",
        )
    clocks = estimate_clocks(matched.collectives, len(ops.ranks))
    applied = align_clocks or clocks.corrects()
    if applied:
        ops, matched = _aligned(ops, matched, clocks)
    findings = findings.also(
        *matched.warnings, clocks.sentence(ops.ranks, applied=applied), *_of_sizes(ops, sizes)
    )
    chains = make_chains(ops, matched.steps, matched.collectives)
    early = make_chains(ops, matched.steps, matched.collectives, early=True)
    plans = tuple(make_plan(c) for c in chains)
    length = float(np.concatenate([c.measured_s for c in chains]).mean())
    if clocks.residual_s is not None and clocks.residual_s > _MOST_DISAGREEMENT * length:
        raise GraphError(
            f"ranks see the same collectives end {clocks.residual_s * 1e3:.3g} ms apart even with "
            f"their clocks corrected, more than {spoken_ratio(_MOST_DISAGREEMENT)} of a step: "
            "they are matched wrongly, or clocks drift",
            where="ops",
        )
    clamped = sum(p.clamped for p in plans)
    if clamped:
        findings = findings.also(
            f"{clamped} communications end before all of their ranks have started, and count as "
            "immediate"
        )
    own = tuple(recorded(p) for p in plans)
    same = all(alike(p.chain) for p in plans)
    if not same:
        findings = findings.also(
            "ranks communicate differently (pipeline stages, say): their work is balanced only "
            "over whole steps, and heavier stages count as slow ranks"
        )
    transfers = ideal_transfers(plans)
    ideal = tuple(
        Work(
            balanced(p.chain, w.own_s, fine=same),
            t,
            np.full(len(ops.ranks), p.offset_s.mean()),
        )
        for p, w, t in zip(plans, own, transfers, strict=True)
    )
    return GenericModel(
        ops,
        plans,
        tuple(make_plan(c) for c in early),
        own,
        ideal,
        clocks,
        sizes,
        findings,
        clamped / sum(len(p.member_rank) for p in plans),
        matched.absent,
        same,
    )


def recorded(plan: Plan) -> Work:
    """The work of a chain as it was measured."""
    return Work([lane.own_s for lane in plan.chain.lanes], plan.transfer_s, plan.offset_s)


def _usable(
    ops: Ops, steps: Sequence[int] | None
) -> tuple[list[int], list[DroppedStep], tuple[str, ...]]:
    """Indices of steps that every rank has; GraphError for a rank that has none."""
    marks = np.flatnonzero(ops.of(STEP))
    have = np.zeros((len(ops.ranks), len(ops.steps)), bool)
    have[ops.rank[marks], ops.step[marks]] = True
    without = [ops.ranks[r] for r in np.flatnonzero(~have.any(axis=1))]
    if without:
        named = ", ".join(map(str, without[:5]))
        raise GraphError(
            f"rank {named} has no step boundaries: the trace breaks off, or has no ProfilerStep",
            where="ops",
        )
    wanted = list(range(len(ops.steps)))
    if steps is not None:
        absent = sorted(set(steps) - set(ops.steps))
        if absent or not steps:
            raise InputError(
                f"no step {', '.join(map(str, absent[:5]))}" if absent else "no step chosen",
                where="steps",
                hint=f"recorded are {', '.join(map(str, ops.steps[:10]))}",
            )
        wanted = [i for i, s in enumerate(ops.steps) if s in set(steps)]
    usable, dropped = [], []
    for i in wanted:
        lacking = np.flatnonzero(~have[:, i])
        if len(lacking):
            rank = ops.ranks[int(lacking[0])]
            dropped.append(DroppedStep(ops.steps[i], "this rank did not record it", rank))
        else:
            usable.append(i)
    if not usable:
        raise GraphError(
            "no step was recorded on all ranks: were they profiled at different times?",
            where="ops",
        )
    return usable, dropped, ()


def _aligned(ops: Ops, matched: Matched, clocks: Clocks) -> tuple[Ops, Matched]:
    """All times as one clock would have shown them."""
    ahead = np.rint(clocks.offset_s * 1e9).astype(np.int64)
    shift = ahead[ops.rank]
    ops = replace(ops, start_ns=ops.start_ns - shift, end_ns=ops.end_ns - shift)
    for one in matched.collectives:
        for at, r in enumerate(one.rank):
            one.start_ns[at] -= int(ahead[r])
            one.end_ns[at] -= int(ahead[r])
            ready = one.ready_ns[at]
            if ready is not None:
                one.ready_ns[at] = ready - int(ahead[r])
    return ops, matched


def _of_sizes(ops: Ops, sizes: JobSizes) -> list[str]:
    if sizes.world is None or sizes.world == len(ops.ranks):
        return []
    absent = sorted(set(range(sizes.world)) - set(ops.ranks))
    named = ", ".join(map(str, absent[:5])) + (", ..." if len(absent) > 5 else "")
    return [
        f"the job has {sizes.world} ranks, the trace {len(ops.ranks)}: not there are {named}; what "
        "these are slow at cannot be seen"
    ]
