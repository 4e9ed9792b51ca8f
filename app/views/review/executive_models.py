"""What the Executive review draws and ``steptax executive`` prints, as typed objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from steptax.app.compute.measure import Measure
from steptax.app.format import format_usd, format_value
from steptax.app.views.models import LedgerLine, Price
from steptax.app.views.review.models import (
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
from steptax.app.words import count_text


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
    cause: str | None = None
    """What was diagnosed, with place and confidence; else that none is named, and the largest loss.

    None where nobody has looked."""


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
    jobs: int | None
    """None where a source sums jobs: how many there were is not known."""
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
    fixes: tuple[FixFirst, ...] = ()
    """All that can be won back, largest first: ``fix_first`` is the first of them."""
    unmatched: ShowbackRow | None = None
    """What was charged for what no job is known to have used; None where nothing was."""

    def earlier_weeks(self, listed: int) -> str:
        """What the weeks before the newest ``listed`` cost; empty without any."""
        before = self.weeks[:-listed]
        if not before:
            return ""
        known = [w.figures["cost_usd"].value for w in before]
        usd = sum(value for value in known if value is not None)
        hours = sum(w.figures["gpu_hours"].value or 0.0 for w in before)
        cost = f", {format_usd(usd)}" if any(value is not None for value in known) else ""
        return (
            f"and {count_text(len(before), 'week')} before them, {before[0].first_day} on: "
            f"{format_value(hours, 'GPU-hours')}{cost}"
        )

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
