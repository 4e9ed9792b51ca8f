"""One step, rank by rank: which phase took how long, who waited."""

from __future__ import annotations

import plotly.graph_objects as go

from steptax.app.charts.style import blank, pattern
from steptax.app.charts.times import in_unit
from steptax.app.theme import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILLION, YELLOW, Palette
from steptax.app.views.job.models import PhaseBar, StepTimeline

#: Own work first, then what comes once the rank is ready. What no phase covers is taken for own
#: work: gaps of the host, or all of it where phases were not measured.
PHASE_ORDER = (
    "input",
    "h2d",
    "compute",
    "gc",
    "other",
    "checkpoint",
    "collective",
    "communication",
    "unmeasured",
    "wait",
    "transfer",
)

#: Colour and pattern of each phase: the pattern tells them apart where the colour does not.
_LOOK = {
    "input": (ORANGE, "\\"),
    "h2d": (YELLOW, "-"),
    "compute": (BLUE, ""),
    "gc": (PURPLE, "x"),
    "other": ("#8A94A3", "|"),
    "checkpoint": (GREEN, "+"),
    "collective": ("#A6761D", "x"),
    "communication": (SKY, ""),
    "wait": (VERMILLION, "/"),
    "transfer": (SKY, "."),
}

_PARTS = {
    "last to arrive": "last",
    "culprit": "culprit",
    "chosen": "chosen",
    "median": "median",
}

_TITLES = {
    "h2d": "host-to-device copy",
    "gc": "garbage collector",
    "wait": "waiting for peers",
    "collective": "own time in the collective",
}


def phase_title(phase: str) -> str:
    """A phase in words."""
    return _TITLES.get(phase, phase)


def phases_of(timeline: StepTimeline) -> tuple[str, ...]:
    """The phases that any bar has, in the order of drawing."""
    present = {name for bar in timeline.bars for name in bar.phases_ms}
    known = tuple(name for name in PHASE_ORDER if name in present)
    return known + tuple(sorted(present - set(known)))


def timeline_figure(timeline: StepTimeline, palette: Palette, unit: str = "ms") -> go.Figure:
    """Stacked bars, one per rank, from the start of the step."""
    figure = blank(min(760, 110 + 22 * max(4, len(timeline.bars))), legend=True)
    names = [bar_title(bar) for bar in timeline.bars]
    for phase in phases_of(timeline):
        colour, shape = _LOOK.get(phase, (palette.unmeasured, ""))
        figure.add_trace(
            go.Bar(
                y=names,
                x=[
                    None if (ms := bar.phases_ms.get(phase)) is None else in_unit(ms, unit)
                    for bar in timeline.bars
                ],
                name=phase_title(phase),
                orientation="h",
                marker={
                    "color": colour,
                    "line": {"width": 0},
                    "pattern": pattern(shape, palette),
                },
                customdata=[f"{bar.label}, {bar.role}" for bar in timeline.bars],
                hovertemplate=(
                    f"%{{customdata}}<br>{phase_title(phase)} %{{x:,.4~r}} {unit}<extra></extra>"
                ),
            )
        )
    figure.update_layout(barmode="stack", bargap=0.25, hovermode="closest", dragmode="zoom")
    figure.update_xaxes(title={"text": unit}, rangemode="tozero")
    figure.update_yaxes(autorange="reversed", type="category", title={"text": "rank"})
    return figure


def bar_title(bar: PhaseBar) -> str:
    """Rank, and its part in the step where it has one; short, since a telephone is narrow."""
    part = _PARTS.get(bar.role)
    return f"{part} · {bar.rank}" if part else str(bar.rank)
