"""The table behind each figure of the What-if page."""

from __future__ import annotations

from collections.abc import Sequence

from steptax.app.charts.tables import Column, Table, table
from steptax.app.charts.times import in_unit, time_unit
from steptax.app.views.whatif.models import (
    Answer,
    Composition,
    Curve,
    InputField,
    NamedMeasure,
)
from steptax.app.views.whatif.words import plain_value


def composition_table(composition: Composition) -> Table:
    """One line per bar, its parts and its total."""
    unit = time_unit([bar.total_ms for bar in composition.bars])
    parts = (*composition.parts, "total")
    columns = (
        Column("step", "step", "text"),
        *(Column(f"{part}_{unit}", f"{part}, {unit}", "number") for part in parts),
    )
    rows = [
        [bar.label, *(in_unit(value, unit) for value in (*bar.values_ms, bar.total_ms))]
        for bar in composition.bars
    ]
    return table(columns, rows)


def curve_table(curve: Curve) -> Table:
    """One line per place; a band has a column for each end."""
    columns = [Column("x", curve.x_title, "number")]
    held: list[Sequence[float | None]] = [curve.x]
    unit = f", {curve.y_unit}" if curve.y_unit else ""
    for place, line in enumerate(curve.lines):
        named = [(line.name, line.y), (f"{line.name}, low", line.low)]
        named.append((f"{line.name}, high", line.high))
        for part, (title, values) in enumerate(named):
            if values is not None:
                key = f"y{place}{('', '_low', '_high')[part]}"
                columns.append(Column(key, f"{title}{unit}", "number"))
                held.append(values)
    return table(columns, zip(*held, strict=True), note=curve.note)


def tornado_table(answer: Answer) -> Table:
    """One line per input that moves the headline, the widest first."""
    unit = answer.headline.measure.unit
    title = f"{answer.headline.title}, {unit}" if unit else answer.headline.title
    columns = (
        Column("input", "input", "text"),
        Column("from", "from", "number"),
        Column("to", "to", "number"),
        Column("gives_from", f"{title}, from", "number"),
        Column("gives_to", f"{title}, to", "number"),
    )
    return table(
        columns,
        [
            (
                answer.swing_labels[swing.parameter],
                swing.low_input,
                swing.high_input,
                swing.low_output,
                swing.high_output,
            )
            for swing in answer.swings
        ],
    )


def inputs_table(fields: Sequence[InputField]) -> Table:
    """Every input with what it holds and where that came from."""
    columns = (
        Column("input", "input", "text"),
        Column("value", "value", "text"),
        Column("unit", "unit", "text"),
        Column("from", "where it came from", "text"),
        Column("name", "name", "text"),
    )
    return table(
        columns,
        [
            (
                field.label,
                None if field.value is None else plain_value(field.value),
                field.unit or None,
                field.origin_text,
                field.name,
            )
            for field in fields
        ],
    )


def results_table(measures: Sequence[NamedMeasure]) -> Table:
    """Every number of an answer with its ends, or why there is none."""
    columns = (
        Column("result", "result", "text"),
        Column("value", "value", "number"),
        Column("low", "low", "number"),
        Column("high", "high", "number"),
        Column("unit", "unit", "text"),
        Column("level", "rests on", "text"),
        Column("reason", "why unknown", "text"),
        Column("name", "name", "text"),
    )
    return table(
        columns,
        [
            (
                item.title,
                item.measure.value,
                item.measure.low,
                item.measure.high,
                item.measure.unit or None,
                None if item.measure.level is None else item.measure.level.label,
                item.measure.reason,
                item.name,
            )
            for item in measures
        ],
    )
