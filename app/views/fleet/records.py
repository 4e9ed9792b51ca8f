"""Jobs of which nothing but their record is known, as columns: added up, cut and priced at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from itertools import groupby
from math import lcm
from typing import Any

import numpy as np

from steptax.app.compute.bill.apportion import Unit, pieces
from steptax.app.compute.bill.attempt_layer import State
from steptax.app.compute.bill.cents import Amounts
from steptax.app.compute.bill.cost import FINE, exact_usd
from steptax.app.compute.bill.holders import Holding
from steptax.app.compute.bill.timeline import Timeline
from steptax.app.compute.bill.waterfall_groups import alike, unstated
from steptax.app.compute.bill.waterfall_rows import Labels, Waterfall
from steptax.app.compute.stats.rows import Flags, Floats, Ints
from steptax.app.views.fleet.record_bills import JobBill
from steptax.app.views.fleet.stated_months import stated_month

_US_PER_S = 1_000_000
_LABELS = ("team", "project", "cluster", "owner")
#: What was charged, by period and job.
Costs = Mapping[str, Mapping[str, Fraction]]
_NOTHING: Costs = {}
_STATES = np.array([State.UNEXPLAINED], dtype=np.int64)


def _divided(whole: int, weights: Floats) -> list[int]:
    """``whole`` in proportion to ``weights``, as ``split_finely`` does: by largest remainders."""
    exact = weights * (whole / weights.sum())
    down = np.floor(exact)
    parts: list[int] = down.astype(np.int64).tolist()
    left = whole - sum(parts)
    if 0 <= left <= len(parts):
        for place in np.argsort(down - exact, kind="stable")[:left].tolist():
            parts[place] += 1
    else:  # of millions of dollars a float has no billionths
        parts[int(weights.argmax())] += left
    return parts


@dataclass(frozen=True, eq=False)
class Groups:
    """Which group each of many jobs, or of their parts, is in."""

    code: Ints
    """[N] place in ``names``."""
    names: tuple[str, ...]

    @classmethod
    def of(cls, names: Sequence[str]) -> Groups:
        """Groups by the name of that of each."""
        place: dict[str, int] = {}
        code = np.fromiter((place.setdefault(n, len(place)) for n in names), np.int64, len(names))
        return cls(code, tuple(place))


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

    def largest_first(self) -> Records:
        """The same, most GPU-time first, and those of equal time by name."""
        us = (-self.gpu_us).tolist()
        order = sorted(range(len(us)), key=lambda k: (us[k], self.job_ids[k]))
        return self.at(np.array(order, dtype=np.int64))

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

    @cached_property
    def sums(self) -> frozenset[str]:
        """Those that are no jobs, but sum what many used."""
        named = zip(self.job_ids, self.jobs, strict=True)
        return frozenset(job_id for job_id, job in named if job.get("is_sum"))

    def labels_of(self, place: int) -> Labels:
        """Whose one of them is."""
        job = self.jobs[place]
        return Labels(self.job_ids[place], *(job.get(name) for name in _LABELS))

    def holding(self, place: int) -> Holding:
        """What one of them held when."""
        columns = (self.start_us, self.end_us, _STATES, self.gpus)
        at = (place, place, 0, place)
        line = Timeline(*(c[k : k + 1] for c, k in zip(columns, at, strict=True)))
        return Holding(self.labels_of(place), line, Fraction(int(self.gpu_us[place])))

    @property
    def span_us(self) -> tuple[int, int] | None:
        """First start and last end of those whose time is known; None without any."""
        dated = ~self.undated & (self.end_us > self.start_us)
        if not dated.any():
            return None
        return int(self.start_us[dated].min()), int(self.end_us[dated].max())

    def labels(self, name: str) -> Groups:
        """Group of each by one of their labels."""
        none = unstated(name)
        return Groups.of([job.get(name) or none for job in self.jobs])

    def together(self) -> Groups:
        """All of them in one group without a name."""
        return Groups(np.zeros(len(self), dtype=np.int64), ("",))

    def cut(self, unit: Unit, tz: str) -> tuple[Records, Groups]:
        """Their parts by day or month, and the period of each; they add up to the whole.

        Hours without a place in time are whole in the month that their record states; those of
        which it states none are left out, and so are all of them where it is cut by day.
        """
        when, periods = self._cut_by_time(unit, tz)
        stated = {
            k: month
            for k in np.flatnonzero(self.undated & (self.gpu_us > 0)).tolist()
            if unit is Unit.MONTH and (month := stated_month(self.jobs[k], tz)) is not None
        }
        if not stated:
            return when, periods
        own = self.at(np.array([*stated], dtype=np.int64))
        names = [periods.names[k] for k in periods.code.tolist()]
        return when.and_(own), Groups.of([*names, *stated.values()])

    def and_(self, other: Records) -> Records:
        """These and then the others."""
        return Records(
            (*self.job_ids, *other.job_ids),
            (*self.jobs, *other.jobs),
            *(
                np.concatenate([getattr(self, name), getattr(other, name)])
                for name in ("start_us", "end_us", "gpus", "undated")
            ),
        )

    def _cut_by_time(self, unit: Unit, tz: str) -> tuple[Records, Groups]:
        """Of those whose time is known."""
        span = self.span_us
        if span is None:
            return self.at(np.zeros(0, np.int64)), Groups.of([])
        periods = pieces(*span, unit, tz)
        starts = np.array([p.start_us for p in periods], dtype=np.int64)
        ends = np.array([p.end_us for p in periods], dtype=np.int64)
        own = np.flatnonzero((self.gpu_us > 0) & ~self.undated)
        first = np.searchsorted(starts, self.start_us[own], side="right") - 1
        count = np.searchsorted(starts, self.end_us[own], side="left") - first
        job = np.repeat(own, count)
        # The how manieth part of its job each part is.
        nth = np.arange(len(job)) - np.repeat(np.cumsum(count) - count, count)
        place = np.repeat(first, count) + nth
        parts = self.at(job)
        start = np.maximum(parts.start_us, starts[place])
        end = np.minimum(parts.end_us, ends[place])
        cut = Records(parts.job_ids, parts.jobs, start, end, parts.gpus, parts.undated)
        return cut, Groups(place, tuple(p.period for p in periods))

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

    def charged(
        self, by_job: Mapping[str, Fraction], periods: Groups | None = None, costs: Costs = _NOTHING
    ) -> Amounts:
        """[N] what each costs of what was charged for its job; unknown without, and without time.

        Of parts of jobs ``periods`` tells when each was, and ``costs`` by period and job what was
        charged then: the cost of the job is divided in proportion, or by its time.
        """
        fine = np.zeros(len(self), dtype=object)
        known = np.zeros(len(self), dtype=np.bool_)
        us = self.gpu_us
        place = 0
        for job, own in groupby(self.job_ids):
            end = place + sum(1 for _ in own)
            cost = by_job.get(job)
            if cost is not None:
                parts = np.flatnonzero(us[place:end] > 0) + place
                weights = us[parts].astype(float)
                if periods is not None and len(parts) > 1:
                    when = [costs.get(periods.names[k], {}) for k in periods.code[parts]]
                    then = np.array([float(one.get(job, 0)) for one in when])
                    weights = then if then.sum() else weights
                if len(parts):
                    fine[parts] = _divided(round(cost * FINE), weights)
                    known[parts] = True
            place = end
        return Amounts(fine, FINE // 100, known)

    def added_up(
        self,
        groups: Groups,
        rates: Mapping[str, Decimal],
        template: Waterfall,
        charged: Amounts | None = None,
    ) -> dict[str, list[Waterfall]]:
        """The bills of each of ``groups``, added up, with their cost at ``rates`` by job.

        With ``charged`` that is their cost. Those without one stay apart from the others of their
        group, and so do those that held devices for no time.
        """
        if not len(self):
            return {}
        place: dict[Decimal | None, int] = {None: 0}
        own: Any = 0
        if charged is not None:
            own = charged.known.astype(np.int64)
            place[Decimal(0)] = 1  # stands for what each was charged
        elif rates:
            own = [place.setdefault(rates.get(job), len(place)) for job in self.job_ids]
        known = list(place)
        kind = np.asarray(own, dtype=np.int64) * 2 + (self.gpu_us > 0)
        keys = groups.code * (2 * len(known)) + kind
        order = np.argsort(keys, kind="stable")
        first = np.flatnonzero(np.diff(keys[order], prepend=-1))
        sums = np.add.reduceat(self.gpu_us[order].astype(object), first)
        found: dict[str, list[Waterfall]] = defaultdict(list)
        members = zip(np.split(order, first[1:]), sums.tolist(), strict=True)
        # Groups, and the parts of each, in the order of their first job.
        for places, time in sorted(members, key=lambda pair: int(pair[0][0])):
            group, rest = divmod(int(keys[places[0]]), 2 * len(known))
            rate = known[rest // 2]
            bill = alike(template, [self.job_ids[k] for k in places.tolist()], time, Labels())
            if charged is not None and rate is not None:
                cents = Fraction(sum(charged.numerator[places].tolist()), charged.denominator)
                bill = bill.priced(cents / 100)
            elif rate is not None and time:
                bill = bill.priced(exact_usd(Fraction(time, _US_PER_S), rate))
            found[groups.names[group]].append(bill)
        return found
