"""Figures and tables of procurement: cost against time, what scale costs, prices by day."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import plotly.graph_objects as go

from steptax.app.charts.style import blank, day_axis
from steptax.app.charts.tables import Column, Kind, Table, table
from steptax.app.charts.times import in_unit, time_unit
from steptax.app.charts.whatif import swings_figure
from steptax.app.compute.bench.compare import Status
from steptax.app.compute.bench.public_scores import ScalePoint
from steptax.app.format import format_measure, format_usd, format_value
from steptax.app.theme import BLUE, GREEN, ORANGE, SKY, VERMILLION, Palette
from steptax.app.views.bench.view import AcceptanceView
from steptax.app.views.pricing.offers import PricePoint
from steptax.app.views.procurement.models import Option, Procurement
from steptax.app.views.procurement.text import COLUMN_TITLES, COVERAGE, SWING_LABELS

_KINDS: dict[str, Kind] = {
    "usd_per_result": "usd",
    "break_even_usd_per_gpu_hour": "usd",
    "straggler_adjusted_usd_per_gpu_hour": "usd",
    "usd_per_pflop_hour": "usd",
    "wait_ratio": "ratio",
}
_TIME = "result_min"
#: Results that take longer are told in hours, as in sentences.
_HOURS_FROM_MIN = 120.0
_STEP = "step_ms"
_UNITS = {
    "speedup": "×",
    "delivered_pflops": "PFLOP/s",
    "gpu_hours_per_result": "",
    "energy_kwh": "kWh",
}
#: Marker of each badge: the shape tells them apart where the colour does not.
_BADGES = {
    "measured": (GREEN, "circle"),
    "published": (BLUE, "diamond"),
    "spec": (ORANGE, "square"),
}
_LINES = (BLUE, ORANGE, VERMILLION, SKY, GREEN)
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash")


def options_table(view: Procurement) -> Table:
    """One line per option, best cost first; the ends of each cost are in the file."""
    names = view.columns
    unit, per_min = _time_unit(view.options)
    of_step = time_unit([o.measures[_STEP].value for o in view.options if _STEP in o.measures])
    units = _UNITS | {_TIME: unit, _STEP: of_step}
    columns = (
        # Price and cost beside the name, also on a telephone.
        Column("name", "option", "text", width_px=170),
        Column("usd_per_gpu_hour", "$/GPU-hour", "usd"),
        *(
            Column(
                {_TIME: f"result_{unit}", _STEP: f"step_{of_step}"}.get(name, name),
                COLUMN_TITLES[name] + (f", {units[name]}" if units.get(name) else ""),
                _KINDS.get(name, "number"),
            )
            for name in names
        ),
        Column("best", "frontier", "text", width_px=70),
        Column("usd_per_result_low", "cost, low end", "usd"),
        Column("usd_per_result_high", "cost, high end", "usd"),
        Column("badge", "rests on", "text", width_px=90),
        Column("price_text", "offer", "text", width_px=320),
        Column("source", "source", "text", width_px=420),
        Column("notes", "notes", "text", width_px=420),
    )
    rows = [_row(option, names, per_min, of_step) for option in view.options]
    return table(columns, rows, note=view.caveat)


def _time_unit(options: Sequence[Option]) -> tuple[str, float]:
    """The unit of the time of a result, by the length of most, and how much of it a minute is."""
    known = [time for option in options if (time := option.measures[_TIME].value) is not None]
    return ("h", 1 / 60) if known and median(known) >= _HOURS_FROM_MIN else ("min", 1.0)


def _row(option: Option, names: Sequence[str], per_min: float, of_step: str) -> list[object]:
    cost = option.measures["usd_per_result"]
    factors = {_TIME: per_min, _STEP: in_unit(1.0, of_step)}
    return [
        option.name,
        None if option.price is None else float(option.price),
        *(
            _times(option.measures[name].value, factors[name])
            if name in factors
            else option.measures[name].value
            for name in names
        ),
        "yes" if option.on_frontier else "",
        cost.low,
        cost.high,
        option.badge,
        option.price_text,
        option.source,
        "; ".join(option.notes),
    ]


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def frontier_figure(view: Procurement, palette: Palette) -> go.Figure | None:
    """Cost of a result against its time; None where no option has both."""
    known = [
        option
        for option in view.options
        if option.measures["usd_per_result"].value is not None
        and option.measures[_TIME].value is not None
    ]
    if not known:
        return None
    figure = blank(360, legend=True)
    unit, per_min = _time_unit(view.options)
    edge = sorted((o for o in known if o.on_frontier), key=lambda o: o.measures[_TIME].value or 0.0)
    figure.add_trace(
        go.Scatter(
            x=[_times(o.measures[_TIME].value, per_min) for o in edge],
            y=[o.measures["usd_per_result"].value for o in edge],
            mode="lines",
            name="no other is both cheaper and faster",
            line={"color": palette.neutral, "dash": "dot", "width": 1.5, "shape": "hv"},
            hoverinfo="skip",
        )
    )
    for badge in _BADGES:
        points = [option for option in known if option.badge == badge]
        if points:
            figure.add_trace(_points(points, badge, per_min))
    figure.update_layout(hovermode="closest", dragmode=False)
    figure.update_xaxes(
        title={"text": f"time of a result, {unit}"}, rangemode="tozero", fixedrange=True
    )
    figure.update_yaxes(title={"text": "cost of a result, $"}, rangemode="tozero", fixedrange=True)
    return figure


def _points(options: Sequence[Option], badge: str, per_min: float) -> go.Scatter:
    colour, symbol = _BADGES[badge]
    costs = [option.measures["usd_per_result"] for option in options]
    return go.Scatter(
        x=[_times(option.measures[_TIME].value, per_min) for option in options],
        y=[cost.value for cost in costs],
        mode="markers+text",
        name=badge,
        # Of many options only those that a reader looks for are named in the figure.
        text=[o.name.split(" · ")[0] if o.on_frontier or o.is_own else "" for o in options],
        # Neighbours on the frontier lie close: their names go to either side.
        textposition=["top center" if i % 2 else "bottom center" for i in range(len(options))],
        cliponaxis=False,
        marker={"color": colour, "symbol": symbol, "size": 11},
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [(c.high or c.value or 0.0) - (c.value or 0.0) for c in costs],
            "arrayminus": [(c.value or 0.0) - (c.low or c.value or 0.0) for c in costs],
            "thickness": 1,
            "width": 4,
        },
        customdata=[
            f"{option.name}<br>{format_measure(cost)} per result<br>"
            f"{format_measure(option.measures[_TIME])}<br>{option.price_text}"
            for option, cost in zip(options, costs, strict=True)
        ],
        hovertemplate="%{customdata}<extra></extra>",
    )


def cost_tornado(view: Procurement, palette: Palette) -> go.Figure | None:
    """What moves the cost of the option that ``view`` names; None where nothing does."""
    option = next((o for o in view.options if o.name == view.tornado_of), None)
    if option is None:
        return None
    cost = option.measures["usd_per_result"]
    title = f"cost on {option.device or option.name}, $"
    return swings_figure(view.tornado, SWING_LABELS, cost.value, cost.unit, title, palette)


def tornado_table(view: Procurement) -> Table:
    """The inputs of the tornado with both ends."""
    columns = (
        Column("input", "input", "text", width_px=220),
        Column("low_input", "input, low", "number"),
        Column("high_input", "input, high", "number"),
        Column("low_output", "cost at low", "usd"),
        Column("high_output", "cost at high", "usd"),
    )
    rows = [
        [SWING_LABELS[s.parameter], s.low_input, s.high_input, s.low_output, s.high_output]
        for s in view.tornado
    ]
    return table(columns, rows)


def scale_figure(points: Sequence[ScalePoint], palette: Palette) -> go.Figure:
    """GPU-hours of the same result over the number of devices, against the fewest."""
    figure = blank(300)
    figure.add_trace(
        go.Scatter(
            x=[p.gpus for p in points],
            y=[p.premium_ratio for p in points],
            mode="lines+markers",
            line={"color": BLUE, "width": 2},
            marker={"size": 9, "color": BLUE},
            customdata=[
                f"{p.gpus:,} devices: {format_value(p.gpu_hours, 'GPU-hours')}, "
                f"{format_value(p.premium_ratio, 'ratio')} more, "
                f"{format_value(p.speedup, 'x')} as fast<br>{p.system}"
                for p in points
            ],
            hovertemplate="%{customdata}<extra></extra>",
        )
    )
    figure.add_hline(y=0, line={"color": palette.neutral, "width": 1})
    figure.update_layout(dragmode=False)
    ticks = [p.gpus for p in points]
    figure.update_xaxes(
        title={"text": "devices"},
        type="log",
        tickmode="array",
        tickvals=ticks,
        ticktext=[f"{n:,}" for n in ticks],
        fixedrange=True,
    )
    figure.update_yaxes(
        title={"text": f"more GPU-hours than on {points[0].gpus:,}"},
        tickformat=".0%",
        fixedrange=True,
    )
    return figure


def scale_table(points: Sequence[ScalePoint]) -> Table:
    """The points of the scale figure."""
    columns = (
        Column("gpus", "devices", "count"),
        Column("train_s", "time, s", "number"),
        Column("gpu_hours", "GPU-hours", "number"),
        Column("premium_ratio", "more GPU-hours", "ratio"),
        Column("speedup", "as fast", "number"),
        Column("system", "fastest system", "text", width_px=420),
    )
    rows = [[getattr(point, column.key) for column in columns] for point in points]
    return table(columns, rows)


def history_figure(points: Sequence[PricePoint], palette: Palette) -> go.Figure:
    """Median price by day, a line per segment; a ring where other offers were seen than before."""
    figure = blank(300, legend=True)
    segments = sorted({p.segment for p in points})
    for place, segment in enumerate(segments):
        own = [p for p in points if p.segment == segment]
        colour, dash = _LINES[place % len(_LINES)], _DASHES[place % len(_DASHES)]
        figure.add_trace(
            go.Scatter(
                x=[p.observed_on for p in own],
                y=[p.usd_per_gpu_hour for p in own],
                mode="lines+markers",
                name=segment,
                line={"color": colour, "dash": dash, "width": 2},
                marker={
                    "size": [12 if p.coverage_changed else 6 for p in own],
                    "symbol": ["circle-open" if p.coverage_changed else "circle" for p in own],
                    "color": colour,
                },
                customdata=[
                    f"{p.observed_on}, {segment}: {format_usd(p.usd_per_gpu_hour)}, "
                    f"{p.offers:,} offers"
                    + (
                        "<br>other offers than the time before: the level may move without a price"
                        if p.coverage_changed
                        else ""
                    )
                    for p in own
                ],
                hovertemplate="%{customdata}<extra></extra>",
            )
        )
    figure.update_layout(hovermode="closest", dragmode=False)
    day_axis(figure, len({point.observed_on for point in points}))
    figure.update_yaxes(
        title={"text": "median, $ per GPU-hour"}, rangemode="tozero", fixedrange=True
    )
    return figure


def history_table(points: Sequence[PricePoint]) -> Table:
    """The points of the price history."""
    columns = (
        Column("observed_on", "day", "text"),
        Column("segment", "segment", "text"),
        Column("usd_per_gpu_hour", "median", "usd"),
        Column("offers", "offers", "count"),
        Column("coverage", "coverage", "text", width_px=240),
    )
    rows = [
        [
            p.observed_on,
            p.segment,
            p.usd_per_gpu_hour,
            p.offers,
            COVERAGE[p.coverage_changed],
        ]
        for p in points
    ]
    return table(columns, rows)


def nodes_table(view: AcceptanceView) -> Table:
    """One line per node of a benchmark run, with its verdict."""
    columns = (
        Column("host", "node", "text", width_px=170),
        Column("status", "verdict", "text"),
        Column("sentence", "why", "text", width_px=520),
        Column("warnings", "notes", "text", width_px=360),
    )
    rows = [[n.host, n.status.value, n.sentence, "; ".join(n.warnings)] for n in view.nodes]
    return table(columns, rows)


def checks_table(view: AcceptanceView) -> Table:
    """Every figure of a run against its basis, worst verdicts first."""
    columns = (
        Column("host", "node", "text", width_px=150),
        Column("gpu", "device", "text", width_px=150),
        Column("test", "test", "text", width_px=130),
        Column("size", "size", "text"),
        Column("dtype", "type", "text"),
        Column("value", "value", "number"),
        Column("unit", "unit", "text"),
        Column("status", "verdict", "text"),
        Column("basis", "against", "text", width_px=190),
        Column("reason", "why", "text", width_px=420),
    )
    order = list(reversed(Status))
    checks = [(node.host, check) for node in view.nodes for check in node.checks]
    checks.sort(key=lambda pair: order.index(pair[1].status))
    rows = [
        [
            host,
            check.figure.device_id,
            check.figure.test,
            check.figure.size,
            check.figure.dtype,
            check.figure.value,
            check.figure.unit,
            check.status.value,
            None if check.basis is None else f"{check.basis.kind.value}, {check.basis.source}",
            check.reason,
        ]
        for host, check in checks
    ]
    return table(columns, rows)
