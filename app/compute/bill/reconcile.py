"""A provider's bill against what jobs held: which dollars belong to which job, and which to none.

Each charge is spread evenly over its charge period (FOCUS) and over the devices of its resource. A
job takes the part of the time and devices that it held there; what nobody held is unallocated, and
so is a commitment that was paid and not used. A tag that names a job gives the charge to it; one
that names a team or a project spreads what is of no known resource over what its jobs held in that
time. The rest is unexplained: it may be storage, a tax, or a node that nobody reported.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any

from steptax.app.compute.bill.cost import split_to_cents
from steptax.app.compute.bill.holders import (
    MEANS,
    UNEXPLAINED,
    Held,
    Holders,
    Occupancy,
    Placement,
    is_unused,
    jobs_of,
    occupancy_of,
    placements_of,
)
from steptax.app.compute.measure import Level, Measure
from steptax.app.errors import IntegrityError, UserError

_ZERO = Fraction(0)
UNSTATED = "a currency that is not stated"


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
    by_means: Mapping[str, Decimal] = field(default_factory=dict)
    """What belongs to jobs, by what tells so (``MEANS``); adds up to the sum over jobs."""

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
    row: Mapping[str, Any]
    start_us: int | None
    end_us: int | None
    billed: Fraction | None
    effective: Fraction

    def within(self, window: tuple[int, int] | None) -> _Charge | None:
        """The part of it that lies in ``window``; all of it if it has no period."""
        if window is None or self.start_us is None or self.end_us is None:
            return self
        start, end = max(self.start_us, window[0]), min(self.end_us, window[1])
        if end <= start:
            return None
        share = Fraction(end - start, self.end_us - self.start_us)
        billed = None if self.billed is None else self.billed * share
        return _Charge(self.row, start, end, billed, self.effective * share)


def reconcile(
    charges: Sequence[Mapping[str, Any]],
    ledger: Sequence[Held],
    *,
    placements: Sequence[Placement] | None = None,
    gpus_by_resource: Mapping[str, int | Fraction] | None = None,
    window: tuple[int, int] | None = None,
    by_label: Mapping[str, Occupancy] | None = None,
    holders: Holders | None = None,
    elsewhere_gpu_us: Fraction = _ZERO,
) -> Reconciliation:
    """Divide the effective cost of ``charges`` among the jobs of ``ledger``.

    ``charges`` are rows of that table; ``ledger`` the waterfalls of jobs, with ``resources`` as the
    bill names them, unless ``placements`` says where they ran. ``gpus_by_resource`` tells how many
    devices a resource has; without it, as many as were ever held on it at once. ``window`` counts
    only the part of each charge that lies in [start, end). ``by_label`` tells what the jobs of a
    team or project held, by the ``holder`` that the tags of a charge name. ``holders`` stands for
    all of these where it is known already, and ``elsewhere_gpu_us`` is what jobs held beside it, on
    resources that no charge names.

    ``bill.priced(Fraction(found.by_job[job]))`` then adds up to the job's part of the bill.

    Raises:
        UserError: charges in several currencies.
        IntegrityError: a charge ends before it starts, or a resource holds more devices than it
            has; by name.
    """
    notes: list[str] = []
    rows, currency = _read(charges, window, notes)
    if holders is None:
        placed = placements_of(ledger) if placements is None else list(placements)
        occupied = occupancy_of(placed, gpus_by_resource or {})
        holders = Holders(occupied, by_label or {}, jobs_of(ledger))
    occupancy = holders.by_resource
    by_job: dict[str, Fraction] = {}
    means = dict.fromkeys(MEANS, _ZERO)
    unallocated = unexplained = _ZERO
    charged: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for one in rows:
        how, shares = holders.shares(one.row, one.start_us, one.end_us)
        name = one.row.get("resource_id") or ""
        if name in occupancy and one.start_us is not None and not is_unused(one.row):
            assert one.end_us is not None
            charged[name].append((one.start_us, one.end_us))
        if how == UNEXPLAINED:
            unexplained += one.effective
            continue
        left = one.effective
        for job, part in shares.items():
            cost = one.effective if part == 1 else one.effective * part
            by_job[job] = by_job.get(job, _ZERO) + cost
            means[how] += cost
            left -= cost
        unallocated += left
    jobs = sorted(by_job)
    cents = split_to_cents([*(by_job[job] for job in jobs), unallocated, unexplained])
    billed = [row.billed for row in rows]
    outside = [o.held_outside(charged.get(name, [])) for name, o in occupancy.items()]
    uncharged = sum(outside, elsewhere_gpu_us)
    if not occupancy and rows and not elsewhere_gpu_us:
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
        _close(means, sum(cents[:-2], Decimal(0))),
    )


def _close(parts: Mapping[str, Fraction], total: Decimal) -> dict[str, Decimal]:
    """``parts`` in cents that add up to ``total``, which may be a cent off their rounded sum."""
    cents = split_to_cents(list(parts.values()))
    off = total - sum(cents, Decimal(0))
    largest = max(range(len(cents)), key=lambda i: abs(cents[i]))
    cents[largest] += off
    return {name: cost for name, cost in zip(parts, cents, strict=True) if cost}


def _read(
    charges: Sequence[Mapping[str, Any]], window: tuple[int, int] | None, notes: list[str]
) -> tuple[list[_Charge], str | None]:
    currencies = {str(row.get("currency") or UNSTATED) for row in charges}
    if len(currencies) > 1:
        raise UserError(
            f"charges are in {', '.join(sorted(currencies))}",
            where="currency",
            hint="no exchange rate is assumed: say one, for example --rate EUR=1.08 for USD, or "
            "--rate unstated=1",
        )
    found, unpriced = [], 0
    for row in charges:
        if row.get("effective_cost") is None:
            unpriced += row.get("charge_count", 1)
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
            row,
            start,
            end,
            None if billed is None else Fraction(billed),
            Fraction(row["effective_cost"]),
        ).within(window)
        if charge is not None:
            found.append(charge)
    if unpriced:
        notes.append(f"{unpriced:,} charges have no effective cost and are left out")
    return found, next(iter(currencies - {UNSTATED}), None)
