"""Budget and goodput objective on the Executive review: how they stand, and setting them."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

import streamlit as st

from steptax.app.charts.budget import budget_figure, days_table, history_table
from steptax.app.errors import SteptaxError
from steptax.app.metrics import METRICS
from steptax.app.views.review.budget import ALL, BudgetView
from steptax.pages import fleet_data, parts, state

SCOPE: Final = "scope"
PERIOD: Final = "period"


def draw() -> None:
    """The period of the scope that was chosen, and the form."""
    parts.section("Budget and objective")
    with st.container(horizontal=True, key="budget_choice", vertical_alignment="bottom"):
        scope = st.selectbox(
            "Of", fleet_data.budget_scopes(), key=SCOPE, bind="query-params", width=220
        )
        period = st.text_input(
            "Period",
            value=None,
            key=PERIOD,
            bind="query-params",
            placeholder="this month",
            help="2026-11, 2026-Q4 or 2026",
            width=140,
        )
    try:
        view = fleet_data.budget(scope or ALL, period or None, state.read().price)
    except SteptaxError as problem:
        parts.error(problem, "budget_problem")
        return
    st.markdown(parts.plain(view.sentence))
    _numbers(view)
    if view.days:
        parts.figure(
            "budget",
            budget_figure(view, parts.palette()),
            lambda: days_table(view),
            alt=f"Spend by day against the budget. {view.sentence}",
        )
    if view.currency_note:
        st.caption(parts.plain(view.currency_note))
    _form(view)


def _numbers(view: BudgetView) -> None:
    with st.container(horizontal=True, key="kpis_budget"):
        for name, measure in view.metrics.items():
            parts.number(METRICS[name].title, measure, name)


def _form(view: BudgetView) -> None:
    with st.expander("Set budget and objective; who changed what", icon=":material/edit:"):
        with st.form("budget_form", border=False):
            left, middle, right = st.columns(3)
            usd = left.number_input(
                "Budget, USD", min_value=0.0, value=None, placeholder="as it is", key="budget_usd"
            )
            slo = middle.number_input(
                "Goodput objective, 0 to 1",
                min_value=0.0,
                max_value=1.0,
                value=None,
                placeholder="as it is",
                key="budget_slo",
            )
            who = right.text_input("Your name", key="budget_by")
            note = st.text_input("Why", key="budget_note")
            asked = st.form_submit_button(f"Set for {view.scope}, {view.period.name}")
        if asked:
            _set(view, usd, slo, who, note)
        if view.history:
            parts.rows("budget_history", history_table(view))


def _set(view: BudgetView, usd: float | None, slo: float | None, who: str, note: str) -> None:
    try:
        fleet_data.set_budget(
            scope=view.scope,
            period=view.period.name,
            budget_usd=None if usd is None else Decimal(repr(usd)),
            goodput_slo_ratio=slo,
            set_by=who,
            note=note or None,
        )
    except SteptaxError as problem:
        parts.error(problem, "budget_form_problem")
        return
    st.rerun()
