"""View models of one job and of the lake for the pages, shared by all readers.

Views are frozen, so one object serves every session. They are kept by what they are made from:
the lake as its reader sees it, the choices and the version of its data. Of a running job also a
coarse clock counts, since "newest step 14 s ago" and "stopped reporting" change while the data does
not.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from steptax.app.access import AccessDeniedError
from steptax.app.errors import NotFoundError
from steptax.app.settings import Settings, current_settings
from steptax.app.tabs import paced_s
from steptax.app.views.alert_list import alert_rows
from steptax.app.views.bill.record import RecordView, record_view
from steptax.app.views.bill.sharing import neighbours_version
from steptax.app.views.collectives.view import CollectivesView, collectives_view
from steptax.app.views.devices.view import (
    DevicesView,
    devices_view,
    has_devices,
    job_window,
    samples_version,
)
from steptax.app.views.far import heard_by
from steptax.app.views.health import health_view
from steptax.app.views.health_models import HealthView
from steptax.app.views.job import running
from steptax.app.views.job.detector_score import DetectorScore, detector_score
from steptax.app.views.job.history import HistoryView, history_view
from steptax.app.views.job.models import JobView, StepTimeline
from steptax.app.views.job.newest import NewestStep, newest_step
from steptax.app.views.job.quiet_failures import QuietFailures, quiet_failures
from steptax.app.views.job.view import job_view, step_timeline
from steptax.app.views.kept import Latest
from steptax.app.views.pricing.of_job import price_version
from steptax.app.views.reported.models import Reports
from steptax.app.views.reported.view import job_reports
from steptax.app.views.workspace import Workspace, open_workspace
from steptax.pages import reader
from steptax.pages.state import Selection

NEWEST_EVERY_S = 1
"""Period of the line that tells the newest step of a running job."""

WAITING_EVERY_S = 1
"""Period of a page that waits for a first job, or for the first step of one."""

YOUNG_S = 60
"""Age of the newest step up to which a job that is not heard of may have just begun."""

LIVE_EVERY_S = 2
"""Period of a live page. Faster ones pile up in a browser that draws more slowly."""

BIG_LIVE_EVERY_S = 5
"""The same of a window of many rows, of which all that is said takes a second to work out."""

_BIG_REPORTS = 100_000

COLLECTIVES_EVERY_S = 60
"""How old what is said of a running job's collectives may be: they change with every step."""

DEVICES_EVERY_S = 30
"""How old what is said of the devices of a running job may be: samples come every ten seconds."""

QUIET_EVERY_S = 30
"""How old what is said of the quiet failures of a running job may be."""

RUNNING_EVERY_S = 5
"""How old may be what is known of whether a job runs."""

TIMELINE_RANKS = 20
"""Ranks drawn of one step; more do not fit a screen."""

T = TypeVar("T")


#: Of a running job the newest view serves all who watch it; a slow one is made beside them.
_job_views = Latest[JobView](
    16, lambda view: view.coverage.is_live, LIVE_EVERY_S, rest=2.0, beside=True
)
_running = Latest[bool](256, lambda _: True, RUNNING_EVERY_S)
_newest = Latest[NewestStep](16, lambda _: True, NEWEST_EVERY_S)
_histories = Latest[HistoryView | None](16)
_quiets = Latest[QuietFailures](16)
_timelines = Latest[StepTimeline](32)
_reported = Latest[Reports](16)
_collected = Latest[CollectivesView](8)
_of_devices = Latest[DevicesView](8)


def settings() -> Settings:
    """What this installation was told from outside."""
    return current_settings()


def workspace() -> Workspace:
    """The lake of this installation, as its reader may see it.

    NotFoundError where there is none yet; AccessDeniedError for a reader who may see nothing.
    """
    teams = reader.current().teams
    return _workspace(str(settings().lake), None if teams is None else tuple(sorted(teams)))


def lake_told() -> str | None:
    """Where the lake is, for who runs it: nobody else is told about this machine."""
    return settings().lake_place if reader.current().may_manage() else None


def price_note(price: Decimal | None) -> str | None:
    """Who set the price: the installation says so itself, for its own price only."""
    told = settings()
    return told.price_note if price is not None and price == told.price_usd_per_gpu_hour else None


def job(selection: Selection, job_id: str) -> JobView:
    """The view of ``job_id`` for these choices."""
    ws = workspace()
    price, note = selection.price, price_note(selection.price)
    life = "runs" if is_running(job_id) else "rests"
    return _job_views.get(
        (ws.key, job_id, selection.last_steps, price, note),
        "-".join((ws.version(job_id), neighbours_version(ws, job_id), price_version(ws), life)),
        lambda: job_view(
            ws,
            job_id,
            price=price,
            price_note=note,
            last_steps=selection.last_steps,
            with_quiet=True,
        ),
    )


def live_every_s(view: JobView) -> int:
    """How often a page of the running job of ``view`` is drawn anew, in seconds."""
    is_big = view.coverage.reports_expected >= _BIG_REPORTS
    return paced_s(BIG_LIVE_EVERY_S if is_big else LIVE_EVERY_S)


def newest(selection: Selection, job_id: str) -> NewestStep:
    """The newest step of a running job; its view is kept young on the way."""
    ws = workspace()
    view = job(selection, job_id)
    version = ws.lake.version("steps", job_id)
    return _newest.get((ws.key, job_id), version, lambda: newest_step(ws, view))


def timeline(view: JobView, step: int, ranks: tuple[int, ...]) -> StepTimeline:
    """One step of the job of ``view``."""
    ws = workspace()
    job_id, culprits = view.header.job_id, view.card.culprit_ranks
    return _timelines.get(
        (ws.key, job_id, step, ranks, culprits),
        view.version,
        lambda: step_timeline(
            ws, job_id, step, ranks=ranks, culprits=culprits, limit=TIMELINE_RANKS
        ),
    )


def reports(job_id: str) -> Reports:
    """What others say of a job, also of one without steps."""
    ws = workspace()
    versions = [ws.lake.version(name, job_id) for name in ("printed_metrics", "reported_scores")]
    return _reported.get((ws.key, job_id), "-".join(versions), lambda: job_reports(ws, job_id))


def record(job_id: str, price: Decimal | None) -> RecordView:
    """The bill of a job without steps, from its record alone."""
    return record_view(workspace(), job_id, price=price, price_note=price_note(price))


def is_running(job_id: str) -> bool:
    """Whether the job runs now, as its recorders say; none does that is not there."""
    ws = workspace()
    return _running.get((ws.key, job_id), "", lambda: running.is_running(ws, job_id))


def something_runs() -> bool:
    """Whether any job that the reader may see runs now."""
    ws = workspace()
    return _running.get((ws.key,), "", lambda: running.something_runs(ws))


def has_ended(job_id: str) -> bool:
    """Whether the record of the job says that it runs no more; NotFoundError for no such job."""
    job = workspace().job(job_id)
    return job.get("end_us") is not None or job.get("state") not in (None, "running", "pending")


def has_bill() -> bool:
    """Whether a provider's bill is connected; cheap."""
    with contextlib.suppress(NotFoundError):
        return bool(workspace().lake.segments("charges"))
    return False


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
    return _collected.get(
        (ws.key, job_id),
        version,
        lambda: with_spinner(
            "Reading the collectives of the job", lambda: collectives_view(ws, job_id)
        ),
    )


def devices_are_there(job_id: str) -> bool:
    """Whether devices were sampled and the ranks of the job are known; cheap."""
    return has_devices(workspace(), job_id)


def devices(job_id: str, last_steps: int | None, *, is_live: bool) -> DevicesView:
    """The devices of a job; with ``is_live`` what is said may be ``DEVICES_EVERY_S`` old.

    NotFoundError where the time or the ranks of the job are not known.
    """
    ws = workspace()
    if is_live:
        version = f"live {_clock(DEVICES_EVERY_S)}"
    else:
        parts = [ws.lake.version(name, job_id) for name in ("steps", "ranks")]
        version = "-".join([*parts, ws.lake.version("jobs")])
        # Nodes are sampled all the time: what they say now changes nothing of a job that is over.
        window_us = _job_window(ws, ws.key, job_id, last_steps, version)
        version += f"-{samples_version(ws, window_us)}"
    return _of_devices.get(
        (ws.key, job_id, last_steps),
        version,
        lambda: with_spinner(
            "Reading the devices of the job",
            lambda: devices_view(ws, job_id, last_steps=last_steps),
        ),
    )


def quiet(selection: Selection, job_id: str, *, is_live: bool) -> QuietFailures:
    """The quiet failures of a job; with ``is_live`` they may be ``QUIET_EVERY_S`` old.

    Of a job that is over its view has them. NotFoundError for a job without steps.
    """
    found = None if is_live else job(selection, job_id).quiet
    if found is not None:
        return found
    ws, last_steps = workspace(), selection.last_steps
    version = f"live {_clock(QUIET_EVERY_S)}" if is_live else ws.version(job_id)
    return _quiets.get(
        (ws.key, job_id, last_steps),
        version,
        lambda: quiet_failures(ws, job_id, last_steps=last_steps),
    )


def history(job_id: str, *, is_live: bool) -> HistoryView | None:
    """All steps of a big job; None for a small one. With ``is_live`` ``QUIET_EVERY_S`` old."""
    ws = workspace()
    version = f"live {_clock(QUIET_EVERY_S)}" if is_live else ws.version(job_id)
    return _histories.get((ws.key, job_id), version, lambda: history_view(ws, job_id))


def health() -> HealthView:
    """Sources, rows and rejects, which are of all teams; cheap, and only useful when fresh."""
    return health_view(_managed())


def score() -> DetectorScore:
    """How good the detector is, as it was measured last."""
    return detector_score(workspace().root)


def alerts() -> list[dict[str, Any]]:
    """Alerts of this lake, open ones first."""
    return alert_rows(_managed().root)


def _managed() -> Workspace:
    """The whole lake, for who runs it; AccessDeniedError for anybody else."""
    who = reader.current()
    if not who.may_manage():
        raise AccessDeniedError(
            "sources, rejected rows and alerts are of all teams",
            where=who.user,
            hint="an admin sees them",
        )
    return workspace()


def with_spinner(text: str, make: Callable[[], T]) -> T:
    """What ``make`` gives; ``text`` and how far it has come are on the page until then."""
    if get_script_run_ctx(suppress_warning=True) is None:  # made beside the page that is drawn
        return make()
    with st.container(), st.spinner(text):
        bar = st.empty()
        with heard_by(lambda far: bar.progress(far.share_ratio, far.text)):
            made = make()
        bar.empty()
        return made


def _clock(every_s: int) -> int:
    """The current period of ``every_s`` seconds."""
    return int(time.time() // every_s)


@st.cache_resource(max_entries=32, show_spinner=False)
def _workspace(root: str, teams: tuple[str, ...] | None) -> Workspace:
    return open_workspace(Path(root), teams=teams)


@st.cache_resource(max_entries=64, show_spinner=False)
def _job_window(
    _ws: Workspace, root: str, job_id: str, last_steps: int | None, version: str
) -> tuple[int, int]:
    return job_window(_ws, _ws.job(job_id), last_steps)[0]
