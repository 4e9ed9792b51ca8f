"""What stands around every page: choices, coverage, and what is said when there is nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import streamlit as st

from steptax.app.errors import NotFoundError, SteptaxError
from steptax.pages import data, first_run, parts, state

# The page begins right under the navigation; the default leaves a sixth of a screen empty. A live
# page would blink if what is being replaced were dimmed. Captions and labels of resting choices are
# paler by default than what people with weak eyes can read (WCAG 2.2, 1.4.3).
_STYLE = """
.stMainBlockContainer { padding-top: 4rem; padding-bottom: 3rem; }
[data-stale="true"] { opacity: 1 !important; transition: none !important; }
.st-key-kpis, .st-key-kpis_budget, .st-key-bill_numbers {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(148px, 1fr));
}
.st-key-kpis > *, .st-key-kpis_budget > *, .st-key-bill_numbers > * { width: auto !important; }
[data-testid="stMetricValue"] *, [data-testid="stMetricLabel"] * {
  white-space: normal !important; overflow: visible !important;
}
[data-testid="stCaptionContainer"], [data-testid="stWidgetLabel"] { color: inherit !important; }
[data-testid="stCaptionContainer"] { opacity: 0.82 !important; }
[data-testid="stPopoverBody"] { min-width: min(40rem, 92vw); }
@media (max-width: 640px) { .stMainBlockContainer { padding-left: 1rem; padding-right: 1rem; } }
"""


def strip(*, is_job: bool, is_live: bool, needs_job: bool) -> bool:
    """Draw job, window and price; False where there is no job to show.

    On a page about many jobs, job and window rest: they keep what was chosen. Only a page that
    ``is_live`` draws itself anew. Where a page ``needs_job`` and there is none, that is said.
    """
    st.html(f"<style>{_STYLE}</style>")
    jobs = _jobs()
    if not jobs:
        if needs_job:
            _nothing_yet()
        return False
    state.start_with_job(jobs[0])
    told = data.settings().price_usd_per_gpu_hour
    rest = None if is_job else "a choice for the job page; open a job by its row"
    with st.container(horizontal=True, key="strip", vertical_alignment="bottom"):
        st.selectbox(
            "Job",
            # Where it rests, the chosen one is enough: fifty thousand ids are a megabyte.
            state.job_options(jobs if is_job else jobs[:1]),
            index=None,
            key=state.JOB,
            bind="query-params",
            disabled=not is_job,
            help=rest,
            width=340,
        )
        st.selectbox(
            "Window, last steps",
            state.WINDOWS,
            index=state.WINDOWS.index(state.DEFAULT_WINDOW),
            key=state.WINDOW,
            bind="query-params",
            disabled=not is_job,
            help=rest,
            width=150,
        )
        st.number_input(
            "Price per GPU-hour, USD",
            min_value=0.0001,
            value=None if told is None else float(told),
            step=0.1,
            format="%.4g",
            key=state.PRICE,
            bind="query-params",
            placeholder="set a price",
            help="Empty: no price is assumed, and amounts in dollars are unknown.",
            width=190,
        )
        if is_live:
            st.toggle(
                "Live",
                value=True,
                key=state.LIVE,
                bind="query-params",
                help=f"Draw anew every {data.LIVE_EVERY_S} s while the job runs.",
            )
    return True


def coverage(text: str) -> None:
    """What the numbers of the page rest on, in one line."""
    with st.container(key="coverage"):
        st.caption(parts.plain(text))


@contextlib.contextmanager
def guarded(key: str = "problem") -> Iterator[None]:
    """Show an error that Steptax raised on purpose as a message; ``key`` is once on a page."""
    try:
        yield
    except SteptaxError as problem:
        parts.error(problem, key)


def wait_for_steps(chosen: state.Selection) -> None:
    """Look again every two seconds until the chosen job has steps; then draw the page anew."""

    @st.fragment(run_every=data.LIVE_EVERY_S)
    def look() -> None:
        with contextlib.suppress(NotFoundError):
            data.job(chosen, str(chosen.job_id))
            st.rerun()
        st.caption("Looks again every 2 seconds, in case the job just started.")

    look()


def _jobs() -> list[str]:
    try:
        return data.workspace().job_ids()
    except NotFoundError:
        return []


def _nothing_yet() -> None:
    lake = data.settings().lake
    first_run.draw()

    @st.fragment(run_every=data.LIVE_EVERY_S)
    def look() -> None:
        if _jobs():
            st.rerun()
        st.caption(parts.plain(f"Lake: {lake}. This page looks again every 2 seconds."))

    look()
