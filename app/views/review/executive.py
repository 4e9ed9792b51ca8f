"""The cost review: what was spent, what became work, what the rest cost, what to fix first."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction

from steptax.app.compute.bill.job_days import DAY_US
from steptax.app.compute.bill.ledger import Ledger
from steptax.app.compute.measure import Level, Measure, Ratio
from steptax.app.compute.spend.budget import Period
from steptax.app.compute.spend.compared import PREVIOUS, Days
from steptax.app.compute.spend.totals import NO_WAITING, figures
from steptax.app.compute.stats.exact import int_sum
from steptax.app.lake import one_look
from steptax.app.memory import building
from steptax.app.views.bill.ledger import add_ledgers
from steptax.app.views.pricing.given import NO_PRICE, price_view
from steptax.app.views.review.base import review_base
from steptax.app.views.review.budget import ALL, BudgetView, budget_entries, budget_view
from steptax.app.views.review.cards import review_cards
from steptax.app.views.review.executive_models import ExecutiveView
from steptax.app.views.review.fixes import fixes
from steptax.app.views.review.jobs import (
    LEVELS,
    ReviewJobs,
    part_of,
    showback,
    unallocated,
    unmatched,
)
from steptax.app.views.review.money import review_of
from steptax.app.views.review.periods import Periods, inside, months, read_periods, weeks
from steptax.app.views.review.runs import forecast_rows, learning_rows
from steptax.app.views.review.sources import empty_period, silent_sources
from steptax.app.views.review.spend import anomaly_rows, budget_days, variance_view
from steptax.app.views.review.words import (
    after_today,
    kpis,
    ledger_note,
    reconciled,
    recorded,
    sentence,
    warnings_of,
)
from steptax.app.views.workspace import Workspace
from steptax.app.words import count_text

_US_PER_HOUR = 3.6e9


@one_look()
@building()
def executive_view(
    ws: Workspace,
    *,
    price: Decimal | None,
    price_note: str | None = None,
    first_us: int | None = None,
    last_us: int | None = None,
    now_us: int | None = None,
    compare_to: str = PREVIOUS,
) -> ExecutiveView:
    """The review over the time in ``[first_us, last_us)``, whole days; open without bounds.

    A job counts with the part of its time that lies in the period. ``compare_to`` says what the
    period is compared with (``compute.compared.reference_of``); without bounds the newest four
    weeks are.

    Raises UserError for a period or a comparison that cannot be.
    """
    now = time.time_ns() // 1000 if now_us is None else now_us
    today = _date(now)
    cost = price_view(price, price_note)
    base = review_base(ws)
    review = review_of(ws, base, cost)
    first = None if first_us is None else _date(first_us)
    last = None if last_us is None else _date(last_us - 1)
    periods = read_periods(review, first, last, compare_to, today)
    days = periods.chosen
    jobs = ReviewJobs(review, days, cost)
    whole = jobs if days is None else ReviewJobs(review, None, cost)
    silent = silent_sources(ws, now)
    totals = review.rows.sums(inside(review, days))
    found = figures(totals, review.no_price)
    ledgers = _ledgers(jobs)
    lines = add_ledgers(ledgers, _ledger_price(jobs))
    measured = Measure(
        sum(float(ledger.paid_gpu_us) for ledger in ledgers) / _US_PER_HOUR,
        "GPU-hours",
        level=Level.PHASES,
    )
    hours = _hours(jobs)
    spend = _spend(jobs, hours, found["cost_usd"])
    tax = _tax(ledgers)
    recoverable = _sum_of(jobs, found["recoverable_usd"])
    ranked = fixes(jobs)
    first_fix = ranked[0] if ranked else None
    budgets = _budget_days(ws)
    rows = weeks(review, days, budgets)
    variance, no_variance = variance_view(review, periods)
    odd, rule = anomaly_rows(review, periods, today)
    learning, learning_note = learning_rows(ws, jobs)
    forecasts, forecast_note = forecast_rows(ws, jobs, whole)
    shown = {level: showback(jobs, level) for level in LEVELS}
    idle = unallocated(review, days)
    return ExecutiveView(
        sentence=sentence(
            jobs, periods, hours, measured, lines, spend, first_fix, idle.spend_usd, silent
        ),
        period=periods.text,
        price=cost,
        kpis=kpis(hours, spend, tax, found["straggler_tax_usd"], recoverable, lines, review),
        ledger=lines,
        ledger_note=ledger_note(len(ledgers), len(jobs), measured),
        jobs=jobs,
        by_team=tuple(dict(vars(row)) | {"team": row.name} for row in shown["team"]),
        by_period=months(review, days),
        coverage=f"{recorded(jobs)} · {review.basis} · {reconciled(ws, review)}",
        warnings=(*warnings_of(jobs, review, silent), *after_today(periods, today)),
        cards=review_cards(review, periods, jobs, _budget(ws, periods, price, now), rows, silent),
        fix_first=first_fix,
        compared=periods.compared_text,
        weeks=tuple(rows),
        variance=variance,
        no_variance=no_variance,
        anomalies=odd,
        anomaly_note=rule,
        showback=shown,
        unallocated=idle,
        learning=learning,
        learning_note=learning_note,
        forecasts=forecasts,
        forecast_note=forecast_note,
        silent=silent,
        unmatched=unmatched(review, days),
        fixes=ranked,
        empty=None
        if len(jobs) or spend.value is not None
        else empty_period(
            periods.chosen.text if periods.chosen else "the record",
            periods.record.text if periods.record else None,
        ),
    )


def _date(us: int) -> date:
    return datetime.fromtimestamp(us // DAY_US * 86_400, UTC).date()


# -- what is added up -----------------------------------------------------------------------------


def _hours(jobs: ReviewJobs) -> Measure:
    """GPU-hours of the jobs whose hours are known."""
    if not len(jobs):
        return Measure.missing("GPU-hours", "there are no jobs")
    unknown = jobs.hours_unknown
    if unknown == len(jobs):
        reasons = dict.fromkeys(jobs.review.base.bills[k].reason for k in jobs.places.tolist())
        return Measure.missing("GPU-hours", "; ".join(filter(None, reasons)))
    warnings = (
        (f"without {unknown:,} of {count_text(len(jobs), 'job')}, where it is unknown",)
        if unknown
        else ()
    )
    held = int_sum(jobs.held_us[jobs.places])
    return Measure(held / _US_PER_HOUR, "GPU-hours", level=Level.LOG, warnings=warnings)


def _spend(jobs: ReviewJobs, hours: Measure, cost: Measure) -> Measure:
    """Hours at one price, to the digit as everywhere else; else what a bill or prices say."""
    if jobs.review.is_priced_by_day:
        return cost
    price = jobs.cost.usd_per_gpu_hour
    if price is None:
        return Measure.missing("USD", NO_PRICE, level=hours.level)
    return hours.map(lambda h: h * float(price), "USD", "price")


def _sum_of(jobs: ReviewJobs, total: Measure) -> Measure:
    """A sum over the jobs that tell it, with how many do not."""
    left = len(jobs) - len(jobs.with_steps) + len(jobs.not_compared)
    if total.value is None or not left:
        return total
    warnings = (
        f"without {left:,} of {count_text(len(jobs), 'job')}, where it is unknown",
        *total.warnings,
    )
    return Measure(
        total.value, total.unit, total.low, total.high, Level.PHASES, total.inputs, warnings
    )


def _ledgers(jobs: ReviewJobs) -> list[Ledger]:
    """Of the recorded steps of the period, of jobs whose times are real."""
    found = []
    for k in jobs.with_steps:
        facts = jobs.review.base.steps[k]
        share = jobs.share_of(k) if facts.is_timed else Fraction(0)
        if share:
            found.append(part_of(facts.ledger, share))
    return found


def _ledger_price(jobs: ReviewJobs) -> Decimal | None:
    """The price of the recorded steps: the given one, or the mean of what their jobs cost."""
    if not jobs.review.is_priced_by_day:
        return jobs.cost.usd_per_gpu_hour
    own = jobs.with_steps
    hours = float(int_sum(jobs.held_us[own]) - int_sum(jobs.unpriced_us[own])) / _US_PER_HOUR
    usd = float(jobs.usd[own].sum())
    return Decimal(repr(usd / hours)) if hours > 0 and usd > 0 else None


def _tax(ledgers: Sequence[Ledger]) -> Ratio:
    """GPU-hour-weighted straggler tax of the jobs in which waiting can be told."""
    wait = paid = 0.0
    for ledger in ledgers:
        row = ledger.row("straggler_wait")
        if row is not None and row.gpu_us is not None:
            wait += float(row.gpu_us)
            paid += float(ledger.paid_gpu_us)
    if not paid:
        return Ratio.missing("ratio", NO_WAITING)
    return Ratio(wait / paid, level=Level.PHASES, inputs=("wait", "paid time"))


# -- budgets --------------------------------------------------------------------------------------


def _budget(
    ws: Workspace, periods: Periods, price: Decimal | None, now_us: int
) -> BudgetView | None:
    """How all jobs stand in the newest month of the period for which anything is promised."""
    set_for = {entry.period for entry in budget_entries(ws) if entry.scope == ALL}
    end = periods.chosen.last if periods.chosen is not None else _date(now_us)
    quarter = f"{end.year}-Q{(end.month + 2) // 3}"
    wanted = next(
        (name for name in (f"{end:%Y-%m}", quarter, str(end.year)) if name in set_for), None
    )
    return budget_view(ws, period=wanted or f"{end:%Y-%m}", price=price, now_us=now_us)


def _budget_days(ws: Workspace) -> dict[date, float]:
    """What the budget of all jobs gives each day."""
    amounts: dict[str, float] = {}
    for entry in budget_entries(ws):  # newest first
        if entry.scope == ALL and entry.budget_usd is not None:
            amounts.setdefault(entry.period, float(entry.budget_usd))
    read = {name: Period.read(name) for name in amounts}
    return dict(budget_days(amounts, {name: (p.first, p.last) for name, p in read.items()}))


def days_of(first: date | None, last: date | None) -> tuple[int | None, int | None]:
    """The bounds of ``executive_view`` of the days from ``first`` to ``last``, both included."""
    if first is not None and last is not None:
        Days(first, last)
    epoch = date(1970, 1, 1)
    return (
        None if first is None else (first - epoch).days * DAY_US,
        None if last is None else ((last - epoch).days + 1) * DAY_US,
    )
