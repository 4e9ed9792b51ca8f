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
    reconciliation_table,
)
from steptax.app.charts.fleet_tables import jobs_table, teams_table
from steptax.app.charts.job_tables import ledger_table
from steptax.app.charts.tables import Column, Table, table
from steptax.app.charts.waterfall import WaterfallBar, units_of, waterfall_bars
from steptax.app.compute.apportion import to_us
from steptax.app.errors import UserError
from steptax.app.metrics import METRICS
from steptax.app.report.links import executive_link
from steptax.app.report.models import Number, Report, Section
from steptax.app.views.budget import ALL, BudgetView, budget_entries, budget_view
from steptax.app.views.executive import executive_view
from steptax.app.views.executive_models import ExecutiveView, PeriodRow
from steptax.app.views.fleet_bill import fleet_bill
from steptax.app.views.fleet_bill_models import USD, FleetBill
from steptax.app.views.models import LedgerLine
from steptax.app.views.workspace import Workspace

#: Lines of a table that fit the page.
BRIEF_ROWS = 6
#: Of the whole bill beside the headline numbers.
_BILL_NUMBERS = ("scheduling_ratio", "ettr_ratio", "goodput_ratio", "effective_mfu_ratio")


def executive_report(
    ws: Workspace,
    *,
    price: Decimal | None = None,
    first: date | None = None,
    last: date | None = None,
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
            by=by,
            denominator=denominator,
            tz=tz,
            first=first,
            last=last,
        ),
        made_at_us=now,
        version=steptax.__version__,
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


def _numbers(view: ExecutiveView, bill: FleetBill) -> tuple[Number, ...]:
    shown = [
        Number(kpi.title, kpi.metric_id, kpi.measure, kpi.help, kpi.comparison) for kpi in view.kpis
    ]
    if bill.total is not None:
        taken = {number.metric_id for number in shown}
        shown += [
            Number(METRICS[name].title, name, bill.total.metrics[name], bill.denominator_text)
            for name in _BILL_NUMBERS
            if name in bill.total.metrics and name not in taken
        ]
    return tuple(shown)


def _sections(view: ExecutiveView, bill: FleetBill, budget: BudgetView | None) -> list[Section]:
    groups = groups_table(bill)
    sections = [
        _where_it_went(view, bill),
        Section(
            "bill",
            f"The whole bill by {bill.by}",
            groups,
            text=(bill.sentence,),
            columns=("name", "jobs", "gpu_hours", "cost", "goodput_ratio"),
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
            rows=BRIEF_ROWS,
        ),
    ]
    if budget is not None:
        sections.append(Section("budget", "Budget", days_table(budget), text=(budget.sentence,)))
        sections[-1] = replace(sections[-1], table_is_printed=False)
    sections.append(_reconciliation(bill))
    return [*sections, *_data_only(view, bill, budget)]


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
        return Section("reconciliation", title, text=(f"Not reconciled: {found.reason}",))
    return Section(
        "reconciliation", title, reconciliation_table(bill), columns=("part", "cost", "meaning")
    )


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
