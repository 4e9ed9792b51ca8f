"""Collectives of one job: who holds up a hang, who comes last, what bandwidth there is.

A part of the job page that is there only where collectives or communicators are stored. Of a
running job it is a fragment of its own, made anew once a minute: its data may change with every
step.
"""

from __future__ import annotations

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from steptax.app.charts import collectives as charts
from steptax.app.errors import NotFoundError
from steptax.app.views.collectives.text import TITLE, evidence, hang_lines, verdict
from steptax.app.views.collectives.view import CollectivesView
from steptax.pages import data, frame, parts

_ANCHOR = "collectives"


def draw(job_id: str, top: DeltaGenerator, *, is_live: bool) -> None:
    """The section, and a line in ``top`` that leads down to it."""
    if not data.has_collectives(job_id):
        return
    if is_live:
        # What it says may change before the page is drawn anew, so the line does not say it.
        _point(top, "who holds up a hang, and who comes last")
        st.fragment(_section, run_every=data.COLLECTIVES_EVERY_S)(job_id, True)
        return
    view = _section(job_id, False)
    if view is not None:
        _point(top, verdict(view))


def _point(top: DeltaGenerator, text: str) -> None:
    top.caption(f"[:material/hub: {TITLE}](#{_ANCHOR}): {parts.plain(text)}")


def _section(job_id: str, is_live: bool) -> CollectivesView | None:
    st.header(TITLE, anchor=_ANCHOR, divider="gray")
    with frame.guarded("collectives_problem"):
        try:
            view = data.collectives(job_id, is_live=is_live)
        except NotFoundError:
            st.caption("Its rows are gone or not yet whole.")
            return None
        with st.container(key="collectives_verdict"):
            st.markdown(f"**{parts.plain(verdict(view))}**")
        if lines := hang_lines(view):
            st.caption("  \n".join(map(parts.plain, lines)))
        _evidence(view)
        parts.notes(view.warnings, "collectives_notes")
        _bandwidth(view)
        _arrivals(view)
        return view
    return None


def _evidence(view: CollectivesView) -> None:
    found = evidence(view)
    if any(texts for _, texts in found):
        with st.expander("Evidence", icon=":material/fact_check:"):
            for label, texts in found:
                items = "\n".join(f"- {parts.plain(text)}" for text in texts)
                st.markdown(f"**{parts.plain(label)}**\n\n{items}")


def _bandwidth(view: CollectivesView) -> None:
    if not view.bandwidth:
        if view.operations:
            st.caption("Bandwidth is not known: no operation has both its size and its time.")
        return
    parts.section("Bus bandwidth by message size")
    figure = charts.busbw_figure(view)
    if figure is not None:
        parts.figure(
            "busbw",
            figure,
            lambda: charts.bandwidth_table(view),
            alt="Bus bandwidth of collectives by message size, a line for each operation.",
        )
        st.caption(
            "By the shortest time over the ranks, which hardly waits; a size far below its "
            "communicator's best is small, or slow. The table holds each against that best."
        )
    else:
        parts.rows("bandwidth", charts.bandwidth_table(view))
        parts.download("bandwidth", lambda: charts.bandwidth_table(view))


def _arrivals(view: CollectivesView) -> None:
    if not view.arrivals:
        return
    parts.section("Who comes last")
    parts.rows("arrivals", charts.arrivals_table(view))
    parts.download("arrivals", lambda: charts.arrivals_table(view))
