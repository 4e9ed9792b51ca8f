"""The typed objects of the evidence for a claim. They hold no logic."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from steptax.app.compute.bench.bases import Figure
from steptax.app.compute.bench.compare import Comparison
from steptax.app.compute.measure import Measure
from steptax.app.views.devices.view import DevicesView


@dataclass(frozen=True)
class Incident:
    """Something that happened; times in us UTC, the same twice for a moment."""

    from_us: int
    until_us: int
    rank: int | None
    host: str | None
    gpu_uuid: str | None
    kind: str
    """xid, finding, or the kind of an event of the job."""
    text: str


@dataclass(frozen=True)
class Lost:
    """GPU-hours and money that were lost by one count; counts may overlap."""

    what: str
    gpu_hours: Measure
    usd: Measure
    basis: str


@dataclass(frozen=True)
class BenchRow:
    """A benchmark figure of one of the devices, and when it was taken."""

    when: str
    """before, during or after the window of the job."""
    figure: Figure
    median: float


@dataclass(frozen=True)
class BenchPair:
    """The same figure of the same device before and after."""

    before: Figure
    after: Figure
    comparison: Comparison


@dataclass(frozen=True)
class EvidenceView:
    """All of it for one job."""

    job_id: str
    window_us: tuple[int, int]
    window_basis: str
    chosen: str
    """Who is accused, and by what choice, in words."""
    devices: DevicesView
    """Those of the accused only."""
    peers: int
    """Other devices of the job that they are held against."""
    incidents: tuple[Incident, ...]
    bench: tuple[BenchRow, ...]
    pairs: tuple[BenchPair, ...]
    lost: tuple[Lost, ...]
    samples: pa.Table
    """Raw samples of the accused devices in the window, by device and time."""
    sentence: str
    card: str | None
    price_basis: str
    warnings: tuple[str, ...]
