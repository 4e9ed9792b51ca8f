"""Where the slowness of a traced job is: by operation, stage, data-parallel rank, step, repair."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import streamlit as st

from steptax.app.charts import trace_tables as tables
from steptax.app.charts.trace_bars import column_figure, series_figure, type_figure, worst_figure
from steptax.app.views.trace.models import TraceBar, TraceView
from steptax.pages import parts


def draw(view: TraceView, chosen_step: int | None) -> None:
    """What alone makes the job slow; its steps; the slowest ranks repaired one after another."""
    if view.by_optype:
        _alone(view)
    left, right = st.columns(2, gap="medium")
    series = view.steps
    if series is not None:
        with left:
            parts.section("Step by step")
            parts.figure(
                "trace_series",
                series_figure(series, parts.palette(), chosen_step=chosen_step),
                lambda: tables.steps_table(series),
                alt="Each analysed step as measured, simulated, and ideal.",
            )
    if view.worst_k:
        with right if series is not None else left:
            parts.section("Repairing the slowest ranks")
            parts.figure(
                "trace_worst",
                worst_figure(view.worst_k, view.step_ms, parts.palette()),
                lambda: tables.curve_table(view.worst_k),
                alt="Step time with the slowest one, two, three and more ranks repaired together.",
            )
    parts.notes([text for text in view.warnings if text != view.no_graph], "trace_notes")


def _alone(view: TraceView) -> None:
    parts.section("What alone makes it slow")
    left, right = st.columns([3, 2], gap="medium")
    with left:
        parts.figure(
            "trace_types",
            type_figure(view.by_optype, parts.palette()),
            lambda: tables.bars_table(view.by_optype, "operation"),
            alt="Slowdown that is left when all but one type of operation is ideal.",
        )
    with right:
        _columns("trace_stages", "pipeline stage", view.by_stage)
        _columns("trace_dps", "data-parallel rank", view.by_dp_rank)
    said = [
        "Everything else is ideal: 1 means that it costs nothing",
        "Striped: it costs something",
        "Whiskers: 95 % over the steps, and the error of the simulation",
        *([view.bars_note] if view.bars_note else []),
    ]
    st.caption(parts.plain(". ".join(said) + "."))


def _columns(key: str, title: str, bars: Sequence[TraceBar]) -> None:
    if bars:
        parts.figure(
            key,
            column_figure(bars, parts.palette(), title),
            partial(tables.bars_table, bars, title),
            alt=f"Slowdown that is left when all but one {title} is ideal.",
        )
