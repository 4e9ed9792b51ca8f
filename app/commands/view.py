"""``steptax jobs``, ``job`` and ``executive``: what the pages show, in a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from typing import Annotated, Any

import typer

from steptax.app.commands.executive import CompareFlag, print_rest, print_top
from steptax.app.commands.options import (
    BillRulesFlag,
    JsonFlag,
    LakeFlag,
    PriceFlag,
    TeamFlag,
    lake_root,
    price_of,
)
from steptax.app.commands.output import console, show, table_of
from steptax.app.commands.progress import counting
from steptax.app.compute.spend.compared import PREVIOUS
from steptax.app.errors import NotFoundError
from steptax.app.format import (
    UNKNOWN,
    format_hours,
    format_measure,
    format_share,
    format_usd,
    format_value,
)
from steptax.app.metrics import METRICS
from steptax.app.views.bill.record import NO_CARD, record_view
from steptax.app.views.collectives.text import verdict
from steptax.app.views.collectives.view import collectives_view
from steptax.app.views.job.card_text import card_as_text
from steptax.app.views.job.causes import FINDINGS_TITLE, findings_lines
from steptax.app.views.job.history import HistoryView, history_view
from steptax.app.views.job.learning import LearningView, learning_text, learning_view
from steptax.app.views.job.models import JobView
from steptax.app.views.job.printed import beside
from steptax.app.views.job.view import job_view
from steptax.app.views.models import Bill, LedgerLine
from steptax.app.views.pricing.given import price_view
from steptax.app.views.pricing.of_job import job_price
from steptax.app.views.reported.comparison_text import comparison_as_text
from steptax.app.views.reported.models import Beside, Reports
from steptax.app.views.reported.text import reports_json, reports_lines
from steptax.app.views.reported.view import job_reports
from steptax.app.views.review.base import review_base
from steptax.app.views.review.executive import days_of, executive_view
from steptax.app.views.review.executive_models import JobSummary
from steptax.app.views.review.jobs import ReviewJobs
from steptax.app.views.review.money import review_of
from steptax.app.views.review.periods import read_day
from steptax.app.views.workspace import Workspace, open_workspace
from steptax.app.words import count_text

S_PER_HOUR = 3600.0
#: Lines of a table of jobs in a terminal.
LISTED_JOBS = 50
#: Ranks of a list of all ranks of a job that JSON has unless all are asked for: the worst ones.
JSON_RANKS = 50


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command("jobs")(jobs_command)
    app.command("job")(job_command)
    app.command("executive")(executive_command)


def jobs_command(price: PriceFlag = None, lake: LakeFlag = None, as_json: JsonFlag = False) -> None:
    """List the jobs in the lake, newest first."""
    ws, cost = open_workspace(lake_root(lake)), price_view(price_of(price))
    with counting("Analysing the steps of jobs"):
        review = review_of(ws, review_base(ws), cost)
    jobs = tuple(ReviewJobs(review, None, cost).newest_first())
    data = [vars(job) for job in jobs]
    show(data, as_json=as_json, text=lambda: _print_jobs(jobs))


def _cause(job: JobSummary) -> str:
    """Its cause where one is named, else the largest loss; why it is unknown stands below."""
    named = job.cause is not None and not job.cause.startswith(("not named", "unknown"))
    text = job.cause if named and job.cause is not None else job.dominant_cause.split(": ")[0]
    return text.split(" (")[0]


def _print_jobs(jobs: Sequence[JobSummary]) -> None:
    if not jobs:
        console.print("No jobs yet: steptax demo makes one, steptax ingest FILE imports one.")
        return
    rows = [
        [
            job.job_id,
            job.state,
            "unknown" if job.world_size is None else f"{job.world_size:,}",
            format_value(job.gpu_hours.value, ""),
            format_value(job.straggler_tax.value, job.straggler_tax.unit),
            format_usd(job.recoverable_usd.value),
            _cause(job),
        ]
        for job in jobs[:LISTED_JOBS]
    ]
    names = (
        "job",
        "state",
        "ranks",
        "GPU-hours",
        "straggler tax",
        "recoverable",
        "cause or largest loss",
    )
    console.print(table_of("Jobs", names, rows))
    if len(rows) < len(jobs):
        console.print(f"... and {len(jobs) - len(rows):,} more; --json prints all")
    reasons = Counter(
        f"{name} unknown: {measure.reason}"
        for job in jobs
        for name, measure in (
            ("GPU-hours", job.gpu_hours),
            ("straggler tax", job.straggler_tax),
            ("recoverable", job.recoverable_usd),
        )
        if measure.reason
    )
    for reason, count in reasons.most_common():
        console.print(f"{reason} ({count_text(count, 'job')})")


def job_command(
    job_id: Annotated[str, typer.Argument(metavar="ID", help="job, as steptax jobs lists it")],
    price: PriceFlag = None,
    window: Annotated[
        int | None, typer.Option("--window", min=1, help="last steps only; else all of them")
    ] = None,
    ideal: Annotated[
        str, typer.Option("--ideal", help="reference of the slowdown: mean, median, p10, min")
    ] = "mean",
    target_loss: Annotated[
        float | None, typer.Option("--target-loss", help="loss whose price is asked for")
    ] = None,
    lake: LakeFlag = None,
    as_json: JsonFlag = False,
    full: Annotated[
        bool, typer.Option("--full", help=f"with --json: all ranks, not the worst {JSON_RANKS}")
    ] = False,
) -> None:
    """The straggler card, the metrics, the ledger and the coverage of one job."""
    ws = open_workspace(lake_root(lake))
    cost = price_of(price)
    own = job_price(ws, job_id, cost).usd_per_gpu_hour
    learned = learning_view(ws, job_id, price=own, target_loss=target_loss, last_steps=window)
    try:
        view = job_view(ws, job_id, price=cost, last_steps=window, ideal=ideal)
    except NotFoundError as lacking:
        _show_without_steps(ws, job_id, cost, lacking, learned, as_json=as_json)
        return
    history = history_view(ws, job_id)
    data: dict[str, Any] = {
        "job": vars(view.header),
        "card": vars(view.card),
        "metrics": view.metrics,
        "ledger": [line.as_json() for line in view.ledger],
        "ledger_note": view.ledger_note,
        "bill": _bill_json(view.bill),
        "coverage": vars(view.coverage),
        "window": vars(view.window),
        "price": vars(view.price),
        "findings": [vars(row) for row in view.findings],
        "no_findings": view.no_findings,
        "ranks": [vars(row) for row in view.ranks],
        "blame": _with_worst(vars(view.blame), full=full),
        "comparison": {
            "ideals": [vars(row) for row in view.comparison.ideals],
            "falcon": vars(view.comparison.falcon),
            "nvrx": _with_worst(vars(view.comparison.nvrx), full=full),
        },
        "learning": vars(learned),
        "reports": reports_json(view.reports, view.beside),
        "collectives": _collectives(ws, job_id),
        "history": _history_json(history),
    }

    short = [name for name, told in _by_rank(data) if told["rows_left_out"]]
    lists = f"the worst {JSON_RANKS} ranks alone are in {' and '.join(short)}: --full prints all"

    def text() -> None:
        _print_job(view, learned)
        if history is not None:
            console.print(f"\n{history.sentence}")
            if history.spread is not None:
                console.print(history.spread.sentence)
        _print_collectives(job_id, data["collectives"])

    show(
        data,
        as_json=as_json,
        text=text,
        warnings=(*view.coverage.warnings, *((lists,) if short and as_json else ())),
    )


def _with_worst(told: dict[str, Any], *, full: bool) -> dict[str, Any]:
    """A list of ``rows`` by rank, worst first, cut to a length that is read; how many it lacks."""
    rows = told["rows"] if full else told["rows"][:JSON_RANKS]
    return told | {"rows": rows, "rows_left_out": len(told["rows"]) - len(rows)}


def _by_rank(data: dict[str, Any]) -> tuple[tuple[str, dict[str, Any]], ...]:
    return (("blame", data["blame"]), ("comparison.nvrx", data["comparison"]["nvrx"]))


def _history_json(history: HistoryView | None) -> dict[str, Any] | None:
    """The whole job in words and its ranks; None where the card is about all steps anyway."""
    if history is None:
        return None
    names = ("sentence", "steps", "rows", "block_steps", "unit")
    told = {name: getattr(history, name) for name in names}
    spread = None if history.spread is None else vars(history.spread)
    return told | {"spread": spread, "ranks": [vars(row) for row in history.ranks]}


def _bill_json(bill: Bill) -> dict[str, Any]:
    return {
        "lines": [line.as_json() for line in bill.lines],
        "note": bill.note,
        "at_risk": bill.at_risk,
        "findings": bill.findings,
    }


def _show_without_steps(
    ws: Workspace,
    job_id: str,
    price: Decimal | None,
    lacking: NotFoundError,
    learned: LearningView,
    *,
    as_json: bool,
) -> None:
    """What there is of a job without steps: its bill, losses and what others say; else nothing."""
    reports, together = job_reports(ws, job_id), _collectives(ws, job_id)
    record = record_view(ws, job_id, price=price)
    if not (record.bill.lines or learned.is_known or not reports.is_empty or together):
        raise lacking
    rows = beside(reports, {})

    def text() -> None:
        for name in ("gpu_hours", "spend_usd"):
            console.print(f"{METRICS[name].title}: {format_measure(record.metrics[name])}")
        if record.bill.lines:
            _print_ledger("The whole job", record.bill.lines, record.bill.note)
        else:
            console.print(f"No bill: {record.bill.note}")
        for finding in record.bill.findings:
            console.print(finding)
        if learned.is_known:
            console.print(learning_text(learned))
        _print_reports(reports, rows)
        _print_collectives(job_id, together)

    # A job that only a tracker, a log without times or a hang's dumps know has no steps.
    show(
        {
            "job": record.job,
            "no_card": f"{lacking.message}: {NO_CARD}",
            "metrics": record.metrics,
            "bill": _bill_json(record.bill),
            "price": vars(record.price),
            "learning": vars(learned),
            "reports": reports_json(reports, rows),
            "collectives": together,
        },
        as_json=as_json,
        text=text,
        warnings=(
            f"{lacking.message}: {NO_CARD}; what is shown is all there is",
            *learned.warnings,
        ),
    )


def _collectives(ws: Workspace, job_id: str) -> dict[str, Any] | None:
    """The verdict on the job's collectives; None where none are stored."""
    if job_id not in ws.job_ids_with_collectives():
        return None
    view = collectives_view(ws, job_id)
    return {"verdict": verdict(view), "operations": view.operations}


def _print_collectives(job_id: str, found: dict[str, Any] | None) -> None:
    if found is not None:
        console.print("")
        console.print(f"Collectives\n  {found['verdict']}")
        console.print(f"  steptax collectives --job {job_id} shows all of it")


def _print_reports(reports: Reports, rows: Sequence[Beside]) -> None:
    """What others say, under a title each; nothing where nobody says anything."""
    for title, lines in reports_lines(reports, rows):
        console.print("")
        console.print("\n".join((title, *(f"  {line}" for line in lines))))


def _print_job(view: JobView, learned: LearningView) -> None:
    console.print(card_as_text(view))
    console.print("")
    console.print(FINDINGS_TITLE)
    for line in findings_lines(view.findings, view.no_findings):
        console.print(f"  {line}")
    console.print("")
    _print_ledger("Ledger of the recorded steps", view.ledger, view.ledger_note)
    console.print("")
    _print_ledger("The whole job", view.bill.lines, view.bill.note)
    for finding in view.bill.findings:
        console.print(finding)
    console.print("")
    console.print(comparison_as_text(view.comparison, view.blame, view.metrics))
    if learned.is_known:
        console.print("")
        console.print(learning_text(learned))
    _print_reports(view.reports, view.beside)


def _print_ledger(title: str, ledger: Sequence[LedgerLine], note: str) -> None:
    measured = [line for line in ledger if line.share is not None]
    rows = [
        [
            line.title,
            UNKNOWN if line.gpu_seconds is None else format_hours(line.gpu_seconds / S_PER_HOUR),
            format_share(line.share),
            format_usd(line.usd),
        ]
        for line in measured
    ]
    console.print(table_of(title, ("bucket", "GPU-hours", "share", "cost"), rows))
    missing = [line.title for line in ledger if line.share is None]
    if missing:
        console.print(f"not measured: {', '.join(missing)}")
    console.print(note)


def executive_command(
    price: PriceFlag = None,
    first: Annotated[
        str | None, typer.Option("--from", metavar="DATE", help="first day, UTC, 2026-11-01")
    ] = None,
    last: Annotated[
        str | None, typer.Option("--to", metavar="DATE", help="last day, UTC, included")
    ] = None,
    compare_to: CompareFlag = PREVIOUS,
    teams: TeamFlag = None,
    bill_rules: BillRulesFlag = None,
    lake: LakeFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """The cost review: what was spent, what became useful work, what to fix first.

    Its days and weeks are those of UTC, as on the page. The whole bill by day or month of another
    zone: steptax ledger --by month --tz Europe/Berlin.
    """
    first_us, last_us = days_of(read_day(first, "--from"), read_day(last, "--to"))
    ws = open_workspace(lake_root(lake), teams=teams or None, bill_rules=bill_rules)
    with counting("Analysing the steps of jobs"):
        view = executive_view(
            ws,
            price=price_of(price),
            first_us=first_us,
            last_us=last_us,
            compare_to=compare_to,
        )

    def text() -> None:
        console.print(view.sentence)
        console.print(f"{view.period} · {view.coverage}")
        print_top(view)
        _print_ledger("Ledger", view.ledger, view.ledger_note)
        print_rest(view)
        _print_jobs(view.jobs)

    show(view.as_json(), as_json=as_json, text=text, warnings=view.warnings)
