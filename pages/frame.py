"""What stands around every page: choices, coverage, and what is said when there is nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import streamlit as st

from steptax.app.errors import NotFoundError, SteptaxError
from steptax.app.tabs import paced_s
from steptax.app.views.job.models import JobView
from steptax.pages import data, first_run, parts, state

# The page begins right under the navigation; the default leaves a sixth of a screen empty. A live
# page would blink if what is being replaced were dimmed. Captions and labels of resting choices are
# paler by default than what people with weak eyes can read (WCAG 2.2, 1.4.3), and what has the
# keyboard is marked by a shade that few see (2.4.7).
_STYLE = """
.st-key-strip [data-testid="stMarkdownContainer"] { margin: 0 0.75rem 0 0 !important; }
/* What stood for the first job is on the page until all of it is drawn anew. */
.st-key-strip:has(.st-key-job) .st-key-no_job { display: none; }
[class*="st-key-fold_"] { display: none; }
:is(a, button, summary, [role="tab"], [role="radio"], [role="button"]):focus-visible,
label:has(input:is([type="checkbox"], [type="radio"]):focus-visible) {
  outline: 3px solid currentColor !important; outline-offset: 2px !important;
}
.stMainBlockContainer { padding-top: 4rem; padding-bottom: 3rem; }
/* A digit more must not push the page down at each refresh. */
.st-key-live_sentence h2 { box-sizing: content-box; min-height: 2lh; }
.st-key-live_coverage { min-height: 2.8rem; }
.st-key-newest_step { min-height: 1.6rem; font-variant-numeric: tabular-nums; }
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
@media (max-width: 640px) {
  .stMainBlockContainer { padding-left: 1rem; padding-right: 1rem; }
  .st-key-live_sentence h2 { min-height: 5lh; }
  .st-key-live_coverage { min-height: 7rem; }
  .st-key-newest_step { min-height: 4.8rem; }
  [class*="st-key-bill_choices"] [data-testid="stButtonGroup"] > div { flex-wrap: wrap; }
  [class*="st-key-fold_"] { display: flex; }
  [class*="st-key-folds_"]:has([class*="st-key-fold_"] input:not(:checked))
    [class*="st-key-folded_"] { display: none; }
}
"""


@dataclass(frozen=True)
class Choices:
    """Which choices count on a page; the others rest out of sight."""

    job: bool = False
    """One job, and the window of its steps."""
    price: bool = True
    live: bool = False
    """The page draws itself anew while its job runs."""
    needs_job: bool = True
    """Without any job there is nothing to say."""
    bill_will_do: bool = False
    """A provider's bill alone says something, too."""

    @property
    def counting(self) -> tuple[tuple[str, bool], ...]:
        """Key of what is drawn, and whether it counts."""
        return (
            (state.JOB, self.job),
            (state.WINDOW, self.job),
            (state.PRICE, self.price),
            ("folds_strip", self.job or self.price),
        )


def strip(title: str, choices: Choices) -> bool:
    """Draw the name of the page and its choices; False where it needs a job and there is none.

    What does not count here is drawn out of sight, at its place: a choice that is not drawn is
    forgotten, and one that moves leaves the URL.
    """
    resting = [key for key, counts in choices.counting if not counts]
    hidden = "".join(f".st-key-{key} {{ display: none; }}" for key in resting)
    st.html(f"<style>{_STYLE}{hidden}</style>")
    with st.container(horizontal=True, key="strip", vertical_alignment="bottom"):
        st.markdown(f"# {parts.plain(title)}", width="content")
        jobs = _jobs()
        if jobs:
            state.start_with_job(jobs[0])
            # Where it rests the chosen one is enough: fifty thousand ids are a megabyte.
            _job(jobs if choices.job else jobs[:1], rests=not choices.job)
        elif choices.job:
            _no_job()
        # Also before the first job is there: they must not push the page down once it comes.
        with folded("strip", "Window, price" if choices.job else "Price"):
            _window(rests=not choices.job)
            _price(rests=not choices.price)
        if choices.live:
            _live()
    has_something = bool(jobs) or not choices.needs_job
    if not has_something and choices.bill_will_do:
        has_something = data.has_bill()
    if not has_something:
        _nothing_yet()
    return has_something


def name_tab(title: str, job_id: str | None = None) -> None:
    """Name the tab of the browser after the page, and its bookmarks with it."""
    names = [title, "Steptax"] if job_id is None else [job_id, title, "Steptax"]
    st.set_page_config(page_title=" · ".join(names))


@contextlib.contextmanager
def folded(key: str, name: str) -> Iterator[None]:
    """Choices in a row; on a telephone behind a switch called ``name``, so that the sentence leads.

    They are only hidden there: a choice that is not on the page would leave the URL.
    """
    with st.container(key=f"folds_{key}", gap="small", width="content"):
        st.toggle(name, key=f"fold_{key}", on_change="ignore")
        with st.container(horizontal=True, vertical_alignment="bottom", key=f"folded_{key}"):
            yield


def _job(jobs: list[str], *, rests: bool = False) -> None:
    st.selectbox(
        "Job",
        state.job_options(jobs),
        index=None,
        key=state.JOB,
        bind="query-params",
        disabled=rests,
        placeholder="Job",
        width=340,
    )


def _no_job() -> None:
    """The place of the choice of a job, which is not in the URL: that may name one to come."""
    st.selectbox(
        "Job", (), index=None, key="no_job", disabled=True, placeholder="none yet", width=340
    )


def _live() -> None:
    st.toggle(
        "Live",
        value=True,
        key=state.LIVE,
        bind="query-params",
        help="Draw anew while the job runs: the newest step every second, all that is said of it "
        f"every {data.LIVE_EVERY_S} s, or {data.BIG_LIVE_EVERY_S} s where there are many ranks; "
        "less often while many look.",
    )


def _window(*, rests: bool = False) -> None:
    st.selectbox(
        "Window, last steps",
        state.WINDOWS,
        index=state.WINDOWS.index(state.DEFAULT_WINDOW),
        key=state.WINDOW,
        bind="query-params",
        disabled=rests,
        width=150,
    )


def _price(*, rests: bool = False) -> None:
    state.start_with_price(data.settings().price_usd_per_gpu_hour)
    st.number_input(
        "Price per GPU-hour, USD",
        min_value=0.0001,
        value=None,
        step=0.1,
        format="%.4g",
        key=state.PRICE,
        bind="query-params",
        placeholder="set a price",
        help="Empty: no price is assumed, and amounts in dollars are unknown.",
        disabled=rests,
        width=190,
    )


def coverage(text: str, *, live: bool = False) -> None:
    """What the numbers of the page rest on, in a line; of a ``live`` page it keeps its place."""
    with (
        st.container(key="coverage"),
        st.container(key="live_coverage" if live else "coverage_text"),
    ):
        st.caption(parts.plain(text))


@contextlib.contextmanager
def guarded(key: str = "problem") -> Iterator[None]:
    """Show an error that Steptax raised on purpose as a message; ``key`` is once on a page."""
    try:
        yield
    except SteptaxError as problem:
        parts.error(problem, key)


def wait_for_steps(chosen: state.Selection) -> None:
    """Look again every second until the chosen job has steps; then draw the page anew.

    Nothing is waited for of a job that has ended.
    """
    with contextlib.suppress(NotFoundError):
        if data.has_ended(str(chosen.job_id)):
            return

    @st.fragment(run_every=paced_s(data.WAITING_EVERY_S))
    def look() -> None:
        with contextlib.suppress(NotFoundError):
            data.job(chosen, str(chosen.job_id))
            st.rerun()
        st.caption("Looks again by itself, in case the job just started.")

    look()


def wait_for_life(chosen: state.Selection, view: JobView) -> None:
    """Look again until the job of ``view``, which is at rest, runs; then draw the page anew.

    Rows of a job that just began come before the first sign of life of its recorders, and a job
    that was stopped may go on. Nothing is waited for of a job that has ended.
    """
    job_id, age_s = view.header.job_id, view.coverage.newest_age_s
    is_young = age_s is not None and age_s < data.YOUNG_S
    with contextlib.suppress(NotFoundError):
        if data.has_ended(job_id):
            return

    @st.fragment(run_every=paced_s(data.WAITING_EVERY_S if is_young else data.RUNNING_EVERY_S))
    def look() -> None:
        with contextlib.suppress(SteptaxError):  # the page tells it, when it is drawn anew
            if data.job(chosen, job_id).coverage.is_live:
                st.rerun()

    look()


def _jobs() -> list[str]:
    try:
        return data.workspace().job_ids()
    except NotFoundError:
        return []


def _nothing_yet() -> None:
    lake = data.lake_told()
    first_run.draw()

    @st.fragment(run_every=paced_s(data.WAITING_EVERY_S))
    def look() -> None:
        if _jobs():
            st.rerun()
        told = "" if lake is None else f"Lake: {lake}. "
        st.caption(parts.plain(f"{told}This page looks again by itself."))

    look()
