"""Tables over jobs, teams and sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from steptax.app.charts.tables import Column, Table, table
from steptax.app.format import format_value
from steptax.app.metrics import METRICS
from steptax.app.views.health_models import HealthView
from steptax.app.views.job.detector_score import DETECTORS, FIGURES, SHARES, DetectorScore
from steptax.app.views.review.executive_models import JobSummary


def jobs_table(jobs: Sequence[JobSummary]) -> Table:
    """One line per job, in the order given."""
    columns = (
        Column("job_id", "job", "text", width_px=200),
        Column("recoverable_usd", "recoverable", "usd", "what persistent stragglers cost"),
        Column("owner", "owner", "text", width_px=90),
        Column("cause", "cause", "text", "what was diagnosed; else the largest loss", 300),
        Column("culprit", "held up by", "text", "who makes the others wait for good", 130),
        Column("trend", "trend of the tax", "text", "last quarter of its steps vs before", 170),
        Column("straggler_tax", "straggler tax", "ratio", "waiting / paid GPU time"),
        Column("spend_usd", "spend", "usd", "GPU-hours x price"),
        Column("gpu_hours", "GPU-hours", "number"),
        Column("team", "team", "text", width_px=110),
        Column("recoverable_gpu_hours", "recoverable GPU-hours", "number"),
        Column("state", "state", "text"),
        Column("world_size", "ranks", "count"),
        Column("start_us", "start", "time"),
        Column("name", "name", "text"),
        Column("dominant_cause", "largest loss", "text", width_px=300),
        Column("coverage", "rests on", "text"),
    )
    rows = [[_plain(getattr(job, column.key)) for column in columns] for job in jobs]
    return table(
        columns,
        rows,
        sum_of={"recoverable_usd": "USD", "spend_usd": "USD", "gpu_hours": "GPU-hours"},
    )


def teams_table(by_team: Sequence[dict[str, Any]]) -> Table:
    """Showback: what each team's jobs held and cost; jobs without a team have their own line."""
    columns = (
        Column("team", "team", "text"),
        Column("jobs", "jobs", "count"),
        Column("gpu_hours", "GPU-hours", "number"),
        Column("spend_usd", "spend", "usd"),
        Column("recoverable_usd", "recoverable", "usd"),
    )
    rows = [[_plain(team.get(column.key)) for column in columns] for team in by_team]
    return table(
        columns,
        rows,
        sum_of={"gpu_hours": "GPU-hours", "spend_usd": "USD", "recoverable_usd": "USD"},
    )


def sources_table(view: HealthView) -> Table:
    """Where rows came from, and how long ago."""
    columns = (
        Column("source", "source", "text"),
        Column("kind", "kind", "text"),
        Column("tables", "tables", "text"),
        Column("accepted", "rows", "count"),
        Column("rejected", "rejected", "count"),
        Column("last_us", "newest", "time"),
        Column("lag_s", "lag, s", "number"),
        Column("state", "state", "text"),
    )
    rows = [[getattr(source, column.key) for column in columns] for source in view.sources]
    return table(columns, rows)


def alerts_table(alerts: Sequence[Mapping[str, Any]]) -> Table:
    """Alerts, open ones first, with what was said and who was told."""
    columns = (
        Column("rule", "rule", "text", width_px=150),
        Column("job", "job", "text", width_px=160),
        Column("severity", "severity", "text"),
        Column("fired_us", "fired", "time"),
        Column("cleared_us", "cleared", "time", "empty: it is open"),
        Column("text", "what was said", "text", width_px=420),
        Column("told", "told", "text", width_px=320),
    )
    return table(columns, [[alert[column.key] for column in columns] for alert in alerts])


def score_table(score: DetectorScore) -> Table:
    """The detector's own score beside two others on the same jobs."""
    columns = (
        Column("figure", "figure", "text", width_px=320),
        Column("target", "target", "text"),
        *(Column(name, title, "text") for name, title in DETECTORS.items()),
    )
    rows = [
        [FIGURES[name], *(_figure(name, v) for v in (target, *map(values.get, DETECTORS)))]
        for name, target, values in score.rows
    ]
    return table(columns, rows)


def _figure(name: str, value: float | None) -> str:
    """A figure of the score: most are shares, the others counts of steps and alarms."""
    return "" if value is None else format_value(value, "ratio" if name in SHARES else "")


def score_groups_table(score: DetectorScore) -> Table:
    """The score of each detector by noise, and by what is special about the jobs."""
    columns = (
        Column("group", "jobs", "text", width_px=320),
        Column("detector", "detector", "text", width_px=220),
        Column("slow_ranks", "slow ranks", "count"),
        Column("rank_recall", "of them named", "ratio"),
        Column("rank_precision", "named ranks that were slow", "ratio"),
        Column("rank_f1", "F1 of both", "ratio"),
        Column("alarms", "false alarms in 100,000 healthy rank-steps", "number"),
    )
    rows = [[getattr(group, column.key) for column in columns] for group in score.groups]
    return table(columns, rows)


def gaps_table(view: HealthView) -> Table:
    """Where samples of devices are missing, newest first."""
    columns = (
        Column("start_us", "from", "time"),
        Column("end_us", "until", "time"),
        Column("where", "of", "text"),
        Column("devices", "devices", "count"),
        Column("hours", "device-hours not known", "number"),
        Column("state", "state", "text"),
    )
    rows = [
        (
            gap.start_us,
            gap.end_us,
            gap.where,
            gap.devices,
            gap.without_us / 3.6e9,
            "no sample since"
            if gap.is_open
            else "over"
            if gap.is_exact
            else "over; somewhere between",
        )
        for gap in reversed(view.gaps)
    ]
    return table(columns, rows)


def stored_table(view: HealthView) -> Table:
    """Rows and segments by table."""
    columns = (
        Column("table", "table", "text"),
        Column("rows", "rows", "count"),
        Column("segments", "segments", "count"),
    )
    rows = [(name, count, view.segments.get(name)) for name, count in view.rows.items()]
    return table(columns, rows)


def metrics_table() -> Table:
    """The metric registry."""
    columns = (
        Column("title", "metric", "text"),
        Column("formula", "formula", "text"),
        Column("unit", "unit", "text"),
        Column("good_direction", "better", "text"),
        Column("doc", "meaning", "text"),
        Column("id", "id", "text"),
    )
    rows = [[getattr(spec, column.key) for column in columns] for spec in METRICS.values()]
    return table(columns, rows)


def _plain(value: Any) -> Any:
    """The value of a measure, or the value itself."""
    return value.value if hasattr(value, "reason") else value
