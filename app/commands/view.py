"""``steptax jobs``, ``job`` and ``executive``: what the pages show, in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from steptax.app.commands.options import JsonFlag, LakeFlag, PriceFlag, lake_root, price_of
from steptax.app.commands.output import console, show, table_of
from steptax.app.errors import UserError
from steptax.app.format import UNKNOWN, format_measure, format_share, format_usd
from steptax.app.views.card_text import card_as_text
from steptax.app.views.executive import executive_view
from steptax.app.views.job import job_view
from steptax.app.views.jobs import job_summaries
from steptax.app.views.models import JobSummary, JobView, LedgerLine
from steptax.app.views.workspace import open_workspace

S_PER_HOUR = 3600.0
#: Lines of a table of jobs in a terminal.
LISTED_JOBS = 50


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command("jobs")(jobs_command)
    app.command("job")(job_command)
    app.command("executive")(executive_command)


def jobs_command(price: PriceFlag = None, lake: LakeFlag = None, as_json: JsonFlag = False) -> None:
    """List the jobs in the lake, newest first."""
    jobs = job_summaries(open_workspace(lake_root(lake)), price=price_of(price))
    data = [asdict(job) for job in jobs]
    show(data, as_json=as_json, text=lambda: _print_jobs(jobs))


def _print_jobs(jobs: tuple[JobSummary, ...]) -> None:
    if not jobs:
        console.print("No jobs yet: steptax demo makes one, steptax ingest steps FILE imports one.")
        return
    rows = [
        [
            job.job_id,
            job.state,
            "unknown" if job.world_size is None else f"{job.world_size:,}",
            format_measure(job.gpu_hours),
            format_measure(job.straggler_tax),
            format_measure(job.recoverable_usd),
            job.dominant_cause,
        ]
        for job in jobs[:LISTED_JOBS]
    ]
    names = ("job", "state", "ranks", "GPU-hours", "straggler tax", "recoverable", "cause")
    console.print(table_of("Jobs", names, rows))
    if len(rows) < len(jobs):
        console.print(f"... and {len(jobs) - len(rows):,} more; --json prints all")


def job_command(
    job_id: Annotated[str, typer.Argument(metavar="ID", help="job, as steptax jobs lists it")],
    price: PriceFlag = None,
    window: Annotated[
        int | None, typer.Option("--window", min=1, help="last steps only; else all of them")
    ] = None,
    ideal: Annotated[
        str, typer.Option("--ideal", help="reference of the slowdown: mean, median, p10, min")
    ] = "mean",
    lake: LakeFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """The straggler card, the metrics, the ledger and the coverage of one job."""
    view = job_view(
        open_workspace(lake_root(lake)),
        job_id,
        price=price_of(price),
        last_steps=window,
        ideal=ideal,
    )
    data: dict[str, Any] = {
        "job": asdict(view.header),
        "card": asdict(view.card),
        "metrics": view.metrics,
        "ledger": [line.as_json() for line in view.ledger],
        "ledger_note": view.ledger_note,
        "bill": {
            "lines": [line.as_json() for line in view.bill.lines],
            "note": view.bill.note,
            "at_risk": view.bill.at_risk,
            "findings": view.bill.findings,
        },
        "coverage": asdict(view.coverage),
        "window": asdict(view.window),
        "price": asdict(view.price),
        "ranks": [asdict(row) for row in view.ranks],
    }
    show(data, as_json=as_json, text=lambda: _print_job(view), warnings=view.coverage.warnings)


def _print_job(view: JobView) -> None:
    console.print(card_as_text(view))
    console.print("")
    _print_ledger("Ledger of the recorded steps", view.ledger, view.ledger_note)
    console.print("")
    _print_ledger("The whole job", view.bill.lines, view.bill.note)


def _print_ledger(title: str, ledger: Sequence[LedgerLine], note: str) -> None:
    measured = [line for line in ledger if line.share is not None]
    rows = [
        [
            line.title,
            UNKNOWN if line.gpu_seconds is None else f"{line.gpu_seconds / S_PER_HOUR:,.4g}",
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
    lake: LakeFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """The cost review: what was spent, what became useful work, what to fix first."""
    day_us = 86_400_000_000
    view = executive_view(
        open_workspace(lake_root(lake)),
        price=price_of(price),
        first_us=_day_us(first, "--from"),
        last_us=None if last is None else (_day_us(last, "--to") or 0) + day_us,
    )

    def text() -> None:
        console.print(view.sentence)
        console.print(view.coverage)
        for kpi in view.kpis:
            console.print(f"  {kpi.title}: {kpi.text}")
        _print_ledger("Ledger", view.ledger, view.ledger_note)
        _print_jobs(view.jobs)

    data = asdict(view) | {
        "ledger": [line.as_json() for line in view.ledger],
        "metrics": {kpi.metric_id: kpi.measure for kpi in view.kpis},
    }
    show(data, as_json=as_json, text=text, warnings=view.warnings)


def _day_us(text: str | None, flag: str) -> int | None:
    if text is None:
        return None
    try:
        day = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        raise UserError(
            f"expected a day as 2026-11-29, found {text!r}", where=flag, hint="days are UTC"
        ) from None
    return int(day.timestamp()) * 1_000_000
