"""Ledgers as lines, of one job and of several."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction

from steptax.app.compute.bill.buckets import OPEN
from steptax.app.compute.bill.cost import exact_usd, split_to_cents
from steptax.app.compute.bill.ledger import OVERLAP, TITLES, Ledger, share_of
from steptax.app.format import format_share, format_value
from steptax.app.views.fleet.bill_models import USD, FleetBill
from steptax.app.views.fleet.groups import cost_text
from steptax.app.views.job.load import LoadedJob
from steptax.app.views.models import LedgerLine
from steptax.app.views.pricing.given import NO_WORLD, RELATIVE_TIME

#: Buckets that are not a loss: the ranks' own computing, and what nobody split.
NOT_LOSS = ("compute", "unsplit")
US_PER_S = 1_000_000


def ledger_lines(ledger: Ledger, *, relative: bool) -> tuple[LedgerLine, ...]:
    """One line per bucket; of normalised durations only the shares hold."""
    return tuple(
        LedgerLine(
            row.bucket,
            row.title,
            None if relative else row.gpu_seconds,
            row.share_ratio,
            None if relative else row.usd,
            row.bucket not in NOT_LOSS,
            row.note or None,
        )
        for row in ledger.rows
    )


def bill_lines(bill: FleetBill) -> tuple[LedgerLine, ...]:
    """The whole bill as a ledger, from what was paid to what was useful; none without a bill."""
    if bill.total is None:
        return ()
    return tuple(
        LedgerLine(
            line.bucket,
            line.title,
            line.gpu_seconds,
            line.share,
            line.cost if bill.currency == USD else None,
            # Of what is not explained nobody knows that it is lost.
            line.is_loss and line.bucket not in OPEN,
            line.note,
        )
        for line in bill.total.lines
    )


def bill_note(bill: FleetBill) -> str:
    """What the ledger of the whole bill covers."""
    if bill.total is None:
        return ""
    cost = "" if bill.total.cost is None else f", {cost_text(bill.total.cost, bill.currency)}"
    return (
        f"The whole bill, {gpu_hours_text(bill.total.gpu_hours)} of {bill.denominator} time{cost}: "
        "the buckets add up to it exactly."
    )


def ledger_note(ledger: Ledger, loaded: LoadedJob) -> str:
    """What the ledger covers, and what it does not."""
    if loaded.matrix.time_is_relative:
        return f"Shares of the recorded steps only: {RELATIVE_TIME}."
    if loaded.world_is_unknown:
        return f"Shares of the recorded steps only: {NO_WORLD}."
    paid_hours = float(ledger.paid_gpu_us) / 3.6e9
    text = (
        f"Covers the {len(loaded.matrix.steps):,} recorded steps of this window: "
        f"{gpu_hours_text(paid_hours)}; the buckets add up to it exactly."
    )
    job = loaded.job
    start_us, end_us = job.get("start_us"), job.get("end_us")
    if start_us is not None and end_us is not None and loaded.window.is_all:
        whole = (end_us - start_us) / 3.6e9 * loaded.matrix.world_size
        outside = whole - paid_hours
        if outside > 0:
            text += (
                f" From start to end the job held {gpu_hours_text(whole)}; of these "
                f"{gpu_hours_text(outside)} ({format_share(outside / whole)}) lie outside the "
                "steps and are not split here."
            )
    return text


def gpu_hours_text(hours: float) -> str:
    """GPU-hours with their unit."""
    return format_value(hours, "GPU-hours")


def add_ledgers(ledgers: Sequence[Ledger], price: Decimal | None) -> tuple[LedgerLine, ...]:
    """The buckets of several ledgers added up; they sum to their paid time exactly.

    A bucket that some jobs measured and others did not is the sum of those that did.
    """
    totals: dict[str, Fraction] = {}
    unmeasured: dict[str, int] = {}
    for ledger in ledgers:
        for row in ledger.rows:
            if row.gpu_us is None:
                unmeasured[row.bucket] = unmeasured.get(row.bucket, 0) + 1
            else:
                totals[row.bucket] = totals.get(row.bucket, Fraction(0)) + row.gpu_us
    paid = sum(totals.values(), Fraction(0))
    known = {bucket: totals[bucket] for bucket in TITLES if bucket in totals}
    money: dict[str, Decimal] = {}
    if price is not None:
        cents = split_to_cents([exact_usd(us / US_PER_S, price) for us in known.values()])
        money = dict(zip(known, cents, strict=True))
    lines = []
    for bucket, title in TITLES.items():
        if bucket not in totals and bucket not in unmeasured:
            continue
        held = totals.get(bucket)
        missing = unmeasured.get(bucket, 0)
        note = f"not measured in {missing} of {len(ledgers)} jobs" if missing else None
        if held is not None and held < 0:
            note = OVERLAP
        lines.append(
            LedgerLine(
                bucket,
                title,
                None if held is None else float(held / US_PER_S),
                share_of(held, paid),
                money.get(bucket),
                bucket not in NOT_LOSS,
                note,
            )
        )
    return tuple(lines)
