"""What the jobs of a fleet cost: by the provider's bill, by connected prices, or by a given one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

from steptax.app.compute.attempt_layer import State
from steptax.app.compute.cost import exact_usd
from steptax.app.compute.device_claims import Lost
from steptax.app.compute.devices import identify
from steptax.app.compute.goodput import GPU_US_PER_HOUR
from steptax.app.compute.measure import Level, Measure
from steptax.app.compute.reconcile import (
    Occupancy,
    Placement,
    Reconciliation,
    occupancy_of,
    reconcile,
)
from steptax.app.compute.segments import add_up
from steptax.app.compute.waterfall_rows import Waterfall
from steptax.app.views.fleet_bill_models import USD, Reconciled, jobs_text
from steptax.app.views.price import NO_PRICE, price_text
from steptax.app.views.workspace import Workspace

US_PER_S = 1_000_000
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
    held: Mapping[str, Occupancy] = field(default_factory=dict)
    """Who held the resources of the bill, in the window."""
    charges: tuple[Mapping[str, Any], ...] = field(default=())


def money_of(
    ws: Workspace,
    bills: Sequence[Waterfall],
    jobs: Mapping[str, Mapping[str, Any]],
    price: Decimal | None,
    window: tuple[int, int] | None,
    *,
    whole: Sequence[Waterfall],
    lost: Mapping[str, Sequence[Lost]] | None = None,
) -> Money:
    """What each of ``bills`` costs; ``jobs`` are their records.

    ``whole`` are the bills of all jobs whose time is known, not cut by ``window``: they tell how
    many devices a resource has. ``lost`` are devices that a job claims and another one holds.

    A bill wins over prices, and connected prices win over the given one. ``bills`` must be those of
    all jobs: what none of them holds is unallocated. Of a ``window`` they must be the parts in it.

    Raises UserError for charges in several currencies, IntegrityError for one that ends before it
    starts.
    """
    charges = ws.engine.run("fleet_charges").to_pylist()
    if charges:
        return _by_bill(ws, charges, bills, whole, price, window, lost or {})
    offers = _offers(ws)
    by_job: dict[str, Fraction] = {}
    listed = given = 0
    unclear: dict[str, None] = {}
    for bill in bills:
        name = str(bill.labels.job_id)
        rate, reason = _offer(offers, jobs.get(name, {}))
        if reason:
            unclear[reason] = None
        listed += rate is not None
        if rate is None and price is not None:
            rate = price
            given += 1
        if rate is not None:
            by_job[name] = exact_usd(bill.total_gpu_us / US_PER_S, rate)
    return Money(
        by_job,
        USD if by_job else None,
        _price_basis(price, listed, given, len(bills)),
        _nothing(NO_BILL),
        warnings=tuple(unclear),
    )


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
    return "; ".join(parts) or NO_PRICE


def _nothing(reason: str) -> Reconciled:
    missing = Measure.missing("ratio", reason, level=Level.LOG)
    return Reconciled(None, None, None, None, None, None, missing, None, reason=reason)


# -- the provider's bill --------------------------------------------------------------------------


def _by_bill(
    ws: Workspace,
    charges: Sequence[dict[str, Any]],
    bills: Sequence[Waterfall],
    whole: Sequence[Waterfall],
    price: Decimal | None,
    window: tuple[int, int] | None,
    lost: Mapping[str, Sequence[Lost]],
) -> Money:
    hosts: dict[str, dict[str, int]] = defaultdict(dict)
    for row in ws.engine.run("fleet_hosts").to_pylist():
        hosts[row["job_id"]][row["host"]] = row["rank_count"]
    named = _resources(charges, {host for own in hosts.values() for host in own})
    dated = {bill.labels.job_id for bill in whole}
    every = occupancy_of(placements(whole, hosts, lost), {})
    gpus = {name: held.capacity for name, held in every.items()}
    places = placements(
        [bill for bill in bills if bill.labels.job_id in dated], hosts, lost, window
    )
    found = reconcile(named, bills, placements=places, gpus_by_resource=gpus, window=window)
    cost = sum(found.by_job.values(), Decimal(0))
    basis = f"effective cost of {len(charges):,} charges"
    basis += f" in {found.currency}" if found.currency else ", whose currency is not stated"
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
        occupancy_of(places, gpus),
        tuple(named),
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
    )


def _resources(charges: Sequence[dict[str, Any]], hosts: set[str]) -> list[dict[str, Any]]:
    """Charges with their resource as hosts are named: providers put a path before the name."""
    named = []
    for row in charges:
        resource = row.get("resource_id")
        if resource is not None and resource not in hosts:
            last = resource.rstrip("/").rsplit("/", 1)[-1]
            row = {**row, "resource_id": last if last in hosts else resource}
        named.append(row)
    return named


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


# -- connected prices -----------------------------------------------------------------------------


def _offers(ws: Workspace) -> dict[str, list[dict[str, Any]]]:
    """Offers by device; a name that means no one device is left as it is."""
    offers: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in ws.engine.run("fleet_prices").to_pylist():
        offers[_device(row["gpu_model"])].append(row)
    return offers


def _device(name: str) -> str:
    known = identify(name).device
    return known.key if known else name.strip().lower()


def _offer(
    offers: Mapping[str, list[dict[str, Any]]], job: Mapping[str, Any]
) -> tuple[Decimal | None, str]:
    """The price of a job's device on the day it began, or why the offers do not tell it.

    The newest observation up to that day counts. Offers that differ on that day cannot be told
    apart, because a job's record names no provider and no term.
    """
    name = job.get("gpu_model")
    if not offers or not name:
        return None, ""
    own = offers.get(_device(name), [])
    start = job.get("start_us")
    if start is not None:
        day = datetime.fromtimestamp(start / 1e6, UTC).strftime("%Y-%m-%d")
        own = [row for row in own if row["observed_on"] <= day]
    if not own:
        return None, ""
    newest = max(row["observed_on"] for row in own)
    rates = {row["usd_per_gpu_hour"] for row in own if row["observed_on"] == newest}
    if len(rates) > 1:
        return None, (
            f"{len(rates)} connected prices of {name} differ on {newest}, so none of them is used"
        )
    rate = Decimal(rates.pop())
    return (rate, "") if rate > 0 else (None, "")
