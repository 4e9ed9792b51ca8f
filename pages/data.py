"""View models for the pages, shared by all readers.

Views are frozen, so one object serves every session. They are kept by what they are made from:
the lake, the choices and the version of its data. Of a running job also a coarse clock counts,
since "newest step 14 s ago" and "stopped reporting" change while the data does not.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import streamlit as st

from steptax.app.settings import Settings
from steptax.app.views.alert_list import alert_rows
from steptax.app.views.budget import BudgetView, budget_view, scopes
from steptax.app.views.budget import set_budget as store_budget
from steptax.app.views.collectives import CollectivesView, collectives_view
from steptax.app.views.detector_score import DetectorScore, detector_score
from steptax.app.views.devices import (
    DevicesView,
    devices_view,
    has_devices,
    job_window,
    samples_version,
)
from steptax.app.views.executive import executive_view
from steptax.app.views.fleet import fleet_view
from steptax.app.views.fleet_bill import fleet_bill
from steptax.app.views.fleet_bill_models import FleetBill
from steptax.app.views.fleet_models import FleetView
from steptax.app.views.health import health_view
from steptax.app.views.job import job_view, step_timeline
from steptax.app.views.models import ExecutiveView, HealthView, JobView, StepTimeline
from steptax.app.views.quiet_failures import QuietFailures, quiet_failures
from steptax.app.views.record import RecordView, record_view
from steptax.app.views.report_models import Reports
from steptax.app.views.reports import job_reports
from steptax.app.views.sharing import neighbours_version
from steptax.app.views.workspace import Workspace, open_workspace
from steptax.pages.state import Selection

LIVE_EVERY_S = 2
"""Period of a live page. Faster ones pile up in a browser that draws more slowly."""

COLLECTIVES_EVERY_S = 60
"""How old what is said of a running job's collectives may be: they change with every step."""

DEVICES_EVERY_S = 30
"""How old what is said of the devices of a running job may be: samples come every ten seconds."""

QUIET_EVERY_S = 30
"""How old what is said of the quiet failures of a running job may be."""

TIMELINE_RANKS = 20
"""Ranks drawn of one step; more do not fit a screen."""

_DAY_S = 86_400


@dataclass(frozen=True)
class _Built:
    """A view and when it was made."""

    view: JobView
    at_s: float


def settings() -> Settings:
    """What this installation was told from outside."""
    return Settings()


def workspace() -> Workspace:
    """The lake of this installation; NotFoundError where there is none yet."""
    return _workspace(str(settings().lake))


def price_note(price: Decimal | None) -> str | None:
    """Who set the price: the installation says so itself, for its own price only."""
    told = settings()
    return told.price_note if price is not None and price == told.price_usd_per_gpu_hour else None


def job(selection: Selection, job_id: str) -> JobView:
    """The view of ``job_id`` for these choices."""
    ws = workspace()

    def made(period: int) -> _Built:
        return _job_view(
            ws,
            str(ws.root),
            job_id,
            selection.last_steps,
            selection.price,
            price_note(selection.price),
            f"{ws.version(job_id)}-{neighbours_version(ws, job_id)}",
            period,
        )

    built = made(0)
    if built.view.coverage.is_live and time.time() - built.at_s > LIVE_EVERY_S:
        built = made(_clock(LIVE_EVERY_S))
    return built.view


def timeline(view: JobView, step: int, ranks: tuple[int, ...]) -> StepTimeline:
    """One step of the job of ``view``."""
    ws = workspace()
    return _timeline(ws, str(ws.root), view.header.job_id, step, ranks, view.version)


def reports(job_id: str) -> Reports:
    """What others say of a job, also of one without steps."""
    ws = workspace()
    versions = [ws.lake.version(name, job_id) for name in ("printed_metrics", "reported_scores")]
    return _reports(ws, str(ws.root), job_id, "-".join(versions))


def record(job_id: str, price: Decimal | None) -> RecordView:
    """The bill of a job without steps, from its record alone."""
    return record_view(workspace(), job_id, price=price, price_note=price_note(price))


def has_collectives(job_id: str) -> bool:
    """Whether collectives or communicators of the job are stored; cheap."""
    return job_id in workspace().job_ids_with_collectives()


def collectives(job_id: str, *, is_live: bool) -> CollectivesView:
    """The collectives of a job; with ``is_live`` they may be ``COLLECTIVES_EVERY_S`` old.

    NotFoundError where there are none.
    """
    ws = workspace()
    names = ("collectives", "communicators", "ranks")
    version = (
        f"live {_clock(COLLECTIVES_EVERY_S)}"
        if is_live
        else "-".join(ws.lake.version(name, job_id) for name in names)
    )
    return _collectives(ws, str(ws.root), job_id, version)


def devices_are_there(job_id: str) -> bool:
    """Whether devices were sampled and the ranks of the job are known; cheap."""
    return has_devices(workspace(), job_id)


def devices(job_id: str, last_steps: int | None, *, is_live: bool) -> DevicesView:
    """The devices of a job; with ``is_live`` what is said may be ``DEVICES_EVERY_S`` old.

    NotFoundError where the time or the ranks of the job are not known.
    """
    ws = workspace()
    root = str(ws.root)
    if is_live:
        return _devices(ws, root, job_id, last_steps, f"live {_clock(DEVICES_EVERY_S)}")
    version = "-".join(
        [*(ws.lake.version(name, job_id) for name in ("steps", "ranks")), ws.lake.version("jobs")]
    )
    # Nodes are sampled all the time: what they say now changes nothing of a job that is over.
    window_us = _job_window(ws, root, job_id, last_steps, version)
    version += f"-{samples_version(ws, window_us)}"
    return _devices(ws, root, job_id, last_steps, version)


def quiet(job_id: str, last_steps: int | None, *, is_live: bool) -> QuietFailures:
    """The quiet failures of a job; with ``is_live`` they may be ``QUIET_EVERY_S`` old.

    NotFoundError for a job without steps.
    """
    ws = workspace()
    version = f"live {_clock(QUIET_EVERY_S)}" if is_live else ws.version(job_id)
    return _quiet(ws, str(ws.root), job_id, last_steps, version)


def executive(price: Decimal | None) -> ExecutiveView:
    """The cost review at ``price``."""
    ws = workspace()
    return _executive_view(ws, str(ws.root), price, price_note(price), ws.version(), _clock(_DAY_S))


def fleet(price: Decimal | None) -> FleetView:
    """The fleet at ``price``."""
    ws = workspace()
    names = ("events", "charges", "prices", "device_samples", "budgets")
    version = "-".join([ws.version(), *(ws.lake.version(name) for name in names)])
    return _fleet(ws, str(ws.root), price, price_note(price), version, _clock(_DAY_S))


def whole_bill(by: str, denominator: str, tz: str, price: Decimal | None) -> FleetBill:
    """The whole bill of all jobs by ``by``."""
    ws = workspace()
    versions = [ws.lake.version(name) for name in ("events", "charges", "prices", "device_samples")]
    version = "-".join([ws.version(), *versions])
    return _whole_bill(ws, str(ws.root), by, denominator, tz, price, version)


def budget_scopes() -> list[str]:
    """What a budget can be of: all, and the teams, projects and clusters of the jobs."""
    return list(scopes(workspace()))


def budget(scope: str, period: str | None, price: Decimal | None) -> BudgetView:
    """How a scope stands in a period."""
    ws = workspace()
    names = ("events", "charges", "prices", "device_samples", "budgets")
    version = "-".join([ws.version(), *(ws.lake.version(name) for name in names)])
    return _budget(ws, str(ws.root), scope, period, price, version, _clock(_DAY_S))


def set_budget(**entry: Any) -> None:
    """Store a budget; UserError says what is wrong with it."""
    store_budget(workspace(), **entry)


def health() -> HealthView:
    """Sources, rows and rejects; cheap, and only useful when it is fresh."""
    return health_view(workspace())


def score() -> DetectorScore:
    """How good the detector is, as it was measured last."""
    return detector_score(workspace().root)


def alerts() -> list[dict[str, Any]]:
    """Alerts of this lake, open ones first."""
    return alert_rows(workspace().root)


def _clock(every_s: int) -> int:
    """The current period of ``every_s`` seconds."""
    return int(time.time() // every_s)


@st.cache_resource(max_entries=4, show_spinner=False)
def _workspace(root: str) -> Workspace:
    return open_workspace(Path(root))


@st.cache_resource(max_entries=16, show_spinner=False)
def _job_view(
    _ws: Workspace,
    root: str,
    job_id: str,
    last_steps: int | None,
    price: Decimal | None,
    note: str | None,
    version: str,
    period: int,
) -> _Built:
    at_s = time.time()
    view = job_view(_ws, job_id, price=price, price_note=note, last_steps=last_steps)
    return _Built(view, at_s)


@st.cache_resource(max_entries=16, show_spinner=False)
def _budget(
    _ws: Workspace,
    root: str,
    scope: str,
    period: str | None,
    price: Decimal | None,
    version: str,
    day: int,
) -> BudgetView:
    return budget_view(_ws, scope=scope, period=period, price=price)


@st.cache_resource(max_entries=16, show_spinner=False)
def _quiet(
    _ws: Workspace, root: str, job_id: str, last_steps: int | None, version: str
) -> QuietFailures:
    return quiet_failures(_ws, job_id, last_steps=last_steps)


@st.cache_resource(max_entries=128, show_spinner=False)
def _timeline(
    _ws: Workspace, root: str, job_id: str, step: int, ranks: tuple[int, ...], version: str
) -> StepTimeline:
    return step_timeline(_ws, job_id, step, ranks=ranks, limit=TIMELINE_RANKS)


@st.cache_resource(max_entries=16, show_spinner=False)
def _reports(_ws: Workspace, root: str, job_id: str, version: str) -> Reports:
    return job_reports(_ws, job_id)


@st.cache_resource(max_entries=8, show_spinner="Reading the collectives of the job")
def _collectives(_ws: Workspace, root: str, job_id: str, version: str) -> CollectivesView:
    return collectives_view(_ws, job_id)


@st.cache_resource(max_entries=64, show_spinner=False)
def _job_window(
    _ws: Workspace, root: str, job_id: str, last_steps: int | None, version: str
) -> tuple[int, int]:
    return job_window(_ws, _ws.job(job_id), last_steps)[0]


@st.cache_resource(max_entries=8, show_spinner="Reading the devices of the job")
def _devices(
    _ws: Workspace, root: str, job_id: str, last_steps: int | None, version: str
) -> DevicesView:
    return devices_view(_ws, job_id, last_steps=last_steps)


@st.cache_resource(max_entries=16, show_spinner="Adding up the jobs")
def _executive_view(
    _ws: Workspace,
    root: str,
    price: Decimal | None,
    note: str | None,
    version: str,
    period: int,
) -> ExecutiveView:
    return executive_view(_ws, price=price, price_note=note)


@st.cache_resource(max_entries=8, show_spinner="Looking at all jobs")
def _fleet(
    _ws: Workspace,
    root: str,
    price: Decimal | None,
    note: str | None,
    version: str,
    day: int,
) -> FleetView:
    return fleet_view(_ws, price=price, price_note=note)


@st.cache_resource(max_entries=16, show_spinner="Adding up the bills")
def _whole_bill(
    _ws: Workspace,
    root: str,
    by: str,
    denominator: str,
    tz: str,
    price: Decimal | None,
    version: str,
) -> FleetBill:
    return fleet_bill(_ws, by=by, denominator=denominator, tz=tz, price=price)
