"""What jobs give to the calculators, shared by all readers; kept by the version of their data."""

from __future__ import annotations

import contextlib

from steptax.app.errors import NotFoundError, SteptaxError
from steptax.app.views.kept import Latest, unhurried
from steptax.app.views.pricing.of_job import price_version
from steptax.app.views.trace.apply import with_trace
from steptax.app.views.whatif.job import JobInputs, job_inputs
from steptax.app.views.whatif.view import first_calculator
from steptax.pages import data, trace_data, whatif_state
from steptax.pages.state import Selection

_inputs: Latest[JobInputs] = unhurried(8)


def inputs(chosen: Selection, job_id: str) -> JobInputs:
    """The inputs that ``job_id`` gives for these choices, those of its operations among them."""
    ws = data.workspace()
    note = data.price_note(chosen.price)
    found = _inputs.get(
        (ws.key, job_id, chosen.last_steps, chosen.price, price_version(ws)),
        ws.version(job_id),
        lambda: data.with_spinner(
            "Reading the job",
            lambda: job_inputs(
                ws,
                job_id,
                last_steps=chosen.last_steps,
                price=chosen.price,
                price_note=note,
            ),
        ),
        is_live=data.is_running(job_id),
    )
    if not trace_data.has_operations(job_id):
        return found
    return with_trace(found, trace_data.trace(chosen, job_id)[0])


def first(chosen: Selection) -> str:
    """The calculator that is opened on where none is named."""
    job_id = chosen.job_id
    if job_id is not None and whatif_state.starts_from_job() and has_steps(job_id):
        with contextlib.suppress(SteptaxError):  # told once, where the inputs are read
            return first_calculator(inputs(chosen, job_id))
    return first_calculator(None)


def has_steps(job_id: str | None) -> bool:
    """Whether a job is chosen that can fill inputs; cheap."""
    try:
        return job_id is not None and job_id in data.workspace().job_ids_with_steps()
    except NotFoundError:
        return False
