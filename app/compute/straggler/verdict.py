"""From the per-rank and per-stage statistics to one verdict in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from steptax.app.compute.causes.majority import Majority
from steptax.app.compute.spoken import spoken_list, spoken_ratio, spoken_us
from steptax.app.compute.straggler.coverage import Coverage
from steptax.app.compute.straggler.result import Kind, RankTable, StageTable, Verdict
from steptax.app.compute.straggler.rules import StragglerRules
from steptax.app.compute.straggler.spells import Spells, slow_in_most, typical_us

_DURATIONS_ONLY = (
    "This rests on step times alone: if they span the barrier, a slow rank would not show in them; "
    "per-rank phases or time in collectives would tell."
)


def costly_places(table: RankTable, mean_step_us: float, rules: StragglerRules) -> NDArray[np.intp]:
    """Positions of the ranks that cost a good part of the step, largest mean excess first.

    Noise is skewed, so that the mean of a healthy rank lies above the median of its peers: what the
    typical rank has is no excess.
    """
    with np.errstate(invalid="ignore"):
        over = table.excess_us - typical_us(table)
        costly = over >= rules.worker_excess_ratio * mean_step_us
    places = np.flatnonzero(costly)
    return places[np.argsort(-table.excess_us[places], kind="stable")]


def flagged_places(
    table: RankTable,
    costly: NDArray[np.intp],
    spells: Spells,
    mean_step_us: float,
    rules: StragglerRules,
) -> NDArray[np.intp]:
    """Which of the ``costly`` positions are slow for good, in their order.

    Slow for good: slow in most steps, by more than the slowest of as many healthy ranks is by
    chance, or with an episode that says so; in all but a few since it became slow; again and again.
    """
    sure = slow_in_most(table, mean_step_us, rules)[costly]
    often = table.persistence_ratio[costly] >= rules.worker_persistence_ratio
    seen, beside = (
        np.array([int(place) in known for place in costly], dtype=bool)
        for known in (spells.seen, {*spells.lately, *spells.recurring})
    )
    return np.asarray(costly[sure | (often & seen) | beside], dtype=np.intp)


def flagged_stage(
    table: StageTable | None, mean_step_us: float, rules: StragglerRules
) -> int | None:
    """Position of the stage that is heavier than the others for good, or None."""
    if table is None:
        return None
    heaviest = int(np.argmax(table.excess_us))
    if (
        table.excess_us[heaviest] >= rules.stage_excess_ratio * mean_step_us
        and table.excess_surely_us[heaviest] >= rules.worker_surely_ratio * mean_step_us
        and table.persistence_ratio[heaviest] >= rules.stage_persistence_ratio
    ):
        return heaviest
    return None


def judge(
    table: RankTable,
    flagged: NDArray[np.intp],
    stages: StageTable | None,
    stage: int | None,
    *,
    coverage: Coverage,
    tax_ratio: float,
    mean_step_us: float,
    relative_time: bool,
    durations_only: bool,
    rules: StragglerRules,
    spells: Spells,
    majority: Majority | None = None,
) -> Verdict:
    """The verdict for a job whose waits are known."""

    def excess(value_us: float) -> str:
        share = f"{spoken_ratio(value_us / mean_step_us)} of the mean step"
        return f"+{share}" if relative_time else f"+{spoken_us(value_us)} ({share})"

    if len(flagged):
        ranks = tuple(int(r) for r in table.ranks[flagged])
        first = int(flagged[0])
        if len(ranks) == 1:
            rest = coverage.ranks_expected - 1  # also those with too few reports to be compared
            head = (
                f"Rank {ranks[0]} makes the other {rest:,} wait: "
                if rest > 1
                else (f"Rank {ranks[0]} makes the other one wait: ")
            )
        else:
            head = f"Ranks {spoken_list(ranks)} make the others wait, rank {ranks[0]} most: "
        amount = excess(float(table.excess_us[first]))
        text = f"{head}{amount} over its peers' median, "
        if first in spells.recurring:
            again = spells.recurring[first]
            text = (
                f"{head}{amount} over its peers' median on average, {excess(again.level)} in the "
                f"{spoken_ratio(again.duty_ratio)} of the steps in which it is slow, in "
                f"{again.stretches:,} separate stretches."
            )
        else:
            text += f"slow in {spoken_ratio(float(table.persistence_ratio[first]))} of the steps"
            since = spells.lately.get(first)
            text += "." if since is None else f", nearly all since step {since}."
        notes: tuple[str, ...] = ()
        if stages is not None and stage is not None:
            notes = (_stage_text(stages, stage, excess, table),)
        return Verdict(Kind.WORKER, text, ranks, notes=notes)
    if stages is not None and stage is not None:
        number = int(stages.stages[stage])
        assert table.stage is not None
        ranks = tuple(int(r) for r in table.ranks[table.stage == number])
        return Verdict(Kind.STAGE, _stage_text(stages, stage, excess, table), ranks, stage=number)
    if len(table.ranks) == 1:
        return Verdict(Kind.NONE, "One rank: there is nobody to wait for.")
    who = coverage.who_is_left_out
    found = _nobody_for_good(
        table,
        None if who is None else f"none of the {len(table.ranks):,} that are compared",
        tax_ratio=tax_ratio,
        excess=excess,
        durations_only=durations_only,
        rules=rules,
        spells=spells,
        majority=majority,
    )
    return found if who is None else _with_left_out(found, who, coverage)


def _with_left_out(found: Verdict, who: str, coverage: Coverage) -> Verdict:
    """``found`` of the ranks that are compared, with ``who`` is not."""
    alone = coverage.ranks_expected - coverage.ranks_used == 1
    open_ = "whether it is slow is" if alone else "whether one of them is slow is"
    rest = f"{open_} not known"
    if found.kind is not Kind.NONE:
        rest = f"the others may wait for {'it' if alone else 'one of them'}"
    said = replace(found, left_out=who)
    why = said.why_open or ""
    return replace(said, text=f"{found.text} {why[:1].upper()}{why[1:]}: {rest}.")


def _nobody_for_good(
    table: RankTable,
    none_compared: str | None,
    *,
    tax_ratio: float,
    excess: Callable[[float], str],
    durations_only: bool,
    rules: StragglerRules,
    spells: Spells,
    majority: Majority | None,
) -> Verdict:
    """The verdict where no rank and no stage is slow for good.

    ``none_compared`` says ``none of the 7 that are compared`` where some are not, else None.
    """
    nobody = none_compared or "no rank"
    passed = spells.passed
    if tax_ratio >= rules.tax_floor_ratio and passed is not None:
        rank = int(table.ranks[passed.place])
        return Verdict(
            Kind.PASSED,
            f"Ranks waited {spoken_ratio(tax_ratio)} of the paid time, most of it for rank {rank} "
            + (
                f"since step {passed.first_step}: that is too new to be called slow for good."
                if passed.is_open
                else f"in steps {passed.first_step} to {passed.last_step}: it is slow no longer."
            ),
            mostly=rank,
        )
    if tax_ratio >= rules.tax_floor_ratio and spells.most is not None:
        place, share = spells.most
        rank = int(table.ranks[place])
        return Verdict(
            Kind.SELDOM,
            f"Ranks wait {spoken_ratio(tax_ratio)} of the paid time. {spoken_ratio(share)} of what "
            f"the slowest ranks cost is rank {rank}'s, in "
            f"{spoken_ratio(float(table.persistence_ratio[place]))} of the steps: too few, or "
            f"steps that are long for all ranks, so {nobody} is slow for good.",
            mostly=rank,
        )
    if tax_ratio >= rules.tax_floor_ratio and majority is not None:
        kind = Kind.NONE if len(majority.fast) == 1 else Kind.MOST
        return Verdict(kind, _majority_text(majority, tax_ratio, excess, table, nobody))
    if tax_ratio >= rules.tax_floor_ratio:
        waited = f"Ranks wait {spoken_ratio(tax_ratio)} of the paid time"
        return Verdict(
            Kind.MOVING,
            f"{waited}, for a different rank from step to step: no rank is slow for good."
            if none_compared is None
            else f"{waited}, and {none_compared} is slow for good.",
        )
    return Verdict(
        Kind.NONE,
        f"No straggler: ranks wait {spoken_ratio(tax_ratio)} of the paid time and no rank is slow "
        "for good."
        if none_compared is None
        # What they wait for the others shows where waiting itself is measured, and only there.
        else f"{none_compared[:1].upper()}{none_compared[1:]} is slow for good: they wait "
        f"{spoken_ratio(tax_ratio)} of the paid time for each other.",
        notes=(_DURATIONS_ONLY,) if durations_only else (),
    )


def _majority_text(
    found: Majority,
    tax_ratio: float,
    excess: Callable[[float], str],
    table: RankTable,
    nobody: str,
) -> str:
    fast = [int(r) for r in table.ranks[found.fast]]
    slow = [int(r) for r in table.ranks[found.slow]]
    often = f"in {spoken_ratio(found.steps_ratio)} of the steps"
    waited = f"Ranks wait {spoken_ratio(tax_ratio)} of the paid time"
    if len(fast) == 1:
        return (
            f"{waited}, rank {fast[0]} most: it is faster than the other {len(slow):,}, which work "
            f"{excess(found.gap_us)} longer {often}. {nobody[:1].upper()}{nobody[1:]} is slow."
        )
    return (
        f"{waited}, for the same {len(slow):,} of {len(table.ranks):,} ranks "
        f"({spoken_list(slow)}): "
        f"they work {excess(found.gap_us)} longer than the others {often}. More than half are "
        "slow: that is the job, or what these ranks share, and no single rank."
    )


def untellable(reason: str) -> Verdict:
    """The verdict when the evidence cannot tell."""
    return Verdict(Kind.UNTELLABLE, f"Who is slow cannot be told: {reason}.")


def _stage_text(
    stages: StageTable, stage: int, excess: Callable[[float], str], table: RankTable
) -> str:
    number = int(stages.stages[stage])
    amount = excess(float(stages.excess_us[stage]))
    ranks = [] if table.stage is None else list(table.ranks[table.stage == number])
    head = f"Pipeline stage {number} (rank{'s' if len(ranks) > 1 else ''} {spoken_list(ranks)})"
    if stages.ranks[stage] == 1:
        return (
            f"{head} works longer than the other stages: {amount}; with one rank on a stage a "
            "heavy stage and a slow device look alike."
        )
    return (
        f"{head} works longer than the other stages: {amount} in the median of its ranks; that is "
        "how the model is partitioned, not a slow device."
    )
