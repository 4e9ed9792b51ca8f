"""Fleet: what breaks most and what it costs, how often, where, and what is not used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st

from steptax.app.charts.fleet import SIZE_UNITS, rate_figure, sizes_figure, spread_figure
from steptax.app.charts.fleet_view_tables import (
    burn_table,
    capacity_table,
    causes_table,
    fail_slow_table,
    groups_by_state_table,
    losses_table,
    model_table,
    places_table,
    rate_table,
    sizes_table,
    spread_table,
    states_table,
)
from steptax.app.charts.review import bin_table
from steptax.app.charts.tables import Table
from steptax.app.format import format_measure, format_value
from steptax.app.metrics import METRICS
from steptax.app.views.fleet.bucket_jobs import bin_at_pct, bin_of, bin_text, in_bin
from steptax.app.views.fleet.models import FleetView
from steptax.app.words import count_text
from steptax.pages import brief, bucket, fleet_choice, fleet_data, frame, parts, state


def page() -> None:
    """Draw the page from one view."""
    top = st.container()
    only = fleet_choice.draw(fleet_data.fleet_choices())
    with top:
        view = fleet_data.fleet(state.read().price, only)
        parts.sentence(view.sentence)
        frame.coverage(view.coverage)
    fleet_choice.said(view.only)
    parts.notes(view.warnings)
    with st.container(horizontal=True, key="kpis"):
        for name, measure in view.metrics.items():
            parts.number(METRICS[name].title, measure, name, base=view.bases.get(name, ""))
    parts.section("What breaks, and what it costs")
    _table("fleet_losses", losses_table(view))
    _places(view)
    _sizes(view)
    _failures(view)
    _slow(view)
    parts.section("Idle and unallocated capacity")
    _table("fleet_capacity", capacity_table(view.capacity))
    parts.section("Error budgets")
    if view.burn:
        _table("fleet_burn", burn_table(view))
    if view.burn_reason:
        st.caption(parts.plain(view.burn_reason))
    brief.draw_fleet(only)


def _table(key: str, table: Table) -> None:
    parts.rows(key, table)
    parts.download(key, lambda: table)


def _places(view: FleetView) -> None:
    parts.section("Repeat offenders: hosts and devices")
    table = places_table(view.places)
    if table.rows:
        _table("fleet_places", table)
        st.caption(
            "By chance: what a place that did as much of the same kinds of job would have met. A "
            "failure of which nobody says where it was counts at every host of its job."
        )
    for one in view.places:
        if one.reason:
            st.caption(parts.plain(f"{one.what} by {one.kind}: unknown, {one.reason}"))
        elif not one.rows:
            text = f"{one.what} by {one.kind}: none at any of {one.places:,}"
            st.caption(parts.plain(text))


def _sizes(view: FleetView) -> None:
    parts.section("Jobs by size and state")
    unit = st.segmented_control(
        "Unit of the sizes",
        SIZE_UNITS,
        default=SIZE_UNITS[0],
        required=True,
        key=state.SIZE_UNIT,
        bind="query-params",
        label_visibility="collapsed",
    )
    parts.figure(
        "fleet_sizes",
        sizes_figure(view, unit or SIZE_UNITS[0], parts.palette()),
        lambda: sizes_table(view),
        alt=f"Bars by GPUs of a job, one part per state. {view.sentence}",
    )
    _table("fleet_states", states_table(view))
    if not view.groups:
        return
    names = list(view.groups)
    by = st.segmented_control(
        "Jobs by",
        names,
        default=names[0],
        required=True,
        key="fleet_by",
        bind="query-params",
        format_func=lambda name: f"by {name}",
        label_visibility="collapsed",
    )
    name = by or names[0]
    _table("fleet_groups", groups_by_state_table(view.groups[name], name, view))


def _failures(view: FleetView) -> None:
    rate = view.rate
    parts.section("How often jobs fail, and whether that goes as 1/N")
    if rate.mtbf_gpu_hours.value is None and not rate.jobs:
        st.caption(parts.plain(f"Unknown: {rate.mtbf_gpu_hours.reason}"))
        return
    text = (
        f"{count_text(rate.failures, 'failure')} in "
        f"{format_value(rate.gpu_hours, 'GPU-hours')} of {count_text(rate.jobs, 'job')}"
    )
    st.markdown(parts.plain(f"{text}: {format_measure(rate.mtbf_gpu_hours)} per failure."))
    if any(row.over_expected.value is not None for row in rate.sizes):
        parts.figure(
            "fleet_rate",
            rate_figure(view, parts.palette()),
            lambda: rate_table(view),
            alt="Failures by size of job over what the 1/N model expects, with intervals.",
        )
    parts.notes(rate.limits, "fleet_limits")
    if rate.model:
        _table("fleet_model", model_table(view))


def _slow(view: FleetView) -> None:
    parts.section("Fail-slow: how often, how long")
    _table("fleet_slow", fail_slow_table(view))
    if view.causes:
        _table("fleet_causes", causes_table(view))
    parts.section("How slow jobs are, and their waste")
    slow = view.metrics["slow_jobs_ratio"]
    if slow.value is not None:
        of_jobs, of_hours = format_measure(slow), format_measure(view.slow_gpu_hours)
        text = f"At least 10 % slower than their ideal: {of_jobs} of jobs, {of_hours} of GPU-hours."
        st.markdown(parts.plain(text))
    for key, title, values, spread in (
        ("fleet_waste", "waste", view.waste_values, view.waste),
        ("fleet_ettr", "ETTR", view.ettr_values, view.ettr),
    ):
        if key == "fleet_ettr":
            parts.section("ETTR: share of held time in steps that count")
        table = spread_table(spread, title)
        if not values:
            st.caption(parts.plain(f"Unknown: {spread.mean.reason}"))
            continue
        _histogram(key, title, values, table)
        parts.rows(f"{key}_quantiles", table)


def _histogram(key: str, title: str, values: Sequence[tuple[str, float]], table: Table) -> None:
    """How many jobs have which share, and the jobs of a bar."""
    chosen = f"{key}_bin"
    bars = sorted({bin_of(value) for _, value in values})

    def bar_of(point: Mapping[str, object]) -> str | None:
        # A bar stands at its middle, in percent.
        number = bin_at_pct(point.get("x"))
        return str(number) if number in bars else None

    def jobs(name: str) -> tuple[list[str], Table]:
        found = in_bin(values, int(name))
        return [job_id for job_id, _ in found], bin_table(found, title)

    parts.figure(
        key,
        spread_figure([value for _, value in values], title),
        lambda: table,
        alt=f"Histogram of jobs by {title}.",
        on_select=lambda: bucket.choose_by(chosen, key, bar_of),
        select="points",
    )
    bucket.draw(
        chosen, f"Jobs by {title}", {str(number): bin_text(number) for number in bars}, jobs
    )


if __name__ == "__main__":
    page()
