"""The objects that views of several kinds share: price, window, coverage, lines of a ledger."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from steptax.app.compute.measure import Measure


@dataclass(frozen=True)
class Price:
    """What a GPU-hour costs, and who says so."""

    usd_per_gpu_hour: Decimal | None
    basis: str
    """For people, e.g. ``$2.00 per GPU-hour, you set it``, or that none is set."""
    no_price: str = ""
    """Why there is none, where it is not that nobody gave one."""


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

    @property
    def reports_expected(self) -> int:
        """Rank rows of the window where none is missing."""
        return self.steps_total * self.ranks_expected


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
    unexplained: Measure | None = None
    """Share of them of which it is not known what happened in it; None without any."""
    undone_steps: int = 0
    """The newest steps on record that were rolled back and not executed again."""
