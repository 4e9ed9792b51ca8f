"""Allocations of OpenCost folded into jobs: containers, pods and windows of one belong together."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from steptax.connectors.schedulers.allocations import Allocation

_HOUR_US = 3_600_000_000
#: Devices times the time between start and end, and the hours that are stated, may differ so much:
#: the first and the last minutes of a pod are samples.
_AGREE_RATIO = 0.02


@dataclass
class Job:
    """A job, as its allocations tell it one by one."""

    first: Allocation
    _units: dict[str, float | None] = field(default_factory=dict)
    _hours: list[float | None] = field(default_factory=list)
    _starts: list[int] = field(default_factory=list)
    _ends: list[int] = field(default_factory=list)

    def add(self, one: Allocation) -> None:
        """Take an allocation of this job."""
        known = self._units.get(one.unit, 0.0)
        self._units[one.unit] = (
            None if None in (known, one.gpus) else max(known or 0, one.gpus or 0)
        )
        self._hours.append(one.gpu_hours)
        self._starts += [] if one.start_us is None else [one.start_us]
        self._ends += [] if one.end_us is None else [one.end_us]

    def row(self) -> dict[str, Any]:
        """The row of ``jobs``."""
        start, end = min(self._starts, default=None), max(self._ends, default=None)
        hours = None if None in self._hours else math.fsum(h or 0.0 for h in self._hours)
        return {
            "job_id": self.first.job_id,
            "name": self.first.name,
            "team": self.first.team,
            "project": self.first.project,
            "cluster": self.first.cluster,
            "start_us": start,
            "end_us": end,
            "world_size": self._devices(start, end, hours),
            "gpu_hours": hours,
            "time_basis": "wall",
            "source_row": self.first.row,
        }

    def _devices(self, start: int | None, end: int | None, hours: float | None) -> int | None:
        """Devices held from start to end; None for fractions, and where fewer hours are stated.

        Pods that come and go, one for another, never hold the sum of them all at once.
        """
        if None in self._units.values():
            return None
        total = math.fsum(n or 0.0 for n in self._units.values())
        if not total.is_integer():
            return None
        if hours is not None and start is not None and end is not None and total:
            span_h = (end - start) / _HOUR_US
            if abs(total * span_h - hours) > _AGREE_RATIO * hours:
                return None
        return int(total)
