"""The bills of a fleet, added up by label, by job, by day or by month."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction

from steptax.app.compute.bill.apportion import Unit
from steptax.app.compute.bill.cost import exact_usd, split_finely
from steptax.app.compute.bill.periods import UNALLOCATED
from steptax.app.compute.bill.waterfall_groups import By, at_risk, split_periods, total, unstated
from steptax.app.compute.bill.waterfall_rows import Waterfall
from steptax.app.views.fleet.bill_models import FleetGroup, Level
from steptax.app.views.fleet.groups import HELD_BY_NONE, as_group, close_groups, with_cents
from steptax.app.views.fleet.job_groups import JobGroups, RecordGroups
from steptax.app.views.fleet.money import US_PER_S
from steptax.app.views.fleet.records import Records
from steptax.app.views.fleet.stated_months import in_time

#: Levels that are periods.
UNITS = {"day": Unit.DAY, "month": Unit.MONTH}


@dataclass(frozen=True)
class Prices:
    """What bills cost."""

    rates: Mapping[str, Decimal]
    """Price of each job of which nothing but its record is known, USD per GPU-hour."""
    one: Decimal | None = None
    """The price of every job where they all have the same. Bills come without a cost then."""
    costs: Mapping[str, Mapping[str, Fraction]] | None = None
    """By period and job what a provider charged."""
    by_job: Mapping[str, Fraction] | None = None
    """What a provider charged for each job; None where no bill is connected."""


def groups_of(
    bills: Sequence[Waterfall],
    records: Records,
    prices: Prices,
    template: Waterfall,
    level: Level,
    tz: str,
) -> tuple[Sequence[FleetGroup], FleetGroup | None]:
    """The bills by group, and their sum; all cents add up in every direction.

    ``records`` are beside ``bills``; each of them would be like ``template``.
    """
    if level == "job" and len(records):
        return _by_job(bills, records, prices, template)
    one, rates = prices.one, {} if prices.one is not None else prices.rates
    members: dict[str, list[Waterfall]] = defaultdict(list)
    unit = UNITS.get(level)
    label: By = "period" if unit else "job_id" if level == "job" else level  # type: ignore[assignment]
    for bill in bills:
        for part in [bill] if unit is None else _split(bill, unit, tz, prices.costs):
            members[getattr(part.labels, label) or unstated(level)].append(part)
    own, names = (records, records.labels(level)) if unit is None else records.cut(unit, tz)
    charged = None
    if prices.by_job is not None:
        when = None if unit is None else names
        charged = own.charged(prices.by_job, when, prices.costs or {})
    for name, added in own.added_up(names, rates, template, charged).items():
        members[name] += added
    if not members:
        return (), None
    sums = {name: _sum(own, one) for name, own in members.items()}
    # Cutting by time loses what would be lost at the end of a job.
    everything = [part for own in members.values() for part in own]
    each = [
        *bills,
        *(b for o in records.added_up(records.together(), {}, template).values() for b in o),
    ]
    grand = replace(_sum(everything, one), at_risk=at_risk(each))
    if unit is None:
        order = sorted(sums, key=lambda n: (n == HELD_BY_NONE, -sums[n].total_gpu_us, n))
    else:
        order = sorted(sums, key=in_time)
    closed = close_groups([sums[name] for name in order], grand)
    groups = tuple(
        as_group(name, bill, members[name], grand, is_priced=one is not None, sums=records.sums)
        for name, bill in zip(order, closed.groups, strict=True)
    )
    return groups, as_group(
        "total", closed.total, everything, grand, is_priced=one is not None, sums=records.sums
    )


def _by_job(
    bills: Sequence[Waterfall], records: Records, prices: Prices, template: Waterfall
) -> tuple[Sequence[FleetGroup], FleetGroup]:
    """A group per job, made when it is looked at; those of ``records`` after one of them."""
    one, rates = prices.one, prices.rates
    records = records.largest_first()  # of equal ones the cents go to the first that is listed
    charged = None if prices.by_job is None else records.charged(prices.by_job)
    own = {} if one is not None else rates
    added = records.added_up(records.together(), own, template, charged)
    everything = [*bills, *added.get("", [])]
    grand = _sum(everything, one)
    amounts = records.amounts(rates) if charged is None else charged
    priced = list(bills)
    if one is not None:
        priced = [bill.priced(exact_usd(bill.total_gpu_us / US_PER_S, one)) for bill in bills]
    closed = close_groups(priced, grand, amounts)
    names = [str(bill.labels.job_id or unstated("job")) for bill in bills]

    def made(k: int) -> FleetGroup:
        cents = {row.bucket: row.usd for row in closed.groups[k].rows}
        bill = with_cents(total([bills[k]]), cents)
        return as_group(names[k], bill, [bills[k]], grand, is_priced=one is not None)

    us = records.gpu_us.tolist()
    known = amounts.known
    like = RecordGroups(records.job_ids, us, closed.records, known, template, grand)
    groups = JobGroups(names, [int(bill.total_gpu_us) for bill in bills], made, like)
    return groups, as_group(
        "total", closed.total, everything, grand, is_priced=one is not None, sums=records.sums
    )


def _split(
    bill: Waterfall,
    unit: Unit,
    tz: str,
    costs: Mapping[str, Mapping[str, Fraction]] | None,
) -> list[Waterfall]:
    """A bill by period; with a provider's bill each period has what was charged for it.

    What was charged in a period without time, such as an unused commitment while all devices were
    held, is in the others: there is no bucket to put it into, and nothing is lost.
    """
    if bill.labels.period is not None:  # stated, and of no known time
        return [bill]
    parts = split_periods(bill, unit, tz)
    usd = bill.usd_exact
    if costs is None or usd is None:
        return parts
    job = str(bill.labels.job_id)
    job = UNALLOCATED if job == HELD_BY_NONE else job
    charged = [
        costs.get(str(part.labels.period), {}).get(job, Fraction(0))
        if part.total_gpu_us
        else Fraction(0)
        for part in parts
    ]
    whole = sum(charged, Fraction(0))
    if not whole:
        return parts
    fine = split_finely([usd * cost / whole for cost in charged])
    return [
        part.priced(cost, finely=True) if part.total_gpu_us else part
        for part, cost in zip(parts, fine, strict=True)
    ]


def _sum(bills: Sequence[Waterfall], one: Decimal | None = None) -> Waterfall:
    """Their sum, with the cost of those whose cost is known, if it is of any.

    With ``one`` the bills have no cost yet: each would be at that price per GPU-hour.
    """
    if one is not None:
        found = total(bills)
        return found.priced(exact_usd(found.total_gpu_us / US_PER_S, one))
    if any(bill.total_usd is not None for bill in bills):
        bills = [
            bill.priced(Fraction(0)) if bill.total_usd is None and bill.total_gpu_us else bill
            for bill in bills
        ]
    return total(bills)
