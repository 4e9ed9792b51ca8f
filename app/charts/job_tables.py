"""The table behind each figure of a job."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from steptax.app.charts.focus import job_time_unit
from steptax.app.charts.tables import Column, Table, table
from steptax.app.charts.timeline import phase_title, phases_of
from steptax.app.charts.times import in_unit, time_unit
from steptax.app.views.job.history import HistoryView
from steptax.app.views.job.models import FloatArray, Grid, HeatMap, JobView, Series, StepTimeline
from steptax.app.views.job.quiet_failures import QuietFailures
from steptax.app.views.models import LedgerLine

_SECONDS_PER_HOUR = 3600.0


def history_table(view: HistoryView) -> Table:
    """The ranks that exceed their peers most over a whole job."""
    unit = time_unit(view.series.duration_ms, view.unit)
    columns = (
        Column("rank", "rank", "count"),
        _time("excess", f"excess, {unit}", unit, "mean work beyond the peers' mean"),
        Column("excess_ratio", "of their work", "ratio", "the same as a share of their work"),
        Column("slow_blocks", "slow blocks", "count", f"blocks of {view.block_steps:,} steps"),
        Column("blocks", "of", "count"),
        Column("slow_from_step", "first from step", "count"),
        Column("host", "host", "text"),
    )
    return table(
        columns,
        [
            (
                row.rank,
                _in(row.excess.value, unit),
                row.share.value,
                row.slow_blocks,
                row.blocks,
                row.slow_from_step,
                row.host,
            )
            for row in view.ranks
        ],
    )


def ranks_table(view: JobView) -> Table:
    """The ranks with the largest excess."""
    unit = job_time_unit(view)
    columns = (
        Column("rank", "rank", "count"),
        _time("excess", f"excess, {unit}", unit, "mean work less the median of the peers"),
        Column("persistence", "slow in", "ratio", "share of steps in which the rank is slow"),
        Column("slowest_share", "last in", "ratio", "share of steps in which it arrives last"),
        Column("host", "host", "text"),
        Column("stage", "PP stage", "count"),
        Column("dp", "DP replica", "count"),
        Column("blame_share", "blame", "ratio", "share of all waiting that is charged to it"),
        _time("excess_low", "excess from", unit, "95 % interval of the excess, lower end"),
        _time("excess_high", "to", unit, "95 % interval of the excess, upper end"),
        _time("work", f"work, {unit}", unit, "mean own time before the barrier"),
        _time("wait", f"waits, {unit}", unit, "mean time it waits for others in a step"),
    )
    rows = [
        (
            row.rank,
            _in(row.excess_ms, unit),
            row.persistence,
            row.slowest_share,
            row.host,
            row.stage,
            row.dp,
            row.blame_share,
            _in(row.excess_low_ms, unit),
            _in(row.excess_high_ms, unit),
            _in(row.work_ms, unit),
            _in(row.wait_ms, unit),
        )
        for row in view.ranks
    ]
    kept = [
        i
        for i, column in enumerate(columns)
        if column.key not in {"host", "stage", "dp"} or any(row[i] is not None for row in rows)
    ]
    return table([columns[i] for i in kept], [[row[i] for i in kept] for row in rows])


def ledger_table(ledger: Sequence[LedgerLine]) -> Table:
    """Every bucket, also the empty ones and those that were not measured."""
    columns = (
        Column("bucket", "bucket", "text"),
        Column("gpu_hours", "GPU-hours", "number"),
        Column("share", "share of paid", "ratio"),
        Column("usd", "cost", "usd"),
        Column("note", "note", "text"),
    )
    rows = [
        (
            line.title,
            None if line.gpu_seconds is None else line.gpu_seconds / _SECONDS_PER_HOUR,
            line.share,
            None if line.usd is None else float(line.usd),
            line.note or ("not measured" if line.share is None else ""),
        )
        for line in ledger
    ]
    measured = [row for row in rows if row[2] is not None]
    totals = table(
        columns, measured, sum_of={"gpu_hours": "GPU-hours", "share": "ratio", "usd": "USD"}
    ).total
    return Table(columns, tuple(rows), totals)


def series_table(series: Series, unit: str) -> Table:
    """Step by step, as drawn."""
    columns = (
        Column("step", "step", "count"),
        _time("duration", f"step, {unit}", unit),
        _time("work_p50", f"median work, {unit}", unit),
        _time("work_p95", f"95 % work, {unit}", unit),
        _time("work_max", f"slowest work, {unit}", unit),
        Column("slowest_rank", "slowest rank", "count"),
        Column("tax", "straggler tax", "ratio"),
        *((Column("loss", "loss", "number"),) if series.loss is not None else ()),
    )
    arrays = [
        in_unit(series.duration_ms, unit),
        in_unit(series.work_p50_ms, unit),
        in_unit(series.work_p95_ms, unit),
        in_unit(series.work_max_ms, unit),
        np.where(series.slowest_rank >= 0, series.slowest_rank, np.nan),
        series.tax,
        *((series.loss,) if series.loss is not None else ()),
    ]
    rows = zip(series.steps.tolist(), *(_known(array) for array in arrays), strict=True)
    shown, stored = len(series.steps), series.steps_before_thinning
    note = (
        f"{shown:,} of {stored:,} steps: of each run the one with the longest work is kept"
        if shown < stored
        else None
    )
    return table(columns, rows, note=note)


def heat_table(heat: HeatMap, unit: str = "ms") -> Table:
    """Every reported cell, largest excess first."""
    columns = (
        Column("rank_first", "rank", "count"),
        Column("rank_last", "to rank", "count"),
        Column("step_first", "step", "count"),
        Column("step_last", "to step", "count"),
        _time("excess", f"excess, {unit}", unit),
    )
    flat = in_unit(heat.excess_ms.ravel(), unit)
    order = np.argsort(-np.where(np.isnan(flat), -np.inf, flat), kind="stable")
    order = order[~np.isnan(flat[order])]
    row, column = np.unravel_index(order, heat.excess_ms.shape)
    steps = np.array(heat.columns, dtype=np.int64).reshape(-1, 2)[column]
    ends = [
        heat.ranks[heat.rank_edges[row]],
        heat.ranks[heat.rank_edges[row + 1] - 1],
        steps[:, 0],
        steps[:, 1],
    ]
    rows = zip(*(values.tolist() for values in ends), flat[order].tolist(), strict=True)
    note = "a cell holds the largest excess of its ranks and steps" if heat.is_pooled else None
    return table(columns, rows, note=note)


def grid_table(grid: Grid, unit: str = "ms") -> Table:
    """Every cell that has a rank."""
    columns = (
        Column("stage", "PP stage", "count"),
        Column("dp", "DP replica", "count"),
        Column("rank", "rank", "count"),
        _time("excess", f"mean excess, {unit}", unit),
    )
    rows = [
        (
            int(grid.pp[i]),
            int(grid.dp[j]),
            int(grid.rank[i, j]),
            in_unit(float(grid.excess_ms[i, j]), unit),
        )
        for i, j in itertools.product(range(len(grid.pp)), range(len(grid.dp)))
        if grid.rank[i, j] >= 0 and not np.isnan(grid.excess_ms[i, j])
    ]
    return table(columns, rows)


def timeline_table(timeline: StepTimeline, unit: str = "ms") -> Table:
    """Phases of each shown rank."""
    phases = phases_of(timeline)
    columns = (
        Column("rank", "rank", "count"),
        Column("role", "in this step", "text"),
        *(_time(phase, f"{phase_title(phase)}, {unit}", unit) for phase in phases),
    )
    rows = [
        (bar.rank, bar.role, *(_in(bar.phases_ms.get(phase), unit) for phase in phases))
        for bar in timeline.bars
    ]
    return table(columns, rows, note=timeline.note)


def _time(name: str, title: str, unit: str, about: str | None = None) -> Column:
    """A duration; its key carries the unit, as every quantity of a file does."""
    return Column(f"{name}_{unit}", title, "time_span", about)


def _in(value_ms: float | None, unit: str) -> float | None:
    return None if value_ms is None else in_unit(value_ms, unit)


def _known(values: FloatArray) -> list[float | None]:
    return [None if np.isnan(value) else float(value) for value in values]


def quiet_table(view: QuietFailures, *, for_file: bool = False) -> Table:
    """What slows a job without stopping it, a line per number; a file has it as a number too."""
    columns = [
        Column("failure", "failure", "text", width_px=190),
        Column("title", "what", "text", width_px=230),
        Column("found", "found", "text", width_px=320),
        Column("note", "note", "text", width_px=160),
    ]
    rows: list[list[Any]] = [[n.failure, n.title, n.text, n.note] for n in view.lines]
    if for_file:
        columns[3:3] = [Column("value", "value", "number"), Column("unit", "unit", "text")]
        for row, line in zip(rows, view.lines, strict=True):
            row[3:3] = [line.measure.value, line.measure.unit]
    return table(columns, rows)
