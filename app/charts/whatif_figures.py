"""All figures of an answer, each with its table, in the order in which they are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import plotly.graph_objects as go

from steptax.app.charts.tables import Table
from steptax.app.charts.times import curve_in_unit
from steptax.app.charts.whatif import composition_figure, curve_figure, tornado_figure
from steptax.app.charts.whatif_tables import composition_table, curve_table, tornado_table
from steptax.app.theme import Palette
from steptax.app.views.whatif.models import Answer

_TORNADO_NOTE = (
    "Each input alone: over its measured interval, over all that it can be where it was not given, "
    "else by a tenth either way, or as its range says."
)


@dataclass(frozen=True)
class Drawn:
    """A figure with its title, its table and what is said under it."""

    key: str
    title: str
    figure: go.Figure
    table: Callable[[], Table]
    note: str | None = None


def answer_figures(answer: Answer, palette: Palette) -> tuple[Drawn, ...]:
    """The step in its parts, the answer over its inputs, then what matters most."""
    drawn = []
    if answer.composition is not None:
        drawn.append(
            Drawn(
                "composition",
                "The step before and after",
                composition_figure(answer.composition, palette),
                partial(composition_table, answer.composition),
            )
        )
    drawn += [
        Drawn(
            curve.key,
            curve.title,
            curve_figure(curve, palette),
            partial(curve_table, curve),
            curve.note,
        )
        for curve in map(curve_in_unit, answer.curves)
    ]
    tornado = tornado_figure(answer, palette)
    if tornado is not None:
        drawn.append(
            Drawn(
                "tornado",
                "What matters most",
                tornado,
                partial(tornado_table, answer),
                _TORNADO_NOTE,
            )
        )
    return tuple(drawn)
