"""The view of one job: straggler card, metrics, ledger, figures."""

from __future__ import annotations

import time
from collections.abc import Sequence
from decimal import Decimal

import numpy as np

from steptax.app.compute.bill.ledger import step_ledger
from steptax.app.compute.measure import Measure
from steptax.app.compute.stats.rows import row_max
from steptax.app.compute.straggler.analysis import IDEALS, Ideal, analyse_stragglers, work_and_peers
from steptax.app.compute.straggler.result import RankTable, StragglerResult
from steptax.app.compute.straggler.steps import without_inconsistent
from steptax.app.errors import UserError
from steptax.app.metrics import check_metrics
from steptax.app.views.bill.ledger import ledger_lines, ledger_note
from steptax.app.views.bill.view import job_bill
from steptax.app.views.fleet.jobs import devices_lost, job_bills
from steptax.app.views.job.bill_metrics import bill_metrics
from steptax.app.views.job.card import build_card
from steptax.app.views.job.causes import build_diagnosis, finding_rows
from steptax.app.views.job.coverage import build_coverage
from steptax.app.views.job.first_steps import first_steps_text, held_back
from steptax.app.views.job.jobs import analyse_job, hours_of_all_steps, whole_hours
from steptax.app.views.job.links import with_links
from steptax.app.views.job.load import LoadedJob, load_job, load_step
from steptax.app.views.job.metrics import job_metrics, per_day_since
from steptax.app.views.job.models import (
    FloatArray,
    Grid,
    JobHeader,
    JobView,
    RankRow,
    Series,
    StepTimeline,
)
from steptax.app.views.job.printed import beside, our_figures
from steptax.app.views.job.quiet_failures import quiet_of
from steptax.app.views.job.shape import grid, heat_map, thin_series
from steptax.app.views.job.timeline import build_timeline
from steptax.app.views.pricing.given import dollars
from steptax.app.views.pricing.of_job import job_price
from steptax.app.views.reported.comparison import build_blame, build_comparison, rank_onset
from steptax.app.views.reported.view import job_reports
from steptax.app.views.workspace import Workspace

#: Lines of the rank table.
LISTED_RANKS = 50


def job_view(
    ws: Workspace,
    job_id: str,
    *,
    price: Decimal | None,
    price_note: str | None = None,
    last_steps: int | None = 500,
    ideal: str = "mean",
    now_us: int | None = None,
    with_quiet: bool = False,
) -> JobView:
    """Everything that is shown of ``job_id`` over its last ``last_steps`` steps (None: all).

    A connected bill wins over the given ``price``, and it over list prices (``job_price``).
    ``with_quiet`` adds the quiet failures of a job that is over: its steps are read and analysed
    here, and to do both again would make the whole of a big job's page half as long again.

    Raises NotFoundError for an unknown job or one without steps; UserError for an unknown ideal.
    """
    now = time.time_ns() // 1000 if now_us is None else now_us
    version = ws.version(job_id)
    loaded = load_job(ws, ws.job(job_id), last_steps=last_steps)
    analysed = analyse_stragglers(loaded.matrix, ideal=check_ideal(ideal))
    result = with_links(ws, loaded, analysed)
    sound, _ = without_inconsistent(loaded.matrix)
    cost = job_price(ws, job_id, price, price_note)
    price = cost.usd_per_gpu_hour
    ledger = step_ledger(sound, price)
    coverage = build_coverage(ws, loaded, result, now_us=now)
    bill = job_bill(ws, loaded, price, devices_lost(ws, loaded.job))
    metrics = job_metrics(loaded, result, ledger, cost)
    hours = bill.gpu_hours or _whole_hours(ws, loaded, metrics["window_gpu_hours"])
    metrics |= {"gpu_hours": hours, "spend_usd": dollars(hours, cost)}
    work, peers = work_and_peers(loaded.matrix, result=result)
    since = rank_onset(loaded, result, work, peers)
    metrics["recoverable_since_usd_per_day"] = per_day_since(loaded, result, since, cost)
    metrics = check_metrics(metrics | bill_metrics(loaded, bill, metrics["window_gpu_hours"], cost))
    lines = ledger_lines(ledger, relative=loaded.matrix.time_is_relative or loaded.world_is_unknown)
    reports = job_reports(ws, job_id)
    told = build_diagnosis(ws, loaded, result)
    findings = finding_rows(loaded, told, metrics["window_usd"])
    cells = work - peers, loaded.matrix.ranks.astype(np.int64), loaded.matrix.steps
    heat = heat_map(*cells)
    has_quiet = with_quiet and ideal == "mean" and not coverage.is_live
    return JobView(
        header=_header(loaded),
        window=loaded.window,
        price=cost,
        coverage=coverage,
        card=held_back(
            build_card(loaded, result, metrics, lines, cost, since, findings),
            first_steps_text(coverage, loaded.window),
        ),
        metrics=metrics,
        ledger=lines,
        ledger_note=ledger_note(ledger, loaded),
        bill=bill,
        series=_series(loaded, result),
        heat=heat,
        heat_mean=heat_map(*cells, pooled_by="mean") if heat.is_pooled else None,
        grid=_grid(loaded, result),
        ranks=rank_rows(loaded, result),
        blame=build_blame(loaded, result),
        comparison=build_comparison(ws, loaded, result),
        reports=reports,
        beside=beside(reports, our_figures(loaded, metrics)),
        version=version,
        findings=findings,
        no_findings=told.reason,
        quiet=quiet_of(ws, job_id, analysed, sound) if has_quiet else None,
    )


def _whole_hours(ws: Workspace, loaded: LoadedJob, window: Measure) -> Measure:
    """GPU-hours of a job whose steps give no bill: as its record tells them, else of all steps."""
    (bill,) = job_bills(ws, [loaded.job])
    if bill.bill is None and not loaded.window.is_all:
        window = hours_of_all_steps(analyse_job(ws, loaded.job))
    return whole_hours(bill, window)


def step_timeline(
    ws: Workspace,
    job_id: str,
    step: int,
    *,
    ranks: Sequence[int] = (),
    culprits: Sequence[int] = (),
    limit: int = 64,
) -> StepTimeline:
    """Phases of each rank in one step: the chosen ``ranks`` first, then the latest to arrive.

    ``culprits`` are those of ``ranks`` that make the job wait, whoever chose them. At most
    ``limit`` ranks. Raises NotFoundError when the job has no such step.
    """
    return build_timeline(load_step(ws, job_id, step), ranks, limit, culprits)


def _header(loaded: LoadedJob) -> JobHeader:
    job = loaded.job
    sizes = [
        f"{title} {job[key]}"
        for key, title in (("tp_size", "TP"), ("pp_size", "PP"), ("dp_size", "DP"))
        if job.get(key)
    ]
    world = None if loaded.world_is_unknown else loaded.matrix.world_size
    ranks = "number of ranks unknown" if world is None else f"{world:,} ranks"
    return JobHeader(
        job_id=job["job_id"],
        name=job.get("name"),
        team=job.get("team"),
        owner=job.get("owner"),
        framework=job.get("framework"),
        state=job.get("state"),
        gpu_model=job.get("gpu_model"),
        world_size=world,
        topology=" × ".join([*sizes, ranks]),
        time_basis=job.get("time_basis") or "wall",
        start_us=job.get("start_us"),
        end_us=job.get("end_us"),
        attempt=loaded.attempt,
    )


def _series(loaded: LoadedJob, result: StragglerResult) -> Series:
    table = result.steps
    # An unused step has no arrivals to compare; its longest report is still worth drawing.
    longest = row_max(loaded.matrix.duration_us)
    return thin_series(
        Series(
            table.steps,
            np.where(np.isnan(table.step_us), longest, table.step_us) / 1000.0,
            table.p50_us / 1000.0,
            table.p95_us / 1000.0,
            table.max_us / 1000.0,
            table.last_rank.astype(np.int64),
            table.tax_ratio,
            loaded.matrix.loss,
            len(table.steps),
        )
    )


def _grid(loaded: LoadedJob, result: StragglerResult) -> Grid | None:
    table = result.ranks
    if table is None or table.stage is None or table.dp is None or not loaded.matrix.has_pipeline:
        return None
    return grid(
        table.mean_work_us - float(np.median(table.mean_work_us)),
        table.ranks.astype(np.int64),
        table.stage.astype(np.int64),
        table.dp.astype(np.int64),
        result.verdict.text,
    )


def rank_rows(loaded: LoadedJob, result: StragglerResult) -> tuple[RankRow, ...]:
    """The ranks with the largest excess, largest first; empty when it cannot be told."""
    table = result.ranks
    if table is None:
        return ()
    order = np.argsort(-np.nan_to_num(table.excess_us, nan=-np.inf), kind="stable")
    return tuple(_rank_row(loaded, table, int(i)) for i in order[:LISTED_RANKS])


def _rank_row(loaded: LoadedJob, table: RankTable, i: int) -> RankRow:
    rank = int(table.ranks[i])

    def ms(values: FloatArray) -> float | None:
        return float(values[i]) / 1000.0 if np.isfinite(values[i]) else None

    return RankRow(
        rank=rank,
        host=loaded.places.get(rank, {}).get("host"),
        stage=None if table.stage is None else int(table.stage[i]),
        dp=None if table.dp is None else int(table.dp[i]),
        work_ms=float(table.mean_work_us[i]) / 1000.0,
        excess_ms=ms(table.excess_us),
        excess_low_ms=ms(table.excess_low_us),
        excess_high_ms=ms(table.excess_high_us),
        persistence=float(table.persistence_ratio[i]),
        slowest_share=float(table.last_ratio[i]),
        wait_ms=ms(table.mean_wait_us),
        blame_share=float(table.blame_ratio[i]) if np.isfinite(table.blame_ratio[i]) else None,
    )


def check_ideal(name: str) -> Ideal:
    """The reference called ``name``; UserError names the ones that exist."""
    for known in IDEALS:
        if known == name:
            return known
    raise UserError(
        f"there is no reference {name!r}",
        where="--ideal",
        hint=f"use one of {', '.join(IDEALS)}; the mean is the one that adds up",
    )
