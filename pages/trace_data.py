"""The what-if analysis of jobs, shared by all readers; kept by the version of their data."""

from __future__ import annotations

import io
import time

import streamlit as st

from steptax.app.views.models import Price
from steptax.app.views.pricing.of_job import job_price
from steptax.app.views.trace.models import TraceView
from steptax.app.views.trace.view import TraceJob, open_trace, trace_view
from steptax.app.views.workspace import Workspace
from steptax.app.whatif.chrome import write_chrome
from steptax.pages import data
from steptax.pages.state import Selection

LIVE_EVERY_S = 60
"""How old the analysis of a running job may be: its data changes with every step."""


def has_operations(job_id: str) -> bool:
    """Whether operations of the job are stored, and not only its per-rank steps; cheap."""
    return job_id in data.workspace().lake.job_ids("ops")


def trace(chosen: Selection, job_id: str, *, is_live: bool = False) -> tuple[TraceJob, TraceView]:
    """The analysed operations of a job, which is the slow part, and its view at the chosen price.

    With ``is_live`` it may be ``LIVE_EVERY_S`` old. NotFoundError for a job without steps.
    """
    ws = data.workspace()
    version = f"live {time.time() // LIVE_EVERY_S:.0f}" if is_live else ws.version(job_id)
    key = (ws.key, job_id, version)
    analysed = _analysed(ws, *key)
    return analysed, _view(analysed, *key, price(chosen, job_id))


def price(chosen: Selection, job_id: str) -> Price:
    """What a GPU-hour of the job costs, by the rule of every page."""
    return job_price(data.workspace(), job_id, chosen.price, data.price_note(chosen.price))


def chrome_file(analysed: TraceJob, step: int) -> bytes:
    """One step, as recorded and ideal, for Perfetto and chrome://tracing; empty without a graph."""
    target = io.BytesIO()
    if analysed.analysis is not None:
        write_chrome(target, analysed.analysis.model, steps=[step], job=analysed.job_id)
    return target.getvalue()


@st.cache_resource(max_entries=3, show_spinner="Simulating the operations of the job")
def _analysed(_ws: Workspace, root: str, job_id: str, version: str) -> TraceJob:
    return open_trace(_ws, job_id)


@st.cache_resource(max_entries=12, show_spinner=False)
def _view(
    _analysed: TraceJob,
    root: str,
    job_id: str,
    version: str,
    price: Price,
) -> TraceView:
    return trace_view(_analysed, price)
