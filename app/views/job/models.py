"""What the job page draws and ``steptax job`` prints, as typed objects without logic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from steptax.app.compute.measure import Measure
from steptax.app.views.job.cause_models import FindingRow
from steptax.app.views.job.quiet_failures import QuietFailures
from steptax.app.views.models import Bill, Coverage, LedgerLine, Price, Window
from steptax.app.views.reported.comparison_models import Blame, Comparison
from steptax.app.views.reported.models import Beside, Reports

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


#: What is said of a culprit of which no coordinate is known.
NO_GROUP = "no TP, PP or DP group is known for it"


@dataclass(frozen=True)
class Card:
    """The straggler card. Every text is complete; a field that cannot be known says why."""

    verdict: str
    """worker, stage, moving, most, seldom, passed, none or untellable."""
    sentence: str
    job_utilisation: Measure
    step_ms: Measure
    ideal_step_ms: Measure
    slowdown: Measure
    straggler_tax: Measure
    dominant_cause: str
    culprit_rank: int | None
    culprit_ranks: tuple[int, ...]
    culprit_place: str | None
    """Host, device and process of the culprit."""
    culprit_scope: str | None
    """Its TP, PP and DP groups."""
    phase: str | None
    phase_share: Measure
    excess_ms: Measure
    excess_against: str
    persistence: Measure
    stability: Measure
    since: str
    """Since when the culprit is slow, in words, or why that is not known."""
    since_step: int | None
    """Its first slow step; None where it was slow from the first step looked at."""
    probable_cause: str
    evidence_for: tuple[str, ...]
    evidence_against: tuple[str, ...]
    would_settle: tuple[str, ...]
    cost_per_hour_usd: Measure
    cost_per_day_usd: Measure
    cost_basis: str
    """Of what time these costs are, in words."""
    cost_since_usd: Measure | None
    """Per day since ``since_step``; None where it did not begin there, or is over."""
    cost_window_usd: Measure
    next_action: str
    level: str
    estimate_note: str | None
    """Said beside the numbers when they are an estimate, e.g. without a dependency graph."""
    slow_steps: tuple[int, ...] = ()
    persistence_of: str = "steps"
    """Of what ``persistence`` is a share."""
    confidence: float | None = None
    """In the probable cause, of 1; None where none is named or it is not scored."""

    @property
    def names_somebody(self) -> bool:
        """Whether a rank or a stage is named; else there is no cause of anybody's to speak of."""
        return self.culprit_rank is not None or self.verdict == "stage"

    @property
    def cause_titles(self) -> tuple[str, str]:
        """Of the cause and of what speaks for it, which only describe without a culprit."""
        return ("probable cause", "for it") if self.names_somebody else ("cause", "seen")


@dataclass(frozen=True)
class Series:
    """Per step, thinned to what a chart shows; ``thinned`` says from how many."""

    steps: IntArray
    duration_ms: FloatArray
    work_p50_ms: FloatArray
    work_p95_ms: FloatArray
    work_max_ms: FloatArray
    slowest_rank: IntArray
    tax: FloatArray
    loss: FloatArray | None
    steps_before_thinning: int


#: What a cell of several ranks and steps holds.
Pooling = Literal["largest", "mean"]


@dataclass(frozen=True)
class HeatMap:
    """Excess over the peers' median in ms, ranks down, steps across, pooled to a drawable size.

    Cell ``[i, j]`` covers ranks ``rank_edges[i] .. rank_edges[i+1]-1`` and steps
    ``step_edges[j] .. step_edges[j+1]-1`` (indices of ``ranks`` and ``steps``); it holds the
    largest excess of its ranks and steps, so that no spike is averaged away, or their mean, in
    which what lasts stands out. NaN: not reported.
    """

    excess_ms: FloatArray
    ranks: IntArray
    steps: IntArray
    rank_edges: IntArray
    step_edges: IntArray
    colour_limit_ms: float
    """Colours run so far to both sides of their middle: see ``shape.coloured``."""
    pooled_by: Pooling = "largest"
    until: IntArray | None = None
    """Last step of what each of ``steps`` begins, where that is a block of steps."""
    middle_ms: float = 0.0
    """What has the middle colour: zero, or the typical cell where nearly all lie above zero."""

    @property
    def columns(self) -> list[tuple[int, int]]:
        """First and last step of each column of cells."""
        first, last = self.step_edges[:-1], self.step_edges[1:] - 1
        ends = self.steps if self.until is None else self.until
        return list(zip(self.steps[first].tolist(), ends[last].tolist(), strict=True))

    @property
    def is_pooled(self) -> bool:
        """Whether a cell stands for more than one rank or step."""
        return self.excess_ms.shape != (len(self.ranks), len(self.steps))


@dataclass(frozen=True)
class Grid:
    """Mean work less the median rank's, in ms, by DP replica (across) and pipeline stage (down).

    NaN where no rank is.
    """

    excess_ms: FloatArray
    dp: IntArray
    pp: IntArray
    rank: IntArray
    """Rank of each cell, -1 where none."""
    pattern: str
    """What the pattern of the grid says, in words."""


@dataclass(frozen=True)
class RankRow:
    """One line of the top-ranks table."""

    rank: int
    host: str | None
    stage: int | None
    dp: int | None
    work_ms: float
    excess_ms: float | None
    excess_low_ms: float | None
    excess_high_ms: float | None
    persistence: float
    slowest_share: float
    wait_ms: float | None
    blame_share: float | None


@dataclass(frozen=True)
class PhaseBar:
    """One rank's step, phase by phase; ``role`` is culprit, victim, median or chosen."""

    rank: int
    role: str
    label: str
    phases_ms: dict[str, float]
    """In the order of drawing; ``unmeasured`` is what no phase covers."""


@dataclass(frozen=True)
class StepTimeline:
    """Every shown rank in one step."""

    step: int
    bars: tuple[PhaseBar, ...]
    ranks_in_step: int
    note: str | None = None


@dataclass(frozen=True)
class JobHeader:
    """Who and what the job is."""

    job_id: str
    name: str | None
    team: str | None
    owner: str | None
    framework: str | None
    state: str | None
    gpu_model: str | None
    world_size: int | None
    topology: str
    time_basis: str
    start_us: int | None
    end_us: int | None
    attempt: int


@dataclass(frozen=True)
class JobView:
    """Everything that the job page and ``steptax job`` show."""

    header: JobHeader
    window: Window
    price: Price
    coverage: Coverage
    card: Card
    metrics: dict[str, Measure]
    ledger: tuple[LedgerLine, ...]
    ledger_note: str
    bill: Bill
    series: Series
    heat: HeatMap
    heat_mean: HeatMap | None
    """The same by the mean of each cell; None where every rank and step has a cell of its own."""
    grid: Grid | None
    ranks: tuple[RankRow, ...]
    blame: Blame
    comparison: Comparison
    """The same steps by other references and other detectors."""
    reports: Reports
    """What other tools and the job's log say."""
    beside: tuple[Beside, ...]
    """What the log printed of the whole job, each figure beside ours."""
    version: str
    findings: tuple[FindingRow, ...] = ()
    """What makes it slow, with causes, costliest first."""
    no_findings: str | None = None
    """Why none could be looked for."""
    quiet: QuietFailures | None = None
    """The quiet failures of the same steps, where they were asked for and the job is over."""
