"""A calculator's numbers applied to the recorded operations of the chosen job."""

from __future__ import annotations

from urllib.parse import urlencode

import streamlit as st

from steptax.app.charts.card import basis_text, value_text
from steptax.app.views.trace.apply import APPLICABLE, Applied, applied
from steptax.app.views.trace.view import TraceJob
from steptax.app.views.whatif.models import WhatIfView
from steptax.pages import frame, parts, state, trace_data, whatif_state

_STYLE = """
.st-key-whatif_both { display: grid; grid-template-columns: repeat(auto-fit, minmax(210px, 1fr)); }
.st-key-whatif_both > * { width: auto !important; }
"""


def choose(name: str, chosen: state.Selection) -> bool:
    """The switch; it is there for calculators and jobs that have a simulation to compare with."""
    if name not in APPLICABLE or chosen.job_id is None:
        return False
    if not trace_data.has_operations(chosen.job_id):
        return False
    return bool(
        st.toggle(
            "Apply to this trace",
            key=whatif_state.ON_TRACE,
            bind="query-params",
            help="Simulate the same change on the recorded operations of the job chosen above.",
        )
    )


def analysed(chosen: state.Selection) -> TraceJob | None:
    """The analysed operations of the chosen job, where it has any."""
    if chosen.job_id is None or not trace_data.has_operations(chosen.job_id):
        return None
    return trace_data.trace(chosen, chosen.job_id)[0]


def draw(view: WhatIfView, job: TraceJob, chosen: state.Selection) -> None:
    """Both answers beside each other, and how far they are apart."""
    with frame.guarded("whatif_trace_problem"):
        found = applied(job, view, trace_data.price(chosen, job.job_id).usd_per_gpu_hour)
        if found is None:
            st.caption("Type what is not known, and the trace answers it too.")
            return
        st.html(f"<style>{_STYLE}</style>")
        with st.container(border=True, key="whatif_trace"):
            st.markdown(f"**Simulated on the trace of {parts.plain(found.job_id)}**")
            with st.container(horizontal=True, key="whatif_both"):
                _both(found)
            st.markdown(parts.plain(found.text))
            said = [
                "A calculator adds up parts of a step; the simulation knows what waits for what"
            ]
            if found.sim_error.value is not None:
                said.append(f"error of the simulation {value_text(found.sim_error)}")
            st.caption(parts.plain(" · ".join([*said, *found.warnings])))
            st.markdown(f"[Open it on the job page]({_link(found, chosen)})")


def _both(found: Applied) -> None:
    title = found.title[:1].upper() + found.title[1:]
    for key, name, measure in (
        ("calculated", f"{title}, calculated", found.calculated),
        ("simulated", f"{title}, simulated", found.simulated),
    ):
        with st.container(key=f"whatif_{key}", border=True, gap=None):
            st.metric(
                parts.plain(name),
                "unknown" if measure is None else parts.plain(value_text(measure)),
            )
            st.caption(
                "an input is missing" if measure is None else parts.plain(basis_text(measure))
            )


def _link(found: Applied, chosen: state.Selection) -> str:
    """The job page with the same changes ticked."""
    parameters = {state.JOB: found.job_id}
    if chosen.price is not None:
        parameters[state.PRICE] = str(chosen.price)
    for fix in found.fixes:
        kind, *rest = fix.split(":")
        parameters[state.fix_key(kind)] = "true"
        if kind == "worst":
            parameters[state.fix_key(kind, "k")] = rest[0]
        else:
            parameters[state.fix_key(kind, "factor")] = rest[-1]
    return f"job?{urlencode(parameters)}#what-if"
