"""A provider's bill against what jobs held: which dollars belong to which job, and which to none.

Each charge is spread evenly over its charge period (FOCUS) and over the devices of its resource. A
job takes the part of the time and devices that it held there; what nobody held is unallocated, and
so is a commitment that was paid and not used. A charge without a resource, or for one that no job
is known to have run on, is unexplained: it may be storage, a tax, or a node that nobody reported.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from steptax.app.compute.attempt_layer import State
from steptax.app.compute.cost import split_to_cents
from steptax.app.compute.measure import Level, Measure
from steptax.app.compute.waterfall_rows import Waterfall
from steptax.app.errors import IntegrityError, UserError

_ZERO = Fraction(0)


@dataclass(frozen=True)
class Placement:
    """Devices of one resource that a job held from start to end."""

    job_id: str
    resource_id: str
    start_us: int
    end_us: int
    gpus: Fraction


@dataclass(frozen=True)
class Reconciliation:
    """A bill divided; effective = sum over jobs + unallocated + unexplained, to the cent.

    Costs are in ``currency``.
    """

    currency: str | None
    """ISO 4217; None where there are no charges."""
    billed_cost: Decimal | None
    """As invoiced; None if a charge does not say."""
    effective_cost: Decimal
    """Amortised, of the charges that say."""
    by_job: Mapping[str, Decimal]
    unallocated_cost: Decimal
    """Of resources that jobs run on, while none did, and of commitments that were not used."""
    unexplained_cost: Decimal
    uncharged_gpu_us: Fraction
    """GPU-time of jobs that no charge covers."""
    notes: tuple[str, ...]

    @property
    def unexplained(self) -> Measure:
        """Share of the effective cost that belongs to no resource that jobs ran on."""
        if not self.effective_cost:
            return Measure.missing("ratio", "there is no effective cost", level=Level.LOG)
        return Measure(
            float(self.unexplained_cost / self.effective_cost),
            "ratio",
            level=Level.LOG,
            inputs=("charges.effective_cost", "charges.resource_id"),
            warnings=self.notes,
        )


@dataclass(frozen=True)
class _Charge:
    resource_id: str | None
    start_us: int | None
    end_us: int | None
    billed: Fraction | None
    effective: Fraction
    is_unused: bool

    def within(self, window: tuple[int, int] | None) -> _Charge | None:
        """The part of it that lies in ``window``; all of it if it has no period."""
        if window is None or self.start_us is None or self.end_us is None:
            return self
        start, end = max(self.start_us, window[0]), min(self.end_us, window[1])
        if end <= start:
            return None
        share = Fraction(end - start, self.end_us - self.start_us)
        billed = None if self.billed is None else self.billed * share
        return _Charge(self.resource_id, start, end, billed, self.effective * share, self.is_unused)


def placements_of(bills: Sequence[Waterfall]) -> list[Placement]:
    """Where jobs ran, from their waterfalls; devices are taken as even over their resources."""
    found = []
    for bill in bills:
        if bill.timeline is None or not bill.resources:
            continue
        line = bill.timeline
        job = str(bill.labels.job_id)
        for k in np.flatnonzero(line.state != State.UNALLOCATED):
            gpus = Fraction(int(line.gpus[k]), len(bill.resources))
            span = int(line.start_us[k]), int(line.end_us[k])
            found += [Placement(job, name, *span, gpus) for name in sorted(bill.resources)]
    return found


def reconcile(
    charges: Sequence[Mapping[str, Any]],
    ledger: Sequence[Waterfall],
    *,
    placements: Sequence[Placement] | None = None,
    gpus_by_resource: Mapping[str, int | Fraction] | None = None,
    window: tuple[int, int] | None = None,
) -> Reconciliation:
    """Divide the effective cost of ``charges`` among the jobs of ``ledger``.

    ``charges`` are rows of that table; ``ledger`` the waterfalls of jobs, with ``resources`` as the
    bill names them, unless ``placements`` says where they ran. ``gpus_by_resource`` tells how many
    devices a resource has; without it, as many as were ever held on it at once. ``window`` counts
    only the part of each charge that lies in [start, end).

    ``bill.priced(Fraction(found.by_job[job]))`` then adds up to the job's part of the bill.

    Raises:
        UserError: charges in several currencies.
        IntegrityError: a charge ends before it starts, or a resource holds more devices than it
            has; by name.
    """
    notes: list[str] = []
    rows, currency = _read(charges, window, notes)
    placed = placements_of(ledger) if placements is None else list(placements)
    occupancy = occupancy_of(placed, gpus_by_resource or {})
    by_job: dict[str, Fraction] = {}
    unallocated = unexplained = _ZERO
    charged: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for row in rows:
        name = row.resource_id
        if row.is_unused:
            unallocated += row.effective
            continue
        if name is None or name not in occupancy or row.start_us is None or row.end_us is None:
            unexplained += row.effective
            continue
        left = row.effective
        charged[name].append((row.start_us, row.end_us))
        for job, part in occupancy[name].shares(row.start_us, row.end_us).items():
            by_job[job] = by_job.get(job, _ZERO) + row.effective * part
            left -= row.effective * part
        unallocated += left
    jobs = sorted(by_job)
    cents = split_to_cents([*(by_job[job] for job in jobs), unallocated, unexplained])
    billed = [row.billed for row in rows]
    uncharged = sum((o.held_outside(charged.get(name, [])) for name, o in occupancy.items()), _ZERO)
    if not occupancy and rows:
        notes.append("no job says which resources of the bill it ran on")
    return Reconciliation(
        currency,
        None
        if any(b is None for b in billed)
        else sum(split_to_cents([b for b in billed if b is not None]), Decimal(0)),
        sum(cents, Decimal(0)),
        dict(zip(jobs, cents[:-2], strict=True)),
        cents[-2],
        cents[-1],
        uncharged,
        tuple(notes),
    )


def _read(
    charges: Sequence[Mapping[str, Any]], window: tuple[int, int] | None, notes: list[str]
) -> tuple[list[_Charge], str | None]:
    currencies = {str(row["currency"]) for row in charges if row.get("currency")}
    if len(currencies) > 1:
        raise UserError(
            f"charges are in {', '.join(sorted(currencies))}",
            where="currency",
            hint="convert them to one currency first: no exchange rate is assumed",
        )
    found, unpriced = [], 0
    for row in charges:
        if row.get("effective_cost") is None:
            unpriced += 1
            continue
        start, end = row.get("charge_start_us"), row.get("charge_end_us")
        if start is None or end is None:
            start, end = row.get("billing_start_us"), row.get("billing_end_us")
        where = f"{row.get('provider')} {row.get('invoice')} line {row.get('line')}"
        if start is None or end is None or end == start:
            start = end = None
        elif end < start:
            raise IntegrityError(f"ends {start - end} us before it starts", where=where)
        billed = row.get("billed_cost")
        charge = _Charge(
            row.get("resource_id"),
            start,
            end,
            None if billed is None else Fraction(billed),
            Fraction(row["effective_cost"]),
            row.get("commitment_status") == "Unused" or row.get("reservation_status") == "Unused",
        ).within(window)
        if charge is not None:
            found.append(charge)
    if unpriced:
        notes.append(f"{unpriced} charges have no effective cost and are left out")
    return found, next(iter(currencies), None)


@dataclass(frozen=True)
class Occupancy:
    """Who held how many devices of one resource: stretches in order, with devices per job."""

    start_us: list[int]
    end_us: list[int]
    gpus: list[dict[str, Fraction]]
    capacity: Fraction

    def shares(self, start_us: int, end_us: int) -> dict[str, Fraction]:
        """Share of time and devices in [start, end) by job."""
        out: dict[str, Fraction] = {}
        k = max(bisect_right(self.start_us, start_us) - 1, 0)
        whole = (end_us - start_us) * self.capacity
        while k < len(self.start_us) and self.start_us[k] < end_us:
            us = min(self.end_us[k], end_us) - max(self.start_us[k], start_us)
            if us > 0:
                for job, gpus in self.gpus[k].items():
                    out[job] = out.get(job, _ZERO) + us * gpus / whole
            k += 1
        return out

    def held_outside(self, spans: list[tuple[int, int]]) -> Fraction:
        """GPU-time that was held outside of ``spans``."""
        merged: list[tuple[int, int]] = []
        for start, end in sorted(spans):
            if merged and start <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((start, end))
        held = sum(
            (e - s) * sum(g.values(), _ZERO)
            for s, e, g in zip(self.start_us, self.end_us, self.gpus, strict=True)
        )
        for start, end in merged:
            held -= sum(self.shares(start, end).values(), _ZERO) * (end - start) * self.capacity
        return Fraction(held)


def occupancy_of(
    placed: Sequence[Placement], capacity: Mapping[str, int | Fraction]
) -> dict[str, Occupancy]:
    """Who held each resource; ``capacity`` tells its devices, else as many as were ever held.

    Raises IntegrityError where a resource holds more devices than it has; by name.
    """
    by_resource: dict[str, list[Placement]] = defaultdict(list)
    for place in placed:
        if place.end_us > place.start_us:
            by_resource[place.resource_id].append(place)
    out = {}
    for name in sorted({*by_resource, *capacity}):
        places = by_resource[name]
        changes: dict[int, dict[str, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
        for place in places:
            changes[place.start_us][place.job_id] += place.gpus
            changes[place.end_us][place.job_id] -= place.gpus
        edges = sorted(changes)
        now: dict[str, Fraction] = {}
        starts, ends, gpus = [], [], []
        for start, end in pairwise(edges):
            for job, change in changes[start].items():
                now[job] = now.get(job, _ZERO) + change
            here = {job: n for job, n in sorted(now.items()) if n}
            if here:
                starts.append(start)
                ends.append(end)
                gpus.append(here)
        most = max((sum(g.values(), _ZERO) for g in gpus), default=_ZERO)
        has = Fraction(capacity[name]) if name in capacity else most
        if most > has:
            at = next(s for s, g in zip(starts, gpus, strict=True) if sum(g.values()) > has)
            raise IntegrityError(
                f"jobs hold {float(most):g} devices of {float(has):g} from {at} us on",
                where=name,
                hint="two jobs claim the same devices, or the resource has more",
            )
        out[name] = Occupancy(starts, ends, gpus, has)
    return out
