"""Compare: two jobs, or two periods of one, side by side, with a verdict."""

from __future__ import annotations

import shlex
from typing import Final
from urllib.parse import urlencode

import streamlit as st

from steptax.app.charts.side_by_side import compared_figure, differences_table, metrics_table
from steptax.app.views.compare.load import Part
from steptax.app.views.compare.view import Side, SideBySide
from steptax.pages import compare_data, frame, parts, state

#: Job and steps of both sides, in the URL and in the state.
SIDES: Final = {"A": ("a", "a_steps"), "B": ("b", "b_steps")}
_STEPS_HELP = "All steps where it is empty; else 0-119, 120- or -119, both ends included."


def page() -> None:
    """The verdict first, then both sides beside each other."""
    chosen = state.read()
    jobs = compare_data.jobs()
    if not jobs:
        st.info("No job has steps yet: steptax ingest --help lists what can be read.")
        return
    top = st.container()
    with frame.guarded():
        _begin(chosen.job_id if chosen.job_id in jobs else jobs[0])
        a, b = _choose(jobs)
        view = compare_data.compared(a, b, chosen.price)
        with top:
            parts.sentence(view.sentence)
            st.markdown(parts.plain(view.reason))
            frame.coverage(f"{_ground(view.a)} · {_ground(view.b)} · {view.price_text}")
        parts.notes(view.warnings)
        _draw(view)
        _share(view, chosen)


def _begin(job_id: str) -> None:
    """Where neither the reader nor the link named a side: both halves of the job."""
    keys = [key for pair in SIDES.values() for key in pair]
    if any(key in st.session_state or key in st.query_params for key in keys):
        return
    for (job_key, steps_key), part in zip(SIDES.values(), compare_data.start(job_id), strict=True):
        for key, value in ((job_key, part.job_id), (steps_key, part.steps_text)):
            st.session_state[key] = value
            st.query_params[key] = value


def _choose(jobs: list[str]) -> tuple[Part, Part]:
    chosen = []
    for column, (name, (job_key, steps_key)) in zip(st.columns(2), SIDES.items(), strict=True):
        named = st.session_state.get(job_key) or st.query_params.get(job_key)
        options = jobs if named is None or named in jobs else [named, *jobs]
        with column, st.container(horizontal=True, vertical_alignment="bottom"):
            job_id = st.selectbox(
                f"Job {name}", options, key=job_key, bind="query-params", width=260
            )
            steps = st.text_input(
                f"Steps of {name}",
                key=steps_key,
                bind="query-params",
                placeholder="all",
                help=_STEPS_HELP,
                width=140,
            )
        chosen.append(compare_data.part(job_id, steps or "", f"Steps of {name}"))
    return chosen[0], chosen[1]


def _ground(side: Side) -> str:
    return f"{side.label}: {len(side.steps):,} steps used"


def _draw(view: SideBySide) -> None:
    for column, name, side in zip(st.columns(2), SIDES, (view.a, view.b), strict=True):
        with column, st.container(border=True, key=f"side_{name}"):
            parts.section(f"{name}: {side.label}")
            st.markdown(parts.plain(side.culprit))
    parts.figure(
        "compared",
        compared_figure(view),
        lambda: metrics_table(view),
        alt=f"Step time of both sides over their steps. {view.sentence}",
    )
    parts.section("Side by side")
    parts.rows("compared_metrics", metrics_table(view))
    if view.differs:
        parts.section("What differs between the jobs")
        parts.rows("compared_fields", differences_table(view))
    st.caption(
        "Faster or slower is only said beyond the noise: from step to step, and between runs that "
        "are alike. Periods of all jobs together are compared on the Executive review."
    )


def _share(view: SideBySide, chosen: state.Selection) -> None:
    """The same comparison in a terminal, and as a link."""
    parts.section("Take it along")
    words = ["steptax", "compare", view.a.part.text, view.b.part.text]
    query: dict[str, str] = {}
    for (job_key, steps_key), side in zip(SIDES.values(), (view.a, view.b), strict=True):
        query[job_key] = side.part.job_id
        if side.part.steps_text:
            query[steps_key] = side.part.steps_text
    if chosen.price is not None:
        words += ["--price", f"{chosen.price:f}"]
        query[state.PRICE] = f"{chosen.price:f}"
    st.caption("Copy command: it gives the same numbers in a terminal.")
    st.code(shlex.join(words), language=None, wrap_lines=True)
    st.caption("Copy link: it opens this comparison.")
    url = (st.context.url or "").split("?")[0]
    st.code(f"{url}?{urlencode(query)}", language=None, wrap_lines=True)


if __name__ == "__main__":
    page()
