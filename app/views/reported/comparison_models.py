"""What other detectors say of a job, beside our own statistics. These types hold no logic."""

from __future__ import annotations

from dataclasses import dataclass

from steptax.app.compute.measure import Measure


@dataclass(frozen=True)
class IdealRow:
    """Slowdown against one reference; ``label`` says what question it answers."""

    ideal: str
    label: str
    slowdown: Measure
    waste: Measure


@dataclass(frozen=True)
class BlameRow:
    """What one rank is charged of the waiting."""

    rank: int
    gpu_seconds: float
    share: float


@dataclass(frozen=True)
class Blame:
    """All waiting, charged to the ranks that were late; ``rows`` and ``nobody`` add up to it.

    ``wait_gpu_seconds`` is None, with a reason, where waiting cannot be told.
    """

    wait_gpu_seconds: float | None
    nobody_gpu_seconds: float | None
    """Waiting that all ranks have in common, so that nobody was later than the others."""
    rows: tuple[BlameRow, ...]
    note: str
    reason: str | None = None


@dataclass(frozen=True)
class ChangeRow:
    """A lasting change of the step time; times are None where they are normalised."""

    step: int
    before_ms: float | None
    after_ms: float | None
    change_ratio: float
    confidence: float
    """Posterior of the change, in 0..1."""


@dataclass(frozen=True)
class GroupRow:
    """TP, PP or DP groups; ``suspects`` are over 1.1 times the median group."""

    kind: str
    groups: int
    suspects: tuple[str, ...]
    reason: str | None


@dataclass(frozen=True)
class FalconView:
    """Change points of the step time with the ten per cent rule, and the search for the group."""

    sentence: str
    changes: tuple[ChangeRow, ...]
    groups: tuple[GroupRow, ...]
    reason: str | None


@dataclass(frozen=True)
class NvrxRow:
    """Scores of one rank, lowest first; None where there is none."""

    rank: int
    gpu: float | None
    relative: dict[str, float | None]
    """By section of a step."""
    individual: dict[str, float | None]
    flagged: tuple[str, ...]
    """Which scores are below the threshold."""


@dataclass(frozen=True)
class NvrxView:
    """Scores as NVIDIA's resiliency extension computes them."""

    sentence: str
    note: str
    threshold: float
    sections: tuple[str, ...]
    rows: tuple[NvrxRow, ...]
    reasons: tuple[str, ...]
    """Why scores of one kind are missing."""


@dataclass(frozen=True)
class Comparison:
    """How other references and other detectors see the same steps."""

    ideals: tuple[IdealRow, ...]
    falcon: FalconView
    nvrx: NvrxView
