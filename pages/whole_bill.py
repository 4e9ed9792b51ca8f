"""The whole bill on the Executive review: every paid GPU-second at the level that was chosen."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any
from zoneinfo import available_timezones

import streamlit as st

from steptax.app.charts.fleet_bill import (
    bill_figure,
    bill_table,
    bill_units,
    groups_table,
    invoices_table,
    not_billed_table,
    reconciliation_table,
)
from steptax.app.errors import SteptaxError
from steptax.app.metrics import METRICS
from steptax.app.views.fleet.bill_models import DENOMINATORS, LEVELS, FleetBill
from steptax.app.words import count_text
from steptax.pages import fleet_data, parts, state

#: What stands above the whole bill: goodput, its factors, and what they hide.
BILL_NUMBERS = (
    "scheduling_ratio",
    "ettr_ratio",
    "goodput_ratio",
    "effective_mfu_ratio",
    "at_risk_gpu_hours",
    "unexplained_ratio",
)

#: Groups that the page lists.
LISTED_GROUPS = 1_000


def draw(first: date | None = None, last: date | None = None) -> None:
    """Choices, numbers, figure, groups and what the provider charged, of days both included."""
    parts.section("The whole bill")
    with st.container(horizontal=True, key="bill_choices", vertical_alignment="bottom"):
        by = _choice("Added up by", LEVELS, state.BY)
        denominator = _choice("Percentages of", DENOMINATORS, state.DENOMINATOR)
        tz = _zone(disabled=by not in ("month", "day"))
    try:
        bill = fleet_data.whole_bill(by, denominator, tz, state.read().price, first, last)
    except SteptaxError as problem:
        parts.error(problem)
        return
    st.markdown(parts.plain(bill.sentence))
    if bill.total is not None:
        _bill_numbers(bill)
        unit = _choice("Unit of the bill", bill_units(bill), state.BILL_UNIT)
        parts.figure(
            "bill",
            bill_figure(bill, unit, parts.palette()),
            lambda: bill_table(bill),
            alt=f"Stacked bars by {bill.by}, one part per bucket. {bill.sentence}",
        )
        # Of fifty thousand jobs the file has all; a browser shows the first thousand.
        parts.rows("bill_groups", groups_table(bill, LISTED_GROUPS))
        if len(bill.groups) > LISTED_GROUPS:
            st.caption(f"{LISTED_GROUPS:,} of {len(bill.groups):,} are listed; the file has all.")
        parts.download("bill_groups", lambda: groups_table(bill))
    st.caption(parts.plain(f"{bill.period} · {bill.denominator_text} · {bill.cost_basis}"))
    for price in bill.prices:
        st.caption(
            parts.plain(f"{price.badge} ({count_text(price.jobs, 'job')}, {price.offer.source})")
        )
    _reconciliation(bill)
    if bill.not_billed:
        with st.expander(f"{count_text(len(bill.not_billed), 'job')} without a bill, and why"):
            parts.rows("not_billed", not_billed_table(bill))
            parts.download("not_billed", lambda: not_billed_table(bill))
    for text in bill.warnings:
        st.caption(parts.plain(text))


def chosen() -> tuple[str, str, str]:
    """Level, denominator and zone as they stand in this run, before their widgets are drawn."""
    kept = st.session_state
    return (
        kept.get(state.BY) or LEVELS[0],
        kept.get(state.DENOMINATOR) or DENOMINATORS[0],
        kept.get(state.ZONE) or "UTC",
    )


def _choice(title: str, options: Sequence[Any], key: str) -> Any:
    """One of ``options``, kept in the URL."""
    chosen = st.segmented_control(
        title, options, default=options[0], required=True, key=key, bind="query-params"
    )
    return chosen or options[0]


def _zone(*, disabled: bool) -> str:
    """The zone in which days and months are cut, kept in the URL."""
    zones = sorted(available_timezones())
    chosen = st.selectbox(
        "Days and months in",
        zones,
        index=zones.index("UTC"),
        key=state.ZONE,
        bind="query-params",
        disabled=disabled,
        help="Matters where the bill is added up by month or by day. All else on the page is in "
        "days of UTC.",
        width=220,
    )
    return chosen or "UTC"


def _bill_numbers(bill: FleetBill) -> None:
    assert bill.total is not None
    with st.container(horizontal=True, key="bill_numbers"):
        for name in BILL_NUMBERS:
            parts.number(METRICS[name].title, bill.total.metrics[name], name, bill.denominator_text)


def _reconciliation(bill: FleetBill) -> None:
    found = bill.reconciliation
    if found.effective_cost is None:
        st.caption(parts.plain(f"Not reconciled: {found.reason}"))
        return
    st.markdown("**Against the bill of the provider**")
    parts.rows("reconciliation", reconciliation_table(bill))
    parts.download("reconciliation", lambda: reconciliation_table(bill))
    for text in found.notes:
        st.caption(parts.plain(text))
    with st.expander(f"Invoices: {len(found.invoices):,}"):
        parts.rows("invoices", invoices_table(bill))
        parts.download("invoices", lambda: invoices_table(bill))
