"""The fleet as a report: what breaks, by state, size, team and month, and what is not used."""

from __future__ import annotations

import time
from decimal import Decimal

import steptax
from steptax.app.charts.fleet_view_tables import (
    burn_table,
    capacity_table,
    fail_slow_table,
    groups_by_state_table,
    losses_table,
    places_table,
    rate_table,
    sizes_table,
    spread_table,
    states_table,
)
from steptax.app.metrics import METRICS
from steptax.app.report.links import fleet_link
from steptax.app.report.models import Number, Report, Section
from steptax.app.views.fleet.filter import FleetFilter
from steptax.app.views.fleet.models import FleetView
from steptax.app.views.fleet.view import fleet_view
from steptax.app.views.workspace import Workspace
from steptax.app.words import rows_text

#: Hosts, devices and groups that are printed; files of data hold all.
PRINTED_PLACES, PRINTED_GROUPS = 12, 24


def fleet_report(
    ws: Workspace,
    *,
    price: Decimal | None = None,
    only: FleetFilter | None = None,
    base_url: str | None = None,
    now_us: int | None = None,
) -> Report:
    """The jobs that ``only`` takes, all without it. Raises what the view raises."""
    now = time.time_ns() // 1000 if now_us is None else now_us
    only = only or FleetFilter()
    view = fleet_view(ws, price=price, now_us=now, only=only)
    return Report(
        kind="fleet",
        title="Fleet" if only.is_empty else f"Fleet: {only.text}",
        period=rows_text(view.rows, view.sums),
        sentence=view.sentence,
        numbers=_numbers(view),
        sections=_sections(view),
        basis=(view.coverage,),
        notes=view.warnings,
        link=fleet_link(base_url, price=price, only=only),
        made_at_us=now,
        version=steptax.__version__,
    )


def _numbers(view: FleetView) -> tuple[Number, ...]:
    shown = {"spend_usd": view.usd, "gpu_hours": view.gpu_hours} | view.metrics
    return tuple(
        Number(METRICS[name].title, name, measure, comparison=view.bases.get(name))
        for name, measure in shown.items()
    )


def _sections(view: FleetView) -> tuple[Section, ...]:
    sizes = sizes_table(view)
    return (
        Section("losses", "What breaks, and what it costs", losses_table(view)),
        Section("states", "Jobs by state", states_table(view)),
        Section(
            "sizes",
            "Jobs by size",
            sizes,
            columns=tuple(column.key for column in sizes.columns[:6]),
        ),
        *(
            Section(
                f"{name}_states",
                f"By {name} and state",
                groups_by_state_table(groups, name, view),
                rows=PRINTED_GROUPS,
            )
            for name, groups in view.groups.items()
        ),
        Section(
            "rate",
            "Failures against 1/N",
            rate_table(view),
            text=view.rate.limits,
            columns=("gpus", "failures", "expected", "over_expected", "mtbf_h", "off_model"),
        ),
        Section(
            "places",
            "Repeat offenders: hosts and devices",
            places_table(view.places),
            text=tuple(
                f"{one.what} by {one.kind}: unknown, {one.reason}"
                for one in view.places
                if one.reason
            ),
            columns=("name", "kind", "what", "count", "expected", "chance", "is_named"),
            rows=PRINTED_PLACES,
        ),
        Section(
            "fail_slow",
            "Fail-slow",
            fail_slow_table(view),
            columns=("gpus", "jobs", "affected", "share", "episodes", "median_s", "lost_gpu_hours"),
        ),
        Section("waste", "Waste", spread_table(view.waste, "waste")),
        Section("ettr", "ETTR", spread_table(view.ettr, "ETTR")),
        Section("capacity", "Idle and unallocated capacity", capacity_table(view.capacity)),
        Section(
            "burn",
            "Error budgets",
            burn_table(view),
            text=() if view.burn_reason is None else (view.burn_reason,),
        ),
    )
