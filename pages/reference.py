"""Reference figures: what studies found, on which clusters, and how it is often misquoted."""

from __future__ import annotations

import streamlit as st

from steptax.app.charts.reference_tables import reference_table
from steptax.app.reference import STUDIES, ReferenceFigure, Study
from steptax.app.reference_figures import reference_figures
from steptax.pages import cause_list, parts

_SENTENCE = (
    "Two studies of stragglers disagree because their clusters differ: compare your own with the "
    "one that is like it."
)


def page() -> None:
    """Draw the straggler studies side by side, the others, their file; then the causes."""
    figures = reference_figures()
    parts.sentence(_SENTENCE)
    st.caption(
        "Primary: read in the publication. Second-hand: quoted by others. What follows from a "
        "figure is computed here, by the command that is named."
    )
    pair = [study for study in STUDIES if study.is_straggler_study]
    for column, study in zip(st.columns(len(pair), gap="medium"), pair, strict=True):
        with column:
            _study(study, figures)
    for study in STUDIES:
        if not study.is_straggler_study:
            _study(study, figures)
    parts.below("reference", lambda: reference_table(figures))
    cause_list.draw()


def _study(study: Study, figures: tuple[ReferenceFigure, ...]) -> None:
    with st.container(key=f"study_{study.key}", border=True):
        parts.section(study.name)
        st.markdown(f"**{parts.plain(study.cluster)}**")
        st.caption(parts.plain(f"{study.who} · {study.scope} · {study.citation}"))
        for figure in figures:
            if figure.study == study.key:
                _figure(figure)


def _figure(figure: ReferenceFigure) -> None:
    colour = "gray" if figure.mark == "primary" else "orange"
    name = parts.plain(f"{figure.figure[:1].upper()}{figure.figure[1:]}")
    lines = [f"{name}: **{parts.plain(figure.value)}** :{colour}-badge[{figure.mark}]"]
    scope = " · ".join(part for part in (figure.scope, figure.where) if part)
    lines.append(f":small[{parts.plain(scope)}]")
    lines += [
        f":material/arrow_forward: {parts.plain(made.text)} :small[`{made.command}`]"
        for made in figure.follows
    ]
    lines += [
        f":material/format_quote: _Often misquoted:_ “{parts.plain(quote.said)}”. "
        f"{parts.plain(quote.right)}"
        for quote in figure.misquotes
    ]
    st.markdown("  \n".join(lines))


if __name__ == "__main__":
    page()
