"""The bills of a fleet, added up by label, by job, by day or by month."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

from steptax.app.compute.apportion import Unit
from steptax.app.compute.bill_periods import UNALLOCATED
from steptax.app.compute.cost import exact_usd
from steptax.app.compute.waterfall_groups import By, split_periods, total, unstated
from steptax.app.compute.waterfall_rows import Waterfall
from steptax.app.views.fleet_bill_models import FleetGroup, Level
from steptax.app.views.fleet_groups import HELD_BY_NONE, as_group, close_groups, record_groups
from steptax.app.views.fleet_money import US_PER_S
from steptax.app.views.fleet_records import Records

#: Levels that are periods.
UNITS = {"day": Unit.DAY, "month": Unit.MONTH}


def groups_of(
    bills: Sequence[Waterfall],
    records: Records,
    rates: Mapping[str, Decimal],
    template: Waterfall,
    level: Level,
    tz: str,
    costs: Mapping[str, Mapping[str, Fraction]] | None,
) -> tuple[tuple[FleetGroup, ...], FleetGroup | None]:
    """The bills by group, and their sum; all cents add up in every direction.

    ``records`` are beside ``bills``, at ``rates`` by job; each of them would be like ``template``.
    """
    if level == "job" and len(records):
        return _by_job(bills, records, rates, template)
    members: dict[str, list[Waterfall]] = defaultdict(list)
    unit = UNITS.get(level)
    label: By = "period" if unit else "job_id" if level == "job" else level  # type: ignore[assignment]
    for bill in bills:
        for part in [bill] if unit is None else _split(bill, unit, tz, costs):
            members[getattr(part.labels, label) or unstated(level)].append(part)
    own, names = (records, records.labels(level)) if unit is None else records.cut(unit, tz)
    for name, added in own.added_up(names, rates, template).items():
        members[name] += added
    if not members:
        return (), None
    sums = {name: _sum(own) for name, own in members.items()}
    # Cutting by time loses what would be lost at the end of a job.
    all_ = [""] * len(records)
    everything = [part for own in members.values() for part in own]
    each = [*bills, *(b for own in records.added_up(all_, {}, template).values() for b in own)]
    grand = replace(_sum(everything), at_risk=total(each).at_risk)
    if unit is None:
        order = sorted(sums, key=lambda n: (n == HELD_BY_NONE, -sums[n].total_gpu_us, n))
    else:
        order = sorted(sums)
    closed = close_groups([sums[name] for name in order], grand)
    groups = tuple(
        as_group(name, bill, members[name], grand)
        for name, bill in zip(order, closed.groups, strict=True)
    )
    return groups, as_group("total", closed.total, everything, grand)


def _by_job(
    bills: Sequence[Waterfall],
    records: Records,
    rates: Mapping[str, Decimal],
    template: Waterfall,
) -> tuple[tuple[FleetGroup, ...], FleetGroup]:
    """A group per job; those of ``records`` are made after one of them."""
    added = records.added_up([""] * len(records), rates, template)[""]
    everything = [*bills, *added]
    grand = _sum(everything)
    sums = [_sum([bill]) for bill in bills]
    us = records.gpu_us.tolist()
    # What a GPU-microsecond costs at each price.
    unit = {rate: exact_usd(Fraction(1, US_PER_S), rate) for rate in set(rates.values())}
    exact = [
        unit[rates[job]] * held if held and job in rates else None
        for job, held in zip(records.job_ids, us, strict=True)
    ]
    closed = close_groups(sums, grand, exact)
    told = [
        as_group(str(bill.labels.job_id or unstated("job")), group, [bill], grand)
        for bill, group in zip(bills, closed.groups, strict=True)
    ]
    made = record_groups(records.job_ids, us, closed.records, template, grand)
    whole = [*(bill.total_gpu_us for bill in bills), *us]
    order = sorted(
        zip(whole, [*told, *made], strict=True),
        key=lambda pair: (pair[1].name == HELD_BY_NONE, -pair[0], pair[1].name),
    )
    groups = tuple(group for _, group in order)
    return groups, as_group("total", closed.total, everything, grand)


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
    return [
        part.priced(usd * cost / whole) if part.total_gpu_us else part
        for part, cost in zip(parts, charged, strict=True)
    ]


def _sum(bills: Sequence[Waterfall]) -> Waterfall:
    """Their sum, with the cost of those whose cost is known, if it is of any."""
    if any(bill.total_usd is not None for bill in bills):
        bills = [
            bill.priced(Fraction(0)) if bill.total_usd is None and bill.total_gpu_us else bill
            for bill in bills
        ]
    return total(bills)
