"""What the jobs of a fleet cost: by the provider's bill, by connected prices, or by a given one."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from steptax.app.compute.attempt_layer import State
from steptax.app.compute.charge_groups import converted, group_charges
from steptax.app.compute.cost import exact_usd, to_cents
from steptax.app.compute.device_claims import Lost
from steptax.app.compute.goodput import GPU_US_PER_HOUR
from steptax.app.compute.holders import (
    Holders,
    Placement,
    jobs_of,
    occupancy_of,
)
from steptax.app.compute.measure import Level, Measure
from steptax.app.compute.reconcile import Reconciliation, reconcile
from steptax.app.compute.segments import add_up
from steptax.app.compute.waterfall_rows import Waterfall
from steptax.app.views.bill_claims import Claims, label_placements, rates_text
from steptax.app.views.bill_notes import delivery_notes
from steptax.app.views.bill_rules import BillRules, read_rules
from steptax.app.views.fleet_bill_models import USD, Reconciled, jobs_text
from steptax.app.views.list_prices import PriceUsed, list_price
from steptax.app.views.offers import Offer, OfferFilter, load_offers
from steptax.app.views.price import NO_PRICE, price_text
from steptax.app.views.workspace import Workspace

US_PER_S = 1_000_000
_US_PER_DAY = 86_400 * US_PER_S
NO_BILL = "no bill is connected: the charges table is empty"


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


def money_of(
    ws: Workspace,
    bills: Sequence[Waterfall],
    jobs: Mapping[str, Mapping[str, Any]],
    price: Decimal | None,
    window: tuple[int, int] | None,
    *,
    whole: Sequence[Waterfall],
    records: Sequence[str] = (),
    lost: Mapping[str, Sequence[Lost]] | None = None,
    rules: BillRules | None = None,
    offers: OfferFilter | None = None,
) -> Money:
    """What each of ``bills`` costs; ``jobs`` are their records.

    ``records`` are jobs beside them that are priced by their ``rates``, where no bill is connected.

    ``whole`` are the bills of all jobs whose time is known, not cut by ``window``: they tell how
    many devices a resource has. ``lost`` are devices that a job claims and another one holds.

    ``offers`` says which connected prices may count. A bill wins over prices, and connected prices
    win over the given one. ``bills`` must be those of all jobs: what none of them holds is
    unallocated. Of a ``window`` they must be the parts in it.

    Raises UserError for charges in several currencies, IntegrityError for one that ends before it
    starts.
    """
    charges = ws.engine.run("fleet_charges")
    if charges.num_rows:
        rules = rules or read_rules(ws.settings.bill_rules)
        money = _by_bill(ws, charges, bills, whole, price, window, lost or {}, rules)
        named = [str(bill.labels.job_id) for bill in bills]
        rates = _rates(load_offers(ws), named, jobs, price, offers)
        said = (*delivery_notes(ws), *money.warnings, *_uncharged(bills, money, rates))
        return replace(money, warnings=said)
    named = [*(str(bill.labels.job_id) for bill in bills), *records]
    rates = _rates(load_offers(ws), named, jobs, price, offers)
    by_job = {
        str(bill.labels.job_id): exact_usd(bill.total_gpu_us / US_PER_S, rate)
        for bill in bills
        if (rate := rates.of_job.get(str(bill.labels.job_id))) is not None
    }
    listed = sum(one.jobs for one in rates.used)
    return Money(
        by_job,
        USD if rates.of_job else None,
        _price_basis(price, listed, len(rates.of_job) - listed, len(named)),
        _nothing(NO_BILL),
        warnings=(*delivery_notes(ws), *rates.unclear),
        prices=rates.used,
        rates=rates.of_job,
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
    """Connected list prices, and the given ``price`` where there is none."""
    of_job: dict[str, Decimal] = {}
    used: Counter[Offer] = Counter()
    unclear: dict[str, None] = {}
    if not known:
        return _Rates({} if price is None else dict.fromkeys(names, price), (), ())
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
        elif price is not None:
            of_job[name] = price
    shown = tuple(PriceUsed(offer, count) for offer, count in used.most_common())
    return _Rates(of_job, shown, tuple(unclear))


def _price_basis(price: Decimal | None, listed: int, given: int, bills: int) -> str:
    parts = []
    if listed:
        text = f"connected list prices for {listed:,} of {jobs_text(bills)}"
        if price is not None:
            text += ", where they win over the given price"
            text += "" if given else f" of {price_text(price)}, which is not used"
        parts.append(text)
    if given and price is not None:
        whom = f" for {given:,} of {jobs_text(bills)}" if listed else ""
        parts.append(f"given price {price_text(price)}{whom}")
    if not parts and price is not None:
        return f"given price {price_text(price)}, of no job: none has a bill here"
    return "; ".join(parts) or NO_PRICE


def _uncharged(bills: Sequence[Waterfall], money: Money, rates: _Rates) -> list[str]:
    """What jobs that no charge names would cost at list prices: said, never added to the bill."""
    costs = [
        exact_usd(bill.total_gpu_us / US_PER_S, rate)
        for bill in bills
        if (name := str(bill.labels.job_id)) not in money.by_job
        and (rate := rates.of_job.get(name)) is not None
    ]
    if not costs:
        return []
    cost = f"${to_cents(sum(costs, Fraction(0))):,}"
    badges = "; ".join(one.badge for one in rates.used[:3])
    return [
        f"{jobs_text(len(costs))} that no charge names would cost {cost} ("
        f"{badges or 'at the given price'}): an estimate beside the bill, in none of its sums"
    ]


def _nothing(reason: str) -> Reconciled:
    missing = Measure.missing("ratio", reason, level=Level.LOG)
    return Reconciled(None, None, None, None, None, None, missing, None, reason=reason)


# -- the provider's bill --------------------------------------------------------------------------


def _by_bill(
    ws: Workspace,
    charges: pa.Table,
    bills: Sequence[Waterfall],
    whole: Sequence[Waterfall],
    price: Decimal | None,
    window: tuple[int, int] | None,
    lost: Mapping[str, Sequence[Lost]],
    rules: BillRules,
) -> Money:
    hosts: dict[str, dict[str, int]] = defaultdict(dict)
    for row in ws.engine.run("fleet_hosts").to_pylist():
        hosts[row["job_id"]][row["host"]] = row["rank_count"]
    every = occupancy_of(placements(whole, hosts, lost), {})
    claims = Claims(rules, set(every), bills)
    rows = group_charges(charges, claims.host, claims.tagged)
    rows = converted(rows, rules.rates, rules.currency) if rules.rates else rows
    dated = {bill.labels.job_id for bill in whole}
    gpus = {name: held.capacity for name, held in every.items()}
    in_time = [bill for bill in bills if bill.labels.job_id in dated]
    places = placements(in_time, hosts, lost, window)
    by_label = occupancy_of(label_placements(in_time, claims.labels), {})
    found = reconcile(
        rows,
        bills,
        placements=places,
        gpus_by_resource=gpus,
        window=window,
        by_label=by_label,
    )
    cost = sum(found.by_job.values(), Decimal(0))
    count = pc.sum(charges["charge_count"]).as_py()
    basis = f"effective cost of {count:,} charges"
    basis += f" in {found.currency}" if found.currency else ", whose currency is not stated"
    basis += rates_text(rules, charges["currency"].unique().to_pylist())
    warnings = []
    if price is not None:
        warnings.append(f"the bill counts, so the price of {price_text(price)} is not used")
    uncharged = float(found.uncharged_gpu_us / GPU_US_PER_HOUR)
    without = sum(str(bill.labels.job_id) not in found.by_job for bill in bills)
    if without:
        warnings.append(f"no charge belongs to {without:,} of {jobs_text(len(bills))}")
    return Money(
        {job: Fraction(part) for job, part in found.by_job.items()},
        found.currency,
        basis,
        _reconciled(found, cost, uncharged),
        found.unallocated_cost,
        tuple(warnings),
        Holders(occupancy_of(places, gpus), by_label, jobs_of(bills)),
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
    bills: Sequence[Waterfall],
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
