"""What the straggler analysis returns: measures, a verdict, and arrays for tables and figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from steptax.app.compute.causes.hints import Explanation
from steptax.app.compute.causes.majority import Majority
from steptax.app.compute.collectives.link_probe import SlowLinks
from steptax.app.compute.measure import Measure
from steptax.app.compute.stats.rows import Flags, Floats, Ints
from steptax.app.compute.straggler.arrival import BasisChoice
from steptax.app.compute.straggler.coverage import Coverage
from steptax.app.compute.straggler.recurring import Recurrence
from steptax.app.compute.straggler.rules import StragglerRules

if TYPE_CHECKING:
    from steptax.app.compute.straggler.tables import Used


class Kind(StrEnum):
    """What kind of straggler there is."""

    WORKER = "worker"
    STAGE = "stage"
    MOVING = "moving"
    """A different rank from step to step."""
    SELDOM = "seldom"
    """Half of what is lost is one rank's, in too few steps to call it slow for good."""
    MOST = "most"
    """The same ranks all along, and most of them: the job is slow, or the others are fast."""
    PASSED = "passed"
    """One rank made the others wait for a while: not any more, or not for long yet."""
    NONE = "none"
    UNTELLABLE = "untellable"


@dataclass(frozen=True)
class Verdict:
    """One sentence, and what it is about."""

    kind: Kind
    text: str
    ranks: tuple[int, ...] = ()
    """Flagged ranks, largest mean excess first; the ranks of the stage for a stage."""
    stage: int | None = None
    notes: tuple[str, ...] = ()
    """What holds besides, e.g. a stage imbalance next to a slow worker."""
    mostly: int | None = None
    """The rank that most of the waiting was for, where it is not slow for good."""
    left_out: str | None = None
    """Which ranks are not compared, where no rank that is compared is the one to name."""

    @property
    def why_open(self) -> str | None:
        """That ranks are not compared, as a clause; None where it changes nothing."""
        who = self.left_out
        return None if who is None else f"{who} reported too few steps to be compared"

    @property
    def culprit(self) -> int | None:
        """The rank that makes the others wait, if there is one."""
        return self.ranks[0] if self.kind is Kind.WORKER else None


@dataclass(frozen=True, eq=False)
class RankTable:
    """One entry per used rank; all over the used steps. NaN where there is no peer to compare."""

    ranks: NDArray[np.int32]
    stage: NDArray[np.int32] | None
    dp: NDArray[np.int32] | None
    mean_work_us: Floats
    excess_us: Floats
    """Mean over steps of work less the median work of the peers (the others, same stage)."""
    excess_low_us: Floats
    excess_high_us: Floats
    """95 % interval, moving-block bootstrap over steps; NaN with too few steps."""
    excess_surely_us: Floats
    """Lower bound that holds for all ranks at once (``simultaneous``), by which one is accused."""
    persistence_ratio: Floats
    """Share of steps in which the rank is slow."""
    stability_ratio: Floats
    """Of the steps in which anybody is slow, the share in which this rank arrives last."""
    last_ratio: Floats
    """Share of steps in which the rank arrives last, which is to say waits least."""
    mean_wait_us: Floats
    blame_us: Floats
    """Waiting of all ranks and steps that is charged to the rank (airport game)."""
    blame_ratio: Floats
    """Its share of what is charged to all ranks; NaN if nobody waits."""
    recoverable_ratio: Floats
    """Share of paid time that comes back if this rank alone becomes like its peers."""


@dataclass(frozen=True, eq=False)
class StepTable:
    """One entry per recorded step; NaN (or -1) where a step is not used."""

    steps: Ints
    complete: Flags
    """Every expected rank reported."""
    used: Flags
    tax_ratio: Floats
    step_us: Floats
    max_us: Floats
    mean_us: Floats
    p50_us: Floats
    p95_us: Floats
    """Of work over the used ranks."""
    last_rank: NDArray[np.int32]
    """The rank that arrives last, the lowest among equals; -1 where the step is not used."""
    wait_sum_us: Floats
    """Waiting summed over the used ranks."""


@dataclass(frozen=True, eq=False)
class StageTable:
    """One entry per pipeline stage."""

    stages: NDArray[np.int32]
    ranks: Ints
    """Used ranks on the stage."""
    work_us: Floats
    """Mean over steps of the median work on the stage."""
    excess_us: Floats
    """Mean over steps of that less the median of the other stages."""
    excess_surely_us: Floats
    """Its lower bound, which holds for all stages at once."""
    persistence_ratio: Floats
    """Share of steps in which the stage exceeds the others by more than the allowed share."""


@dataclass(frozen=True)
class CurvePoint:
    """Paid time that comes back once this rank and those before it are like their peers."""

    rank: int
    recoverable: Measure


@dataclass(frozen=True)
class IdealSlowdown:
    """Slowdown and waste against one of the ideals."""

    ideal: str
    slowdown_ratio: Measure
    waste_ratio: Measure


@dataclass(frozen=True, eq=False)
class StragglerResult:
    """The straggler statistics of one job over the steps given."""

    basis: BasisChoice
    rules: StragglerRules
    coverage: Coverage
    ideal: str
    tax_ratio: Measure
    """Waiting / paid time (the mean rank as ideal, so that it is idle time and adds up)."""
    slowdown_ratio: Measure
    """Step time / ideal step time, ideal as named by ``ideal``."""
    waste_ratio: Measure
    """1 - 1/slowdown; equal to the tax when the ideal is the mean."""
    ideals: tuple[IdealSlowdown, ...]
    """Both against every ideal, in the order of ``IDEALS``."""
    persistent_ratio: Measure
    transient_ratio: Measure
    """The parts of the tax due to the latest rank on average, and to the rest; they add up."""
    persistent_share_ratio: Measure
    """Persistent part / tax."""
    between_stage_ratio: Measure
    within_stage_ratio: Measure
    """The parts of the tax due to the latest stage on average, and to the rest; they add up."""
    recoverable_ratio: Measure
    """Share of paid time that comes back if the flagged ranks become like their peers."""
    curve: tuple[CurvePoint, ...]
    """The same for the slowest 1, 2, ... ranks."""
    step_us: Measure
    """Mean length of a step."""
    ideal_step_us: Measure
    wait_us: Measure
    """Mean waiting of a rank in a step."""
    verdict: Verdict
    recurring: Mapping[int, Recurrence]
    """How ranks are slow again and again, by rank number; those that are for good are not here."""
    explanation: Explanation
    steps: StepTable
    ranks: RankTable | None
    """None when who waits for whom cannot be told; the verdict says why."""
    stages: StageTable | None
    majority: Majority | None = None
    """The two kinds of ranks, where most ranks are the slower ones."""
    slow_links: SlowLinks | None = None
    """Why the culprit is one where link probes name it, and not its own work."""
    link_excess_us: Measure | None = None
    """By how much it then holds up every rank in a step, at most."""
    used: Used | None = field(default=None, repr=False)
    """The reports that all this rests on, for whoever looks on; None where nothing can be told."""

    @property
    def ranks_used(self) -> frozenset[int]:
        """The ranks that are compared."""
        return frozenset() if self.ranks is None else frozenset(self.ranks.ranks.tolist())
