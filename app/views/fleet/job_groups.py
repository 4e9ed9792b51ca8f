"""A group for each of very many jobs, made when it is looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from itertools import islice
from typing import overload

from steptax.app.compute.bill.cost import CENT
from steptax.app.compute.bill.goodput import GPU_US_PER_HOUR
from steptax.app.compute.bill.waterfall_groups import alike, total
from steptax.app.compute.bill.waterfall_rows import Waterfall
from steptax.app.compute.measure import Level, Measure
from steptax.app.compute.stats.rows import Flags, Ints
from steptax.app.views.fleet.bill_models import FleetGroup
from steptax.app.views.fleet.groups import HELD_BY_NONE, as_group, silent_text

_NO_COST = Measure.missing("USD", "no price is known", level=Level.LOG)


@dataclass(frozen=True, eq=False)
class RecordGroups:
    """Groups of jobs of which nothing but their record is known [N], as ``as_group`` has them.

    Nothing differs between them but their time and their cost: one is made, the others after it.
    """

    names: Sequence[str]
    gpu_us: Sequence[int]
    cents: Ints
    is_priced: Flags
    template: Waterfall
    grand: Waterfall

    def make(self, place: int) -> FleetGroup:
        """The group of one job."""
        us = self.gpu_us[place]
        cost = Decimal(int(self.cents[place])) * CENT if self.is_priced[place] else None
        model = self._models[us > 0]
        hours = us / GPU_US_PER_HOUR
        spend = _NO_COST if cost is None else Measure(float(cost), "USD", level=Level.LOG)
        at = next(k for k, line in enumerate(model.lines) if line.bucket == "unexplained")
        line = replace(model.lines[at], cost=cost)
        if us:
            line = replace(line, gpu_seconds=us / 1_000_000, note=silent_text(hours, 1))
        whole = int(self.grand.total_gpu_us)
        return replace(
            model,
            name=self.names[place],
            gpu_hours=hours,
            gpu_hours_share=us / whole if whole else None,
            cost=cost,
            lines=(*model.lines[:at], line, *model.lines[at + 1 :]),
            metrics=model.metrics
            | {
                "gpu_hours": replace(model.metrics["gpu_hours"], value=hours),
                "spend_usd": spend,
            },
        )

    @cached_property
    def _models(self) -> tuple[FleetGroup, FleetGroup]:
        """Of a job without time, and of one with some."""
        found = []
        for us in (0, GPU_US_PER_HOUR):
            bill = alike(self.template, [""], us)
            found.append(as_group("", total([bill]), [bill], self.grand))
        return found[0], found[1]


class JobGroups(Sequence[FleetGroup]):
    """Groups of jobs that are ``told`` and of those that are not, most GPU-time first."""

    def __init__(
        self,
        told: Sequence[str],
        told_us: Sequence[int],
        make: Callable[[int], FleetGroup],
        records: RecordGroups,
    ) -> None:
        self._make, self._records, self._told = make, records, len(told)
        names, us = [*told, *records.names], [*told_us, *records.gpu_us]
        self._order = sorted(
            range(len(names)), key=lambda k: (names[k] == HELD_BY_NONE, -us[k], names[k])
        )

    def __len__(self) -> int:
        """Jobs."""
        return len(self._order)

    @overload
    def __getitem__(self, at: int) -> FleetGroup: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[FleetGroup, ...]: ...
    def __getitem__(self, at: int | slice) -> FleetGroup | tuple[FleetGroup, ...]:
        """One of them, or some."""
        if isinstance(at, slice):
            return tuple(self._group(k) for k in self._order[at])
        return self._group(self._order[at])

    def told(self) -> Iterator[FleetGroup]:
        """Those of which more than the record is known."""
        return map(self._make, range(self._told))

    def silent(self, most: int) -> tuple[FleetGroup, ...]:
        """The largest of the others."""
        own = (k for k in self._order if k >= self._told)
        return tuple(self._group(k) for k in islice(own, most))

    def _group(self, k: int) -> FleetGroup:
        return self._make(k) if k < self._told else self._records.make(k - self._told)
