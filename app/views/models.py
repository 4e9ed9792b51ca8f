"""The typed objects that pages draw and commands print. They hold no logic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt

from steptax.app.compute.measure import Measure
from steptax.app.views.cause_models import FindingRow
from steptax.app.views.comparison_models import Blame, Comparison
from steptax.app.views.report_models import Beside, Reports
from steptax.app.views.review_models import (
    AnomalyRow,
    EmptyPeriod,
    FixFirst,
    ForecastRow,
    LearningRow,
    ReviewCard,
    ShowbackRow,
    SilentSource,
    VarianceView,
    WeekRow,
)

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Price:
    """What a GPU-hour costs, and who says so."""

    usd_per_gpu_hour: Decimal | None
    basis: str
    """For people, e.g. ``list price you set: $2.00 per GPU-hour``, or that none is set."""


@dataclass(frozen=True)
class Window:
    """Steps that a view rests on, both ends included, and the extent that the lake holds."""

    first_step: int
    last_step: int
    stored_first_step: int
    stored_last_step: int
    note: str | None = None

    @property
    def is_all(self) -> bool:
        """Whether nothing that is stored was left out."""
        return (self.first_step, self.last_step) == (
            self.stored_first_step,
            self.stored_last_step,
        )


@dataclass(frozen=True)
class StoppedRank:
    """A rank that no longer reports."""

    rank: int
    host: str | None
    last_step: int | None
    since_us: int | None
    doing: str | None
    """Phase in which it was heard last, when its recorder said so."""
    text: str


@dataclass(frozen=True)
class Coverage:
    """How much of the job the numbers rest on."""

    text: str
    ranks_reporting: int
    """That report still, of a job that runs; else those that did."""
    ranks_expected: int
    steps_used: int
    steps_total: int
    steps_incomplete: int
    duplicates: int
    rejected_rows: int
    newest_us: int | None
    newest_age_s: float | None
    is_live: bool
    stale: str | None
    """Why the newest data is old, when it is older than three intervals of a running job."""
    stopped: tuple[StoppedRank, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Card:
    """The straggler card. Every text is complete; a field that cannot be known says why."""

    verdict: str
    """worker, stage, moving, none or untellable."""
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
class LedgerLine:
    """One bucket of the ledger; None where it was not measured, which is not zero."""

    bucket: str
    title: str
    gpu_seconds: float | None
    share: float | None
    usd: Decimal | None
    is_loss: bool
    note: str | None = None

    def as_json(self) -> dict[str, Any]:
        """As every command prints it."""
        return {
            "bucket": self.bucket,
            "title": self.title,
            "gpu_seconds": self.gpu_seconds,
            "usd": self.usd,
            "share": self.share,
            "note": self.note,
        }


@dataclass(frozen=True)
class BillLine(LedgerLine):
    """One bucket of a job's whole bill."""

    number: str = ""
    """Its place in the waterfall, 0 to 13; of a coarser bucket the range that it holds."""

    def as_json(self) -> dict[str, Any]:
        """As every command prints it."""
        return {"number": self.number} | super().as_json()


@dataclass(frozen=True)
class Bill:
    """Where every paid GPU-second of a job's life went; no lines where that cannot be told."""

    lines: tuple[BillLine, ...]
    metrics: dict[str, Measure]
    note: str
    """What it covers, or why there are no lines."""
    at_risk: Measure | None
    """Work since the last save: what a failure now would lose."""
    findings: tuple[str, ...]
    """Overlaps, clocks, rejected records, and how each was dealt with."""
    gpu_hours: Measure | None = None
    """Of all lines; None without any."""


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


@dataclass(frozen=True)
class HeatMap:
    """Excess over the peers' median in ms, ranks down, steps across, pooled to a drawable size.

    Cell ``[i, j]`` covers ranks ``rank_edges[i] .. rank_edges[i+1]-1`` and steps
    ``step_edges[j] .. step_edges[j+1]-1`` (indices of ``ranks`` and ``steps``); it holds the
    largest excess of its ranks and steps, so that no spike is averaged away. NaN: not reported.
    """

    excess_ms: FloatArray
    ranks: IntArray
    steps: IntArray
    rank_edges: IntArray
    step_edges: IntArray
    colour_limit_ms: float
    """Colours run from minus to plus this: the 99th percentile of the absolute excess."""

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


@dataclass(frozen=True)
class JobSummary:
    """One line of ``steptax jobs`` and of the executive table."""

    job_id: str
    name: str | None
    team: str | None
    owner: str | None
    state: str
    start_us: int | None
    end_us: int | None
    world_size: int | None
    gpu_hours: Measure
    spend_usd: Measure
    straggler_tax: Measure
    recoverable_gpu_hours: Measure
    recoverable_usd: Measure
    dominant_cause: str
    coverage: str
    trend: str | None = None
    """Of its straggler tax: rising, level or falling, from and to; None where it is not known."""
    culprit: str | None = None
    """Who makes the others wait for good; None where nobody is known to."""


@dataclass(frozen=True)
class Kpi:
    """One headline card; ``comparison`` and ``spark`` are there only when they were computed."""

    title: str
    measure: Measure
    text: str
    metric_id: str
    help: str
    comparison: str | None = None
    spark: tuple[float, ...] = ()


@dataclass(frozen=True)
class PeriodRow:
    """GPU-hours of the jobs of one month; None where they are unknown for all of them."""

    period: str
    jobs: int
    gpu_hours: float | None
    jobs_unknown: int
    """Jobs of the month whose GPU-hours are unknown."""


@dataclass(frozen=True)
class ExecutiveView:
    """The cost review over the jobs of a period."""

    sentence: str
    period: str
    price: Price
    kpis: tuple[Kpi, ...]
    ledger: tuple[LedgerLine, ...]
    ledger_note: str
    jobs: Sequence[JobSummary]
    """What can be won back first; made when they are looked at."""
    by_team: tuple[dict[str, Any], ...]
    by_period: tuple[PeriodRow, ...]
    coverage: str
    warnings: tuple[str, ...]
    cards: tuple[ReviewCard, ...]
    fix_first: FixFirst | None
    compared: str
    """What the changes of the cards are of and against, in words; empty where nothing is."""
    weeks: tuple[WeekRow, ...]
    variance: VarianceView | None
    no_variance: str
    """Why there is none."""
    anomalies: tuple[AnomalyRow, ...]
    anomaly_note: str
    """The rule, or why none can be told."""
    showback: Mapping[str, tuple[ShowbackRow, ...]]
    """By team, project, cluster and owner."""
    unallocated: ShowbackRow
    """What was paid for and held by no job."""
    learning: tuple[LearningRow, ...]
    learning_note: str
    forecasts: tuple[ForecastRow, ...]
    forecast_note: str
    """What they assume, or why there are none."""
    silent: tuple[SilentSource, ...]
    empty: EmptyPeriod | None
    """What to connect, where the period has no data."""

    def as_json(self) -> dict[str, Any]:
        """As ``steptax executive`` prints it."""
        return dict(vars(self)) | {
            "jobs": list(self.jobs),
            "ledger": [line.as_json() for line in self.ledger],
            "metrics": {kpi.metric_id: kpi.measure for kpi in self.kpis},
            "cards": [card.as_json() for card in self.cards],
            "weeks": [week.as_json() for week in self.weeks],
            "showback": {level: list(rows) for level, rows in self.showback.items()},
        }


@dataclass(frozen=True)
class SourceRow:
    """One source of data, its newest row and its rejects."""

    source: str
    kind: str
    tables: str
    accepted: int
    rejected: int
    last_us: int
    lag_s: float
    state: str


@dataclass(frozen=True)
class Gap:
    """A stretch in which samples are missing, of one or more devices at once.

    ``without_us`` is the time that is not known, summed over ``devices``; ``is_open``: no sample of
    some of them has come since.
    """

    start_us: int
    end_us: int
    devices: int
    hosts: int
    where: str
    without_us: int
    is_open: bool


@dataclass(frozen=True)
class HealthView:
    """Sources, stored rows, recorders and rejects."""

    sentence: str
    sources: tuple[SourceRow, ...]
    rows: dict[str, int]
    segments: dict[str, int]
    rejects: tuple[dict[str, Any], ...]
    recorders: tuple[dict[str, Any], ...]
    warnings: tuple[str, ...] = field(default=())
    gaps: tuple[Gap, ...] = ()
    """Stretches of the last day in which samples of devices are missing."""
