"""The table behind each figure of the what-if analysis of a job, and the files of them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from steptax.app.charts.tables import Column, Table, table
from steptax.app.charts.times import in_measure, in_unit, time_unit
from steptax.app.compute.measure import Measure
from steptax.app.views.trace.models import (
    CurvePoint,
    RailAnswer,
    StepGantt,
    StepSeries,
    TraceBar,
    TraceView,
    WorkerGrid,
    WorkerLine,
)

_BOUNDS = ("low", "high")


def grid_table(grid: WorkerGrid) -> Table:
    """Every worker of the grid, slowest first."""
    columns = (
        Column("rank", "rank", "count"),
        Column("dp", "DP rank", "count"),
        Column("stage", "PP stage", "count"),
        Column("slowdown_x", "slowdown, ×", "number"),
        Column("in_pattern", "framed", "text", "part of the pattern"),
    )
    rows = [
        (
            int(grid.ranks[p, d]),
            int(grid.dps[d]),
            int(grid.stages[p]),
            float(grid.slowdown[p, d]),
            "yes" if grid.highlighted[p, d] else "",
        )
        for p, d in itertools.product(*map(range, grid.ranks.shape))
        if grid.ranks[p, d] >= 0 and not np.isnan(grid.slowdown[p, d])
    ]
    return table(columns, sorted(rows, key=lambda row: -row[3]), note=grid.text)


def workers_table(workers: Sequence[WorkerLine]) -> Table:
    """The slowest workers."""
    columns = (
        Column("rank", "rank", "count"),
        Column("slowdown_x", "slowdown, ×", "number"),
        Column("host", "host", "text"),
        Column("stage", "PP stage", "count"),
        Column("dp", "DP rank", "count"),
        Column("in_pattern", "framed", "text", "part of the pattern"),
    )
    rows = [
        (w.rank, w.slowdown, w.host, w.stage, w.dp, "yes" if w.highlighted else "") for w in workers
    ]
    kept = [
        i
        for i, column in enumerate(columns)
        if column.key not in {"host", "stage", "dp"} or any(row[i] is not None for row in rows)
    ]
    return table([columns[i] for i in kept], [[row[i] for i in kept] for row in rows])


def bars_table(bars: Sequence[TraceBar], title: str) -> Table:
    """One line for each thing that alone is left as it was."""
    columns = (Column("key", title, "text"), *_measured("slowdown_x", "slowdown, ×", "number"))
    return table(columns, [(bar.key, *_values(bar.measure)) for bar in bars])


def steps_table(series: StepSeries) -> Table:
    """One line for each analysed step."""
    unit = time_unit(series.measured_ms)
    columns = (
        Column("step", "step", "count"),
        Column(f"measured_{unit}", f"measured, {unit}", "time_span"),
        Column(f"original_{unit}", f"original simulated, {unit}", "time_span"),
        Column(f"ideal_{unit}", f"ideal, {unit}", "time_span"),
        Column("slowdown_x", "S, ×", "number"),
        Column("slowest_rank", "slowest rank", "count"),
    )
    rows = zip(
        series.steps.tolist(),
        in_unit(series.measured_ms, unit).tolist(),
        in_unit(series.original_ms, unit).tolist(),
        itertools.repeat(in_unit(series.ideal_ms, unit), len(series.steps)),
        series.S.tolist(),
        series.slowest_rank.tolist(),
        strict=True,
    )
    return table(columns, rows)


def curve_table(points: Sequence[CurvePoint]) -> Table:
    """One line for each number of repaired ranks."""
    unit = time_unit([point.step_ms.value for point in points])
    columns = (
        Column("k", "ranks repaired", "count"),
        Column("rank", "last one added", "count"),
        *_measured(f"step_{unit}", f"step, {unit}", "time_span"),
        Column("share", "comes back", "ratio"),
        Column("gpu_hours_per_day", "GPU-hours a day", "number"),
        Column("usd_per_day", "$ a day", "usd"),
    )
    rows = [
        (
            p.k,
            p.rank,
            *_values(in_measure(p.step_ms, unit)),
            p.share.value,
            p.gpu_hours_per_day.value,
            p.usd_per_day.value,
        )
        for p in points
    ]
    return table(columns, rows)


def answer_table(answer: RailAnswer) -> Table:
    """Every number of an answer of the rail with its interval."""
    worth = answer.recovered
    named = (
        ("step_before", answer.step_before_ms),
        ("step_after", answer.step_after_ms),
        ("slowdown_before", answer.S_before),
        ("slowdown_after", answer.S_after),
        ("speedup", answer.speedup),
        ("recovered_per_step", worth.s_per_step),
        ("recovered_share", worth.share),
        ("recovered_gpu_hours_per_day", worth.gpu_hours_per_day),
        ("recovered_usd_per_day", worth.usd_per_day),
        ("simulation_error", answer.sim_error),
    )
    return measures_table(named, note="; ".join(answer.fixes) or "nothing is changed")


def numbers_table(view: TraceView) -> Table:
    """Every headline number of the analysis with its interval."""
    worth = view.recovered
    named = (
        ("slowdown", view.S),
        ("waste", view.waste),
        ("step", view.step_ms),
        ("ideal_step", view.ideal_step_ms),
        ("slowest_few_workers_share", view.M_W),
        ("last_stage_share", view.M_S),
        ("launch_slowdown", view.launch_slowdown),
        ("recovered_per_step", worth.s_per_step),
        ("recovered_gpu_hours", worth.gpu_hours),
        ("recovered_gpu_hours_per_day", worth.gpu_hours_per_day),
        ("recovered_usd", worth.usd),
        ("recovered_usd_per_day", worth.usd_per_day),
        ("simulation_error", view.sim_error),
        ("estimate", view.estimate),
    )
    return measures_table(named, note=view.steps_note)


def gantt_table(gantt: StepGantt) -> Table:
    """Every bar of the window, recorded ones first."""
    columns = (
        Column("timeline", "timeline", "text"),
        Column("rank", "rank", "count"),
        Column("stage", "PP stage", "count"),
        Column("dp", "DP rank", "count"),
        Column("stream", "stream", "text"),
        Column("operation", "operation", "text"),
        Column("operations", "operations in it", "count"),
        Column("micro_batch", "micro-batch", "count"),
        Column("start_ms", "start, ms", "number"),
        Column("end_ms", "end, ms", "number"),
        Column("wait_ms", "of it waiting, ms", "number"),
    )
    rows = []
    for name, bars in (("recorded", gantt.original), ("ideal", gantt.ideal)):
        for i, place in enumerate(bars.lane.tolist()):
            lane = gantt.lanes[place]
            micro = int(bars.micro_batch[i])
            rows.append(
                (
                    name,
                    lane.rank,
                    lane.stage,
                    lane.dp,
                    lane.stream,
                    bars.name[i],
                    int(bars.merged[i]),
                    micro if micro >= 0 else None,
                    float(bars.start_ms[i]),
                    float(bars.end_ms[i]),
                    float(bars.wait_ms[i]),
                )
            )
    return table(columns, rows, note=gantt.note)


def measures_table(named: Sequence[tuple[str, Measure]], note: str | None = None) -> Table:
    """One line for each measure; a missing one says why."""
    columns = (
        Column("name", "number", "text"),
        Column("unit", "unit", "text"),
        *_measured("value", "value", "number"),
        Column("reason", "why not known", "text"),
    )
    rows = [
        (name.replace("_", " "), m.unit, *_values(m), m.reason if m.value is None else None)
        for name, m in named
    ]
    return table(columns, rows, note=note)


def _measured(key: str, title: str, kind: str) -> tuple[Column, Column, Column]:
    name = "" if key == "value" else f"{key}_"
    first = Column(key, title, "time_span" if kind == "time_span" else "number")
    low, high = (Column(f"{name}{bound}", bound, first.kind) for bound in _BOUNDS)
    return first, low, high


def _values(measure: Measure) -> tuple[float | None, float | None, float | None]:
    return measure.value, measure.low, measure.high
