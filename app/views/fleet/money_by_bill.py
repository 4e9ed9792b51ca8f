"""What each job of a fleet cost by the provider's bill: who held what was paid for, and when."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from steptax.app.compute.bill.attempt_layer import State
from steptax.app.compute.bill.charge_groups import converted, group_charges
from steptax.app.compute.bill.goodput import GPU_US_PER_HOUR
from steptax.app.compute.bill.holders import (
    Held,
    Holders,
    Holding,
    Placement,
    occupancy_of,
)
from steptax.app.compute.bill.reconcile import Reconciliation, reconcile
from steptax.app.compute.bill.segments import add_up
from steptax.app.compute.bill.waterfall_rows import Labels, Waterfall
from steptax.app.compute.devices.claims import Lost
from steptax.app.views.bill.claims import Claims, host_names, label_placements, rates_text
from steptax.app.views.bill.rules import BillRules
from steptax.app.views.fleet.bill_models import Reconciled
from steptax.app.views.fleet.records import Records
from steptax.app.views.pricing.list_prices import PriceUsed
from steptax.app.views.stored import stored_rows
from steptax.app.views.workspace import Workspace
from steptax.app.words import count_text


@dataclass(frozen=True)
class Money:
    """Exact cost per job; a job that is not in ``by_job`` has none that is known."""

    by_job: Mapping[str, Fraction]
    currency: str | None
    basis: str
    reconciliation: Reconciled
    idle_cost: Decimal | None = None
    """Of what was paid and held by no job; None without a bill."""
    warnings: tuple[str, ...] = ()
    holders: Holders = field(default_factory=lambda: Holders({}))
    """Whom the charges belong to, in the window."""
    charges: tuple[Mapping[str, Any], ...] = field(default=())
    prices: tuple[PriceUsed, ...] = ()
    """List prices that stand in for a bill."""
    rates: Mapping[str, Decimal] = field(default_factory=dict)
    """Price of each job, USD per GPU-hour, where prices stand in for a bill."""


@dataclass(frozen=True, eq=False)
class AllJobs:
    """All jobs: those with a bill of their own, and those known by their record alone."""

    bills: Sequence[Waterfall]
    whole: Sequence[Waterfall]
    records: Records
    whole_records: Records

    def times(self) -> Iterator[tuple[str, int | Fraction]]:
        """Each job with its GPU-microseconds."""
        yield from ((str(bill.labels.job_id), bill.total_gpu_us) for bill in self.bills)
        yield from zip(self.records.job_ids, self.records.gpu_us.tolist(), strict=True)

    def labels(self) -> Iterator[Labels]:
        """Whose each job is."""
        yield from (bill.labels for bill in self.bills)
        yield from map(self.records.labels_of, range(len(self.records)))


def _holdings(records: Records, jobs: Container[str]) -> list[Holding]:
    """What those of ``jobs`` held of which it is known when."""
    dated = np.flatnonzero(~records.undated).tolist()
    return [records.holding(k) for k in dated if records.job_ids[k] in jobs]


def _hosts(
    ws: Workspace, charges: pa.Table, rules: BillRules, told: Sequence[Waterfall]
) -> tuple[dict[str, dict[str, int]], set[str]]:
    """Ranks by host of each job of ``told`` or with a host that a charge names, and the others."""
    rows = stored_rows(ws, "fleet_hosts", ("ranks", "jobs"))
    resources = charges["resource_id"].unique().to_pylist()
    names = {name for r in resources if r is not None for name in host_names(rules, r)}
    named = pc.is_in(rows["host"], pa.array(sorted(names), pa.string()))
    jobs = {*rows["job_id"].filter(named).unique().to_pylist()}
    jobs |= {str(bill.labels.job_id) for bill in told}
    kept = pc.is_in(rows["job_id"], pa.array(sorted(jobs), pa.string()))
    hosts: dict[str, dict[str, int]] = defaultdict(dict)
    own = rows.filter(kept)
    columns = (own[name].to_pylist() for name in ("job_id", "host", "rank_count"))
    for job, host, count in zip(*columns, strict=True):
        hosts[job][host] = count
    others = rows["job_id"].filter(pc.invert(kept)).unique().to_pylist()
    return hosts, set(others)


def money_by_bill(
    ws: Workspace,
    charges: pa.Table,
    held: AllJobs,
    window: tuple[int, int] | None,
    lost: Mapping[str, Sequence[Lost]],
    rules: BillRules,
) -> Money:
    """``charges`` in ``window`` divided among the jobs that held what was paid for.

    Raises UserError for charges in several currencies, IntegrityError for one that ends before it
    starts.
    """
    bills, records = held.bills, held.records
    hosts, elsewhere = _hosts(ws, charges, rules, held.whole)
    every = occupancy_of(
        placements([*held.whole, *_holdings(held.whole_records, hosts)], hosts, lost), {}
    )
    jobs = frozenset(name for name, gpu_us in held.times() if gpu_us)
    claims = Claims(rules, set(every), jobs, held.labels)
    rows = group_charges(charges, claims.host, claims.tagged)
    rows = converted(rows, rules.rates, rules.currency) if rules.rates else rows
    dated = {bill.labels.job_id for bill in held.whole}
    in_time: list[Held] = [bill for bill in bills if bill.labels.job_id in dated]
    occupied = every
    if window is not None:
        gpus = {name: one.capacity for name, one in every.items()}
        there = [*in_time, *_holdings(records, hosts)]
        occupied = occupancy_of(placements(there, hosts, lost, window), gpus)
    labelled = {job for own in claims.labels.values() for job in own}
    in_time += _holdings(records, labelled) if labelled else []
    by_label = occupancy_of(label_placements(in_time, claims.labels), {})
    holders = Holders(occupied, by_label, jobs)
    away = np.array([name in elsewhere for name in records.job_ids], dtype=np.bool_)
    beside = records.gpu_us[away & ~records.undated].tolist()
    found = reconcile(
        rows,
        bills,
        window=window,
        holders=holders,
        elsewhere_gpu_us=Fraction(sum(beside)),
    )
    cost = sum(found.by_job.values(), Decimal(0))
    count = pc.sum(charges["charge_count"]).as_py()
    basis = f"effective cost of {count:,} charges"
    basis += f" in {found.currency}" if found.currency else ", whose currency is not stated"
    basis += rates_text(rules, charges["currency"].unique().to_pylist())
    warnings = []
    uncharged = float(found.uncharged_gpu_us / GPU_US_PER_HOUR)
    names = [name for name, _ in held.times()]
    without = sum(name not in found.by_job for name in names)
    if without:
        warnings.append(f"no charge belongs to {without:,} of {count_text(len(names), 'job')}")
    return Money(
        {job: Fraction(part) for job, part in found.by_job.items()},
        found.currency,
        basis,
        _reconciled(found, cost, uncharged),
        found.unallocated_cost,
        tuple(warnings),
        holders,
        tuple(rows),
    )


def _reconciled(found: Reconciliation, jobs_cost: Decimal, uncharged: float) -> Reconciled:
    return Reconciled(
        found.currency,
        found.billed_cost,
        found.effective_cost,
        jobs_cost,
        found.unallocated_cost,
        found.unexplained_cost,
        found.unexplained,
        uncharged,
        found.notes,
        by_means=found.by_means,
    )


def placements(
    bills: Sequence[Held],
    hosts: Mapping[str, Mapping[str, int]],
    lost: Mapping[str, Sequence[Lost]],
    window: tuple[int, int] | None = None,
) -> list[Placement]:
    """Which devices of which host each job held, from where its ranks run.

    Ranks of which no host is known are taken to be spread like the others. What a job lost to
    another one (in ``window``) is taken off the host that it was on.
    """
    found = []
    for bill in bills:
        job_id = str(bill.labels.job_id)
        own = hosts.get(job_id)
        if not own or bill.timeline is None:
            continue
        line, ranks = bill.timeline, sum(own.values())
        held = line.state != State.UNALLOCATED
        columns = (line.start_us[held], line.end_us[held], line.gpus[held])
        spans = list(zip(*(column.tolist() for column in columns), strict=True))
        gone = [
            (o.host, start, end, o.gpus)
            for o in lost.get(job_id, ())
            if (start := max(o.start_us, window[0] if window else o.start_us))
            < (end := min(o.end_us, window[1] if window else o.end_us))
        ]
        if gone:
            claimed = add_up([*spans, *((start, end, gpus) for _, start, end, gpus in gone)])
            columns = (claimed.start_us, claimed.end_us, claimed.label)
            spans = list(zip(*(column.tolist() for column in columns), strict=True))
        for start, end, gpus in spans:
            found += [
                Placement(job_id, host, start, end, Fraction(gpus * count, ranks))
                for host, count in own.items()
            ]
        found += [
            Placement(job_id, host, start, end, Fraction(-gpus))
            for host, start, end, gpus in gone
            if host is not None
        ]
    return found
