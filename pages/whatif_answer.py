"""The answer of a calculator: sentence, numbers, figures, what it rests on, how to keep it."""

from __future__ import annotations

import streamlit as st

from steptax.app.charts import whatif_tables as tables
from steptax.app.charts.card import Field, value_text
from steptax.app.charts.whatif_figures import answer_figures
from steptax.app.format import format_interval
from steptax.app.views.whatif.models import Answer, WhatIfView
from steptax.app.views.whatif.words import invented_text
from steptax.pages import parts, state, whatif_state


def say(view: WhatIfView) -> None:
    """The answer in one sentence, or which inputs it needs."""
    if view.answer is not None:
        parts.sentence(f"{invented_text(view.fields)}{view.answer.sentence}")
        if view.answer.step_by_step is not None:
            st.markdown(parts.plain(view.answer.step_by_step.text))
        return
    lacking = "  \n".join(
        f"**{parts.plain(field.label)}** · {parts.plain(field.origin_text)}"
        for field in view.missing
    )
    st.info(f"Type what is not known, and the answer appears:  \n{lacking}")


def numbers(answer: Answer) -> None:
    """The headline with its band first, then every other number."""
    headline = answer.headline
    measure = headline.measure
    value = value_text(measure)
    with st.container(key="whatif_headline", border=True, gap=None):
        st.metric(
            parts.plain(f"{headline.title[:1].upper()}{headline.title[1:]}"),
            parts.plain(answer.band or value),
        )
        said = [f"{value} with the inputs as they stand"] if answer.band else []
        said += [answer.band_note] if answer.band_note else []
        said += [measure.level.label] if measure.level is not None else []
        st.caption(parts.plain(" · ".join(said) or "with the inputs as they stand"))
    others = [item for item in answer.measures if item.name != headline.name]
    parts.card(
        [
            Field(
                item.name,
                item.title,
                item.measure.reason or ""
                if item.measure.value is None
                else value_text(item.measure),
                format_interval(item.measure) or "",
                "; ".join(item.measure.warnings) or None,
                item.measure.value is None,
            )
            for item in others
        ]
    )
    parts.download("results", lambda: tables.results_table(answer.measures))


def figures(answer: Answer) -> None:
    """Two in a row: the step in its parts, the answer over its inputs, what matters most."""
    drawn = answer_figures(answer, parts.palette())
    for first in range(0, len(drawn), 2):
        columns = st.columns(2, gap="large") if len(drawn) > 1 else [st.container()]
        for column, one in zip(columns, drawn[first : first + 2], strict=False):
            with column:
                parts.section(one.title)
                parts.figure(one.key, one.figure, one.table, alt=f"{one.title}. {answer.sentence}")
                if one.note:
                    st.caption(parts.plain(one.note))


def ground(view: WhatIfView) -> None:
    """What the answer rests on, and how it can mislead."""
    parts.section("How it is computed")
    st.code(view.formula, language=None, wrap_lines=True)
    st.markdown(parts.plain(view.about))
    st.caption(parts.plain(f"Source: {view.source}"))
    parts.notes(view.warnings)
    if view.traps:
        parts.section("How it misleads")
        for trap in view.traps:
            source = f" ({trap.source})" if trap.source else ""
            st.markdown(f"- {parts.plain(trap.text + source)}")


def share(view: WhatIfView, chosen: state.Selection, *, from_job: bool) -> None:
    """The same answer in a terminal, and as a link."""
    parts.section("Take it along")
    st.caption("Copy command: it gives the same numbers in a terminal.")
    st.code(view.command, language=None, wrap_lines=True)
    link = whatif_state.link(view.name, view.typed, chosen, job=from_job)
    st.caption("Copy link: it opens this scenario.")
    st.code(f"{(st.context.url or '').split('?')[0]}?{link}", language=None, wrap_lines=True)
