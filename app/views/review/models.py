"""The typed objects of the cost review beyond its jobs; no logic but their printed form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from steptax.app.compute.measure import Measure
from steptax.app.compute.spend.compared import Delta
from steptax.app.format import format_moment, format_value

Page = Literal["bill", "budget", "fleet", "job", "whatif"]


@dataclass(frozen=True)
class Link:
    """Where a card is explained; ``job_id`` is the job to open there."""

    page: Page
    label: str
    job_id: str | None = None


@dataclass(frozen=True)
class ReviewCard:
    """One headline card."""

    title: str
    metric_id: str
    measure: Measure
    about: str
    """What it covers, for its tooltip."""
    details: tuple[str, ...]
    delta: Delta | None
    """None where nothing is compared."""
    spark: tuple[float | None, ...]
    """By week, oldest first; None for a week in which it is not known."""
    link: Link

    def as_json(self) -> dict[str, Any]:
        """As every command prints it."""
        return dict(vars(self)) | {
            "delta": None if self.delta is None else dict(vars(self.delta)),
            "spark": list(self.spark),
            "link": dict(vars(self.link)),
        }


@dataclass(frozen=True)
class FixFirst:
    """What to do first and what it is worth."""

    what: str
    worth: str
    """In dollars, in GPU-hours without a price."""
    why: str
    action: str
    job_id: str | None
    owner: str | None
    worth_usd: Measure
    worth_gpu_hours: Measure
    per_day_usd: Measure
    """Of a day in which the job steps all the time, as the mean of its steps."""
    is_most: bool = False
    """No more than that can come back, and it is not known how much does."""

    @property
    def a_day(self) -> str:
        """``per_day_usd`` in a sentence; empty where it is not known."""
        usd = self.per_day_usd.value
        if usd is None:
            return ""
        return f"A day of steps costs {format_value(usd, 'USD')}, as the mean of all its steps."


@dataclass(frozen=True)
class WeekRow:
    """One week, Monday to Sunday, UTC."""

    first_day: str
    days: int
    """Of it, in the period."""
    figures: Mapping[str, Measure]
    """By metric id."""
    budget_usd: float | None
    """The part of the budget that falls on it; None where none is set."""
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        """As every command prints it."""
        return {
            "week": self.first_day,
            "days": self.days,
            "budget_usd": self.budget_usd,
            "note": self.note or None,
            **self.figures,
        }


@dataclass(frozen=True)
class VarianceView:
    """Why spend changed: the effects add up to the change to the cent."""

    before: str
    after: str
    before_usd: Decimal
    after_usd: Decimal
    effects: tuple[tuple[str, Decimal, str], ...]
    """(name, USD, what it means)"""
    notes: tuple[str, ...]


@dataclass(frozen=True)
class AnomalyRow:
    """Days on which spend was not what was expected."""

    scope: str
    first_day: str
    last_day: str
    actual: float
    expected: float
    low: float
    high: float
    impact: float
    unit: str
    """USD, or GPU-hours where no price is known."""
    driver: str
    """Which price, team and job moved it."""
    owner: str | None
    """Of the job that moved it most."""
    state: str
    """``open`` if its last day is the newest one, else ``past``."""


@dataclass(frozen=True)
class ShowbackRow:
    """What one team, project, cluster or owner held and cost."""

    name: str
    jobs: int | None
    """None where a source sums jobs: how many there were is not known."""
    gpu_hours: Measure
    spend_usd: Measure
    recoverable_usd: Measure


@dataclass(frozen=True)
class LearningRow:
    """What a job that reports its loss learns for its money."""

    job_id: str
    last_loss: Measure
    loss_per_usd: Measure
    usd_per_loss: Measure
    """Dollars for 0.01 less of loss, at the present rate."""
    spent_usd: Measure
    basis: str


@dataclass(frozen=True)
class ForecastRow:
    """Where a run is heading."""

    job_id: str
    done_steps: int
    target_steps: int | None
    left_hours: Measure
    ends_at: str
    at_end_usd: Measure
    left_usd: Measure


@dataclass(frozen=True)
class SilentSource:
    """A source that used to deliver and does not any more."""

    name: str
    since_us: int
    text: str

    @property
    def since(self) -> str:
        """What stands beside a number that it would have told more of."""
        return f"unknown since {format_moment(self.since_us)[:16]} UTC"


@dataclass(frozen=True)
class EmptyPeriod:
    """A period without data: what is there, and what to connect."""

    text: str
    connect: tuple[tuple[str, str], ...]
    """(what it gives, command)"""
