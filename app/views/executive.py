"""The cost review: what was spent, what became work, what the rest cost, what to fix first."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from steptax.app.compute.ledger import Ledger
from steptax.app.compute.measure import Level, Measure, Ratio
from steptax.app.compute.waterfall_groups import unstated
from steptax.app.format import format_measure, format_share
from steptax.app.metrics import check_metrics
from steptax.app.views.fleet_jobs import job_bills
from steptax.app.views.jobs import Analysed, analyse_jobs, steps_of, summarise
from steptax.app.views.ledger import add_ledgers
from steptax.app.views.models import ExecutiveView, JobSummary, Kpi, LedgerLine, Price
from steptax.app.views.periods import by_period
from steptax.app.views.price import NO_PRICE, dollars, price_view
from steptax.app.views.workspace import Workspace

#: A start or an end that the review is limited to.
DAY_FORMAT = "%d %b %Y"


def executive_view(
    ws: Workspace,
    *,
    price: Decimal | None,
    price_note: str | None = None,
    first_us: int | None = None,
    last_us: int | None = None,
    now_us: int | None = None,
) -> ExecutiveView:
    """The review over the jobs that started in ``[first_us, last_us)``; open without bounds."""
    now = time.time_ns() // 1000 if now_us is None else now_us
    chosen = [job for job in ws.jobs() if _in_period(job, first_us, last_us)]
    analysed = analyse_jobs(ws, chosen)
    cost = price_view(price, price_note)
    with_steps = [a for a in analysed if a is not None]
    # Their steps are in memory now: bills that are asked for later need not load them again.
    bills = job_bills(ws, chosen, steps_of(analysed))
    jobs = tuple(
        summarise(job, one, bill, price=price)
        for job, one, bill in zip(chosen, analysed, bills, strict=True)
    )
    ledgers = [
        a.ledger
        for a in with_steps
        if not (a.loaded.matrix.time_is_relative or a.loaded.world_is_unknown)
    ]
    lines = add_ledgers(ledgers, price)
    hours = _sum([job.gpu_hours for job in jobs], "GPU-hours")
    measured = Measure(
        sum(float(ledger.paid_gpu_us) for ledger in ledgers) / 3.6e9,
        "GPU-hours",
        level=Level.PHASES,
    )
    tax = _tax(ledgers)
    recoverable = _sum([job.recoverable_usd for job in jobs], "USD")
    recoverable_hours = _sum([job.recoverable_gpu_hours for job in jobs], "GPU-hours")
    # At one price for all, hours and dollars rank alike; without a price hours still do.
    ranked = tuple(
        sorted(jobs, key=lambda job: (-(job.recoverable_gpu_hours.value or 0.0), job.job_id))
    )
    return ExecutiveView(
        sentence=_sentence(ranked, hours, measured, lines, recoverable, recoverable_hours, cost),
        period=_period(first_us, last_us, jobs, now),
        price=cost,
        kpis=_kpis(hours, tax, recoverable, lines, cost),
        ledger=lines,
        ledger_note=_ledger_note(len(ledgers), len(jobs), measured),
        jobs=ranked,
        by_team=_by_team(jobs),
        by_period=by_period(chosen, jobs),
        coverage=f"{_recorded(with_steps, len(jobs))} · {cost.basis} · {_reconciled(ws)}",
        warnings=_warnings(jobs, analysed),
    )


def _recorded(with_steps: Sequence[Analysed], jobs: int) -> str:
    logs = sum(a.loaded.matrix.of_job for a in with_steps)
    text = f"{len(with_steps) - logs:,} of {jobs:,} jobs have per-rank steps"
    return f"{text}, {logs:,} the step times of a log" if logs else text


def _reconciled(ws: Workspace) -> str:
    if ws.lake.segments("charges"):
        return "not reconciled with the connected bill; the whole bill is"
    return "not reconciled with a bill"


def _in_period(job: dict[str, Any], first_us: int | None, last_us: int | None) -> bool:
    if first_us is None and last_us is None:
        return True
    start = job.get("start_us")
    if start is None:
        return False
    return (first_us is None or start >= first_us) and (last_us is None or start < last_us)


def _sum(measures: Sequence[Measure], unit: str) -> Measure:
    """Sum of what is known; the rest is counted in a warning, and nothing known is missing."""
    known = [m.value for m in measures if m.value is not None]
    levels = [m.level for m in measures if m.value is not None and m.level is not None]
    if not known:
        reasons = dict.fromkeys(m.reason for m in measures if m.reason)
        return Measure.missing(unit, "; ".join(map(str, reasons)) or "there are no jobs")
    missing = len(measures) - len(known)
    warnings = (f"without {missing} of {len(measures)} jobs, where it is unknown",)
    return Measure(
        sum(known), unit, level=min(levels, default=None), warnings=warnings if missing else ()
    )


def _tax(ledgers: Sequence[Ledger]) -> Ratio:
    """GPU-hour-weighted straggler tax of the jobs in which waiting can be told."""
    wait = paid = 0.0
    for ledger in ledgers:
        row = ledger.row("straggler_wait")
        if row is not None and row.gpu_us is not None:
            wait += float(row.gpu_us)
            paid += float(ledger.paid_gpu_us)
    if not paid:
        return Ratio.missing("ratio", "no job has per-rank phases or collective times")
    return Ratio(wait / paid, level=Level.PHASES, inputs=("wait", "paid time"))


def _sentence(
    ranked: Sequence[JobSummary],
    hours: Measure,
    measured: Measure,
    lines: Sequence[LedgerLine],
    recoverable: Measure,
    recoverable_hours: Measure,
    cost: Price,
) -> str:
    if not ranked:
        return "There are no jobs in this period."
    spend = dollars(hours, cost)
    paid = f"{format_measure(spend)} for " if spend.value is not None else ""
    known = sum(job.gpu_hours.value is not None for job in ranked)
    of = f"{known:,} of " if 0 < known < len(ranked) else ""
    text = f"You paid {paid}{format_measure(hours)} over {of}{len(ranked):,} jobs."
    if not lines:
        return f"{text} No job has per-rank steps, so where the time went is unknown."
    if hours.value and measured.value is not None and measured.value < 0.95 * hours.value:
        text += f" On the {format_share(measured.value / hours.value)} that was recorded in steps,"
    else:
        text += " Of it,"
    compute = next((line.share for line in lines if line.bucket == "compute"), None)
    if compute is not None:
        text += f" {format_share(compute)} was the ranks' own computing"
    else:
        text += " the ranks' own computing was not measured"
    losses = {line.title: line.share for line in lines if line.is_loss and line.share}
    if losses:
        title, share = max(losses.items(), key=lambda item: item[1])
        text += f"; the largest loss is {title} ({format_share(share)})"
    text += "."
    first = ranked[0]
    if recoverable.value and first.recoverable_usd.value:
        text += (
            f" Fix job {first.job_id} first: it would have returned "
            f"{format_measure(first.recoverable_usd)} of {format_measure(recoverable)}."
        )
    elif recoverable_hours.value and first.recoverable_gpu_hours.value:
        text += (
            f" Fix job {first.job_id} first: it would have returned "
            f"{format_measure(first.recoverable_gpu_hours)} of {format_measure(recoverable_hours)}."
            " Set a price per GPU-hour to see dollars."
        )
    elif cost.usd_per_gpu_hour is None:
        text += " Set a price per GPU-hour to see dollars."
    else:
        text += " No persistent straggler was found, so nothing is to be won back by one repair."
    return text


def _kpis(
    hours: Measure,
    tax: Ratio,
    recoverable: Measure,
    lines: Sequence[LedgerLine],
    cost: Price,
) -> tuple[Kpi, ...]:
    spend = dollars(hours, cost)
    compute = next((line.share for line in lines if line.bucket == "compute"), None)
    share = (
        Ratio(compute, level=Level.PHASES)
        if compute is not None
        else Ratio.missing("ratio", "no job splits its steps into phases")
    )
    wait = next((line for line in lines if line.bucket == "straggler_wait"), None)
    wait_usd = None if wait is None else wait.usd
    tax_text = format_measure(tax) + (f" = ${wait_usd:,.2f}" if wait_usd is not None else "")
    shown = {
        "spend_usd": spend,
        "gpu_hours": hours,
        "compute_share_ratio": share,
        "straggler_tax_ratio": tax,
        "recoverable_usd": recoverable,
    }
    check_metrics(shown)
    return (
        Kpi(
            "Spend",
            spend,
            format_measure(spend) if spend.value is not None else NO_PRICE,
            "spend_usd",
            f"GPU-hours x price; {cost.basis}",
        ),
        Kpi("GPU-hours", hours, format_measure(hours), "gpu_hours", "held by the jobs"),
        Kpi(
            "Own computing",
            share,
            format_measure(share),
            "compute_share_ratio",
            "compute phase / paid time of the recorded steps; not MFU",
        ),
        Kpi(
            "Straggler tax",
            tax,
            tax_text,
            "straggler_tax_ratio",
            "waiting for the slowest rank / paid time, weighted by GPU-hours",
        ),
        Kpi(
            "Recoverable",
            recoverable,
            format_measure(recoverable),
            "recoverable_usd",
            "what persistent stragglers cost beyond their peers' median, at this price",
        ),
    )


def _ledger_note(measured_jobs: int, jobs: int, measured: Measure) -> str:
    return (
        f"Recorded steps of {measured_jobs:,} of {jobs:,} jobs, "
        f"{format_measure(measured)}; the buckets add up to it exactly."
        if measured_jobs
        else "No job has per-rank steps with real times."
    )


def _by_team(jobs: Sequence[JobSummary]) -> tuple[dict[str, Any], ...]:
    """GPU-hours and money by team; jobs without a team are shown as such."""
    groups: dict[str, list[JobSummary]] = defaultdict(list)
    for job in jobs:
        groups[job.team or unstated("team")].append(job)
    rows = [
        {
            "team": team,
            "jobs": len(members),
            "gpu_hours": _sum([job.gpu_hours for job in members], "GPU-hours"),
            "spend_usd": _sum([job.spend_usd for job in members], "USD"),
            "recoverable_usd": _sum([job.recoverable_usd for job in members], "USD"),
        }
        for team, members in groups.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-(row["gpu_hours"].value or 0.0), row["team"])))


def _period(
    first_us: int | None, last_us: int | None, jobs: Sequence[JobSummary], now_us: int
) -> str:
    starts = [job.start_us for job in jobs if job.start_us is not None]
    begin = first_us if first_us is not None else min(starts, default=None)
    end = last_us if last_us is not None else now_us
    if begin is None:
        return "all jobs; their dates are unknown"
    return f"{_day(begin)} to {_day(end - 1)}, UTC"


def _day(us: int) -> str:
    return datetime.fromtimestamp(us / 1e6, UTC).strftime(DAY_FORMAT)


def _warnings(jobs: Sequence[JobSummary], analysed: Sequence[Analysed | None]) -> tuple[str, ...]:
    warnings = []
    unknown = sum(job.gpu_hours.value is None for job in jobs)
    if unknown:
        warnings.append(f"GPU-hours are unknown for {unknown:,} of {len(jobs):,} jobs")
    states = sum(job.state == "unknown" for job in jobs)
    if states:
        warnings.append(f"the final state is unknown for {states:,} of {len(jobs):,} jobs")
    relative = sum(a is not None and a.loaded.matrix.time_is_relative for a in analysed)
    if relative:
        warnings.append(f"{relative} jobs have normalised times and are left out of the ledger")
    sizeless = sum(a is not None and a.loaded.world_is_unknown for a in analysed)
    if sizeless:
        warnings.append(
            f"{sizeless:,} jobs are known from a log that does not say how many ranks they have, "
            "and are left out of the ledger"
        )
    return tuple(warnings)
