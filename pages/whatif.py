"""What-if: what would happen to a step, a bill or a run if something were different."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import streamlit as st

from steptax.app.charts.whatif_tables import inputs_table
from steptax.app.views.whatif.inputs import start_fields
from steptax.app.views.whatif.job import JobInputs
from steptax.app.views.whatif.models import InputField, WhatIfView
from steptax.app.views.whatif.view import calculator_titles, whatif_view
from steptax.pages import (
    frame,
    parts,
    state,
    whatif_answer,
    whatif_data,
    whatif_state,
    whatif_trace,
)

# An empty field stands for the value in it, so that stepping from nothing would start at zero.
_STYLE = """
.st-key-whatif_inputs [data-testid="stNumberInputStepDown"],
.st-key-whatif_inputs [data-testid="stNumberInputStepUp"] { display: none; }
.st-key-whatif_inputs input::placeholder { color: inherit; opacity: 0.72; }
.st-key-whatif_inputs [data-testid="stCaptionContainer"] { margin-top: -0.6rem; }
"""


def page() -> None:
    """Draw the chosen calculator: inputs at the side, the answer first."""
    st.html(f"<style>{_STYLE}</style>")
    chosen = state.read()
    top = st.container(key="whatif_top")
    name, source, on_trace = _choose(chosen)
    left, right = st.columns([9, 11], gap="large")
    with left:
        given = whatif_state.typed_names(name)
        fields = start_fields(name, given, source=source, price=chosen.price)
        typed, slots = _inputs(name, fields, given)
    view: WhatIfView | None = None
    with top, frame.guarded():
        view = whatif_view(name, typed, source=source, price=chosen.price)
    if view is None:
        return
    for field in view.fields:
        slots[field.name].caption(parts.plain(field.origin_text))
    with left:
        parts.download("inputs", lambda: inputs_table(view.fields))
    with top:
        whatif_answer.say(view)
        traced = whatif_trace.analysed(chosen) if on_trace else None
        if traced is not None:
            whatif_trace.draw(view, traced, chosen)
    if view.answer is not None:
        with right:
            whatif_answer.numbers(view.answer)
        whatif_answer.figures(view.answer)
    whatif_answer.ground(view)
    whatif_answer.share(view, chosen, from_job=source is not None)


def _choose(chosen: state.Selection) -> tuple[str, JobInputs | None, bool]:
    """Calculator, the job's measurements where asked for, whether its trace answers too."""
    titles = calculator_titles()
    whatif_state.start_with_calculator(list(titles), lambda: whatif_data.first(chosen))
    with st.container(horizontal=True, key="whatif_choice", vertical_alignment="bottom"):
        name = st.selectbox(
            "Calculator",
            list(titles),
            format_func=lambda name: titles[name],
            key=whatif_state.CHOICE,
            persist_state="session",
            width=340,
        )
        from_job = st.toggle(
            "Start from this job",
            value=whatif_data.has_steps(chosen.job_id),
            key=whatif_state.FROM_JOB,
            bind="query-params",
            disabled=chosen.job_id is None,
            help="Fill the inputs with what the job chosen above measured in its window.",
        )
        with frame.guarded("whatif_trace_switch"):
            on_trace = whatif_trace.choose(name, chosen)
    whatif_state.keep_calculator(name)
    if not from_job or chosen.job_id is None:
        return name, None, on_trace
    with frame.guarded():
        return name, whatif_data.inputs(chosen, chosen.job_id), on_trace
    return name, None, on_trace


def _inputs(
    name: str, fields: Sequence[InputField], given: Collection[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Widgets for all inputs: what was typed, and where each one's origin is to be said."""
    typed: dict[str, Any] = {}
    slots: dict[str, Any] = {}

    def draw(shown: Sequence[InputField]) -> None:
        for first in range(0, len(shown), 2):
            for column, field in zip(st.columns(2), shown[first : first + 2], strict=False):
                with column:
                    typed[field.name] = _widget(name, field)
                    slots[field.name] = st.empty()

    rest = [field for field in fields if not field.is_main]
    with st.container(key="whatif_inputs", gap="small"):
        draw([field for field in fields if field.is_main])
        if rest:
            is_open = any(field.name in given for field in rest)
            with st.expander("More inputs", expanded=is_open, icon=":material/tune:"):
                draw(rest)
    return typed, slots


def _widget(name: str, field: InputField) -> Any:
    """An input that is empty until somebody types; it shows what is used meanwhile."""
    common: dict[str, Any] = {
        "label": parts.plain(field.label),
        "key": whatif_state.input_key(name, field.name),
        "bind": "query-params",
        "placeholder": field.text or ("needed" if field.required else "not given"),
        "help": parts.paragraphs(field.help),
    }
    if field.kind == "choice":
        return st.selectbox(options=field.choices, index=None, **common)
    if field.kind in {"text", "reals"}:
        return st.text_input(value=None, **common)
    if field.kind == "int":
        return st.number_input(value=None, step=1, format="%d", **common)
    return st.number_input(value=None, step=0.01, format="%.10g", **common)


if __name__ == "__main__":
    page()
