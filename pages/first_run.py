"""The first page of an empty lake: what is on this machine, and how to connect each of it."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from steptax.app.errors import SteptaxError, disk_error
from steptax.app.first_run import Offer, connect, found_here
from steptax.pages import data, parts, reader

_ICONS = {
    "devices": ":material/memory:",
    "accounting": ":material/receipt_long:",
    "server": ":material/monitoring:",
    "lake": ":material/database:",
    "files": ":material/folder_open:",
}
#: What became of the buttons that were pressed, by target.
_SAID = "first_run_said"


def draw() -> None:
    """Three ways to begin, and under them what was found here.

    What lies on a machine is shown to whoever runs it, and to nobody else.
    """
    with st.container(key="empty", border=True):
        st.header("No job yet")
        st.markdown("See it work, on a real job that is trained on this machine, one worker slow:")
        st.code("steptax demo", language=None)
        st.markdown(
            "Read a file of your own job: step times, a log, a trace, a bill; what it is is found "
            "out, and `steptax connectors` lists what can be read:"
        )
        st.code("steptax ingest FILE", language=None)
        st.markdown("Or record it as it trains: three lines in the training loop,")
        st.code(
            "from steptax.connectors.recorder import StepRecorder\n"
            f"rec = StepRecorder({data.lake_told() or 'LAKE'!r}, job_id='my-job', rank=rank)\n"
            "with rec.step(step): ...",
            language=None,
            wrap_lines=True,
        )
    if reader.current().may_manage():
        _on_this_machine()


def _on_this_machine() -> None:
    parts.section("On this machine")
    found = _found(str(data.settings().lake))
    if not found:
        st.caption(
            "Looked for NVIDIA devices, Slurm, Prometheus and its exporters on their usual ports, "
            "lakes, traces and runs of trackers in the usual folders, and into the small logs, "
            f"tables and JSON files of {Path.cwd()}: there is none."
        )
    for place, offer in enumerate(found):
        _offer(place, offer)
    st.button("Look again", on_click=_found.clear, key="look_again", icon=":material/refresh:")


def _offer(place: int, offer: Offer) -> None:
    with st.container(border=True, key=f"offer_{place}"):
        st.markdown(f"{_ICONS[offer.source]} **{parts.plain(offer.title)}**")
        st.caption(parts.plain(f"Gives {offer.gives}."))
        st.code(offer.command, language=None, wrap_lines=True)
        if offer.can_connect:
            st.button(
                "Read it now",
                key=f"connect_{place}",
                on_click=_connect,
                args=(offer,),
                icon=":material/add_link:",
            )
        said = st.session_state.get(_SAID, {}).get(offer.command)
        if said is not None:
            st.caption(parts.plain(said))


def _connect(offer: Offer) -> None:
    if not reader.current().may_manage():  # what one was, one need not be any more
        return
    said = st.session_state.setdefault(_SAID, {})
    with st.spinner("Reading"):
        try:
            said[offer.command] = connect(offer, data.settings().lake)
        except (SteptaxError, OSError) as problem:
            found = problem if isinstance(problem, SteptaxError) else disk_error(problem)
            if found is None:
                raise
            said[offer.command] = f"{found.message}. {found.hint or ''}".strip()


@st.cache_data(ttl=30, show_spinner="Looking at this machine")
def _found(lake: str) -> tuple[Offer, ...]:
    return found_here(but=Path(lake))
