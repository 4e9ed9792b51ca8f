"""The report of one job: card, causes, ledger, what-if, quiet failures, devices."""

from __future__ import annotations

import time
from decimal import Decimal

import steptax
from steptax.app.charts.card import card_fields
from steptax.app.charts.devices import devices_table
from steptax.app.charts.focus import title_of, window_text
from steptax.app.charts.job_tables import ledger_table, quiet_table, ranks_table
from steptax.app.charts.tables import Column, Table, table
from steptax.app.charts.trace_tables import curve_table
from steptax.app.charts.waterfall import units_of, waterfall_bars
from steptax.app.errors import SteptaxError
from steptax.app.format import format_moment
from steptax.app.metrics import METRICS
from steptax.app.report.links import job_link
from steptax.app.report.models import Number, Report, Section
from steptax.app.views.bill.record import NO_CARD, record_view
from steptax.app.views.devices.text import TITLE as DEVICES_TITLE
from steptax.app.views.devices.text import coverage, lines, verdict
from steptax.app.views.devices.view import devices_view
from steptax.app.views.job.causes import FINDINGS_TITLE, finding_details
from steptax.app.views.job.models import JobView
from steptax.app.views.job.quiet_failures import QuietFailures, quiet_failures
from steptax.app.views.job.view import job_view
from steptax.app.views.models import Bill, Price
from steptax.app.views.trace.view import open_trace, trace_view
from steptax.app.views.workspace import Workspace

NUMBERS = (
    "spend_usd",
    "gpu_hours",
    "goodput_ratio",
    "straggler_tax_ratio",
    "slowdown_ratio",
    "window_usd",
    "recoverable_usd",
    "recoverable_usd_per_day",
    "mfu_ratio",
    "unexplained_ratio",
)
#: Lines of the tables of ranks and devices that are printed.
PRINTED_RANKS = 12


def job_report(
    ws: Workspace,
    job_id: str,
    *,
    price: Decimal | None = None,
    last_steps: int | None = None,
    base_url: str | None = None,
    now_us: int | None = None,
) -> Report:
    """What is known of ``job_id`` over its last ``last_steps`` steps (None: all).

    A part that cannot be told says why. NotFoundError for an unknown job.
    """
    now = time.time_ns() // 1000 if now_us is None else now_us
    link = job_link(base_url, job_id, price=price, last_steps=last_steps)
    if job_id not in ws.job_ids_with_steps():
        return _without_steps(ws, job_id, price, base_url, now)
    view = job_view(ws, job_id, price=price, last_steps=last_steps, with_quiet=True)
    sections = [
        Section("card", "Straggler card", _card(view)),
        _findings(view),
        Section(
            "ledger",
            "Ledger of the recorded steps",
            ledger_table(view.ledger),
            text=(view.ledger_note,),
            bars=waterfall_bars(view.ledger, units_of(view.ledger)[0], full=True)
            if view.ledger
            else (),
        ),
        _bill(view.bill),
        Section("ranks", "Ranks", ranks_table(view), rows=PRINTED_RANKS),
        _what_if(ws, job_id, view.price),
        _quiet(view.quiet or quiet_failures(ws, job_id, last_steps=last_steps)),
        _devices(ws, job_id, last_steps),
    ]
    start_us, end_us = view.header.start_us, view.header.end_us
    span = ""
    if start_us is not None or end_us is not None:
        span = f" · job from {format_moment(start_us)} to {format_moment(end_us)}"
    return Report(
        kind="job",
        title=f"Job {job_id}",
        period=f"{window_text(view)}{span}",
        sentence=view.card.sentence,
        numbers=tuple(
            Number(METRICS[name].title, name, view.metrics[name])
            for name in NUMBERS
            if name in view.metrics
        ),
        sections=tuple(sections),
        basis=(title_of(view), view.coverage.text, view.price.basis),
        notes=view.coverage.warnings,
        link=link,
        made_at_us=now,
        version=steptax.__version__,
    )


def _card(view: JobView) -> Table:
    columns = (
        Column("label", "what", "text"),
        Column("text", "value", "text"),
        Column("detail", "of or by", "text"),
    )
    return table(columns, [(f.label, f.text, f.detail) for f in card_fields(view)])


def _findings(view: JobView) -> Section:
    columns = (
        Column("finding", "finding", "text"),
        Column("about", "about", "text"),
        Column("text", "text", "text"),
    )
    rows = [
        (str(number), about, text)
        for number, row in enumerate(view.findings, 1)
        for about, text in (("", row.sentence), *finding_details(row))
    ]
    none = f"Nothing to explain: {view.no_findings}" if view.no_findings else "Nothing was found."
    return Section("findings", FINDINGS_TITLE, table(columns, rows), text=() if rows else (none,))


def _bill(bill: Bill) -> Section:
    return Section(
        "bill", "The whole job", ledger_table(bill.lines), text=(bill.note, *bill.findings)
    )


def _what_if(ws: Workspace, job_id: str, price: Price) -> Section:
    title = "What a repair returns"
    try:
        view = trace_view(open_trace(ws, job_id), price)
    except SteptaxError as problem:
        return Section("whatif", title, text=(f"Not simulated: {problem.message}.",))
    said = (view.sentence, view.steps_note, *(f"Doubt: {doubt}." for doubt in view.doubts))
    return Section(
        "whatif", title, curve_table(view.worst_k), text=tuple(filter(None, said)), rows=8
    )


def _quiet(view: QuietFailures) -> Section:
    return Section(
        "quiet",
        "Quiet failures",
        quiet_table(view, for_file=True),
        text=(view.sentence,),
        columns=("failure", "title", "found", "note"),
    )


def _devices(ws: Workspace, job_id: str, last_steps: int | None) -> Section:
    try:
        view = devices_view(ws, job_id, last_steps=last_steps)
    except SteptaxError as problem:
        return Section("devices", DEVICES_TITLE, text=(f"Not known: {problem.message}.",))
    return Section(
        "devices",
        DEVICES_TITLE,
        devices_table(view),
        text=(verdict(view), coverage(view), *lines(view)[:PRINTED_RANKS]),
        table_is_printed=False,
    )


def _without_steps(
    ws: Workspace, job_id: str, price: Decimal | None, base_url: str | None, now_us: int
) -> Report:
    """Of a job of which only the record is known."""
    view = record_view(ws, job_id, price=price)
    start, end = (format_moment(view.job.get(name)) for name in ("start_us", "end_us"))
    return Report(
        kind="job",
        title=f"Job {job_id}",
        period=f"from {start} to {end}",
        sentence=f"No per-rank steps are stored: {NO_CARD}.",
        numbers=tuple(
            Number(METRICS[name].title, name, view.metrics[name])
            for name in NUMBERS
            if name in view.metrics
        ),
        sections=(_bill(view.bill), _devices(ws, job_id, None)),
        basis=(view.price.basis,),
        notes=(),
        link=job_link(base_url, job_id, price=price, last_steps=None),
        made_at_us=now_us,
        version=steptax.__version__,
    )
