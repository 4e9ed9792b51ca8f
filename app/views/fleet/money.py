"""What the jobs of a fleet cost: by the provider's bill, by connected prices, or by a given one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

from steptax.app.compute.bill.apportion import Unit
from steptax.app.compute.bill.cost import exact_usd, to_cents
from steptax.app.compute.bill.periods import costs_by_period, idle_allocations
from steptax.app.compute.bill.timeline import Allocation
from steptax.app.compute.bill.waterfall_rows import Waterfall
from steptax.app.compute.devices.claims import Lost
from steptax.app.compute.measure import Level, Measure
from steptax.app.views.bill.notes import delivery_notes
from steptax.app.views.bill.rules import BillRules, read_rules
from steptax.app.views.fleet.bill_models import USD, Reconciled
from steptax.app.views.fleet.money_by_bill import AllJobs, Money, money_by_bill
from steptax.app.views.fleet.money_rates import Rates, price_basis, rates_of
from steptax.app.views.fleet.records import Records
from steptax.app.views.kept import Kept, OfView
from steptax.app.views.pricing.given import price_text
from steptax.app.views.pricing.offers import OfferFilter, load_offers
from steptax.app.views.workspace import Workspace
from steptax.app.words import count_text

US_PER_S = 1_000_000
#: All that the division of a bill rests on.
_TABLES = ("charges", "charge_states", "jobs", "ranks", "steps", "ops", "events")
#: In place of what of the lake is asked for, where that is all of it.
EVERY_JOB = "every job"
NO_BILL = "no bill is connected: the charges table is empty"


_kept_costs, _kept_free = OfView(4), OfView(4)


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
        held = AllJobs(bills, whole, records, whole_records)
        key = (ws.key, of_all, window, repr(rules), *(ws.lake.version(name) for name in _TABLES))
        kept: Kept[Money] = _kept_money if of_all is not None else Kept(1)
        money = kept.get(key, lambda: money_by_bill(ws, charges, held, window, lost or {}, rules))
        if price is not None:
            unused = f"the bill counts, so the price of {price_text(price)} is not used"
            money = replace(money, warnings=(unused, *money.warnings))
        named = [*(str(bill.labels.job_id) for bill in bills), *records.job_ids]
        rates = rates_of(load_offers(ws), named, jobs, price, offers)
        said = (*delivery_notes(ws), *money.warnings, *_uncharged(held, money, rates))
        return replace(money, warnings=said)
    named = [*(str(bill.labels.job_id) for bill in bills), *records.job_ids]
    known = load_offers(ws)
    rates = rates_of(known, named, jobs, price, offers)
    by_job = {
        str(bill.labels.job_id): exact_usd(bill.total_gpu_us / US_PER_S, rate)
        for bill in bills
        if (rate := rates.of_job.get(str(bill.labels.job_id))) is not None
    }
    return Money(
        by_job,
        USD if rates.of_job else None,
        price_basis(price, rates, bool(known), len(named)),
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


def _uncharged(held: AllJobs, money: Money, rates: Rates) -> list[str]:
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
