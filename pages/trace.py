"""What-if of one job: what its stragglers cost, who they are, and what a repair gives back.

A part of the job page with a fragment of its own, so that the refresh of a running job does not
touch it. The analysis takes a second for a hundred thousand operations: of a job at rest it is made
at once, after the rest of the page was sent; of a running one when somebody asks for it, and then
at most once a minute.
"""

from __future__ import annotations

import streamlit as st

from steptax.app.charts import trace_tables as tables
from steptax.app.charts.trace_heat import worker_at, worker_figure
from steptax.app.format import format_share
from steptax.app.metrics import help_of
from steptax.app.views.trace.models import ESTIMATE, TraceView
from steptax.app.views.trace.view import TraceJob, trace_grid
from steptax.pages import (
    bridge,
    frame,
    parts,
    state,
    trace_data,
    trace_ground,
    trace_rail,
    trace_step,
)

TITLE = "What if: this job without its stragglers"
_ANCHOR = "what-if"
_MOVED = "_trace_moved"
_STYLE = """
.st-key-trace_numbers { display: grid; grid-template-columns: repeat(4, 1fr); }
.st-key-trace_answer { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); }
.st-key-trace_numbers > *, .st-key-trace_answer > * { width: auto !important; }
@media (max-width: 900px) { .st-key-trace_numbers { grid-template-columns: repeat(2, 1fr); } }
"""


def pointer(job_id: str) -> None:
    """One line near the top of the page that leads down to the analysis, where there is one."""
    if trace_data.has_operations(job_id):
        st.caption(
            f"[:material/call_split: {TITLE}](#{_ANCHOR}): simulated from its recorded operations"
        )


def draw(job_id: str, *, is_live: bool) -> None:
    """The section: a switch, and what it shows."""
    st.fragment(_section)(job_id, is_live)


def _section(job_id: str, is_live: bool) -> None:
    if st.session_state.pop(_MOVED, False):
        st.rerun()  # the rank in focus is also drawn outside of this fragment
    st.html(f"<style>{_STYLE}</style>")
    st.header(parts.plain(TITLE), anchor=_ANCHOR, divider="gray")
    with frame.guarded("trace_problem"):
        has_operations = trace_data.has_operations(job_id)
        at_once = has_operations and not is_live
        shown = st.toggle(
            "Simulate its recorded operations"
            if has_operations
            else "Estimate from its per-rank times",
            value=at_once,
            key=state.TRACE if at_once else state.TRACE_ON_DEMAND,
            bind="query-params",
            help="A running job is analysed only when asked, and then at most once a minute."
            if is_live
            else None,
        )
        if not shown:
            st.caption(
                "Who slows the job, what it costs, and what any repair would give back, from a "
                "simulation of the dependencies between its operations."
                if has_operations
                else "No operations of this job are stored: its per-rank times give an estimate."
            )
            return
        analysed, view = trace_data.trace(state.read(), job_id, is_live=is_live)
        _answer(view)
        _workers(analysed, view)
        trace_rail.draw(analysed, view)
        trace_ground.draw(view, _step_choice())
        if view.steps is not None:
            trace_step.draw(analysed, view, _step_choice())


def _answer(view: TraceView) -> None:
    with st.container(key="trace_sentence"):
        st.markdown(f"#### {parts.plain(view.sentence)}")
    if view.no_graph is not None:
        st.info(parts.plain(view.no_graph), icon=":material/info:")
    elif view.doubts:
        st.warning(
            "  \n".join(map(parts.plain, ("No verdict.", *view.doubts))), icon=":material/warning:"
        )
    worth = view.recovered
    is_estimate = view.basis == ESTIMATE
    with st.container(horizontal=True, key="trace_numbers"):
        slowdown = view.estimate if is_estimate else view.S
        parts.number("S, estimated" if is_estimate else "S", slowdown, "trace_S", _S_HELP)
        parts.number("Step", view.step_ms, "trace_step", "mean step", help_of("step_ms") or "")
        parts.number("Ideal step", view.ideal_step_ms, "trace_ideal", _IDEAL_HELP)
        parts.number("Waste per day", worth.usd_per_day, "trace_usd", view.price.basis)
        parts.number("GPU-hours/day", worth.gpu_hours_per_day, "trace_hours", _HOURS_HELP)
        if not is_estimate:
            parts.number("Slowest few ranks", view.M_W, "trace_M_W", _MW_HELP)
            parts.number("Last stage", view.M_S, "trace_M_S", _MS_HELP)
            parts.number("Simulation error", view.sim_error, "trace_error", _ERROR_HELP)
    if not view.no_graph:
        with st.container(border=True, key="trace_do", gap="small"):
            st.markdown(f":material/build: **To do:** {parts.plain(view.pattern.next_action)}")
    with st.container(horizontal=True, vertical_alignment="center", key="trace_basis"):
        st.caption(parts.plain(f"{view.steps_note} · {view.price.basis}"), width="content")
        parts.download("trace_numbers", lambda: tables.numbers_table(view))


def _workers(analysed: TraceJob, view: TraceView) -> None:
    left, right = st.columns([3, 2], gap="medium")
    with left:
        if view.heat is not None:
            _grid(analysed, view)
    with right:
        _ranks(view)
        if view.pattern.signs:
            with st.expander("What speaks for it, and what against", icon=":material/balance:"):
                for sign in view.pattern.signs:
                    share = sign.strength.value
                    part = "" if share is None else f", {format_share(share)} of the loss"
                    word = "holds" if sign.holds else "does not hold"
                    st.markdown(
                        f"**{parts.plain(sign.title)}**, {word}{parts.plain(part)}\\: "
                        f"{parts.plain(sign.text)}"
                    )


def _grid(analysed: TraceJob, view: TraceView) -> None:
    if view.steps is not None:
        st.selectbox(
            "Steps in the map",
            [state.ALL_STEPS, *map(str, view.steps.steps.tolist())],
            key=state.TRACE_STEP,
            bind="query-params",
            width=200,
        )
    step = _step_choice()
    grid = trace_grid(analysed, step)
    if grid is None:
        return

    def choose(row: int, column: int) -> None:
        rank = worker_at(grid, row, column)
        if rank is not None:
            _focus(rank)

    parts.figure(
        "trace_heat",
        worker_figure(grid, parts.palette(), chosen=st.session_state.get(state.RANK)),
        lambda: tables.grid_table(grid),
        alt=f"Heat map of slowdown by pipeline stage and data-parallel rank. {grid.text}",
    )
    bridge.on_cell("trace_heat", choose)
    st.caption(
        parts.plain(f"{grid.text}. Framed: the pattern. Click a cell to look at its rank above.")
    )


def _ranks(view: TraceView) -> None:
    def choose() -> None:
        row = state.selected_row("trace_workers")
        if row is not None:
            _focus(view.workers[row].rank)

    if view.workers:
        parts.rows(
            "trace_workers", tables.workers_table(view.workers), on_select=choose, height=250
        )
        parts.download("trace_workers", lambda: tables.workers_table(view.workers))


def _step_choice() -> int | None:
    """The chosen step; None for all."""
    chosen = str(st.session_state.get(state.TRACE_STEP))
    return int(chosen) if chosen.isdecimal() else None


def _focus(rank: int) -> None:
    state.choose_rank(rank)
    st.session_state[_MOVED] = True


_S_HELP = (
    "simulated step / step with every operation at its ideal time (mean or median over all ranks "
    "and steps); Lin et al., OSDI'25"
)
_IDEAL_HELP = "the step with every operation at its ideal time, simulated"
_HOURS_HELP = "GPU-hours that come back in a day of running alike, without stragglers"
_MW_HELP = "share of the loss that goes away when the slowest 3 % of the ranks are repaired"
_MS_HELP = (
    "share of the loss that goes away when the last pipeline stage is like the others; above 100 % "
    "where others are faster than the mean, which makes up for a part of it now"
)
_ERROR_HELP = "difference of simulated and measured mean step; no verdict above 5 %"
