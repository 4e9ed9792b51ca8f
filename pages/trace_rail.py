"""The what-if rail: any combination of fixes, answered by one simulation of all together."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import streamlit as st

from steptax.app.charts import trace_tables as tables
from steptax.app.charts.card import about_text, basis_text, value_text
from steptax.app.views.trace.models import RailAnswer, RailFix, RailParameter, TraceView
from steptax.app.views.trace.view import TraceJob, rail_answer
from steptax.pages import frame, parts, state

#: Fixes in columns, by what is done to the work; what is in none goes to the last.
_COLUMNS = (
    ("Like the others", ("ranks", "worst", "stage", "dp", "optype")),
    ("Dealt anew", ("stages", "layers", "microbatches", "gc")),
    ("Faster everywhere", ("kernel", "network", "device")),
)


def draw(analysed: TraceJob, view: TraceView) -> None:
    """Fixes to tick, and what all that are ticked do together; nothing where none can be told."""
    if any(fix.available for fix in view.fixes):
        parts.section("Repair, and see")
        # A fragment of its own: a tick draws nothing else again.
        st.fragment(_rail)(analysed, view)


def _rail(analysed: TraceJob, view: TraceView) -> None:
    with st.container(key="trace_rail"):
        fixes = _choose(view.fixes)
    chosen = state.read()
    with frame.guarded("trace_rail_problem"):
        _say(rail_answer(analysed, fixes, view.price.usd_per_gpu_hour), view.job_id, chosen.price)


def _choose(fixes: Sequence[RailFix]) -> list[str]:
    """The fixes that are ticked, with their parameters, as text."""
    chosen: list[str] = []
    known = {fix.id for fix in fixes if fix.available}
    placed = {name for _, names in _COLUMNS[:-1] for name in names}
    shown = [
        (title, known & set(names) if at < len(_COLUMNS) - 1 else known - placed)
        for at, (title, names) in enumerate(_COLUMNS)
    ]
    shown = [(title, names) for title, names in shown if names]
    if shown:
        columns = st.columns(len(_COLUMNS), gap="medium")
        for column, (title, names) in zip(columns, shown, strict=False):
            with column:
                st.caption(title)
                chosen += [_fix(fix) for fix in fixes if fix.id in names]
    if gone := [fix for fix in fixes if not fix.available]:
        reasons = dict.fromkeys(fix.reason or "" for fix in gone)
        titles = ", ".join(fix.title.lower() for fix in gone)
        st.caption(parts.plain(f"Not for this job: {titles}. {'; '.join(reasons)}."))
    return [fix for fix in chosen if fix]


def _fix(fix: RailFix) -> str:
    """One line of the rail; the fix as text where it is ticked, else empty."""
    ticked = st.checkbox(
        parts.plain(fix.title) + (" :blue-badge[suggested]" if fix.suggested else ""),
        key=state.fix_key(fix.id),
        bind="query-params",
        help=parts.plain(fix.stands_for),
    )
    if not ticked:
        return ""
    if not fix.parameters:
        return fix.fill()
    with st.container(horizontal=True, key=f"trace_fix_{fix.id}"):
        return fix.fill(**{p.name: _parameter(fix, p) for p in fix.parameters})


def _parameter(fix: RailFix, parameter: RailParameter) -> str:
    key = state.fix_key(fix.id, parameter.name)
    label = parts.plain(parameter.label)
    if parameter.kind == "choice":
        return str(
            st.selectbox(
                label,
                parameter.choices,
                index=parameter.choices.index(parameter.default)
                if parameter.default in parameter.choices
                else 0,
                key=key,
                bind="query-params",
                width=210,
            )
        )
    if parameter.kind == "number":
        counts = parameter.low is not None and parameter.low >= 1
        typed = st.number_input(
            label,
            min_value=None if parameter.low is None else float(parameter.low),
            max_value=None if parameter.high is None else float(parameter.high),
            value=float(parameter.default),
            step=1.0 if counts else 0.1,
            format="%g",
            key=key,
            bind="query-params",
            width=150,
        )
        return f"{typed:.0f}" if counts else f"{typed:g}"
    typed_text = st.text_input(
        label,
        value=None,
        key=key,
        bind="query-params",
        placeholder=parameter.default,
        width=210,
    )
    return typed_text.strip() if typed_text and typed_text.strip() else parameter.default


def _say(answer: RailAnswer, job_id: str, price: Decimal | None) -> None:
    with st.container(key="trace_said", border=True):
        if answer.fixes:
            st.markdown(f"**{parts.plain(answer.text)}**")
        else:
            st.markdown("Tick what to repair; all that is ticked is simulated together.")
        worth = answer.recovered
        with st.container(horizontal=True, key="trace_answer"):
            before = (answer.step_before_ms, answer.S_before) if answer.fixes else (None, None)
            _number("Step", answer.step_after_ms, before[0], "step")
            _number("S", answer.S_after, before[1], "S")
            if answer.fixes:
                _number("Comes back", worth.usd_per_day, None, "usd")
                _number("GPU-hours/day", worth.gpu_hours_per_day, None, "hours")
        error = answer.sim_error
        said = [
            f"error of the simulation {value_text(error)}" if error.value is not None else "",
            f"basis: {'per-rank estimate' if answer.basis == 'estimate' else 'dependency graph'}",
            *answer.warnings,
        ]
        st.caption(parts.plain(" · ".join(part for part in said if part)))
        if answer.fixes:
            st.code(_command(answer, job_id, price), language=None, wrap_lines=True)
            parts.download("trace_answer", lambda: tables.answer_table(answer))


def _command(answer: RailAnswer, job_id: str, price: Decimal | None) -> str:
    """The line of a terminal that gives the same numbers."""
    words = ["steptax", "whatif", "fix", "--job", job_id]
    for fix in answer.fixes:
        words += ["--also", fix]
    return shlex.join([*words, *(["--price", str(price)] if price is not None else [])])


def _number(title: str, now: Any, before: Any, key: str) -> None:
    """A number after the repair, and what it was."""
    changed = before is not None and before.value is not None and now.value is not None
    with st.container(key=f"trace_answer_{key}", gap=None, border=True):
        st.metric(
            parts.plain(title),
            parts.plain(value_text(now, title)),
            help=parts.paragraphs(about_text(now, "")),
        )
        if changed and before is not None:
            st.caption(parts.plain(f"now {value_text(before)}"))
        st.caption(parts.plain(basis_text(now)))
