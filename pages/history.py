"""All steps of a job that is too long for the sections above it."""

from __future__ import annotations

import streamlit as st

from steptax.app.charts.heatmap import columns_note, fit, heat_figure, heat_note
from steptax.app.charts.job_tables import heat_table, history_table, series_table
from steptax.app.charts.series import step_figure
from steptax.app.charts.style import PAGE_BYTES
from steptax.app.charts.times import time_unit
from steptax.pages import data, frame, parts


def draw(job_id: str, *, is_live: bool) -> None:
    """One sentence, who exceeded the peers when, the ranks, the steps; nothing for a small job."""
    with frame.guarded("history_problem"):
        view = data.history(job_id, is_live=is_live)
        if view is None:
            return
        parts.section(f"The whole job: {view.steps:,} steps")
        st.markdown(parts.plain(view.sentence))
        unit = time_unit(view.series.duration_ms, view.unit)
        heat = fit(view.heat, PAGE_BYTES, unit)
        st.caption(
            f"Mean work beyond the peers' mean: {columns_note(heat, view.block_steps)}. From sums "
            f"of all {view.rows:,} rank reports."
        )
        if view.note:
            st.caption(parts.plain(f"{view.note[0].upper()}{view.note[1:]}."))
        left, right = st.columns([3, 2], gap="medium")
        with left:
            parts.figure(
                "history_heat",
                heat_figure(heat, parts.palette(), budget_bytes=PAGE_BYTES, unit=unit),
                lambda: heat_table(view.heat, unit),
                alt=f"Heat map of excess work over the whole job. {view.sentence}",
            )
            if note := heat_note(heat, unit):
                st.caption(note)
        with right:
            parts.rows("history_ranks", history_table(view), height=360)
            parts.download("history_ranks", lambda: history_table(view))
        told = "Step time and the longest work of any rank over the whole job."
        spread = view.spread
        if spread is not None:
            st.caption(parts.plain(spread.sentence))
            told = f"{told} {spread.sentence}"
        parts.figure(
            "history_steps",
            step_figure(
                view.series,
                parts.palette(),
                unit=unit,
                spread_of="" if spread is None else spread.of_what,
                error_ratio=None if spread is None else spread.error_ratio,
            ),
            lambda: series_table(view.series, unit),
            alt=told,
        )
