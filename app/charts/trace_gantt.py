"""One step as bars, as it was recorded above and as it would ideally have been below.

Each rank has a band: its compute stream is a thick row, its transfers and the end of the step are
thin rows under it. The time in which an operation only waits for its peers is drawn apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from steptax.app.charts.style import blank, pattern
from steptax.app.format import format_value
from steptax.app.theme import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILLION, YELLOW, Palette
from steptax.app.views.trace.models import GanttBars, GanttLane, StepGantt, WorkerGrid

BARS = 2_800
"""Bars of both timelines to ask for; each may become two, one of them waiting."""

Places = npt.NDArray[np.float64]

#: Kinds of operations with colour and pattern: the pattern tells them apart where colour does not.
_FORWARD, _BACKWARD = ("forward", BLUE, ""), ("backward", GREEN, "\\")
_FORWARD_MOVE = ("forward transfers", SKY, ".")
_BACKWARD_MOVE = ("backward transfers", PURPLE, "-")
_DP = ("data-parallel collectives", ORANGE, "x")
_TAIL = ("end of step", YELLOW, "+")
_OTHER = "other computing"
_KINDS = {
    "forward-compute": _FORWARD,
    "backward-compute": _BACKWARD,
    "forward-send": _FORWARD_MOVE,
    "forward-recv": _FORWARD_MOVE,
    "backward-send": _BACKWARD_MOVE,
    "backward-recv": _BACKWARD_MOVE,
    "params-all-gather": _DP,
    "grads-reduce-scatter": _DP,
    "separate-grads-all-reduce": _DP,
    "gc": _TAIL,
    "layernorm-grads-all-reduce": _TAIL,
    "embedding-grads-all-reduce": _TAIL,
    "optimizer-clip-main-grad": _TAIL,
    "optimizer": _TAIL,
}
_ORDER = (_FORWARD, _BACKWARD, _FORWARD_MOVE, _BACKWARD_MOVE, _DP, _TAIL)
_COMPUTE = "compute"
_THICK, _THIN, _BETWEEN = 1.0, 0.34, 0.35
_UNIT_PX = 17
_MOST_PX = 940
#: Stages of each pipeline that are drawn unless somebody chooses ranks.
_STAGES = 4
_WAITING = "waiting for peers"
#: A wait of less than this share of the window is not to be seen.
_VISIBLE = 1 / 2_000


def gantt_figure(gantt: StepGantt, palette: Palette) -> go.Figure:
    """Both timelines over one time axis that starts where the step does."""
    middle, thick, bands, height = _rows(gantt.lanes)
    each = min(_UNIT_PX * height, (_MOST_PX - 130) / 2)
    figure = blank(int(2 * each + 150), legend=True)
    seen: set[str] = set()
    for bars, axis in ((gantt.original, "y"), (gantt.ideal, "y2")):
        for trace in _traces(gantt, bars, middle, thick, palette):
            trace.update(yaxis=axis, showlegend=trace["name"] not in seen)
            seen.add(trace["name"])
            figure.add_trace(go.Bar(trace))
    low, high = gantt.window_ms
    figure.update_layout(
        barmode="overlay",
        bargap=0.0,
        hovermode="closest",
        # A box chooses what is shown in detail.
        dragmode="select",
        selectdirection="h",
        uirevision=f"{gantt.step} {low:g} {high:g}",
        yaxis={"domain": [0.52, 1.0], **_lane_axis(bands, height)},
        yaxis2={"domain": [0.0, 0.48], "anchor": "x", **_lane_axis(bands, height)},
        xaxis={
            "title": {"text": "ms from the begin of the step"},
            "range": [low, high],
            "anchor": "y2",
            "tickformat": ",",
            "fixedrange": False,
        },
    )
    for name, length_ms, axis in (
        ("as recorded", gantt.original_ms, "yaxis"),
        ("ideal", gantt.ideal_ms, "yaxis2"),
    ):
        # At the side: above it would meet the legend, whose height depends on the screen.
        figure.layout[axis].title = {"text": f"<b>{name}</b> {format_value(length_ms, 'ms')}"}
        if low <= length_ms <= high:
            figure.add_shape(
                type="line",
                x0=length_ms,
                x1=length_ms,
                xref="x",
                y0=0,
                y1=1,
                yref=f"{axis.replace('axis', '')} domain",
                line={"color": palette.marker, "width": 2, "dash": "dot"},
            )
    return figure


def shown_ranks(grid: WorkerGrid) -> tuple[int, ...]:
    """Ranks to draw where nobody chose: the slowest worker's pipeline, the fastest, then slow ones.

    Of long pipelines the stages around the slowest worker.
    """
    known = np.where(grid.ranks >= 0, np.nan_to_num(grid.slowdown, nan=-np.inf), -np.inf)
    hot_stage = int(np.unravel_index(int(known.argmax()), known.shape)[0])
    first = max(0, min(hot_stage - _STAGES // 2, known.shape[0] - _STAGES))
    rows = slice(first, first + _STAGES)
    order = np.argsort(-known.max(axis=0), kind="stable")
    order = np.concatenate((order[:1], order[-1:], order[1:-1]))[: len(order)]
    columns = order[: max(2, 2 * _STAGES // known[rows].shape[0])]
    return tuple(int(rank) for rank in grid.ranks[rows][:, columns].T.ravel() if rank >= 0)


def window_of(box: tuple[Sequence[float], Sequence[float]], span_ms: float) -> tuple[float, float]:
    """The part of the step, in percent, that a box drawn in the figure covers."""
    first, last = sorted(box[0][:2])
    low = min(max(0.0, 100.0 * first / span_ms), 99.9)
    high = max(min(100.0, 100.0 * last / span_ms), low + 0.1)
    return round(low, 1), round(high, 1)


def _rows(
    lanes: Sequence[GanttLane],
) -> tuple[Places, Places, list[tuple[float, str]], float]:
    """Middle and thickness of each lane [L]; middle and name of each rank's band; total height."""
    middle, thick = np.zeros(len(lanes)), np.zeros(len(lanes))
    bands: list[tuple[float, str]] = []
    at = 0.0
    for place, lane in enumerate(lanes):
        size = _THICK if lane.stream == _COMPUTE else _THIN
        if place == 0 or lanes[place - 1].rank != lane.rank:
            at += _BETWEEN if place else 0.0
            bands.append((at + size / 2, f"{lane.rank} · PP {lane.stage} DP {lane.dp}"))
        middle[place], thick[place] = at + size / 2, size
        at += size
    return middle, thick, bands, at


def _lane_axis(bands: Sequence[tuple[float, str]], height: float) -> dict[str, Any]:
    return {
        "range": [height, 0.0],
        "tickmode": "array",
        "tickvals": [place for place, _ in bands],
        "ticktext": [name for _, name in bands],
        "showgrid": False,
        "zeroline": False,
        "fixedrange": True,
        "automargin": True,
    }


def _traces(
    gantt: StepGantt, bars: GanttBars, middle: Places, thick: Places, palette: Palette
) -> list[dict[str, Any]]:
    """One trace for each kind of operation, and one for all waiting."""
    out = []
    least = _VISIBLE * (gantt.window_ms[1] - gantt.window_ms[0])
    length = bars.end_ms - bars.start_ms
    wait = np.minimum(bars.wait_ms, length)
    # Where in a bar of many operations their waiting lies is not known: it counts for all of it.
    wait = np.where(bars.merged > 1, np.where(wait > length / 2, length, 0.0), wait)
    wait = np.where(wait >= least, wait, 0.0)
    begin = bars.start_ms + wait
    said = _said(gantt, bars)
    kinds = [_KINDS.get(name, (_OTHER, palette.neutral, "/")) for name in gantt.op_types]
    is_work = ~((wait > 0) & (wait >= length))
    for kind in sorted(set(kinds), key=lambda kind: [*_ORDER, kind].index(kind)):
        types = [number for number, found in enumerate(kinds) if found == kind]
        places = np.flatnonzero(np.isin(bars.op_type, types) & is_work)
        if len(places):
            lane = bars.lane[places]
            out.append(
                _bar(*kind, palette)
                | {
                    "base": begin[places].astype(np.float32),
                    "x": (bars.end_ms[places] - begin[places]).astype(np.float32),
                    "y": middle[lane].astype(np.float32),
                    "width": 0.92 * thick[lane].astype(np.float32),
                    "customdata": [said[i] for i in places.tolist()],
                    "hovertemplate": "%{customdata}<extra></extra>",
                }
            )
    places = np.flatnonzero(wait > 0)
    if len(places):
        lane = bars.lane[places]
        out.append(
            _bar(_WAITING, VERMILLION, "/", palette)
            | {
                "base": bars.start_ms[places].astype(np.float32),
                "x": wait[places].astype(np.float32),
                "y": middle[lane].astype(np.float32),
                "width": 0.5 * thick[lane].astype(np.float32),
                "opacity": 0.55,
                "customdata": [f"waits for peers<br>{said[i]}" for i in places.tolist()],
                "hovertemplate": "%{customdata}<extra></extra>",
            }
        )
    return out


def _bar(name: str, colour: str, shape: str, palette: Palette) -> dict[str, Any]:
    return {
        "name": name,
        "legendgroup": name,
        "orientation": "h",
        "marker": {"color": colour, "line": {"width": 0}, "pattern": pattern(shape, palette)},
    }


def _said(gantt: StepGantt, bars: GanttBars) -> list[str]:
    """What hovering says of each bar."""
    out = []
    for name, lane, micro, start, end, wait in zip(
        bars.name,
        bars.lane.tolist(),
        bars.micro_batch.tolist(),
        bars.start_ms.tolist(),
        bars.end_ms.tolist(),
        bars.wait_ms.tolist(),
        strict=True,
    ):
        text = f"{name} · rank {gantt.lanes[lane].rank}"
        if micro >= 0:
            text += f" · micro-batch {micro}"
        text += f"<br>{end - start:,.4g} ms from {start:,.1f}"
        out.append(text + (f", {wait:,.3g} waiting" if wait > 0 else ""))
    return out
