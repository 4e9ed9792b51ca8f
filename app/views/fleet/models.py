"""The typed objects of the fleet view. They hold no logic beyond their printed form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from steptax.app.compute.fleet.failures import FailureRate
from steptax.app.compute.fleet.slow import FailSlowRow, Spread
from steptax.app.compute.fleet.states import GroupRow, StateRow
from steptax.app.compute.measure import Measure
from steptax.app.compute.spend.burn import Burn
from steptax.app.views.models import Price


@dataclass(frozen=True)
class LossRow:
    """One way in which a fleet loses time. Rows overlap, so that they are never added up."""

    what: str
    jobs: int | None
    gpu_hours: Measure
    share: Measure
    """Of the GPU-hours of all jobs; of what nobody held, of all that was paid for."""
    usd: Measure
    note: str
    is_broken: bool = True
    """Something broke; capacity that nobody held is lost too, but nothing is wrong with it."""


@dataclass(frozen=True)
class PlaceRow:
    """What happened at one host or device, and what chance would have given it."""

    kind: str
    """host or device"""
    what: str
    """failures, fail-slow or Xids"""
    name: str
    count: int
    expected: float
    times: float | None
    """Count / expected."""
    chance: float
    exposure: float
    exposure_unit: str
    is_named: bool
    """It stands out beyond chance."""
    detail: str = ""
    host: str | None = None
    """Where a device that is named was, in a job that held it."""
    gpu_index: int | None = None
    """Its number on that host."""

    @property
    def whereabouts(self) -> str:
        """Where a device is, ``GPU 2 of host n1``: nobody finds it by its identity alone."""
        if self.host is None:
            return ""
        return f"GPU {'?' if self.gpu_index is None else self.gpu_index} of host {self.host}"


@dataclass(frozen=True)
class Places:
    """The repeat offenders of one kind, or why none can be told."""

    kind: str
    what: str
    rows: tuple[PlaceRow, ...]
    """Those to which anything happened, least likely first."""
    places: int
    """All that were looked at."""
    reason: str | None = None


@dataclass(frozen=True)
class InventoryRow:
    """Nodes of one cluster with the same device, as an inventory lists them."""

    cluster: str
    gpu_model: str | None
    """None: the nodes have no device, or it is not told."""
    nodes: int
    devices: int


@dataclass(frozen=True)
class Capacity:
    """Devices that were there and not used, as far as anything tells."""

    unallocated_gpu_hours: Measure
    unallocated: Measure
    """Share of what was paid for that no job held."""
    unallocated_usd: Measure
    idle: Measure
    """Share of the samples of devices with a kernel resident in less than a tenth of the time."""
    utilisation: Measure
    devices: int
    hosts: int
    inventory: tuple[InventoryRow, ...] = ()
    """What there is, whether or not a job ran on it or a monitor looked."""


@dataclass(frozen=True)
class BurnRow:
    """How fast a scope uses its error budget up."""

    scope: str
    period: str
    goodput_slo_ratio: float
    goodput: Measure
    burns: tuple[Burn, ...]
    """Over the newest hour, and over the newest six."""
    week_burn: Measure
    """Over the newest seven complete days."""
    left_usd: Measure
    lasts_days: Measure


@dataclass(frozen=True)
class FleetView:
    """A whole fleet: what breaks, how often, where, how slow it is, and what is not used."""

    sentence: str
    coverage: str
    only: str
    """Which jobs were chosen, in words; empty for all."""
    price: Price
    jobs: int | None
    """None where a source sums jobs: how many there were is not known."""
    rows: int
    """Jobs, and ``sums`` of many jobs."""
    sums: int
    gpu_hours: Measure
    usd: Measure
    metrics: dict[str, Measure]
    bases: Mapping[str, str]
    """What each of them is a share of, in words, by metric id."""
    losses: tuple[LossRow, ...]
    states: tuple[StateRow, ...]
    sizes: tuple[GroupRow, ...]
    groups: dict[str, tuple[GroupRow, ...]]
    """By team, project, cluster and month of start, where any job states one."""
    costs: dict[str, dict[str, Measure]]
    """What the jobs of each group and each state cost: by label or ``state``, and name."""
    rate: FailureRate
    fail_slow: tuple[FailSlowRow, ...]
    causes: tuple[tuple[str, int, float | None], ...]
    """(cause, episodes, GPU-hours)"""
    slow_gpu_hours: Measure
    """Share of GPU-hours in jobs that are at least a tenth slower than their ideal."""
    waste: Spread
    ettr: Spread
    ettr_values: tuple[tuple[str, float], ...]
    waste_values: tuple[tuple[str, float], ...]
    """Of each job for which it is known."""
    places: tuple[Places, ...]
    capacity: Capacity
    burn: tuple[BurnRow, ...]
    burn_reason: str | None
    warnings: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """As ``steptax fleet`` prints it; values of single jobs are left to ``steptax jobs``."""
        left = ("price", "ettr_values", "waste_values", "warnings")
        out = {name: value for name, value in vars(self).items() if name not in left}
        return out | {"price": self.price.basis}
