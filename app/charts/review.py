"""Figures and tables of the cost review: weeks with their budget, why spend changed, anomalies."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta

import plotly.graph_objects as go

from steptax.app.charts.style import DAY_MS, blank, day_axis, pattern
from steptax.app.charts.tables import Column, Table, table
from steptax.app.format import format_measure, format_range, format_usd, format_value
from steptax.app.metrics import METRICS
from steptax.app.theme import BLUE, ORANGE, Palette
from steptax.app.views.fleet.bucket_jobs import BucketJob
from steptax.app.views.review.models import (
    AnomalyRow,
    ForecastRow,
    LearningRow,
    ShowbackRow,
    VarianceView,
    WeekRow,
)

_WEEK_MS = 7 * DAY_MS
#: Names of weeks on the axis, about.
_WEEK_TICKS = 8
_WEEK_FIGURES = (
    "cost_usd",
    "gpu_hours",
    "goodput_ratio",
    "straggler_tax_ratio",
    "straggler_tax_usd",
    "usd_per_billion_tokens",
    "usd_per_checkpoint",
    "recoverable_usd",
)
_KINDS = {"USD": "usd", "ratio": "ratio"}


def spend_metric(weeks: Sequence[WeekRow]) -> str:
    """What the bars are of: dollars where any week tells them, else GPU-hours."""
    known = any(week.figures["cost_usd"].value is not None for week in weeks)
    return "cost_usd" if known else "gpu_hours"


def weeks_figure(weeks: Sequence[WeekRow], palette: Palette) -> go.Figure:
    """Spend by week as bars with the budget as steps; goodput as a line with its own axis."""
    name = spend_metric(weeks)
    unit = METRICS[name].unit
    figure = blank(300, legend=True)
    days = [week.first_day for week in weeks]
    figure.add_trace(
        go.Bar(
            x=days,
            y=[week.figures[name].value for week in weeks],
            name="spend" if unit == "USD" else "GPU-hours",
            marker={"color": palette.neutral},
            customdata=[
                f"week of {week.first_day}: {format_measure(week.figures[name])}"
                + (f" · {week.note}" if week.note else "")
                for week in weeks
            ],
            hovertemplate="%{customdata}<extra></extra>",
        )
    )
    if unit == "USD" and any(week.budget_usd is not None for week in weeks):
        figure.add_trace(
            go.Scatter(
                x=days,
                y=[week.budget_usd for week in weeks],
                name="budget",
                mode="lines+markers",
                line={"color": ORANGE, "width": 2, "dash": "dash", "shape": "hvh"},
                marker={"size": 5},
                customdata=[f"budget {format_usd(week.budget_usd)}" for week in weeks],
                hovertemplate="%{customdata}<extra></extra>",
            )
        )
    goodput = [week.figures["goodput_ratio"] for week in weeks]
    if any(one.value is not None for one in goodput):
        figure.add_trace(
            go.Scatter(
                x=days,
                y=[None if one.value is None else 100 * one.value for one in goodput],
                name="goodput, % (right)",
                mode="lines+markers",
                yaxis="y2",
                line={"color": BLUE, "width": 2},
                customdata=[f"goodput {format_measure(one)}" for one in goodput],
                hovertemplate="%{customdata}<extra></extra>",
            )
        )
        figure.update_layout(
            yaxis2={
                "overlaying": "y",
                "side": "right",
                "range": [0, 105],
                "tickmode": "array",
                "tickvals": [0, 25, 50, 75, 100],
                "showgrid": False,
                "fixedrange": True,
                "automargin": True,
                "ticksuffix": " %",
            }
        )
    first = date.fromisoformat(days[0]) - timedelta(days=4)
    last = date.fromisoformat(days[-1]) + timedelta(days=4)
    figure.update_layout(hovermode="closest", dragmode=False, bargap=0.2)
    every = max(1, round(len(days) / _WEEK_TICKS))
    ticks = {"tickmode": "linear", "tick0": days[0], "dtick": every * _WEEK_MS}  # on Mondays
    day_axis(figure, (last - first).days, range=[str(first), str(last)], **ticks)
    # Room above the highest bar, of which the range of its own choosing leaves none.
    highest = max(
        (value for trace in figure.data if trace.yaxis != "y2" for value in trace.y if value),
        default=1.0,
    )
    # The left axis alone: ``update_yaxes`` would give the shares on the right its range too.
    figure.layout.yaxis.update(
        title={"text": f"{unit} a week"}, range=[0, 1.08 * highest], fixedrange=True
    )
    return figure


def bucket_table(found: Sequence[BucketJob], title: str) -> Table:
    """Jobs by what they have in one bucket."""
    columns = (
        Column("job_id", "job", "text", width_px=260),
        Column("gpu_hours", "GPU-hours", "number", f"in {title}"),
        Column("usd", "cost", "usd", f"of {title}"),
        Column("share", "of the job", "ratio"),
    )
    rows = [[getattr(job, column.key) for column in columns] for job in found]
    return table(columns, rows)


def bin_table(found: Sequence[tuple[str, float]], title: str) -> Table:
    """Jobs in one bar of a histogram."""
    columns = (Column("job_id", "job", "text", width_px=260), Column("value", title, "ratio"))
    return table(columns, [list(pair) for pair in found])


def weeks_table(weeks: Sequence[WeekRow]) -> Table:
    """Every week with its figures; what is not known is empty."""
    columns = (
        Column("week", "week of", "text"),
        Column("days", "days", "count", "days of the week that lie in the period"),
        *(
            Column(
                name,
                METRICS[name].title,
                _KINDS.get(METRICS[name].unit, "number"),  # type: ignore[arg-type]
                METRICS[name].formula,
            )
            for name in _WEEK_FIGURES
        ),
        Column("goodput_ratio_range", "Goodput, interval", "text"),
        Column("budget_usd", "budget", "usd"),
    )
    rows = [
        [
            week.first_day,
            week.days,
            *(week.figures[name].value for name in _WEEK_FIGURES),
            format_range(week.figures["goodput_ratio"]),
            week.budget_usd,
        ]
        for week in weeks
    ]
    note = "spend and GPU-hours with what was paid for and held by no job, where a bill tells"
    sums = {"cost_usd": "USD", "gpu_hours": "GPU-hours"}
    return table(columns, rows, sum_of=sums, note=note)


def variance_figure(view: VarianceView, palette: Palette) -> go.Figure:
    """From the spend before, over each effect, to the spend now."""
    names, bases, sizes, colours, shapes, said = [], [], [], [], [], []

    def bar(name: str, base: float, size: float, colour: str, shape: str, text: str) -> None:
        names.append(name)
        bases.append(base)
        sizes.append(size)
        colours.append(colour)
        shapes.append(shape)
        said.append(text)

    at = float(view.before_usd)
    bar("before", 0.0, at, palette.neutral, "", format_usd(view.before_usd))
    for name, usd, _ in view.effects:
        amount = float(usd)
        text = f"{'+' if amount >= 0 else ''}{format_usd(usd)}"
        is_more = amount > 0
        bar(
            name,
            min(at, at + amount),
            abs(amount),
            palette.loss if is_more else palette.gain,
            "/" if is_more else "",
            text,
        )
        at += amount
    bar("now", 0.0, float(view.after_usd), palette.neutral, "", format_usd(view.after_usd))
    figure = blank(24 + 48 * len(names))
    figure.add_trace(
        go.Bar(
            y=names,
            x=sizes,
            base=bases,
            orientation="h",
            marker={"color": colours, "pattern": pattern(shapes, palette)},
            customdata=said,
            hovertemplate="%{y}<br>%{customdata}<extra></extra>",
        )
    )
    figure.update_layout(bargap=0.25, dragmode=False)
    figure.update_xaxes(visible=False, fixedrange=True, rangemode="tozero")
    figure.update_yaxes(
        autorange="reversed",
        type="category",
        fixedrange=True,
        tickmode="array",
        tickvals=names,
        ticktext=[f"{name}<br><b>{text}</b>" for name, text in zip(names, said, strict=True)],
    )
    return figure


def variance_table(view: VarianceView) -> Table:
    """The effects; they add up to the change."""
    columns = (
        Column("effect", "effect", "text"),
        Column("usd", "USD", "usd"),
        Column("meaning", "meaning", "text", width_px=480),
    )
    rows = [
        ("before", view.before_usd, view.before),
        *view.effects,
        ("now", view.after_usd, view.after),
    ]
    return Table(columns, tuple(rows), note="; ".join(view.notes))


def anomalies_table(rows: Sequence[AnomalyRow]) -> Table:
    """Days on which spend was not what was expected, newest first."""
    money = all(row.unit == "USD" for row in rows)
    kind = "usd" if money else "number"
    unit = "" if money else ", GPU-hours"
    columns = (
        Column("scope", "of", "text", width_px=130),
        Column("first_day", "from", "text"),
        Column("last_day", "to", "text"),
        Column("impact", f"impact{unit}", kind, "actual less expected"),  # type: ignore[arg-type]
        Column("actual", f"actual{unit}", kind),  # type: ignore[arg-type]
        Column("expected", f"expected{unit}", kind, "median of the days before"),  # type: ignore[arg-type]
        Column("low", "range from", kind),  # type: ignore[arg-type]
        Column("high", "range to", kind),  # type: ignore[arg-type]
        Column("driver", "driver", "text", "what moved it most", width_px=380),
        Column("owner", "owner", "text"),
        Column("state", "state", "text"),
    )
    return table(columns, [[getattr(row, column.key) for column in columns] for row in rows])


def showback_table(
    rows: Sequence[ShowbackRow],
    level: str,
    rest: ShowbackRow,
    unmatched: ShowbackRow | None = None,
) -> Table:
    """What each group held and cost; last what was paid for and held by no job, and the rest."""
    columns = (
        Column(level, level, "text"),
        Column("jobs", "jobs", "count"),
        Column("gpu_hours", "GPU-hours", "number"),
        Column("spend_usd", "spend", "usd"),
        Column("recoverable_usd", "recoverable", "usd"),
        Column("note", "note", "text", width_px=380),
    )
    listed = [
        [
            row.name,
            row.jobs,
            row.gpu_hours.value,
            row.spend_usd.value,
            row.recoverable_usd.value,
            "; ".join(dict.fromkeys((*row.gpu_hours.warnings, *row.spend_usd.warnings))),
        ]
        for row in rows
    ]
    if rest.gpu_hours.value is not None:
        listed.append(
            [rest.name, None, rest.gpu_hours.value, rest.spend_usd.value, None, "unallocated"]
        )
        note = None
    else:
        note = f"{rest.name}: {rest.gpu_hours.reason}"
    if unmatched is not None:
        why = unmatched.gpu_hours.reason
        listed.append([unmatched.name, None, None, unmatched.spend_usd.value, None, why])
    return table(
        columns,
        listed,
        sum_of={"gpu_hours": "GPU-hours", "spend_usd": "USD", "recoverable_usd": "USD"},
        note=note,
    )


def learning_table(rows: Sequence[LearningRow]) -> Table:
    """What each job learns for its money."""
    columns = (
        Column("job_id", "job", "text", width_px=200),
        Column("last_loss", "last loss", "number"),
        Column("usd_per_loss", "USD per 0.01 of loss", "usd", "at the present rate"),
        Column("band", "95 % band", "text"),
        Column("spent_usd", "paid", "usd"),
        Column("why", "why not", "text", width_px=260),
        Column("basis", "rests on", "text", width_px=260),
    )
    listed = [
        [
            row.job_id,
            row.last_loss.value,
            row.usd_per_loss.value,
            ""
            if row.usd_per_loss.low is None or row.usd_per_loss.high is None
            else f"{format_usd(row.usd_per_loss.low)} to {format_usd(row.usd_per_loss.high)}",
            row.spent_usd.value,
            row.usd_per_loss.reason or "",
            row.basis,
        ]
        for row in rows
    ]
    return table(columns, listed)


def forecast_table(rows: Sequence[ForecastRow]) -> Table:
    """When each run under way will be done, and what it will have cost, with the band."""
    columns = (
        Column("job_id", "job", "text", width_px=200),
        Column("done_steps", "steps done", "count"),
        Column("target_steps", "planned", "count"),
        Column("ends_at", "done at (95 % band)", "text", width_px=330),
        Column("left_hours", "hours left", "number"),
        Column("left_usd", "left to pay", "usd"),
        Column("at_end_usd", "at completion", "usd"),
        Column("band", "95 % band", "text", width_px=160),
        Column("why", "why not", "text", width_px=260),
    )
    listed = [
        [
            row.job_id,
            row.done_steps,
            row.target_steps,
            row.ends_at,
            row.left_hours.value,
            row.left_usd.value,
            row.at_end_usd.value,
            ""
            if row.at_end_usd.low is None or row.at_end_usd.high is None
            else f"{format_value(row.at_end_usd.low, 'USD')} to "
            f"{format_value(row.at_end_usd.high, 'USD')}",
            row.left_hours.reason or row.at_end_usd.reason or "",
        ]
        for row in rows
    ]
    return table(columns, listed)
