"""What other tools and a job's own log say of it, as typed objects. They hold no logic."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steptax.app.compute.measure import Measure


@dataclass(frozen=True)
class ReportedScore:
    """A line of a straggler report of another tool."""

    tool: str
    report: str
    at_us: int | None
    step: int | None
    metric: str
    listed: str
    """lowest, highest, flagged."""
    rank: int
    host: str | None
    score: float | None
    unit: str | None
    flagged: bool | None
    ranks_total: int | None


@dataclass(frozen=True)
class ReportedScores:
    """The newest reports of a job. ``note`` says what they can tell."""

    rows: tuple[ReportedScore, ...]
    flagged_ranks: tuple[int, ...]
    """Ranks that a report names as slow, or scores below the tool's own threshold."""
    note: str


@dataclass(frozen=True)
class PrintedValue:
    """The newest value that a log prints under one name."""

    name: str
    subject: str
    printed_as: str
    text: str
    value: float | None
    unit: str | None
    step: int
    values_printed: int
    mean_value: float | None


@dataclass(frozen=True)
class PrintedSeries:
    """What a log printed of the job under one name, step by step."""

    name: str
    printed_as: str
    unit: str | None
    steps: npt.NDArray[np.int64]
    """[N] ascending; of a step that several attempts ran, the newest."""
    values: npt.NDArray[np.float64]
    values_printed: int
    """Before thinning."""


@dataclass(frozen=True)
class Reports:
    """All that other tools and the job's own log say of one job."""

    scores: ReportedScores
    printed: tuple[PrintedValue, ...]
    series: tuple[PrintedSeries, ...]

    @property
    def is_empty(self) -> bool:
        """Whether nobody says anything."""
        return not (self.scores.rows or self.printed)


@dataclass(frozen=True)
class Beside:
    """A figure as a log printed it, and the same one as it is computed here.

    ``ours`` is None for what nothing here computes: a loss is reported, not derived.
    """

    title: str
    printed: PrintedValue
    ours: Measure | None
    ours_is: str
    """What ours rests on, or why there is none."""
