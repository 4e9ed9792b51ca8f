"""What the Data & health page draws: sources, gaps in samples, rejects."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


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
    is_exact: bool = True
    """Whether it is from ``start_us`` until ``end_us``, and not somewhere between the two."""

    @property
    def length_us(self) -> int:
        """How long samples are missing; of one that is somewhere, the mean of its devices."""
        return self.end_us - self.start_us if self.is_exact else self.without_us // self.devices


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
