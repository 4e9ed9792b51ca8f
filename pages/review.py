"""Parts of the Executive review: its period, its cards, what to fix first, why spend changed."""

from __future__ import annotations

from datetime import date
from typing import Any, Final

import streamlit as st

from steptax.app.charts.card import about_text, basis_text, value_text
from steptax.app.charts.review import (
    anomalies_table,
    forecast_table,
    learning_table,
    showback_table,
    variance_figure,
    variance_table,
    weeks_figure,
    weeks_table,
)
from steptax.app.format import format_interval
from steptax.app.metrics import METRICS
from steptax.app.report.links import COMPARISONS, OWN_DAYS
from steptax.app.views.review.executive_models import ExecutiveView
from steptax.app.views.review.models import Link, ReviewCard
from steptax.app.views.review.periods import change_text
from steptax.pages import frame, parts, state
from steptax.pages.places import FLEET_PAGE, JOB_PAGE, WHATIF_PAGE

FROM: Final = "from"
TO: Final = "to"
COMPARE: Final = "compare_to"
COMPARE_FROM: Final = "compare_from"
COMPARE_UNTIL: Final = "compare_until"
LEVEL: Final = "showback"

_ANCHORS = {"bill": "the-whole-bill", "budget": "budget-and-objective"}
_PAGES = {"fleet": FLEET_PAGE, "whatif": WHATIF_PAGE}
_STYLE = """
.st-key-review_cards {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(188px, 1fr));
}
.st-key-review_cards > * { width: auto !important; height: 100% !important; }
.st-key-review_cards [class*="st-key-card_"] { height: 100%; }
@media (max-width: 640px) {
  .st-key-fix_first_row { flex-direction: column; align-items: flex-start; }
  .st-key-fix_first_row > * { width: 100% !important; }
}
"""


def period() -> tuple[date | None, date | None, str]:
    """From when to when, and what that is compared with; all in the URL."""
    with frame.folded("period", "Period"):
        first = _day("From", FROM, "Empty: from the first day that is known.")
        last = _day("To", TO, "Empty: until the newest day. Both days are included, in UTC.")
        chosen = st.selectbox(
            "Compared with",
            list(COMPARISONS),
            key=COMPARE,
            bind="query-params",
            help="Without days the newest four weeks are compared, or as many as the record has "
            "twice.",
            width=190,
        )
        how = COMPARISONS[chosen or "days before"]
        if chosen == OWN_DAYS:
            begin = _day("Compared from", COMPARE_FROM, "First day to compare with.")
            end = _day("until", COMPARE_UNTIL, "Last day to compare with.")
            how = f"{begin}..{end}" if begin and end else "none"
    return first, last, how


def _day(title: str, key: str, about: str) -> date | None:
    chosen: Any = st.date_input(
        title,
        value=None,
        key=key,
        bind="query-params",
        format="YYYY-MM-DD",
        help=about,
        width=180,
    )
    return chosen if isinstance(chosen, date) else None


def fix_first(view: ExecutiveView) -> None:
    """What to do first and what it is worth: the answer that the page is opened for."""
    st.html(f"<style>{_STYLE}</style>")
    found = view.fix_first
    if found is None:
        return
    with (
        st.container(border=True, key="fix_first"),
        st.container(horizontal=True, vertical_alignment="center", key="fix_first_row"),
    ):
        with st.container(gap="small"):
            owner = f", of {found.owner}" if found.owner else ""
            st.markdown(
                f"**Fix first: {parts.plain(found.what)}{parts.plain(owner)}** · worth "
                f"**{parts.plain(found.worth)}**"
            )
            text = f"Why: {found.why}. Next: {found.action}."
            if found.a_day:
                text += f" {found.a_day}"
            st.caption(parts.plain(text))
            for other in view.fixes[1:]:
                st.caption(
                    parts.plain(f"Then: {other.what} · worth {other.worth}. "),
                    help=parts.plain(f"Why: {other.why}. Next: {other.action}."),
                )
        if found.job_id is not None:
            _open(Link("job", "Open it", found.job_id), "fix_first_open")


def cards(view: ExecutiveView) -> None:
    """The headline cards with their change, their weeks and where they are explained."""
    with st.container(key="review_cards"):
        for card in view.cards:
            _card(card)
    if view.compared:
        told = f"Changes are of the {view.compared}. Small lines: by week."
        untold = [
            card.title
            for card in view.cards
            if card.delta and None in (card.delta.now.value, card.delta.before.value)
        ]
        if untold:
            told += f" Unknown now or then, so without a change: {', '.join(untold)}."
        st.caption(parts.plain(told))


def _card(card: ReviewCard) -> None:
    with st.container(key=f"card_{card.metric_id}", gap=None, border=True):
        delta, colour, said = _delta(card)
        known = [value for value in card.spark if value is not None]
        st.metric(
            parts.name(card.title),
            parts.plain(value_text(card.measure, card.title)),
            delta=delta,
            delta_color=colour,
            help=parts.paragraphs(about_text(card.measure, card.metric_id, card.about)),
            chart_data=known if len(known) >= 2 else None,
        )
        interval = format_interval(card.measure)
        why = (basis_text(card.measure),) if card.measure.value is None else ()
        lines = [
            *why,
            *([interval] if interval else []),
            *([said] if said else []),
            *card.details,
            *card.measure.warnings,
        ]
        if lines:
            st.caption("  \n".join(parts.plain(line) for line in lines))
        _open(card.link, f"open_{card.metric_id}")


def _delta(card: ReviewCard) -> tuple[str | None, Any, str]:
    """The change, its colour, and against what; or why there is none."""
    found = card.delta
    if found is None or card.measure.value is None:
        return None, "off", ""  # why the value is not known stands there already
    if found.before.value is None or found.now.value is None:
        return None, "off", ""  # said once for all such cards, under them
    if found.change.value is None:
        return None, "off", found.change.reason or ""
    text = change_text(found)
    if text == "level" or found.change.sign_is_open:
        return None, "off", f"{text}, {found.against}"
    good = {"up": "normal", "down": "inverse", "none": "off"}
    colour = good[METRICS[card.metric_id].good_direction]
    return text, colour, found.against


def _open(link: Link, key: str) -> None:
    """A link to the place that explains a number."""
    if link.page in _ANCHORS:
        st.caption(f"[{parts.plain(link.label)}](#{_ANCHORS[link.page]})")
        return
    if link.page == "job":
        job_id = link.job_id

        def choose() -> None:
            if job_id is not None:
                state.choose_job(job_id)

        if st.button(
            parts.plain(link.label),
            key=key,
            type="tertiary",
            icon=":material/arrow_forward:",
            on_click=choose,
        ):
            # The choices are bound widgets, which put themselves back into the URL.
            st.switch_page(JOB_PAGE, query_params={})
        return
    st.page_link(_PAGES[link.page], label=parts.plain(link.label), icon=":material/arrow_forward:")


def empty(view: ExecutiveView) -> None:
    """A period without data: what is there, and what to connect."""
    if view.empty is None:
        return
    lines = "\n".join(f"- {what}: `{command}`" for what, command in view.empty.connect)
    with st.container(key="empty_period"):
        st.info(f"{parts.plain(view.empty.text)}\n\nTo connect:\n{lines}", icon=":material/cable:")


def weeks(view: ExecutiveView) -> None:
    """Spend and goodput by week with the budget."""
    parts.section("Week by week")
    if not view.weeks:
        st.caption("No job with known dates held a device in this period.")
        return
    parts.figure(
        "weeks",
        weeks_figure(view.weeks, parts.palette()),
        lambda: weeks_table(view.weeks),
        alt=f"Spend by week with the budget, and goodput. {view.sentence}",
    )


def variance(view: ExecutiveView) -> None:
    """Price x volume x efficiency."""
    parts.section("Why spend changed: price, volume, efficiency")
    found = view.variance
    if found is None:
        st.caption(parts.plain(f"Cannot be told: {view.no_variance}."))
        return
    parts.figure(
        "variance",
        variance_figure(found, parts.palette()),
        lambda: variance_table(found),
        alt=f"From the spend of {found.before} to that of {found.after}, effect by effect.",
    )
    notes = "; ".join(found.notes)
    st.caption(parts.plain(f"Before: {found.before}; now: {found.after}; {notes}."))


def anomalies(view: ExecutiveView) -> None:
    """Days on which spend was not what was to be expected."""
    parts.section("Spend anomalies")
    if view.anomalies:
        parts.rows("anomalies", anomalies_table(view.anomalies))
        parts.download("anomalies", lambda: anomalies_table(view.anomalies))
    else:
        st.caption("None in this period.")
    st.caption(parts.plain(view.anomaly_note))


def showback(view: ExecutiveView) -> None:
    """What each team, project, cluster or owner held and cost, and what nobody held."""
    parts.section("Showback")
    levels = list(view.showback)
    chosen = st.segmented_control(
        "By", levels, default=levels[0], required=True, key=LEVEL, bind="query-params"
    )
    level = chosen or levels[0]
    made = showback_table(view.showback[level], level, view.unallocated, view.unmatched)
    parts.rows("showback_rows", made)
    parts.download("showback_rows", lambda: made)


def runs(view: ExecutiveView) -> None:
    """When the runs that are under way will be done, and what runs learn for their money."""
    parts.section("Runs under way, to completion")
    if view.forecasts:
        parts.rows("forecasts", forecast_table(view.forecasts))
        parts.download("forecasts", lambda: forecast_table(view.forecasts))
    st.caption(parts.plain(view.forecast_note))
    parts.section("Learning velocity")
    if view.learning:
        parts.rows("learning", learning_table(view.learning))
        parts.download("learning", lambda: learning_table(view.learning))
    st.caption(parts.plain(view.learning_note))
