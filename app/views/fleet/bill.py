"""The whole bill of a fleet: every GPU-second of its jobs, by team, project, ..., day or month."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from steptax.app.compute.bill.apportion import to_us, zone
from steptax.app.compute.bill.goodput import Denominator
from steptax.app.compute.bill.waterfall_groups import (
    unallocated,
    within,
)
from steptax.app.compute.bill.waterfall_rows import Labels, Waterfall
from steptax.app.compute.devices.claims import unplaced
from steptax.app.errors import UserError
from steptax.app.lake import one_look
from steptax.app.memory import building
from steptax.app.views.bill.invoices import invoices_of
from steptax.app.views.bill.rules import BillRules
from steptax.app.views.bill.sharing import claims_in, lost_warning, unplaced_warnings
from steptax.app.views.fleet.bill_models import (
    DENOMINATORS,
    LEVELS,
    FleetBill,
    Level,
    NotBilled,
)
from steptax.app.views.fleet.groups import (
    HELD_BY_NONE,
    bill_sentence,
    cost_text,
)
from steptax.app.views.fleet.jobs import every_bill, job_bills, of_allocated
from steptax.app.views.fleet.money import EVERY_JOB, free_devices, money_of, period_costs
from steptax.app.views.fleet.money_by_bill import Money
from steptax.app.views.fleet.record_bills import JobBill, record_template
from steptax.app.views.fleet.records import Records
from steptax.app.views.fleet.stated_months import stated_month
from steptax.app.views.fleet.sums import UNITS, Prices, groups_of
from steptax.app.views.job.load import LoadedJob
from steptax.app.views.kept import OfView
from steptax.app.views.pricing.offers import OfferFilter
from steptax.app.views.workspace import Workspace
from steptax.app.words import count_text, day_text, rows_text

_FAR_US = 2**62
#: Of all jobs, by window and kind of period: neither a price nor a label changes them.
_kept_parts = OfView(4)


@dataclass(frozen=True)
class _Parts:
    """Bills of all jobs in the window, unpriced, and who has none."""

    bills: list[Waterfall]
    records: Records
    """Jobs of which nothing but their record is known, where none of them is needed alone."""
    whole: list[Waterfall]
    """Of all jobs whose time is known and of which more is, not cut by the window."""
    whole_records: Records
    """The other ones, not cut by the window."""
    undated: frozenset[str]
    not_billed: tuple[NotBilled, ...]


@one_look()
@building()
def fleet_bill(
    ws: Workspace,
    *,
    by: str = "team",
    denominator: str = "paid",
    tz: str = "UTC",
    price: Decimal | None = None,
    first: date | None = None,
    last: date | None = None,
    job_ids: Sequence[str] = (),
    loaded: Mapping[str, LoadedJob] | None = None,
    rules: BillRules | None = None,
    invoiced: Mapping[str, Decimal] | None = None,
    offers: OfferFilter | None = None,
) -> FleetBill:
    """The bills of ``job_ids`` (all without any), added up by ``by``.

    A job counts with the part of its time between ``first`` and ``last``, days in zone ``tz``, both
    included; days and months are cut in that zone too. ``loaded`` are jobs whose steps are in
    memory already. ``rules`` join charges to jobs, else those of the installation; ``invoiced``
    are amounts by invoice that the charges are held against; ``offers`` says which connected prices
    count where no bill is.

    Raises:
        UserError: no such level, denominator or zone, or charges in several currencies.
        NotFoundError: there is no job or no invoice of that name.
    """
    level, whole = _level(by), _denominator(denominator)
    window = _window(first, last, tz)
    chosen = {ws.job(job_id)["job_id"] for job_id in job_ids}
    jobs = ws.jobs()
    # What the bill leaves unallocated is known only once every job had its part.
    needed = jobs
    if chosen and not ws.lake.segments("charges"):
        needed = [job for job in jobs if job["job_id"] in chosen]
    records = {job["job_id"]: job for job in needed}
    made: Sequence[JobBill]
    if chosen or loaded:
        made = job_bills(ws, needed, loaded)
        parts = _parts(made, records, window, level, chosen, tz)
    else:
        every = every_bill(ws)
        made = every.bills
        parts = _kept_parts.get(
            every,
            (window, (level, tz) if level in UNITS else None),
            lambda: _parts(made, records, window, level, chosen, tz),
        )
    lost = {one.job_id: one.lost for one in made if one.lost}
    # Hours without a time are in some periods and not in others.
    left_to = UNITS.get(level) if parts.undated else None
    money = money_of(
        ws,
        parts.bills,
        records,
        price,
        window,
        whole=parts.whole,
        records=parts.records,
        whole_records=parts.whole_records,
        lost=lost,
        rules=rules,
        offers=offers,
        of_all=None if chosen or loaded else (left_to, tz) if left_to else EVERY_JOB,
    )
    reconciled = replace(money.reconciliation, invoices=invoices_of(ws, invoiced))
    template = record_template()
    if whole is Denominator.ALLOCATED:
        parts = replace(parts, bills=[of_allocated(bill) for bill in parts.bills])
        template = of_allocated(template)
    shown = [bill for bill in parts.bills if not chosen or bill.labels.job_id in chosen]
    known = parts.records if not chosen else _chosen(parts.records, chosen)
    one = _one_rate(shown, known, money)
    if one is None:
        shown = [_priced(bill, money) for bill in shown]
    idle, said = (None, "") if chosen else _idle(money, whole, window)
    unit = UNITS.get(level)
    costs = None
    if unit is not None and money.charges:
        costs = period_costs(money, unit, tz, window)
    bills = [*shown, *([idle] if idle else [])]
    prices = Prices(money.rates, one, costs, money.by_job if money.charges else None)
    groups, grand = groups_of(bills, known, prices, template, level, tz)
    count = len(shown) + len(known)
    return FleetBill(
        by=level,
        denominator=str(whole),
        denominator_text=_denominator_text(whole, idle is not None),
        tz=tz,
        period=_period(shown, known, parts.undated, window, tz),
        sentence=bill_sentence(
            grand, rows_text(count, len(known.sums)), len(parts.not_billed), money.currency, whole
        ),
        groups=groups,
        total=grand,
        currency=money.currency,
        cost_basis=money.basis,
        reconciliation=reconciled,
        jobs=count,
        not_billed=parts.not_billed,
        prices=money.prices,
        warnings=tuple(
            filter(
                None,
                (
                    *money.warnings,
                    said,
                    *_sharing(ws, made, chosen),
                    *_warnings(shown, known, parts),
                ),
            )
        ),
    )


# -- choices --------------------------------------------------------------------------------------


def _level(name: str) -> Level:
    for level in LEVELS:
        if level == name:
            return level
    raise UserError(f"there is no level {name!r}", where="--by", hint=f"use {', '.join(LEVELS)}")


def _denominator(name: str) -> Denominator:
    if name in DENOMINATORS:
        return Denominator(name)
    raise UserError(
        f"there is no denominator {name!r}",
        where="--denominator",
        hint=f"use {' or '.join(DENOMINATORS)}",
    )


def _denominator_text(whole: Denominator, with_idle: bool) -> str:
    if whole is Denominator.ALLOCATED:
        return "allocated time: what jobs held"
    if with_idle:
        return "paid time: what jobs held, and what the bill covers and no job held"
    return "paid time: what jobs held, since what was paid beyond that is not known"


def _window(first: date | None, last: date | None, tz: str) -> tuple[int, int] | None:
    """From the start of the first day to the end of the last one; None without any bound."""
    info = zone(tz)
    if first is None and last is None:
        return None
    start, end = -_FAR_US, _FAR_US
    if first is not None:
        start = to_us(datetime(first.year, first.month, first.day, tzinfo=info))
    if last is not None:
        after = last + timedelta(days=1)
        end = to_us(datetime(after.year, after.month, after.day, tzinfo=info))
    if end <= start:
        raise UserError(f"{last} is before {first}", where="--to", hint="both days are included")
    return start, end


# -- jobs -----------------------------------------------------------------------------------------


def _parts(
    made: Sequence[JobBill],
    records: Mapping[str, Mapping[str, Any]],
    window: tuple[int, int] | None,
    level: Level,
    chosen: set[str],
    tz: str = "UTC",
    *,
    apart: bool = False,
) -> _Parts:
    """Bills of all jobs; with ``apart`` also that of each job of which only its record is known.

    These by themselves are what the columns of their records must equal.
    """
    bills: list[Waterfall] = []
    alone: list[JobBill] = []
    whole: list[Waterfall] = []
    undated: set[str] = set()
    reasons: list[NotBilled] = []
    for one in made:
        is_known, reason, month = one.is_known, one.reason, None
        if not is_known and _outside(records[one.job_id], window):
            continue
        if is_known and one.undated:
            undated.add(one.job_id)
            if level == "month" and window is None:
                month = stated_month(records[one.job_id], tz)
            if (window is not None or level in UNITS) and month is None:
                is_known = False
                reason = f"{one.undated}, so that they lie in no known {_span(level)}"
        if not is_known:
            if not chosen or one.job_id in chosen:
                reasons.append(NotBilled(one.job_id, reason))
            continue
        if one.held is not None and not apart:
            alone.append(one)
            continue
        bill = one.bill
        assert bill is not None
        if month is not None:
            bill = replace(bill, labels=replace(bill.labels, period=month))
        if not one.undated:
            whole.append(bill)
        if window is not None:
            bill = within(bill, *window)
            if not bill.total_gpu_us:
                continue
        bills.append(bill)
    reasons.sort(key=lambda one: one.job_id)
    every = Records.of(alone)
    found = every if window is None else every.within(*window)
    return _Parts(bills, found, whole, every, frozenset(undated), tuple(reasons))


def _chosen(records: Records, chosen: set[str]) -> Records:
    return records.at(np.flatnonzero([job in chosen for job in records.job_ids]))


def _span(level: Level) -> str:
    return level if level in UNITS else "period"


def _outside(job: Mapping[str, Any], window: tuple[int, int] | None) -> bool:
    """Whether a job is known to lie outside of the window."""
    if window is None:
        return False
    start, end = job.get("start_us"), job.get("end_us")
    return (start is not None and start >= window[1]) or (end is not None and end <= window[0])


def _priced(bill: Waterfall, money: Money) -> Waterfall:
    cost = money.by_job.get(str(bill.labels.job_id))
    if cost is None or not bill.total_gpu_us:
        return bill
    return bill.priced(cost, finely=bool(money.charges))


def _one_rate(bills: Sequence[Waterfall], records: Records, money: Money) -> Decimal | None:
    """The price of every job, where all have the same: then sums are priced, and not each job."""
    if money.charges:
        return None
    rates = {money.rates.get(str(bill.labels.job_id)) for bill in bills if bill.total_gpu_us}
    rates |= {money.rates.get(job_id) for job_id in records.job_ids}
    return rates.pop() if len(rates) == 1 else None


def _idle(
    money: Money, whole: Denominator, window: tuple[int, int] | None
) -> tuple[Waterfall | None, str]:
    """The bill of what no job held, and what to say where it cannot be made."""
    if whole is Denominator.ALLOCATED or not money.charges:
        return None, ""
    free = free_devices(money, window)
    if free is None:
        return None, "jobs hold parts of devices, so the time that nobody held is not counted"
    if not free:
        if not money.idle_cost:
            return None, ""
        cost = cost_text(money.idle_cost, money.currency)
        return None, f"{cost} of the bill are unallocated and of no device's time: in no bucket"
    none = HELD_BY_NONE
    bill = unallocated(free, [], Labels(none, none, none, none, none))
    return bill.priced(Fraction(money.idle_cost or 0)), ""


# -- words ----------------------------------------------------------------------------------------


def _period(
    bills: Sequence[Waterfall],
    records: Records,
    undated: frozenset[str],
    window: tuple[int, int] | None,
    tz: str,
) -> str:
    dated = [bill for bill in bills if bill.labels.job_id not in undated]
    spans = [bill.timeline.span_us for bill in dated if bill.timeline is not None]
    spans = [span for span in (*spans, records.span_us) if span is not None and span[1] > span[0]]
    if not spans:
        return "no dates are known"
    start, end = min(s for s, _ in spans), max(e for _, e in spans)
    if window is not None:
        start = max(start, window[0])
        end = min(end, window[1])
    return f"{_day(start, tz)} to {_day(end - 1, tz)}, {tz}"


def _day(us: int, tz: str) -> str:
    return day_text(datetime.fromtimestamp(us / 1e6, UTC).astimezone(zone(tz)))


def _sharing(ws: Workspace, made: Sequence[JobBill], chosen: set[str]) -> list[str]:
    """What two jobs name and counts once, and where it is not known whether they share."""
    shown = [one for one in made if not chosen or one.job_id in chosen]
    lost = lost_warning({one.job_id: one.lost for one in shown if one.lost})
    claims = claims_in(ws)
    if not claims.kinds:
        return [lost]
    named = {job_id for own in claims.kinds.values() for job_id in own}
    named |= {claim.job_id for claim in claims.known}
    spans = {
        one.job_id: span for one in shown if one.job_id in named and (span := one.span) is not None
    }
    return [lost, *unplaced_warnings(ws, unplaced(claims, spans))]


def _warnings(bills: Sequence[Waterfall], records: Records, parts: _Parts) -> list[str]:
    said = []
    kinds = Counter(finding.kind for bill in bills for finding in bill.findings)
    if kinds:
        listed = ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items()))
        said.append(f"findings in the jobs' records: {listed}; steptax job ID names them")
    named = (*(bill.labels.job_id for bill in bills), *records.job_ids)
    if parts.undated and any(job_id in parts.undated for job_id in named):
        said.append(
            "jobs whose record states GPU-hours without start and end count whole in the month in "
            "which they began or were submitted, and in no period that is chosen by its days"
        )
    if parts.not_billed:
        said.append(
            f"without a bill, each for its reason: {count_text(len(parts.not_billed), 'job')}"
        )
    return said
