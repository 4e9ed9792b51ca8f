"""What jobs give to the calculators, shared by all readers; kept by the version of their data."""

from __future__ import annotations

from decimal import Decimal

import streamlit as st

from steptax.app.views.trace_apply import with_trace
from steptax.app.views.whatif_job import JobInputs, job_inputs
from steptax.app.views.workspace import Workspace
from steptax.pages import data, trace_data
from steptax.pages.state import Selection


def inputs(chosen: Selection, job_id: str) -> JobInputs:
    """The inputs that ``job_id`` gives for these choices, those of its operations among them."""
    ws = data.workspace()
    found = _inputs(ws, ws.key, job_id, chosen.last_steps, chosen.price, ws.version(job_id))
    if not trace_data.has_operations(job_id):
        return found
    return with_trace(found, trace_data.trace(chosen, job_id)[0])


@st.cache_resource(max_entries=16, show_spinner="Reading the job")
def _inputs(
    _ws: Workspace,
    root: str,
    job_id: str,
    last_steps: int | None,
    price: Decimal | None,
    version: str,
) -> JobInputs:
    return job_inputs(_ws, job_id, last_steps=last_steps, price=price)
