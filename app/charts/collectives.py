"""Collectives of a job: bus bandwidth by message size, and who comes last."""

from __future__ import annotations

from collections import defaultdict

import plotly.graph_objects as go

from steptax.app.charts.style import MAX_POINTS, blank
from steptax.app.charts.tables import Column, Table, table
from steptax.app.compute.collectives.recorded_bandwidth import SizeBandwidth
from steptax.app.format import format_share
from steptax.app.theme import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILLION
from steptax.app.views.collectives.view import CollectivesView

_COLOURS = (BLUE, ORANGE, GREEN, VERMILLION, PURPLE, SKY)
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "star")
#: Lines of the chart; the table has all.
_LINES = 6


def busbw_figure(view: CollectivesView) -> go.Figure | None:
    """Bus bandwidth by message size, a line for each operation of a communicator.

    The lines with most operations are drawn. None where no line has two sizes.
    """
    lines: dict[tuple[str, str], list[SizeBandwidth]] = defaultdict(list)
    for found in view.bandwidth:
        if found.busbw.value:
            lines[found.comm_id, found.op].append(found)
    if not any(len(points) > 1 for points in lines.values()):
        return None
    most = sorted(lines, key=lambda key: (-sum(f.operations for f in lines[key]), key))[:_LINES]
    figure = blank(300, legend=True)
    for place, (comm, op) in enumerate(most):
        points = lines[comm, op][: MAX_POINTS // _LINES]
        name = f"{view.names.get(comm, comm)} {op}"
        figure.add_trace(
            go.Scatter(
                x=[point.bytes for point in points],
                y=[point.busbw.value for point in points],
                name=name if len(name) <= 40 else f"{name[:39]}…",
                mode="lines+markers",
                line={"color": _COLOURS[place], "width": 1.6},
                marker={"symbol": _SYMBOLS[place], "size": 8},
                cliponaxis=False,
                customdata=[point.operations for point in points],
                hovertemplate="%{x:.4~s}B, %{y:.4~g} GB/s, %{customdata:,} times<extra></extra>",
            )
        )
    # A tick for each power of ten: by itself the axis would also write 2, 5, ... between them.
    figure.update_xaxes(title={"text": "message size, bytes"}, type="log", dtick=1, tickformat="~s")
    figure.update_yaxes(title={"text": "busbw, GB/s"}, rangemode="tozero")
    return figure


def bandwidth_table(view: CollectivesView) -> Table:
    """Every operation and size of each communicator, against the communicator's own best."""
    columns = (
        Column("communicator", "communicator", "text", width_px=_name_px(view)),
        Column("op", "operation", "text"),
        Column("bytes", "bytes", "count"),
        Column("n_ranks", "ranks", "count"),
        Column("operations", "times", "count"),
        Column("busbw_gb_per_s", "busbw, GB/s", "number", "by the shortest time over the ranks"),
        Column("share_of_best", "of its best", "ratio", "of the communicator's best busbw"),
        Column(
            "busbw_with_waiting_gb_per_s",
            "with waiting, GB/s",
            "number",
            "by the median time over the ranks, which wait for the last one",
        ),
        Column("note", "note", "text", width_px=300),
    )
    rows = [
        (
            view.names.get(found.comm_id, found.comm_id),
            found.op,
            found.bytes,
            found.n_ranks,
            found.operations,
            found.busbw.value,
            share.value,
            found.busbw_with_waiting.value,
            "; ".join((*found.busbw.warnings, *filter(None, (found.busbw.reason,)))),
        )
        for found, share in zip(view.bandwidth, view.shares_of_best, strict=True)
    ]
    return table(columns, rows)


def arrivals_table(view: CollectivesView) -> Table:
    """Who comes last to each operation of each communicator; those who are named come first."""
    columns = (
        Column("communicator", "communicator", "text", width_px=_name_px(view)),
        Column("op", "operation", "text"),
        Column("late_rank", "late rank", "count"),
        Column("last_in", "last in", "ratio", "share of the joined operations"),
        Column("late_by_us", "late by, µs", "time_span", "median, over the others' median"),
        Column("waiting_us", "peers wait, µs", "time_span", "in all joined operations"),
        Column("place", "where it runs", "text", width_px=200),
        Column("last_by_rank", "last, by rank", "text", width_px=150),
        Column("joined", "on every rank", "count", "operations that every recorded rank has"),
        Column("operations", "operations", "count"),
        Column("recorded", "ranks recorded", "count"),
        Column("n_ranks", "of ranks", "count"),
        Column("note", "why nobody is named", "text", width_px=420),
    )
    order = sorted(
        view.arrivals, key=lambda a: (a.late_rank is None, -(a.waiting.value or 0.0), -a.joined)
    )
    rows = [
        (
            view.names.get(found.comm_id, found.comm_id),
            found.op,
            found.late_rank,
            found.persistence.value,
            found.lateness.value,
            found.waiting.value,
            None if found.late_rank is None else view.place(found.comm_id, found.late_rank),
            ", ".join(f"{rank}: {format_share(part)}" for rank, part in found.last_share[:3]),
            found.joined,
            found.operations,
            len(found.ranks),
            found.n_ranks,
            found.reason or "",
        )
        for found in order
    ]
    # Where no rank is named there is nothing to say of how late it is.
    named = {"late_rank", "last_in", "late_by_us", "waiting_us", "place"}
    kept = [
        i
        for i, column in enumerate(columns)
        if column.key not in named or any(row[i] is not None for row in rows)
    ]
    return table([columns[i] for i in kept], [[row[i] for i in kept] for row in rows])


def _name_px(view: CollectivesView) -> int:
    """Width that the names of communicators need; long ones are cut."""
    found = {one.comm_id for one in view.arrivals} | {one.comm_id for one in view.bandwidth}
    longest = max((len(view.names.get(comm, comm)) for comm in found), default=0)
    return min(300, max(120, 30 + 7 * longest))
