"""What the jobs of a fleet cost: by the provider's bill, by connected prices, or by a given one."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from steptax.app.compute.bill.apportion import Unit
from steptax.app.compute.bill.attempt_layer import State
from steptax.app.compute.bill.charge_groups import converted, group_charges
from steptax.app.compute.bill.cost import exact_usd, to_cents
from steptax.app.compute.bill.goodput import GPU_US_PER_HOUR
from steptax.app.compute.bill.holders import (
    Held,
    Holders,
    Holding,
    Placement,
    occupancy_of,
)
from steptax.app.compute.bill.periods import costs_by_period, idle_allocations
from steptax.app.compute.bill.reconcile import Reconciliation, reconcile
from steptax.app.compute.bill.segments import add_up
from steptax.app.compute.bill.timeline import Allocation
from steptax.app.compute.bill.waterfall_rows import Labels, Waterfall
from steptax.app.compute.devices.claims import Lost
from steptax.app.compute.measure import Level, Measure
from steptax.app.views.bill.claims import Claims, host_names, label_placements, rates_text
from steptax.app.views.bill.notes import delivery_notes
from steptax.app.views.bill.rules import BillRules, read_rules
from steptax.app.views.fleet.bill_models import USD, Reconciled
from steptax.app.views.fleet.records import Records
from steptax.app.views.kept import Kept, OfView
from steptax.app.views.pricing.given import NO_PRICE, price_text
from steptax.app.views.pricing.list_prices import PriceUsed, list_price
from steptax.app.views.pricing.offers import Offer, OfferFilter, load_offers
from steptax.app.views.stored import stored_rows
from steptax.app.views.workspace import Workspace
from steptax.app.words import count_text

US_PER_S = 1_000_000
_US_PER_DAY = 86_400 * US_PER_S
#: All that the division of a bill rests on.
_TABLES = ("charges", "charge_states", "jobs", "ranks", "steps", "ops", "events")
#: In place of what of the lake is asked for, where that is all of it.
EVERY_JOB = "every job"
NO_BILL = "no bill is connected: the charges table is empty"


_kept_costs, _kept_free = OfView(4), OfView(4)


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


_kept_money: Kept[Money] = Kept(4)


def money_of(
    ws: Workspace,
    bills: Sequence[Waterfall],
    jobs: Mapping[str, Mapping[str, Any]],
    price: Decimal | None,
    window: tuple[int, int] | None,
    *,
    whole: Sequence[Waterfall],
    records: Records,
    whole_records: Records,
    lost: Mapping[str, Sequence[Lost]] | None = None,
    rules: BillRules | None = None,
    offers: OfferFilter | None = None,
    of_all: Hashable = None,
) -> Money:
    """What each of ``bills`` costs; ``jobs`` are their records.

    ``records`` are jobs beside them of which nothing but their record is known.

    ``whole`` and ``whole_records`` are all jobs whose time is known, not cut by ``window``: they
    tell how many devices a resource has. ``lost`` are devices that a job claims and another holds.

    ``offers`` says which connected prices may count. A bill wins over the given price, and it over
    connected prices: these stand in only where nobody gave one. ``bills`` must be those of all
    jobs: what none of them holds is unallocated. Of a ``window`` they must be the parts in it.

    Of the whole lake ``of_all`` tells what of it: it is kept until what it rests on changes.

    Raises UserError for charges in several currencies, IntegrityError for one that ends before it
    starts.
    """
    charges = ws.engine.run("fleet_charges")
    if charges.num_rows:
        rules = rules or read_rules(ws.settings.bill_rules)
        held = _Held(bills, whole, records, whole_records)
        key = (ws.key, of_all, window, repr(rules), *(ws.lake.version(name) for name in _TABLES))
        kept: Kept[Money] = _kept_money if of_all is not None else Kept(1)
        money = kept.get(key, lambda: _by_bill(ws, charges, held, window, lost or {}, rules))
        if price is not None:
            unused = f"the bill counts, so the price of {price_text(price)} is not used"
            money = replace(money, warnings=(unused, *money.warnings))
        named = [*(str(bill.labels.job_id) for bill in bills), *records.job_ids]
        rates = _rates(load_offers(ws), named, jobs, price, offers)
        said = (*delivery_notes(ws), *money.warnings, *_uncharged(held, money, rates))
        return replace(money, warnings=said)
    named = [*(str(bill.labels.job_id) for bill in bills), *records.job_ids]
    known = load_offers(ws)
    rates = _rates(known, named, jobs, price, offers)
    by_job = {
        str(bill.labels.job_id): exact_usd(bill.total_gpu_us / US_PER_S, rate)
        for bill in bills
        if (rate := rates.of_job.get(str(bill.labels.job_id))) is not None
    }
    return Money(
        by_job,
        USD if rates.of_job else None,
        _price_basis(price, rates, bool(known), len(named)),
        _nothing(NO_BILL),
        warnings=(*delivery_notes(ws), *rates.unclear),
        prices=rates.used,
        rates=rates.of_job,
    )


def period_costs(
    money: Money, unit: Unit, tz: str, window: tuple[int, int] | None
) -> dict[str, dict[str, Fraction]]:
    """What was charged by period and job (``bill_periods.costs_by_period``)."""
    return _kept_costs.get(
        money.holders,
        (unit, tz, window),
        lambda: costs_by_period(money.charges, money.holders, unit, tz, window),
    )


def free_devices(money: Money, window: tuple[int, int] | None) -> list[Allocation] | None:
    """What was paid for and held by no job (``bill_periods.idle_allocations``)."""
    return _kept_free.get(
        money.holders,
        window,
        lambda: idle_allocations(money.charges, money.holders.by_resource, window),
    )


@dataclass(frozen=True)
class _Rates:
    """The price of each job for which one is known, USD per GPU-hour."""

    of_job: Mapping[str, Decimal]
    used: tuple[PriceUsed, ...]
    unclear: tuple[str, ...]


def _rates(
    known: Sequence[Offer],
    names: Sequence[str],
    jobs: Mapping[str, Mapping[str, Any]],
    price: Decimal | None,
    wanted: OfferFilter | None,
) -> _Rates:
    """The given ``price`` of all, or of each what connected prices say where none is given."""
    of_job: dict[str, Decimal] = {}
    used: Counter[Offer] = Counter()
    unclear: dict[str, None] = {}
    if price is not None:
        return _Rates(dict.fromkeys(names, price), (), ())
    asked: dict[tuple[Any, int | None], tuple[Offer | None, str]] = {}
    for name in names:
        job = jobs.get(name, {})
        start = job.get("start_us")
        # Prices hold for days, so that jobs of one device and one day have the same one.
        same = job.get("gpu_model"), None if start is None else start // _US_PER_DAY
        if same not in asked:
            asked[same] = list_price(known, job, wanted)
        offer, reason = asked[same]
        if reason:
            unclear[reason] = None
        if offer is not None:
            used[offer] += 1
            of_job[name] = offer.usd_per_gpu_hour
    shown = tuple(PriceUsed(offer, count) for offer, count in used.most_common())
    return _Rates(of_job, shown, tuple(unclear))


def _price_basis(price: Decimal | None, rates: _Rates, has_offers: bool, bills: int) -> str:
    """Whose price it is that stands in for a bill."""
    if price is not None:
        text = f"given price {price_text(price)}"
        if not rates.of_job:
            return f"{text}, of no job: none has a bill here"
        return f"{text}; connected list prices are not used" if has_offers else text
    listed = sum(one.jobs for one in rates.used)
    if not listed:
        return NO_PRICE
    return f"no price is given: connected list prices for {listed:,} of {count_text(bills, 'job')}"


def _uncharged(held: _Held, money: Money, rates: _Rates) -> list[str]:
    """What jobs that no charge names would cost at list prices: said, never added to the bill."""
    at: dict[Decimal, Fraction] = defaultdict(Fraction)
    count = 0
    for name, gpu_us in held.times():
        rate = rates.of_job.get(name)
        if rate is not None and name not in money.by_job:
            at[rate] += gpu_us
            count += 1
    if not count:
        return []
    costs = [exact_usd(gpu_us / US_PER_S, rate) for rate, gpu_us in at.items()]
    cost = f"${to_cents(sum(costs, Fraction(0))):,}"
    badges = "; ".join(one.badge for one in rates.used[:3])
    return [
        f"{count_text(count, 'job')} that no charge names would cost {cost} ("
        f"{badges or 'at the given price'}): an estimate beside the bill, in none of its sums"
    ]


def _nothing(reason: str) -> Reconciled:
    missing = Measure.missing("ratio", reason, level=Level.LOG)
    return Reconciled(None, None, None, None, None, None, missing, None, reason=reason)


# -- the provider's bill --------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Held:
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


def _by_bill(
    ws: Workspace,
    charges: pa.Table,
    held: _Held,
    window: tuple[int, int] | None,
    lost: Mapping[str, Sequence[Lost]],
    rules: BillRules,
) -> Money:
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
