"""Findings as pages and commands show them."""

from __future__ import annotations

from dataclasses import dataclass, field

from steptax.app.compute.measure import Measure, Ratio
from steptax.app.compute.spoken import spoken_ratio, spoken_us


@dataclass(frozen=True)
class CauseRow:
    """A cause, or the abstention; ``cause`` is None where none is named."""

    cause: str | None
    text: str
    confidence: float
    evidence_for: tuple[str, ...]
    evidence_against: tuple[str, ...]
    would_settle: tuple[str, ...]
    next_action: str

    @property
    def sentence(self) -> str:
        """The cause with its confidence; an abstention as it is."""
        if self.cause is None:
            return self.text
        return f"{self.text} (confidence {spoken_ratio(self.confidence)})"


@dataclass(frozen=True)
class FindingRow:
    """One thing that makes the job slow, as pages and commands show it."""

    scope: str
    """ranks, stage, moving or job."""
    place: str
    ranks: tuple[int, ...]
    first_step: int
    last_step: int
    detected_step: int
    is_open: bool
    excess_ms: float | None
    """None where durations are normalised."""
    excess_ratio: float
    part: str | None
    lost: Measure
    """Share of the paid time of the window that would come back."""
    cost_usd: Measure
    """The same in money, over the window."""
    cause: CauseRow
    also: tuple[CauseRow, ...]
    in_steps: tuple[int, int] | None = None
    """Slow steps and steps from first to last, where slow stretches come and go."""
    is_silent: bool = False
    """Its ranks have not reported since."""
    while_slow: Measure = field(default_factory=lambda: Ratio.missing("ratio", "not told"))
    """Share of the paid time from its first step to its last that would come back."""
    together: str | None = None
    """What only a joint repair returns, in words."""
    slow_step_ratio: float | None = None
    """Its excess as a share of the mean step while it was slow; None where steps have no length."""
    has_ended: bool = False
    """The job goes on no more."""

    @property
    def sentence(self) -> str:
        """Who, when, how much and why, in one line."""
        return f"{self.brief}: {self.cause.sentence}"

    @property
    def brief(self) -> str:
        """Who, when and how much."""
        # Of its own slow steps: those before and after it depend on how many are looked at.
        share = self.excess_ratio if self.slow_step_ratio is None else self.slow_step_ratio
        over = f"{spoken_ratio(share)} of a slow step"
        if self.excess_ms is not None:
            over = f"{spoken_us(self.excess_ms * 1000.0)} ({over})"
        when = f"step {self.first_step} to {self.last_step}"
        if self.in_steps is not None:
            when += f", in {self.in_steps[0]:,} of {self.in_steps[1]:,} steps"
        if self.is_open:
            when += ", until the job ended" if self.has_ended else ", still going on"
        when += ", and no report since" if self.is_silent else ""
        return f"{self.place}: +{over}, {when}"
