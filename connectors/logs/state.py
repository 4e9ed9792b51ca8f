"""What the reading of a log remembers from stretch to stretch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class LogState:
    """What a run remembers beside its streams; as JSON can hold it."""

    attempt: int
    facts: dict[str, Any] = field(default_factory=dict)
    batch_sizes: list[int] = field(default_factory=list)
    ranks: dict[str, str | None] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    dialects: dict[str, int] = field(default_factory=dict)
    first_us: int | None = None
    last_us: int | None = None
    ended: str | None = None
    cursor: int | None = None
    report: str | None = None
    section: str = ""
    listed: str = ""
    ranks_total: int | None = None
    pending: list[Any] = field(default_factory=list)
    saves: dict[str, list[Any]] = field(default_factory=dict)
    unknown: list[Any] = field(default_factory=list)
    fault: str | None = None
    """Why the first damaged line is not read."""
    gaps: list[list[int]] = field(default_factory=list)
    """First and last of the first steps that no line tells of."""
    flags: dict[str, bool] = field(default_factory=dict)

    def count(self, what: str, more: int = 1) -> None:
        """Count ``more`` lines of a sort."""
        self.counts[what] = self.counts.get(what, 0) + more
