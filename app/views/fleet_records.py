"""Jobs of which nothing but their record is known, as columns: added up, cut and priced at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from math import lcm
from typing import Any

import numpy as np

from steptax.app.compute.apportion import Unit, pieces
from steptax.app.compute.cents import Amounts
from steptax.app.compute.cost import exact_usd
from steptax.app.compute.rows import Flags, Ints
from steptax.app.compute.waterfall_groups import alike, unstated
from steptax.app.compute.waterfall_rows import Labels, Waterfall
from steptax.app.views.record_bills import JobBill

_US_PER_S = 1_000_000


@dataclass(frozen=True, eq=False)
class Records:
    """Such jobs [N], or the parts of them that lie in a window."""

    job_ids: tuple[str, ...]
    jobs: tuple[Mapping[str, Any], ...]
    """Their records."""
    start_us: Ints
    end_us: Ints
    gpus: Ints
    undated: Flags
    """Hours without a place in time."""

    @classmethod
    def of(cls, bills: Sequence[JobBill]) -> Records:
        """The columns of bills that rest on records alone."""
        held = [one.held for one in bills if one.held is not None]
        return cls(
            tuple(one.job_id for one in bills),
            tuple(h.job for h in held),
            np.fromiter((h.start_us for h in held), np.int64, len(held)),
            np.fromiter((h.end_us for h in held), np.int64, len(held)),
            np.fromiter((h.gpus for h in held), np.int64, len(held)),
            np.fromiter((bool(one.undated) for one in bills), np.bool_, len(held)),
        )

    def __len__(self) -> int:
        """Jobs."""
        return len(self.job_ids)

    def at(self, places: Ints) -> Records:
        """The jobs at ``places``."""
        chosen = places.tolist()
        return Records(
            tuple(self.job_ids[k] for k in chosen),
            tuple(self.jobs[k] for k in chosen),
            self.start_us[places],
            self.end_us[places],
            self.gpus[places],
            self.undated[places],
        )

    def within(self, start_us: int, end_us: int) -> Records:
        """The parts in [start, end); jobs without any are left out."""
        start, end = np.maximum(self.start_us, start_us), np.minimum(self.end_us, end_us)
        keep = np.flatnonzero((end > start) & (self.gpus > 0))
        found = self.at(keep)
        return Records(found.job_ids, found.jobs, start[keep], end[keep], found.gpus, found.undated)

    @cached_property
    def gpu_us(self) -> Ints:
        """[N] GPU-microseconds."""
        return (self.end_us - self.start_us) * self.gpus

    @property
    def span_us(self) -> tuple[int, int] | None:
        """First start and last end of those whose time is known; None without any."""
        dated = ~self.undated & (self.end_us > self.start_us)
        if not dated.any():
            return None
        return int(self.start_us[dated].min()), int(self.end_us[dated].max())

    def labels(self, name: str) -> list[str]:
        """[N] group of each by one of their labels."""
        none = unstated(name)
        return [job.get(name) or none for job in self.jobs]

    def cut(self, unit: Unit, tz: str) -> tuple[Records, list[str]]:
        """Their parts by day or month, and the period of each; they add up to the whole."""
        span = self.span_us
        if span is None:
            return self.at(np.zeros(0, np.int64)), []
        periods = pieces(*span, unit, tz)
        starts = np.array([p.start_us for p in periods], dtype=np.int64)
        ends = np.array([p.end_us for p in periods], dtype=np.int64)
        own = np.flatnonzero(self.gpu_us > 0)
        first = np.searchsorted(starts, self.start_us[own], side="right") - 1
        count = np.searchsorted(starts, self.end_us[own], side="left") - first
        job = np.repeat(own, count)
        # The how manieth part of its job each part is.
        nth = np.arange(len(job)) - np.repeat(np.cumsum(count) - count, count)
        place = np.repeat(first, count) + nth
        parts = self.at(job)
        start = np.maximum(parts.start_us, starts[place])
        end = np.minimum(parts.end_us, ends[place])
        names = [p.period for p in periods]
        cut = Records(parts.job_ids, parts.jobs, start, end, parts.gpus, parts.undated)
        return cut, [names[k] for k in place.tolist()]

    def amounts(self, rates: Mapping[str, Decimal]) -> Amounts:
        """[N] what each costs at ``rates`` by job; unknown without one, and without time."""
        own = [rates.get(job) for job in self.job_ids]
        # Cents of a GPU-microsecond at each price, over one denominator.
        unit = {r: exact_usd(Fraction(100, _US_PER_S), r) for r in set(own) if r is not None}
        denominator = lcm(*(cents.denominator for cents in unit.values()))
        whole = {r: int(cents * denominator) for r, cents in unit.items()}
        known = np.array([rate is not None for rate in own], dtype=np.bool_) & (self.gpu_us > 0)
        factor = np.array([0 if rate is None else whole[rate] for rate in own], dtype=object)
        return Amounts(self.gpu_us.astype(object) * factor * known, denominator, known)

    def added_up(
        self, groups: Sequence[str], rates: Mapping[str, Decimal], template: Waterfall
    ) -> dict[str, list[Waterfall]]:
        """The bills of each of ``groups`` [N], added up, with their cost at ``rates`` by job.

        Those without a rate stay apart from the others of their group, and so do those that held
        devices for no time.
        """
        us = self.gpu_us.tolist()
        members: dict[tuple[str, Decimal | None, bool], list[int]] = defaultdict(list)
        for place, (group, job) in enumerate(zip(groups, self.job_ids, strict=True)):
            members[group, rates.get(job), us[place] > 0].append(place)
        found: dict[str, list[Waterfall]] = defaultdict(list)
        for (group, rate, _), places in members.items():
            time = sum(us[k] for k in places)
            bill = alike(template, [self.job_ids[k] for k in places], time, Labels())
            if rate is not None and time:
                bill = bill.priced(exact_usd(Fraction(time, _US_PER_S), rate))
            found[group].append(bill)
        return found
