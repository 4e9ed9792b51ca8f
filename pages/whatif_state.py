"""What a reader chose on the What-if page, in the URL.

``calc`` names the calculator; each typed input is ``<calculator>.<parameter>``, so that inputs of
two calculators never meet; ``from_job`` starts from the chosen job's own measurements;
``on_trace`` simulates the same change on its recorded operations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final
from urllib.parse import urlencode

import streamlit as st

from steptax.pages import state

CALC: Final = "calc"
FROM_JOB: Final = "from_job"
ON_TRACE: Final = "on_trace"
#: The widget of ``CALC``. It is not bound itself: the URL would then carry titles, not names.
CHOICE: Final = "calc_choice"


def input_key(calculator: str, parameter: str) -> str:
    """The key of an input, in the URL and in the state."""
    return f"{calculator}.{parameter}"


def start_with_calculator(names: Sequence[str], first: Callable[[], str]) -> None:
    """Choose what the URL names, else what ``first`` says; a name that is none is ignored."""
    if CHOICE not in st.session_state:
        named = st.query_params.get(CALC)
        st.session_state[CHOICE] = named if named in names else first()


def starts_from_job() -> bool:
    """Whether the job chosen fills the inputs, as far as is said before its switch is drawn."""
    held = st.session_state.get(FROM_JOB)
    return st.query_params.get(FROM_JOB) != "false" if held is None else bool(held)


def keep_calculator(name: str) -> None:
    """Put the choice into the URL."""
    if st.query_params.get(CALC) != name:
        st.query_params[CALC] = name


def typed_names(calculator: str) -> set[str]:
    """Inputs of the calculator that somebody typed, or that the URL gives."""
    prefix = input_key(calculator, "")
    held = {str(key): st.session_state[key] for key in st.session_state}
    given = {**st.query_params.to_dict(), **held}
    return {
        key.removeprefix(prefix)
        for key, value in given.items()
        if key.startswith(prefix) and value not in (None, "")
    }


def link(calculator: str, typed: Mapping[str, str], chosen: state.Selection, *, job: bool) -> str:
    """The part of a URL after the ``?`` that shows this answer again."""
    parameters = {CALC: calculator}
    parameters |= {input_key(calculator, name): value for name, value in typed.items()}
    if not job:
        # Else a reader's newest job would fill what was left alone here.
        parameters |= {FROM_JOB: "false"}
    elif chosen.job_id is not None:
        window = "all" if chosen.last_steps is None else str(chosen.last_steps)
        parameters |= {FROM_JOB: "true", state.JOB: chosen.job_id, state.WINDOW: window}
    if chosen.price is not None:
        parameters[state.PRICE] = str(chosen.price)
    return urlencode(parameters)
