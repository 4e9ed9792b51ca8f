"""One step of a traced job, operation by operation, and its files."""

from __future__ import annotations

import streamlit as st

from steptax.app.charts import trace_tables as tables
from steptax.app.charts.trace_bars import slowest_step
from steptax.app.charts.trace_gantt import BARS, gantt_figure, shown_ranks, window_of
from steptax.app.format import format_value
from steptax.app.views.trace.gantt import part_of
from steptax.app.views.trace.models import StepGantt, TraceView
from steptax.app.views.trace.view import TraceJob, trace_step
from steptax.pages import frame, parts, reader, state, trace_data


def draw(analysed: TraceJob, view: TraceView, chosen_step: int | None) -> None:
    """The chosen step, else the slowest, recorded above ideal; a box shows a part in detail."""
    if view.steps is None or view.heat is None:
        return
    step = slowest_step(view.steps) if chosen_step is None else chosen_step
    which = "the slowest" if chosen_step is None else "chosen above"
    parts.section(f"Step {step}, operation by operation")
    with st.container(horizontal=True, key="trace_view", vertical_alignment="bottom"):
        ranks = st.multiselect(
            "Ranks",
            [
                str(r)
                for r in sorted({r for row in view.heat.ranks.tolist() for r in row if r >= 0})
            ],
            key=state.TRACE_RANKS,
            bind="query-params",
            placeholder="the slowest pipeline and the fastest",
            width=340,
        )
        low, high = st.slider(
            "Part of the step, %",
            *state.WHOLE_STEP,
            value=state.WHOLE_STEP,
            step=0.1,
            format="%.1f",
            key=state.TRACE_WINDOW,
            bind="query-params",
            width=340,
        )
        st.button(
            "Whole step",
            on_click=_show_whole,
            disabled=(low, high) == state.WHOLE_STEP,
            key="trace_whole",
        )
    with frame.guarded("trace_step_problem"):
        drawn = _drawn(
            analysed, step, tuple(map(int, ranks)) or shown_ranks(view.heat), (low, high)
        )

        def choose_box() -> None:
            box = state.selected_box("trace_gantt")
            if box is not None:
                st.session_state[state.TRACE_WINDOW] = window_of(box, drawn.span_ms)

        parts.figure(
            "trace_gantt",
            gantt_figure(drawn, parts.palette()),
            lambda: tables.gantt_table(drawn),
            alt=(
                f"Operations of step {step} by rank and stream: {drawn.original_ms:,.0f} ms as "
                f"recorded above, {drawn.ideal_ms:,.0f} ms ideal below."
            ),
            on_select=choose_box,
        )
        window = "the whole step"
        if (low, high) != state.WHOLE_STEP:
            begin, end = (format_value(ms, "ms") for ms in drawn.window_ms)
            window = f"{begin} to {end} of {format_value(drawn.span_ms, 'ms')}"
        said = [
            f"Step {step}, {which}; {window}",
            "thick rows compute, thin ones move data; narrow and pale: waiting for peers",
            "drag across the figure to see a part in detail",
            *([drawn.note] if drawn.note else []),
        ]
        st.caption(parts.plain(". ".join(text[:1].upper() + text[1:] for text in said) + "."))
    st.download_button(
        f"Step {step} for Perfetto (Chrome JSON)",
        data=reader.file_for(lambda: trace_data.chrome_file(analysed, step)),
        file_name=f"steptax-{parts.file_word(analysed.job_id)}-step-{step}.json",
        mime="application/json",
        key="trace_chrome",
        icon=":material/timeline:",
        on_click="ignore",
        help="Recorded and ideal as two processes; open it at ui.perfetto.dev",
    )


def _drawn(
    analysed: TraceJob, step: int, ranks: tuple[int, ...], percent: tuple[float, float]
) -> StepGantt:
    window = None
    if percent != state.WHOLE_STEP:
        span = trace_step(analysed, step, ranks=ranks, max_bars=2).span_ms
        window = part_of(span, percent)
    return trace_step(analysed, step, ranks=ranks, window_ms=window, max_bars=BARS)


def _show_whole() -> None:
    st.session_state[state.TRACE_WINDOW] = state.WHOLE_STEP
