"""Figures of the What-if page: a step before and after, answers over an input, what matters."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from steptax.app.charts.style import blank, pattern
from steptax.app.charts.times import in_unit, time_unit
from steptax.app.compute.calculators.base import Swing
from steptax.app.format import format_value
from steptax.app.theme import BLUE, ORANGE, SKY, VERMILLION, Palette
from steptax.app.views.whatif.models import Answer, Composition, Curve, Line

#: Colour and pattern of the parts of a step, as in the timeline of a step.
_PARTS = {
    "compute": (BLUE, ""),
    "communication": (SKY, "."),
    "wait": (VERMILLION, "/"),
    "other": ("#8A94A3", "|"),
}
#: Colour and dash of the lines of a curve: the dash tells them apart where the colour does not.
_LINES = ((BLUE, "solid"), (ORANGE, "dash"), (VERMILLION, "dot"))
_BAND_OPACITY = 0.18
_TORNADO_ROWS = 8
#: Units whose axis is in the unit itself; shares are in percent.
_AXIS_UNITS = {"ratio": "", "x": "×", "USD/GPU-hour": "$ per GPU-hour"}


def composition_figure(composition: Composition, palette: Palette) -> go.Figure:
    """Stacked bars: the step before, after, and at the ends of its band."""
    names = [bar.label for bar in composition.bars]
    figure = blank(90 + 58 * len(names), legend=True)
    unit = time_unit([bar.total_ms for bar in composition.bars])
    for place, part in enumerate(composition.parts):
        colour, shape = _PARTS[part]
        values = [bar.values_ms[place] for bar in composition.bars]
        if not any(values):
            continue
        figure.add_trace(
            go.Bar(
                y=names,
                x=[in_unit(value, unit) for value in values],
                name=part,
                orientation="h",
                marker={
                    "color": colour,
                    "line": {"width": 0},
                    "pattern": pattern(shape, palette),
                },
                customdata=[
                    f"{format_value(value, 'ms')}, {format_value(value / bar.total_ms, 'ratio')}"
                    for value, bar in zip(values, composition.bars, strict=True)
                ],
                hovertemplate=f"%{{y}}<br>{part} %{{customdata}}<extra></extra>",
            )
        )
    figure.update_layout(barmode="stack", bargap=0.3, dragmode=False)
    figure.update_xaxes(title={"text": f"{unit} per step"}, rangemode="tozero", fixedrange=True)
    figure.update_yaxes(
        autorange="reversed",
        type="category",
        fixedrange=True,
        tickmode="array",
        tickvals=names,
        ticktext=[
            f"{bar.label}<br><b>{format_value(bar.total_ms, 'ms')}</b>" for bar in composition.bars
        ],
    )
    return figure


def curve_figure(curve: Curve, palette: Palette) -> go.Figure:
    """Lines with their bands, the ceiling where there is one, and where the answer stands."""
    figure = blank(300, legend=True)
    for line, (colour, dash) in zip(curve.lines, _LINES, strict=False):
        if line.low is not None and line.high is not None:
            _band(figure, curve, line, colour)
        figure.add_trace(
            go.Scatter(
                x=curve.x,
                y=line.y,
                name=line.name,
                mode="lines",
                line={"color": colour, "dash": dash, "width": 2, "simplify": False},
                customdata=_spoken(line, curve.y_unit),
                hovertemplate=f"{curve.x_title} %{{x:,.4~g}}<br>{line.name} %{{customdata}}"
                "<extra></extra>",
            )
        )
    if curve.ceiling is not None and curve.ceiling.value is not None:
        figure.add_hline(
            y=curve.ceiling.value,
            line={"color": palette.neutral, "width": 1.5, "dash": "dashdot"},
            annotation={
                "text": f"ceiling {format_value(curve.ceiling.value, curve.y_unit)}",
                "showarrow": False,
            },
            annotation_position="top left",
        )
    if curve.marker is not None:
        _marker(figure, curve, curve.marker, palette)
    figure.update_layout(hovermode="closest", dragmode=False)
    figure.update_xaxes(
        title={"text": curve.x_title}, type="log" if curve.x_is_log else "linear", fixedrange=True
    )
    if curve.x_is_log:
        ticks = _log_ticks(min(curve.x), max(curve.x))
        figure.update_xaxes(
            tickmode="array",
            tickvals=ticks,
            ticktext=[format_value(tick, "") for tick in ticks],
        )
    unit = _AXIS_UNITS.get(curve.y_unit, curve.y_unit)
    # As a word of it: there is an s in every step.
    is_told = not unit or unit in re.split(r"[ ,]+", curve.y_title)
    title = curve.y_title if is_told else f"{curve.y_title}, {unit}"
    figure.update_yaxes(title={"text": title}, fixedrange=True)
    if curve.y_unit == "ratio":
        figure.update_yaxes(tickformat=".4~p")
    return figure


def _log_ticks(low: float, high: float) -> list[float]:
    """Places to label on a logarithmic axis: decades; over less than two of them also 2 and 5."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    between = (1, 2, 5) if high < 100 * low else (1,)
    ticks = [float(f"{digit}e{decade}") for decade in decades for digit in between]
    return [tick for tick in ticks if low * 0.999 <= tick <= high * 1.001]


def _band(figure: go.Figure, curve: Curve, line: Line, colour: str) -> None:
    """A closed area between both ends, at the places where both are known."""
    known = [
        (x, low, high)
        for x, low, high in zip(curve.x, line.low or (), line.high or (), strict=True)
        if low is not None and high is not None
    ]
    x, low, high = zip(*known, strict=True)
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    figure.add_trace(
        go.Scatter(
            x=[*x, *reversed(x)],
            y=[*high, *reversed(low)],
            name="band",
            mode="lines",
            fill="toself",
            fillcolor=f"rgba({red},{green},{blue},{_BAND_OPACITY})",
            line={"width": 0},
            hoverinfo="skip",
        )
    )


def _spoken(line: Line, unit: str) -> list[str]:
    """What hovering says of each point: value and band."""
    lows = line.low or (None,) * len(line.y)
    highs = line.high or (None,) * len(line.y)
    said = []
    for value, low, high in zip(line.y, lows, highs, strict=True):
        text = format_value(value, unit)
        if low is not None and high is not None:
            text += f" ({format_value(low, unit)} to {format_value(high, unit)})"
        said.append(text)
    return said


def _marker(figure: go.Figure, curve: Curve, place: tuple[float, float], palette: Palette) -> None:
    x, y = place
    figure.add_trace(
        go.Scatter(
            x=[x],
            y=[y],
            name="here",
            mode="markers",
            marker={
                "color": palette.background,
                "size": 11,
                "symbol": "diamond",
                "line": {"color": palette.marker, "width": 2},
            },
            customdata=[format_value(y, curve.y_unit)],
            hovertemplate="%{x:,.6~g}<br>%{customdata}<extra></extra>",
        )
    )


def tornado_figure(answer: Answer, palette: Palette) -> go.Figure | None:
    """How far the headline moves with each input, the widest first; None when nothing moves it."""
    headline = answer.headline
    measure = headline.measure
    return swings_figure(
        answer.swings, answer.swing_labels, measure.value, measure.unit, headline.title, palette
    )


def swings_figure(
    swings: Sequence[Swing],
    labels: Mapping[str, str],
    value: float | None,
    unit: str,
    title: str,
    palette: Palette,
) -> go.Figure | None:
    """Bars from ``value`` to both ends of each swing; None when nothing moves it."""
    shown = [
        swing for swing in swings if swing.low_output is not None and swing.high_output is not None
    ][:_TORNADO_ROWS]
    if value is None or not shown:
        return None
    names = [swing.parameter for swing in shown]
    figure = blank(96 + 56 * len(names), legend=True)
    sides = (
        ("input lower", BLUE, "", [(s.low_input, s.low_output) for s in shown]),
        ("input higher", ORANGE, "/", [(s.high_input, s.high_output) for s in shown]),
    )
    for name, colour, shape, ends in sides:
        figure.add_trace(
            go.Bar(
                y=names,
                x=[output - value for _, output in ends if output is not None],
                base=[value] * len(names),
                name=name,
                orientation="h",
                marker={"color": colour, "pattern": pattern(shape, palette), "line": {"width": 0}},
                customdata=[
                    f"{labels[key]}: {format_value(end, '')}<br>"
                    f"{title} {format_value(output, unit)}"
                    for key, (end, output) in zip(names, ends, strict=True)
                ],
                hovertemplate="%{customdata}<extra></extra>",
            )
        )
    figure.add_vline(x=value, line={"color": palette.text, "width": 1})
    figure.update_layout(barmode="overlay", bargap=0.35, dragmode=False)
    figure.update_xaxes(
        title={"text": title},
        tickformat=".4~p" if unit == "ratio" else ",.4~g",
        fixedrange=True,
    )
    figure.update_yaxes(
        autorange="reversed",
        type="category",
        fixedrange=True,
        tickmode="array",
        tickvals=names,
        ticktext=[
            f"{_wrap(labels[s.parameter])}<br>"
            f"{format_value(s.low_input, '')} … {format_value(s.high_input, '')}"
            for s in shown
        ],
    )
    return figure


def _wrap(text: str, width: int = 30) -> str:
    """A long label in lines, so that the bars keep their room."""
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + len(word) >= width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return "<br>".join(lines)
