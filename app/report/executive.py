"""The executive brief: what the review page says first, on one printed page, and all data behind.

Sentence, numbers, waterfall, largest groups, jobs to fix and budget are printed; every other table
of the page travels in the file: as sheets, as CSV, and folded away in the HTML.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import steptax
from steptax.app.charts.budget import days_table, history_table
from steptax.app.charts.fleet_bill import (
    bill_table,
    groups_table,
    invoices_table,
    not_billed_table,
    range_key,
    reconciliation_table,
)
from steptax.app.charts.fleet_tables import jobs_table, teams_table
from steptax.app.charts.job_tables import ledger_table
from steptax.app.charts.review import anomalies_table, variance_table, weeks_table
from steptax.app.charts.tables import Column, Table, table
from steptax.app.charts.waterfall import WaterfallBar, units_of, waterfall_bars
from steptax.app.compute.bill.apportion import to_us
from steptax.app.compute.spend.compared import PREVIOUS
from steptax.app.errors import UserError
from steptax.app.format import UNKNOWN, format_measure, format_share, format_usd, format_value
from steptax.app.metrics import METRICS
from steptax.app.report.links import executive_link
from steptax.app.report.models import Number, Report, Section
from steptax.app.views.fleet.bill import fleet_bill
from steptax.app.views.fleet.bill_models import USD, FleetBill
from steptax.app.views.fleet.groups import cost_text
from steptax.app.views.models import LedgerLine
from steptax.app.views.review.budget import ALL, BudgetView, budget_entries, budget_view
from steptax.app.views.review.executive import executive_view
from steptax.app.views.review.executive_models import ExecutiveView, PeriodRow
from steptax.app.views.review.models import FixFirst, ReviewCard, WeekRow
from steptax.app.views.review.periods import change_text
from steptax.app.views.workspace import Workspace

#: Lines of a table that fit the page.
BRIEF_ROWS, BRIEF_JOBS = 6, 4
BRIEF_WEEKS, BRIEF_ANOMALIES = 6, 2
#: Numbers that a card of the page tells already.
_ON_CARDS = ("spend_usd",)
#: Of the whole bill beside the headline numbers.
_BILL_NUMBERS = ("scheduling_ratio", "ettr_ratio", "goodput_ratio", "effective_mfu_ratio")


def executive_report(
    ws: Workspace,
    *,
    price: Decimal | None = None,
    first: date | None = None,
    last: date | None = None,
    compare_to: str = PREVIOUS,
    by: str = "team",
    denominator: str = "paid",
    tz: str = "UTC",
    base_url: str | None = None,
    now_us: int | None = None,
) -> Report:
    """The brief over the days from ``first`` to ``last``, both included; all without bounds.

    A job counts with the part of its time that lies in these days: in the cost review days are UTC,
    in the whole bill those of zone ``tz``. Raises what the two views raise.
    """
    now = time.time_ns() // 1000 if now_us is None else now_us
    if first is not None and last is not None and last < first:
        raise UserError(f"{last} is before {first}", where="--to", hint="both days are included")
    view = executive_view(
        ws,
        price=price,
        first_us=_midnight_us(first, 0),
        last_us=_midnight_us(last, 1),
        now_us=now,
        compare_to=compare_to,
    )
    bill = fleet_bill(
        ws, by=by, denominator=denominator, tz=tz, price=price, first=first, last=last
    )
    month = f"{last or datetime.fromtimestamp(now / 1e6, UTC).date():%Y-%m}"
    budget = _budget(ws, month, price, now)
    return Report(
        kind="executive",
        title="Executive cost review",
        period=view.period,
        sentence=view.sentence,
        numbers=_numbers(view, bill),
        sections=tuple(_sections(view, bill, budget)),
        basis=(
            view.coverage,
            f"whole bill: {bill.period}, {bill.denominator_text}; cost: {bill.cost_basis}",
            *(price_used.badge for price_used in bill.prices),
        ),
        notes=(*view.warnings, *bill.warnings, *bill.reconciliation.notes),
        link=executive_link(
            base_url,
            price=price,
            compare_to=compare_to,
            by=by,
            denominator=denominator,
            tz=tz,
            first=first,
            last=last,
        ),
        made_at_us=now,
        version=steptax.__version__,
        first=_fix_first(view.fix_first),
        is_brief=True,
    )


def _midnight_us(day: date | None, days_after: int) -> int | None:
    if day is None:
        return None
    at = day + timedelta(days=days_after)
    return to_us(datetime(at.year, at.month, at.day, tzinfo=UTC))


def _budget(ws: Workspace, month: str, price: Decimal | None, now_us: int) -> BudgetView | None:
    """How all jobs stand in ``month``; None where nothing was promised for it."""
    if not any((e.scope, e.period) == (ALL, month) for e in budget_entries(ws)):
        return None
    return budget_view(ws, period=month, price=price, now_us=now_us)


def _fix_first(found: FixFirst | None) -> tuple[str, ...]:
    """What the page says in its first box."""
    if found is None:
        return ()
    owner = f", of {found.owner}" if found.owner else ""
    a_day = f" {found.a_day}" if found.a_day else ""
    return (
        f"Fix first: {found.what}{owner} · worth {found.worth}",
        f"Why: {found.why}. Next: {found.action}.{a_day}",
    )


def _numbers(view: ExecutiveView, bill: FleetBill) -> tuple[Number, ...]:
    """The cards of the page, then what stands beside them; files of data have every number."""
    shown = [_card(card) for card in view.cards]
    taken = {number.metric_id for number in shown}
    shown += [
        Number(
            kpi.title,
            kpi.metric_id,
            kpi.measure,
            kpi.help,
            kpi.comparison,
            is_printed=kpi.metric_id not in _ON_CARDS,
        )
        for kpi in view.kpis
        if kpi.metric_id not in taken
    ]
    if bill.total is not None:
        taken = {number.metric_id for number in shown}
        shown += [
            Number(METRICS[name].title, name, bill.total.metrics[name], bill.denominator_text)
            for name in _BILL_NUMBERS
            if name in bill.total.metrics and name not in taken
        ]
    return tuple(shown)


def _card(card: ReviewCard) -> Number:
    """A card with its change and what stands under it."""
    change = None
    if card.delta is not None and card.delta.change.value is not None:
        change = f"{change_text(card.delta)} {card.delta.against}"
    return Number(
        card.title,
        card.metric_id,
        card.measure,
        card.about,
        change,
        (*card.details, *card.measure.warnings),
        is_lead=True,
    )


def _sections(view: ExecutiveView, bill: FleetBill, budget: BudgetView | None) -> list[Section]:
    groups = groups_table(bill)
    sections = [
        _where_it_went(view, bill),
        Section(
            "bill",
            f"The whole bill by {bill.by}",
            groups,
            text=(bill.sentence,),
            columns=(
                *("name", "jobs", "gpu_hours", "cost"),
                *("goodput_ratio", range_key("goodput_ratio")),
            ),
            rows=BRIEF_ROWS,
            total=_total(bill),
            is_half=True,
        ),
        Section(
            "jobs",
            "Jobs by what can be won back",
            jobs_table(view.jobs),
            columns=(
                "job_id",
                "recoverable_usd",
                "straggler_tax",
                "spend_usd",
                "gpu_hours",
                "cause",
                "team",
                "owner",
            ),
            rows=BRIEF_JOBS,
        ),
    ]
    sections[2:2] = [_weeks(view), _variance(view)]
    sections.append(_anomalies(view))
    if budget is not None:
        said = Section("budget", "Budget", days_table(budget), text=(budget.sentence,))
        sections.append(replace(said, table_is_printed=False, is_half=True))
    sections.append(_reconciliation(bill))
    return [*sections, *_data_only(view, bill, budget)]


def _weeks(view: ExecutiveView) -> Section:
    """Spend of the newest weeks with its budget; the table of all of them travels along."""
    title = "Week by week: spend, of its budget, and goodput"
    rows = view.weeks[-BRIEF_WEEKS:]
    if not rows:
        none = "No job with known dates held a device in this period."
        return Section("weeks", title, text=(none,), is_half=True)
    usd = [row.figures["cost_usd"].value for row in rows]
    known = [value for value in (*usd, *(row.budget_usd for row in rows)) if value is not None]
    bars = tuple(
        WaterfallBar(f"week of {row.first_day}", cost or 0.0, 0.0, "neutral", _week_text(row))
        for row, cost in zip(rows, usd, strict=True)
    )
    table, earlier = weeks_table(view.weeks), view.earlier_weeks(BRIEF_WEEKS)
    scale = max(known, default=0.0) or 1.0
    return Section(
        "weeks",
        title,
        table,
        text=(earlier,) if earlier else (),
        bars=bars,
        scale=scale,
        is_half=True,
        table_is_printed=False,
    )


def _week_text(row: WeekRow) -> str:
    cost, goodput = row.figures["cost_usd"], row.figures["goodput_ratio"]
    goodput_text = UNKNOWN if goodput.value is None else format_measure(goodput)
    budget = "" if row.budget_usd is None else f" of {format_usd(row.budget_usd)}"
    days = f" ({row.note})" if row.note else ""
    return f"{format_value(cost.value, 'USD')}{budget}{days} · {goodput_text}"


def _variance(view: ExecutiveView) -> Section:
    title = "Why spend changed: price, volume, efficiency"
    if view.variance is None:
        text = f"Cannot be told: {view.no_variance}."
        return Section("variance", title, text=(text,), is_half=True)
    made = variance_table(view.variance)
    return Section("variance", title, made, columns=("effect", "usd", "meaning"), is_half=True)


def _anomalies(view: ExecutiveView) -> Section:
    title = "Spend anomalies"
    if not view.anomalies:
        return Section("anomalies", title, text=(f"None found. {view.anomaly_note}",))
    return Section(
        "anomalies",
        title,
        anomalies_table(view.anomalies),
        columns=("scope", "first_day", "last_day", "impact", "expected", "driver", "state"),
        rows=BRIEF_ANOMALIES,
    )


def _where_it_went(view: ExecutiveView, bill: FleetBill) -> Section:
    """The waterfall of the recorded steps; without any, that of the whole bill."""
    if view.ledger:
        return Section(
            "ledger",
            "Where it went",
            ledger_table(view.ledger),
            text=(view.ledger_note,),
            bars=_bars(view.ledger),
            is_half=True,
            table_is_printed=False,
        )
    lines: list[LedgerLine] = []
    if bill.total is not None:
        lines = [
            LedgerLine(
                line.bucket,
                line.title,
                line.gpu_seconds,
                line.share,
                line.cost if bill.currency == USD else None,
                line.is_loss,
                line.note,
            )
            for line in bill.total.lines
        ]
    return Section(
        "ledger",
        "Where it went",
        ledger_table(view.ledger),
        text=(view.ledger_note, *(("The bars are of the whole bill.",) if lines else ())),
        bars=_bars(lines),
        is_half=True,
        table_is_printed=False,
    )


def _bars(ledger: Sequence[LedgerLine]) -> tuple[WaterfallBar, ...]:
    return waterfall_bars(ledger, units_of(ledger)[0], full=True) if ledger else ()


def _total(bill: FleetBill) -> tuple[object, ...] | None:
    if bill.total is None:
        return None
    return groups_table(replace(bill, groups=(bill.total,))).rows[0]


def _reconciliation(bill: FleetBill) -> Section:
    found = bill.reconciliation
    title = "Against the bill of the provider"
    if found.effective_cost is None:
        text = f"Not reconciled: {found.reason}"
        return Section("reconciliation", title, text=(text,), is_half=True)
    billed, effective, jobs, unallocated, unexplained = (
        cost_text(cost, found.currency)
        for cost in (
            found.billed_cost,
            found.effective_cost,
            found.jobs_cost,
            found.unallocated_cost,
            found.unexplained_cost,
        )
    )
    share = format_share(found.unexplained.value)
    text = (
        f"Billed {billed}; effective cost {effective} = {jobs} of jobs + {unallocated} unallocated "
        f"+ {unexplained} of what no job is known to run on ({share})."
    )
    made = reconciliation_table(bill)
    return Section("reconciliation", title, made, (text,), is_half=True, table_is_printed=False)


def _data_only(view: ExecutiveView, bill: FleetBill, budget: BudgetView | None) -> list[Section]:
    """What files of data hold beyond the page."""
    found = [
        ("bill_total", "The whole bill, in all", None),
        ("bill_buckets", "The whole bill, every bucket", bill_table(bill)),
        ("teams", "Showback by team", teams_table(view.by_team)),
        ("months", "By month", _months(view.by_period)),
        ("invoices", "Invoices", invoices_table(bill)),
        ("not_billed", "Jobs without a bill", not_billed_table(bill)),
    ]
    if bill.total is not None:
        found[0] = (*found[0][:2], groups_table(replace(bill, groups=(bill.total,))))
    if budget is not None:
        found.append(("budget_history", "Budget: who set what", history_table(budget)))
    return [
        Section(key, title, made, is_printed=False)
        for key, title, made in found
        if made is not None and made.rows
    ]


def _months(rows: Sequence[PeriodRow]) -> Table:
    columns = (
        Column("period", "month", "text"),
        Column("jobs", "jobs", "count"),
        Column("gpu_hours", "GPU-hours", "number"),
        Column("jobs_unknown", "GPU-hours unknown of", "count"),
    )
    return table(columns, [[getattr(row, column.key) for column in columns] for row in rows])
