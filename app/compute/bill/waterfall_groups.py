"""Bills of several jobs, and of days and months.

A job that crosses a boundary counts in each period with the part of its time that lies in it. Time
and exact dollars add up exactly, and so do the cents of the bills that one call returns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Literal

from steptax.app.compute.bill.apportion import Unit, pieces
from steptax.app.compute.bill.attempt_layer import State
from steptax.app.compute.bill.buckets import BUCKETS
from steptax.app.compute.bill.cost import exact_usd
from steptax.app.compute.bill.goodput import Denominator
from steptax.app.compute.bill.ledger import OVERLAP, share_of
from steptax.app.compute.bill.paid_time import idle_time
from steptax.app.compute.bill.segments import Segments
from steptax.app.compute.bill.timeline import Allocation
from steptax.app.compute.bill.waterfall import make_waterfall
from steptax.app.compute.bill.waterfall_rows import (
    Labels,
    Source,
    Waterfall,
    WaterfallRow,
    close_cents,
)
from steptax.app.compute.measure import Level, Measure
from steptax.app.compute.stats.exact import exact_sum
from steptax.app.errors import NotFoundError, UserError

By = Literal["job_id", "team", "project", "cluster", "owner", "period"]


def unstated(label: str) -> str:
    """Group of what does not say which ``label`` it belongs to: ``no team stated``."""
    return f"no {label} stated"


_ZERO = Fraction(0)


def within(bill: Waterfall, start_us: int, end_us: int, period: str | None = None) -> Waterfall:
    """The part of a job's bill that lies in [start, end), at the same price per GPU-second.

    ``period`` is what that time is called, if it is called anything.

    Raises:
        UserError: ``bill`` is a sum, whose time is not known any more.
    """
    if bill.source is None or bill.timeline is None:
        raise UserError("a sum of bills cannot be cut by time", hint="cut its bills, then add them")
    first_us, last_us = bill.timeline.span_us
    labels = bill.labels if period is None else replace(bill.labels, period=period)
    if start_us <= first_us and last_us <= end_us:  # nothing is cut off, of most jobs
        steps = bill.has_steps and _has_steps(bill)
        return replace(bill, has_steps=steps, at_risk=None, labels=labels)
    part = bill.timeline.within(start_us, end_us)
    cut = make_waterfall(bill.source, part, replace(bill, at_risk=None, labels=labels))
    cut = replace(cut, has_steps=bill.has_steps and _has_steps(cut))
    usd = bill.usd_exact
    if usd is None or not cut.total_gpu_us:
        return cut
    return cut.priced(usd * cut.total_gpu_us / bill.total_gpu_us)


def _has_steps(bill: Waterfall) -> bool:
    assert bill.timeline is not None
    return bool(bill.timeline.gpu_us(State.SPLIT, State.WHOLE, State.UNRECORDED))


def by_period(bills: Sequence[Waterfall], unit: Unit, tz: str = "UTC") -> dict[str, Waterfall]:
    """The bills of jobs by calendar day or month in zone ``tz``, in calendar order.

    Raises:
        UserError: no such zone, or a bill is a sum.
        NotFoundError: there are no bills.
    """
    parts = [part for bill in bills for part in split_periods(bill, unit, tz)]
    return grouped(parts, "period")


def split_periods(bill: Waterfall, unit: Unit, tz: str = "UTC") -> list[Waterfall]:
    """One job's bill cut at the boundaries of days or months in zone ``tz``, in order of time.

    Raises:
        UserError: no such zone, or ``bill`` is a sum.
    """
    if bill.timeline is None:
        raise UserError("a sum of bills cannot be cut by time", hint="cut its bills, then add them")
    cuts = []
    for piece in pieces(*bill.timeline.span_us, unit, tz):
        part = within(bill, piece.start_us, piece.end_us, piece.period)
        cuts.append(part)
    return close_cents(cuts)


def grouped(bills: Sequence[Waterfall], by: By) -> dict[str, Waterfall]:
    """Bills added up by one of their labels, in alphabetical order; those without it as such.

    Raises:
        NotFoundError: there are no bills.
        UserError: their denominators differ.
    """
    members: dict[str, list[Waterfall]] = defaultdict(list)
    for bill in bills:
        members[getattr(bill.labels, by) or unstated(by)].append(bill)
    if not members:
        raise NotFoundError("there are no bills to add up")
    names = sorted(members)
    sums = [total(members[name], Labels(**{by: name})) for name in names]
    return dict(zip(names, close_cents(sums), strict=True))


def total(bills: Sequence[Waterfall], labels: Labels | None = None) -> Waterfall:
    """The sum of bills; ratios of it are ratios of sums, weighted by GPU-time.

    A bucket that is not known in some of them is the sum of the others, and says of how many. Money
    is known only if it is for all that hold time.

    Raises:
        NotFoundError: there are no bills.
        UserError: their denominators differ.
    """
    if not bills:
        raise NotFoundError("there are no bills to add up")
    if len({bill.denominator for bill in bills}) > 1:
        raise UserError("shares of paid and of allocated time do not add up", where="denominator")
    costs = all(bill.total_usd is not None or not bill.total_gpu_us for bill in bills)
    whole = exact_sum(bill.total_gpu_us for bill in bills)
    found: dict[str, list[tuple[WaterfallRow, int]]] = defaultdict(list)
    for bill in bills:
        for row in bill.rows:
            found[row.bucket].append((row, bill.bills))
    count = sum(bill.bills for bill in bills)
    rows = tuple(_sum_rows(found[name], count, whole, costs) for name in BUCKETS if name in found)
    timed = [bill for bill in bills if bill.total_gpu_us != bill.gpu_us("unallocated")]
    with_steps = [bill for bill in timed if bill.has_steps]
    no_useful = [bill for bill in with_steps if bill.no_useful]
    warnings = []
    if 0 < len(with_steps) < (of := sum(bill.bills for bill in timed)):
        warnings.append(f"{of - len(with_steps):,} of {of:,} bills have no steps")
    if 0 < len(no_useful) < len(with_steps):
        warnings.append(
            f"{len(no_useful):,} of {len(with_steps):,} bills have no model FLOPs, so that the "
            "useful "
            "part is a lower bound"
        )
    every = len(no_useful) == len(with_steps)
    merged = Waterfall(
        labels or Labels(),
        bills[0].denominator,
        rows,
        whole,
        None,
        min(bill.level for bill in bills),
        bool(with_steps),
        no_useful[0].no_useful if no_useful and every else "",
        at_risk(bills),
        tuple(
            replace(finding, text=f"{bill.labels.job_id}: {finding.text}")
            if bill.labels.job_id
            else finding
            for bill in bills
            for finding in bill.findings
        ),
        frozenset().union(*(bill.resources for bill in bills)),
        tuple(warnings),
    )
    return close_cents([merged])[0]


def alike(
    one: Waterfall, job_ids: Sequence[str], gpu_us: int, labels: Labels | None = None
) -> Waterfall:
    """The bills of jobs that are ``one`` but for whose they are, when and how long, added up.

    ``gpu_us`` is the time of all of them. In ``total`` the sum counts as one bill per job.
    """
    time = Fraction(gpu_us)
    rows = tuple(
        row
        if row.gpu_us is None
        else replace(
            row,
            gpu_us=(us := row.gpu_us * time / one.total_gpu_us),
            share_ratio=share_of(us, time),
            usd=None,
            usd_exact=None,
        )
        for row in one.rows
    )
    return replace(
        one,
        labels=labels or Labels(),
        rows=rows,
        total_gpu_us=time,
        total_usd=None,
        source=None,
        timeline=None,
        of_jobs=tuple(job_ids),
    )


def _sum_rows(
    found: Sequence[tuple[WaterfallRow, int]], bills: int, whole: Fraction, costs: bool
) -> WaterfallRow:
    """``found`` is the row of each bill, with how many bills that one counts as."""
    rows = [row for row, _ in found]
    known = [row for row in rows if row.gpu_us is not None]
    if not known:
        reasons = sorted({row.note for row in rows})
        return replace(rows[0], note="; ".join(reasons), usd=None, usd_exact=None)
    us = exact_sum(row.gpu_us for row in known if row.gpu_us is not None)
    unknown = sum(count for row, count in found if row.gpu_us is None)
    exact = exact_sum(row.usd_exact for row in known if row.usd_exact is not None)
    # Of a bill that takes held time as paid, nothing is unallocated by that choice.
    told = not unknown or rows[0].bucket == "unallocated"
    note = "" if told else f"not known in {unknown} of {bills} bills"
    return WaterfallRow(
        rows[0].bucket,
        rows[0].number,
        rows[0].title,
        us,
        share_of(us, whole),
        None,
        OVERLAP if us < 0 else note,
        exact if costs and whole else None,
    )


def unallocated(
    paid: Sequence[Allocation],
    bills: Sequence[Waterfall],
    labels: Labels,
    *,
    usd_per_gpu_hour: Decimal | None = None,
) -> Waterfall:
    """The bill of what was paid for and held by none of ``bills``, e.g. of a cluster.

    ``total`` of it and of ``bills`` is the bill of all that was paid. It can be cut by time.

    Raises:
        IntegrityError: more is held than was paid for, by more than a second; by name.
        UserError: one of the bills is a sum, or the price is not positive.
    """
    name = labels.cluster or labels.team or labels.project or labels.job_id or "paid devices"
    used = []
    for bill in bills:
        if bill.timeline is None:
            raise UserError("a sum of bills has no time: give the bills of jobs")
        line = bill.timeline
        keep = line.state != State.UNALLOCATED
        used.append(Segments(line.start_us[keep], line.end_us[keep], line.gpus[keep]))
    idle = idle_time(paid, used, name)
    source = Source(idle, {}, frozenset({"unallocated"}), {}, {})
    frame = Waterfall(
        labels, Denominator.PAID, (), _ZERO, None, Level.LOG, False, "nobody held these devices"
    )
    bill = make_waterfall(source, idle, frame)
    if usd_per_gpu_hour is None:
        return bill
    return bill.priced(exact_usd(bill.total_gpu_us / 1_000_000, usd_per_gpu_hour))


def at_risk(bills: Sequence[Waterfall]) -> Measure | None:
    """Work at risk in all of them; None where it is known of none."""
    known = [b.at_risk.value for b in bills if b.at_risk and b.at_risk.value is not None]
    if not known:
        return None
    count = sum(bill.bills for bill in bills)
    missing = count - len(known)
    said = (f"not known for {missing} of {count} bills",) if missing else ()
    return Measure(sum(known), "GPU-hours", level=Level.STEP_TIME, warnings=said)
