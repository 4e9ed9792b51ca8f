"""Procurement: what other devices would cost for a job or a public benchmark."""

from __future__ import annotations

import shlex

import streamlit as st

from steptax.app.charts import procurement as charts
from steptax.app.errors import NotFoundError
from steptax.app.views.pricing.offers import OfferFilter, price_history
from steptax.app.views.procurement.choices import Choices
from steptax.app.views.procurement.models import Procurement
from steptax.app.views.procurement.public_results import scale_of
from steptax.pages import first_run, frame, parts, procurement_choice, procurement_data, state
from steptax.pages.places import WHATIF_PAGE


def page() -> None:
    """Draw choices, the sentence, the options and what they rest on."""
    chosen = state.read()
    with frame.guarded():
        try:
            found = procurement_data.found()
        except NotFoundError:  # there is no lake yet
            first_run.draw()
            return
        if not found.offers and not found.results:
            _nothing_yet()
            _acceptance()
            return
        top = st.container(key="procure_top")
        work = procurement_choice.work(found, chosen.job_id)
        wanted = procurement_choice.offers(found)
        view: Procurement | None = None
        if work is not None:
            with frame.guarded("procure_problem"):
                view = procurement_data.procurement(work, wanted, chosen)
            if view is not None:
                with top:
                    parts.sentence(view.sentence)
                    frame.coverage(f"{view.work} · {view.offers}")
                _options(view)
        if work is not None and work.benchmark is not None:
            _scale(found, work)
        if found.devices:
            _history(found, None if view is None else view.own_device)
        _acceptance()
        _further(work, wanted, chosen)


def _options(view: Procurement) -> None:
    parts.rows("options", charts.options_table(view))
    parts.download("options", lambda: charts.options_table(view))
    palette = parts.palette()
    frontier = charts.frontier_figure(view, palette)
    tornado = charts.cost_tornado(view, palette)
    left, right = st.columns(2, gap="large") if tornado is not None else (st.container(), None)
    if frontier is not None:
        with left:
            parts.section(f"Cost against time, a result is {view.result}")
            parts.figure(
                "frontier",
                frontier,
                lambda: charts.options_table(view),
                alt=f"Options by cost and time of a result. {view.sentence}",
            )
    if tornado is not None and right is not None:
        with right:
            parts.section("What moves the cost")
            parts.figure(
                "cost_tornado",
                tornado,
                lambda: charts.tornado_table(view),
                alt=f"How far the cost on {view.tornado_of} moves with each input.",
            )
    parts.notes([*view.notes, *([view.caveat] if view.caveat else [])], "procure_notes")


def _scale(found: Choices, work: procurement_choice.Work) -> None:
    assert work.benchmark is not None
    keys = found.devices_of(work.benchmark)
    if not keys:
        return
    parts.section("What scale costs")
    key = procurement_choice.device("Device", keys, procurement_choice.SCALE_DEVICE)
    with frame.guarded("scale_problem"):
        points = scale_of(found.results, work.benchmark, key, work.round)
        if not points:
            st.caption(parts.plain(f"There are results of {key} on one number of devices only."))
            return
        parts.figure(
            "scale",
            charts.scale_figure(points, parts.palette()),
            lambda: charts.scale_table(points),
            alt=f"GPU-hours of {work.benchmark} over the number of {key} devices.",
        )


def _history(found: Choices, own: str | None) -> None:
    parts.section("Prices by day")
    # The job's own device comes first, and so is what is shown until somebody chooses.
    keys = sorted(found.devices, key=lambda key: key != own)
    key = procurement_choice.device("Device", keys, procurement_choice.PRICED_DEVICE)
    points = price_history(found.offers, key)
    parts.figure(
        "price_history",
        charts.history_figure(points, parts.palette()),
        lambda: charts.history_table(points),
        alt=f"Median price of {key} by day and segment; a ring where other offers were seen.",
    )
    st.caption(
        "A ring: other offers were seen than before, so the level may move without a price. An "
        "index does not tell its offers."
    )


def _acceptance() -> None:
    runs = procurement_data.bench_runs()
    parts.section("Acceptance of nodes")
    if not runs:
        st.caption(
            "No benchmark was run yet. On each node: steptax bench gemm memory links collectives"
        )
        return
    run = procurement_choice.device("Run", runs, procurement_choice.RUN)
    with frame.guarded("acceptance_problem"):
        view = procurement_data.acceptance(run)
        parts.rows("nodes", charts.nodes_table(view))
        parts.download("nodes", lambda: charts.nodes_table(view))
        with st.expander("Every figure, and what it was held against"):
            parts.rows("checks", charts.checks_table(view))
            parts.download("checks", lambda: charts.checks_table(view))


def _further(
    work: procurement_choice.Work | None,
    wanted: OfferFilter,
    chosen: state.Selection,
) -> None:
    parts.section("Take it along")
    if work is not None:
        st.caption("Copy command: it gives the same numbers in a terminal.")
        words = procurement_choice.command(work, wanted, chosen)
        st.code(shlex.join(words), language=None, wrap_lines=True)
    st.page_link(WHATIF_PAGE, label="Build or rent, commitment: on What-if")


def _nothing_yet() -> None:
    with st.container(key="empty", border=True):
        st.header("No offers and no results yet")
        st.markdown(
            "Store what your providers ask, as dated offers:\n\n"
            "```\nsteptax ingest prices FILE\n```\n"
            "and how long public systems took, from tables or logs of MLPerf Training:\n\n"
            "```\nsteptax ingest mlperf-results FILE\n```\n"
            "Then a job of yours, or a public benchmark, is priced on every device that is offered."
        )


if __name__ == "__main__":
    page()
