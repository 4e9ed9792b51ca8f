"""The typed objects of the whole bill of a fleet. They hold no logic beyond their printed form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal

from steptax.app.compute.measure import Measure
from steptax.app.views.pricing.list_prices import PriceUsed
from steptax.app.words import count_text

Level = Literal["team", "project", "cluster", "owner", "job", "month", "day"]

LEVELS: tuple[Level, ...] = ("team", "project", "cluster", "owner", "job", "month", "day")
DENOMINATORS = ("paid", "allocated")

USD = "USD"


def rows_text(rows: int, sums: int) -> str:
    """``12 jobs``, ``12 sums of many jobs``, or both: of sums it is not known how many jobs."""
    if not sums:
        return count_text(rows, "job")
    text = count_text(sums, "sum of many jobs", "sums of many jobs")
    return text if rows == sums else f"{count_text(rows - sums, 'job')} and {text}"


@dataclass(frozen=True)
class FleetLine:
    """One bucket of a group; None where it is not known, which is not zero."""

    bucket: str
    number: str
    """0 to 13 with 9a and 9b; of a coarser bucket the range that it holds, ``rest`` of the rest."""
    title: str
    factor: str
    """Which factor of goodput it belongs to: scheduling, runtime, program, useful."""
    gpu_seconds: float | None
    share: float | None
    """Of the denominator."""
    cost: Decimal | None
    """To the cent, in the currency of the view."""
    is_loss: bool
    note: str = ""

    def as_json(self, currency: str | None) -> dict[str, Any]:
        """As every command prints it; ``usd`` is null where the bill is in another currency."""
        out: dict[str, Any] = {
            "bucket": self.bucket,
            "number": self.number,
            "title": self.title,
            "gpu_seconds": self.gpu_seconds,
            "usd": self.cost if currency == USD else None,
            "share": self.share,
            "note": self.note or None,
        }
        if currency != USD:
            out["cost"] = self.cost
        return out


@dataclass(frozen=True)
class FleetGroup:
    """The bill of a team, a month, ...; its lines add up to its GPU-hours and its cost."""

    name: str
    jobs: int | None
    """Jobs that take part; one that crosses a boundary of time takes part on both sides.

    None where a source sums jobs: how many there were is not known."""
    gpu_hours: float
    gpu_hours_share: float | None
    """Of all groups together."""
    cost: Decimal | None
    lines: tuple[FleetLine, ...]
    metrics: dict[str, Measure]
    """By metric id: the factors of goodput, what is not explained, work at risk."""
    cost_note: str = ""
    """Of how many jobs the cost is not known."""

    def as_json(self, currency: str | None) -> dict[str, Any]:
        """As every command prints it."""
        out: dict[str, Any] = {
            "name": self.name,
            "jobs": self.jobs,
            "gpu_hours": self.gpu_hours,
            "gpu_hours_share": self.gpu_hours_share,
            "usd": self.cost if currency == USD else None,
            "cost_note": self.cost_note or None,
            "lines": [line.as_json(currency) for line in self.lines],
            "metrics": self.metrics,
        }
        if currency != USD:
            out["cost"] = self.cost
        return out


@dataclass(frozen=True)
class NotBilled:
    """A job without a bill."""

    job_id: str
    reason: str


@dataclass(frozen=True)
class Invoice:
    """What the charges of one invoice add up to, whole, whatever the window is.

    Costs are None where a charge does not say; they are never those of several currencies.
    """

    provider: str
    name: str
    currency: str | None
    charges: int
    billed_cost: Decimal | None
    effective_cost: Decimal | None
    list_cost: Decimal | None
    contracted_cost: Decimal | None
    billed_by_category: Mapping[str, Decimal]
    """Usage, Purchase, Tax, Credit, Adjustment; adds up to the billed cost."""
    stated: Decimal | None = None
    """What a person says that the invoice is about."""

    @property
    def difference(self) -> Decimal | None:
        """What the charges say less than the invoice does."""
        known = self.stated is not None and self.billed_cost is not None
        return self.stated - self.billed_cost if known else None  # type: ignore[operator]

    def as_json(self) -> dict[str, Any]:
        """As every command prints it."""
        return {
            "provider": self.provider,
            "invoice": self.name,
            "currency": self.currency,
            "charges": self.charges,
            "billed_cost": self.billed_cost,
            "effective_cost": self.effective_cost,
            "list_cost": self.list_cost,
            "contracted_cost": self.contracted_cost,
            "billed_by_category": dict(self.billed_by_category),
            "stated": self.stated,
            "difference": self.difference,
        }


@dataclass(frozen=True)
class Reconciled:
    """A provider's bill against the jobs: effective = jobs + unallocated + unexplained."""

    currency: str | None
    billed_cost: Decimal | None
    """As invoiced; None where a charge does not say."""
    effective_cost: Decimal | None
    """Amortised; None where no bill is connected."""
    jobs_cost: Decimal | None
    unallocated_cost: Decimal | None
    """Of devices that jobs run on, while none did, and of commitments that were not used."""
    unexplained_cost: Decimal | None
    """Of resources that no job is known to have run on."""
    unexplained: Measure
    uncharged_gpu_hours: float | None
    """GPU-hours of jobs that no charge covers."""
    notes: tuple[str, ...] = ()
    reason: str | None = None
    """Why there is nothing to reconcile."""
    by_means: Mapping[str, Decimal] = field(default_factory=dict)
    """The cost of jobs by what joins it to them: resource, job tag, team or project tag."""
    invoices: tuple[Invoice, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """As every command prints it."""
        return {
            "currency": self.currency,
            "billed_cost": self.billed_cost,
            "effective_cost": self.effective_cost,
            "jobs_cost": self.jobs_cost,
            "unallocated_cost": self.unallocated_cost,
            "unexplained_cost": self.unexplained_cost,
            "unexplained_ratio": self.unexplained,
            "uncharged_gpu_hours": self.uncharged_gpu_hours,
            "notes": list(self.notes),
            "reason": self.reason,
            "jobs_cost_by": dict(self.by_means),
            "invoices": [invoice.as_json() for invoice in self.invoices],
        }


@dataclass(frozen=True)
class FleetBill:
    """The bills of all chosen jobs, added up by one of their labels or by time."""

    by: Level
    denominator: str
    denominator_text: str
    """What percentages are shares of, in words."""
    tz: str
    period: str
    sentence: str
    groups: Sequence[FleetGroup]
    """By GPU-hours, largest first; days and months in calendar order."""
    total: FleetGroup | None
    """None where no job has a bill."""
    currency: str | None
    """None where there is no cost, or the bill does not say."""
    cost_basis: str
    reconciliation: Reconciled
    jobs: int
    """Jobs with a bill."""
    not_billed: tuple[NotBilled, ...]
    warnings: tuple[str, ...] = ()
    prices: tuple[PriceUsed, ...] = ()
    """List prices that the cost rests on where no bill is connected."""

    def as_json(self) -> dict[str, Any]:
        """As ``steptax ledger`` prints it."""
        return {
            "by": self.by,
            "denominator": self.denominator,
            "denominator_text": self.denominator_text,
            "tz": self.tz,
            "period": self.period,
            "sentence": self.sentence,
            "currency": self.currency,
            "cost_basis": self.cost_basis,
            "list_prices": [one.as_json() for one in self.prices],
            "groups": [group.as_json(self.currency) for group in self.groups],
            "total": None if self.total is None else self.total.as_json(self.currency),
            "reconciliation": self.reconciliation.as_json(),
            "jobs_billed": self.jobs,
            "not_billed": [{"job_id": n.job_id, "reason": n.reason} for n in self.not_billed],
        }
