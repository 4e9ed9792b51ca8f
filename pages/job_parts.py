"""Parts of the page of a job: the straggler card, the headline numbers, the ledger."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from steptax.app.charts.card import CAUSE_FIELD, Field, card_fields, named_cause, value_text
from steptax.app.charts.job_tables import ledger_table
from steptax.app.charts.waterfall import units_of, waterfall_figure
from steptax.app.metrics import METRICS
from steptax.app.report.links import job_link
from steptax.app.views.job.card_text import card_as_text
from steptax.app.views.job.models import JobView
from steptax.app.views.models import Bill
from steptax.pages import brief, cause_list, data, parts, said, state
from steptax.pages.drawn import drawn

_NUMBERS = (
    "straggler_tax_ratio",
    "slowdown_ratio",
    "persistent_share_ratio",
    "goodput_ratio",
    "ettr_ratio",
    "mfu_ratio",
    "gpu_hours",
    "spend_usd",
    "recoverable_usd",
    "unexplained_ratio",
)
#: What of a number of the whole job is of the steps shown.
_OF_WINDOW = {"gpu_hours": "window_gpu_hours", "spend_usd": "window_usd"}


def card(view: JobView) -> None:
    """The straggler card, and its text."""
    with st.container(key="card", border=True):
        parts.card(_explained(view))
        with st.expander("Copy as text", icon=":material/content_copy:"):
            st.code(
                card_as_text(view, link=_link(view), lake=data.lake_told()),
                language=None,
                wrap_lines=True,
            )
        said.others(view)


def _explained(view: JobView) -> list[Field]:
    """The lines of the card; a cause that is named leads to how it is."""
    cause = named_cause(view)
    return [
        replace(one, link=cause_list.address(cause)) if cause and one.key == CAUSE_FIELD else one
        for one in card_fields(view)
    ]


def _link(view: JobView) -> str:
    """The address of this page with what was chosen on it."""
    chosen = state.read()
    return job_link(
        brief.where_served("/job"),
        view.header.job_id,
        price=chosen.price,
        last_steps=chosen.last_steps,
    ).url


def numbers(view: JobView) -> None:
    """The headline numbers."""
    with st.container(horizontal=True, key="kpis"):
        for name in filter(view.metrics.__contains__, _NUMBERS):
            shown = view.metrics.get(_OF_WINDOW.get(name, ""))
            is_part = shown is not None and shown.value is not None and not view.window.is_all
            base = f"{value_text(shown)} in the steps shown" if shown and is_part else ""
            parts.number(METRICS[name].title, view.metrics[name], name, base=base)


def ledger(view: JobView) -> None:
    """Where the paid time went: of the steps shown, and of the whole job."""
    parts.section("Where the paid time went")
    left, right = st.columns([3, 2], gap="medium")
    with left:
        unit = parts.unit_choice(units_of(view.ledger))
        parts.figure(
            "ledger",
            drawn(view, waterfall_figure, view.ledger, unit, parts.palette()),
            lambda: ledger_table(view.ledger),
            alt=f"Waterfall from paid time to the ranks' own computing. {view.ledger_note}",
        )
    with right:
        parts.rows("ledger_lines", ledger_table(view.ledger))
    st.caption(parts.plain(view.ledger_note))
    whole(view.bill)


def whole(bill: Bill) -> None:
    """The bill of the job from its allocation on, also of one without steps."""
    parts.section("The whole job, from its allocation on")
    if bill.lines:
        parts.rows("bill", ledger_table(bill.lines))
        parts.download("bill", lambda: ledger_table(bill.lines))
    for text in (bill.note, *bill.findings):
        st.caption(parts.plain(text))
