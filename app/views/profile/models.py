"""What ``steptax profile`` shows. It holds no logic."""

from __future__ import annotations

from dataclasses import dataclass

from steptax.app.compute.trace.breakdown import StreamUse, TimeBreakdown
from steptax.app.compute.trace.idle import IdleCauses
from steptax.app.compute.trace.kernels import KernelUse


@dataclass(frozen=True)
class RankProfile:
    """What one rank's device did; ``reason`` says why nothing is known of it.

    ``label`` is for people. ``rank`` is None where a trace does not say it; ``source`` is its file,
    or the table. Without ``idle``, ``idle_reason`` says what is missing.
    """

    label: str
    rank: int | None
    source: str
    steps: tuple[int, ...]
    operations: int
    breakdown: TimeBreakdown | None
    reason: str | None
    kernels: tuple[KernelUse, ...]
    streams: tuple[StreamUse, ...]
    idle: IdleCauses | None
    idle_by_stream: tuple[IdleCauses, ...]
    idle_reason: str | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class ProfileView:
    """All ranks, by rank and then by source; ``basis`` says what is looked at, for people."""

    job_id: str | None
    basis: str
    ranks: tuple[RankProfile, ...]
    warnings: tuple[str, ...]
