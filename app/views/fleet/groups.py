"""Sums of bills as what is shown: lines, factors, cents that add up, one sentence."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

import numpy as np

from steptax.app.compute.bill.buckets import BUCKETS, OPEN, UNEXPLAINED
from steptax.app.compute.bill.cents import Amounts, table_to_cents, tables_to_cents
from steptax.app.compute.bill.cost import CENT
from steptax.app.compute.bill.goodput import GPU_US_PER_HOUR, Denominator
from steptax.app.compute.bill.waterfall_rows import Waterfall, WaterfallRow, close_cents
from steptax.app.compute.measure import Measure
from steptax.app.compute.stats.exact import exact_sum
from steptax.app.compute.stats.rows import Ints
from steptax.app.format import format_measure, format_share, format_value
from steptax.app.views.bill.view import AT_RISK, BILL_METRICS, factors
from steptax.app.views.fleet.bill_models import USD, FleetGroup, FleetLine
from steptax.app.words import count_text

#: Metrics of every group, in the order in which they are shown.
GROUP_METRICS = ("gpu_hours", *BILL_METRICS, "unexplained_ratio", AT_RISK, "spend_usd")
#: Losses that the sentence names.
LISTED_LOSSES = 3
HELD_BY_NONE = "held by no job"
"""Group of what was paid for and held by no job, where groups are no periods."""
_NO_SAVES = "no saves are on record, or the period is a part of the job"


@dataclass(frozen=True, eq=False)
class Closed:
    """Groups and their total, in cents that add up."""

    groups: tuple[Waterfall, ...]
    total: Waterfall
    records: Ints
    """[N] cents of jobs of which nothing but their record is known, 0 where that is not."""


def close_groups(
    groups: Sequence[Waterfall], grand: Waterfall, records: Amounts | None = None
) -> Closed:
    """Round the costs of ``groups`` so that rows, columns and the whole add up to the cent.

    ``records`` are the costs of jobs beside them whose time is unexplained as a whole.
    """
    names = list(BUCKETS)
    exact = [
        [None if (row := _row(bill, name)) is None else row.usd_exact for name in names]
        for bill in groups
    ]
    place_of_open = names.index("unexplained")
    # The total of a bucket is the same whatever the groups are.
    rounded = close_cents([grand])[0]
    wanted = [(row.usd if row else None) or Decimal(0) for row in (_row(rounded, n) for n in names)]
    alone = np.zeros(0 if records is None else len(records.known), dtype=np.int64)
    if records is None or not records.known.any():
        cents = table_to_cents(exact, wanted if grand.total_usd is not None else None)
    else:
        cents, alone = tables_to_cents(exact, records, place_of_open, wanted)
    closed = tuple(
        with_cents(bill, dict(zip(names, row, strict=True)))
        for bill, row in zip(groups, cents[: len(groups)], strict=True)
    )
    columns: dict[str, Decimal | None] = {}
    for place, name in enumerate(names):
        known = [value for row in cents if (value := row[place]) is not None]
        columns[name] = sum(known, Decimal(0)) if known else None
    if records is not None and records.known.any():
        more = Decimal(int(alone.sum())) * CENT
        columns["unexplained"] = (columns["unexplained"] or Decimal(0)) + more
    return Closed(closed, with_cents(grand, columns), alone)


def _row(bill: Waterfall, bucket: str) -> WaterfallRow | None:
    return next((row for row in bill.rows if row.bucket == bucket), None)


def with_cents(bill: Waterfall, cents: Mapping[str, Decimal | None]) -> Waterfall:
    """``bill`` with what each of its buckets costs, to the cent."""
    rows = tuple(row.costing(cents[row.bucket], row.usd_exact) for row in bill.rows)
    known = [row.usd for row in rows if row.usd is not None]
    return replace(bill, rows=rows, total_usd=sum(known, Decimal(0)) if known else None)


def as_group(
    name: str,
    bill: Waterfall,
    members: Sequence[Waterfall],
    grand: Waterfall,
    *,
    is_priced: bool = False,
    sums: Collection[str] = (),
) -> FleetGroup:
    """``bill``, the sum of ``members``, as one group of ``grand``.

    ``is_priced`` says that the cost of all members is known though they do not carry it; ``sums``
    are no jobs, but what many used: how many there were is not known then.
    """
    found = factors(bill)
    found.setdefault(AT_RISK, Measure.missing("GPU-hours", _NO_SAVES))
    named = {job for m in members for job in m.jobs}
    unpriced: set[str | None] = set()
    if not is_priced:
        without = [m for m in members if m.total_gpu_us and m.total_usd is None]
        unpriced = {job for m in without for job in m.jobs}
    cost_note = ""
    hours = float(bill.total_gpu_us / GPU_US_PER_HOUR)
    share = float(bill.total_gpu_us / grand.total_gpu_us) if grand.total_gpu_us else None
    if unpriced:
        cost_note = f"without {count_text(len(unpriced), 'job')} whose cost is not known"
    return FleetGroup(
        name=name,
        jobs=None if not named.isdisjoint(sums) else len(named - {HELD_BY_NONE}),
        gpu_hours=hours,
        gpu_hours_share=share,
        cost=bill.total_usd,
        lines=tuple(_lines(bill, members)),
        metrics={name: found[name] for name in GROUP_METRICS if name in found},
        cost_note=cost_note if bill.total_usd is not None else "",
    )


def _lines(bill: Waterfall, members: Sequence[Waterfall]) -> list[FleetLine]:
    """Every bucket; a coarser one only where it holds something."""
    lines = []
    rows = {row.bucket: row for row in bill.rows}
    for bucket in BUCKETS.values():
        row = rows.get(bucket.name)
        empty = row is None or not row.gpu_us
        if bucket.is_coarse and empty:
            continue
        note = row.note if row is not None else _absent(bill)
        if bucket.name == "unexplained":
            note = _unrecorded(members) or note
        lines.append(
            FleetLine(
                bucket.name,
                bucket.number,
                bucket.title,
                str(bucket.group),
                None if row is None else row.gpu_seconds,
                None if row is None else row.share_ratio,
                None if row is None else row.usd,
                bucket.is_loss,
                note,
            )
        )
    return lines


def _unrecorded(members: Sequence[Waterfall]) -> str:
    """How much of what is unexplained belongs to jobs of which nothing but hours is known."""
    silent = [
        (bill.jobs, row)
        for bill in members
        if (row := _row(bill, "unexplained")) is not None and row.note and row.gpu_us
    ]
    if not silent:
        return ""
    hours = float(exact_sum(row.gpu_us for _, row in silent if row.gpu_us) / GPU_US_PER_HOUR)
    return silent_text(hours, len({job for own, _ in silent for job in own}))


def silent_text(hours: float, jobs: int) -> str:
    """What is said of the hours of jobs of which nothing else is known."""
    return (
        f"{format_value(hours, 'GPU-hours')} of it belong to {count_text(jobs, 'job')} of which "
        "nothing "
        "was recorded but the hours"
    )


def _absent(bill: Waterfall) -> str:
    if not bill.has_steps:
        return "no step that counts was recorded"
    return "not told apart from the buckets beside it"


def bill_sentence(
    grand: FleetGroup | None,
    jobs: str,
    not_billed: int,
    currency: str | None,
    whole: Denominator,
) -> str:
    """What the whole bill says, in one or two sentences; ``jobs`` is how many there are."""
    verb = "is" if not_billed == 1 else "are"
    left_out = f" {not_billed:,} more {verb} left out, each for its reason." if not_billed else ""
    if grand is None:
        if not not_billed:
            return "No job has a bill."
        return f"No job has a bill: {count_text(not_billed, 'job')} left out, each for its reason."
    text = f"{jobs}, {format_value(grand.gpu_hours, 'GPU-hours')} of {whole} time"
    if grand.cost is not None:
        text += f", {cost_text(grand.cost, currency)}"
    goodput, useful = grand.metrics["goodput_ratio"], grand.metrics["effective_mfu_ratio"]
    if goodput.value is None:
        text += ": how much of it went into steps that count is unknown"
    else:
        text += f": {format_measure(goodput)} went into steps that count"
        if useful.value is not None:
            text += f", {format_measure(useful)} was useful at peak speed"
    text += _hidden(grand)
    return f"{text}{_largest(grand, currency)}.{left_out}"


def _largest(grand: FleetGroup, currency: str | None) -> str:
    """The largest losses of all that was paid, each with its part and what it cost.

    More than one: of the ranks' own computing, of what keeps them from it, of what nobody held
    each reader means another one, and other sentences name the largest of one of these alone.
    """
    losses = [
        line
        for line in grand.lines
        if line.is_loss and line.gpu_seconds and line.bucket not in OPEN
    ]
    losses.sort(key=lambda line: -(line.gpu_seconds or 0.0))
    if not losses:
        return ""
    said = []
    for line in losses[:LISTED_LOSSES]:
        cost = "" if line.cost is None else f", {cost_text(line.cost, currency)}"
        said.append(f"{line.title} ({format_share(line.share)}{cost})")
    return f". Largest known {'loss' if len(said) == 1 else 'losses'}: {'; '.join(said)}"


def _hidden(grand: FleetGroup) -> str:
    """Of how much it is not known what happened, and of how much in steps not what went on."""
    shares = {line.bucket: line.share or 0.0 for line in grand.lines if line.bucket in OPEN}
    outside = shares.pop(UNEXPLAINED, 0.0)
    text = f"; of {format_share(outside)} it is not known what happened" if outside else ""
    if inside := sum(shares.values()):
        text += f"; of {format_share(inside)}, in steps, it is not known what the time went into"
    return text


def cost_text(cost: Decimal | None, currency: str | None) -> str:
    """An amount to the cent with its currency."""
    if cost is None:
        return "unknown"
    if currency == USD:
        return f"-${-cost:,.2f}" if cost < 0 else f"${cost:,.2f}"
    return f"{cost:,.2f} {currency or '(currency not stated)'}"
