"""What a reader chose, in one typed place. Every choice lives in the URL, so a link shows it too.

Widgets are bound to the URL by their key; nothing else reads or writes those keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import streamlit as st

JOB: Final = "job"
WINDOW: Final = "window"
PRICE: Final = "price"
RANK: Final = "rank"
STEP: Final = "step"
LIVE: Final = "live"
UNIT: Final = "unit"
CELLS: Final = "cells"

# What-if of one job. Whether it is shown has two keys, since it has two defaults.
TRACE: Final = "whatif"
TRACE_ON_DEMAND: Final = "whatif_open"
TRACE_STEP: Final = "trace_step"
TRACE_RANKS: Final = "trace_ranks"
TRACE_WINDOW: Final = "trace_window"
ALL_STEPS: Final = "all steps"
WHOLE_STEP: Final = (0.0, 100.0)
"""Percent of a step."""
_FIX: Final = "fix."
BY: Final = "by"
DENOMINATOR: Final = "denominator"
ZONE: Final = "tz"
BILL_UNIT: Final = "bill_unit"
SIZE_UNIT: Final = "size_unit"

WINDOWS: Final = ("100", "500", "2000", "all")
DEFAULT_WINDOW: Final = "500"


@dataclass(frozen=True)
class Selection:
    """The choices of the strip, as one reader made them. None: nothing was chosen."""

    job_id: str | None
    last_steps: int | None
    """Steps of the window; None: all."""
    price: Decimal | None
    """US dollars per GPU-hour."""
    live: bool


def read() -> Selection:
    """The choices as they stand in this run, once the strip was drawn."""
    window = _get(WINDOW) or DEFAULT_WINDOW
    price = _get(PRICE)
    return Selection(
        job_id=_get(JOB),
        last_steps=None if window == "all" else int(window),
        price=None if price is None else Decimal(repr(price)),
        live=bool(_get(LIVE)),
    )


def start_with_job(job_id: str) -> None:
    """Choose ``job_id`` unless the URL or the reader already named one.

    It goes into the URL, so that a link keeps its job when a newer one appears.
    """
    if JOB not in st.session_state and JOB not in st.query_params:
        st.query_params[JOB] = job_id
        st.session_state[JOB] = job_id


def start_with_price(told: Decimal | None) -> None:
    """Choose the price of the installation unless the URL or the reader already has one.

    It goes into the URL, where a default would be left out: a link must show the same amounts on
    an installation without a price, or with another one.
    """
    if told is not None and PRICE not in st.session_state and PRICE not in st.query_params:
        st.query_params[PRICE] = str(float(told))
        st.session_state[PRICE] = float(told)


def job_options(job_ids: Sequence[str]) -> list[str]:
    """``job_ids`` and the job that a link names, which may be gone or still on its way."""
    named = st.session_state.get(JOB) or st.query_params.get(JOB)
    return [*job_ids] if named is None or named in job_ids else [named, *job_ids]


def choose_job(job_id: str) -> None:
    """Go to another job, over all its steps: the amounts that lead to it are of all of them.

    Rank, step and fixes belonged to the job before. Only from a callback.
    """
    st.session_state[JOB] = job_id
    st.session_state[WINDOW] = WINDOWS[-1]
    for key in (RANK, STEP):
        if key in st.session_state:
            st.session_state[key] = None
    if TRACE_STEP in st.session_state:
        st.session_state[TRACE_STEP] = ALL_STEPS
        st.session_state[TRACE_RANKS] = []
        st.session_state[TRACE_WINDOW] = WHOLE_STEP
    for key in [str(key) for key in st.session_state]:
        if key.startswith(_FIX) and key.count(".") == 1:
            st.session_state[key] = False


def fix_key(fix: str, parameter: str | None = None) -> str:
    """The key of a fix of the what-if rail, or of one of its parameters."""
    return f"{_FIX}{fix}" if parameter is None else f"{_FIX}{fix}.{parameter}"


def choose_rank(rank: int) -> None:
    """Set the rank in focus. Only from a callback."""
    st.session_state[RANK] = rank


def choose_cell(rank: int, step: int) -> None:
    """Set rank and step in focus. Only from a callback."""
    st.session_state[RANK] = rank
    st.session_state[STEP] = step


def selected_row(key: str) -> int | None:
    """The row selected in the table ``key``, if one is. Only from its callback."""
    rows = st.session_state[key].selection.rows
    return rows[0] if rows else None


def selected_box(key: str) -> tuple[list[float], list[float]] | None:
    """Ranges across and down of the box drawn in the figure ``key``. Only from its callback."""
    boxes = st.session_state[key].selection.box
    return (boxes[0]["x"], boxes[0]["y"]) if boxes else None


def selected_point(key: str) -> dict[str, Any] | None:
    """The bar clicked in the figure ``key``, if one is. Only from its callback."""
    points = st.session_state[key].selection.points
    return dict(points[0]) if points else None


def _get(key: str) -> Any:
    return st.session_state.get(key)
