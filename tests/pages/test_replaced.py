"""A tab that is open for long does not hold on to what it showed before."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from streamlit.testing.v1 import AppTest

from steptax.app.lake import Lake
from steptax.app.views.job.models import JobView

JOB, FLEET = "../pages/job.py", "../pages/fleet.py"
RANKS = 8


def more_steps(lake: Lake, first: int) -> None:
    """Two steps of the job ``worker`` from ``first`` on, as a recorder would add them."""
    rows: dict[str, Any] = {
        "job_id": ["worker"] * 2 * RANKS,
        "attempt": pa.array([0] * 2 * RANKS, pa.int32()),
        "step": [first] * RANKS + [first + 1] * RANKS,
        "rank": pa.array([*range(RANKS)] * 2, pa.int32()),
        "duration_us": [150_000 + first] * 2 * RANKS,
        "compute_us": [100_000 + 100 * rank + first for rank in range(RANKS)] * 2,
        "comm_us": [40_000 - 100 * rank for rank in range(RANKS)] * 2,
    }
    lake.append("steps", pa.table(rows), source="made")


def known(at: AppTest) -> dict[str, Any]:
    """The widgets that the session knows what to do about."""
    session = at.session_state._state._state._new_widget_state
    found: dict[str, Any] = session.widget_metadata
    return found


@pytest.fixture(autouse=True)
def young() -> Iterator[None]:
    """Leave what tests before these made out of what is looked through: it may be millions."""
    gc.freeze()
    yield
    gc.unfreeze()


def views() -> int:
    gc.collect()
    return sum(isinstance(one, JobView) for one in gc.get_objects())


def test_a_refresh_leaves_nothing_of_the_one_before(
    lake: Lake, add: Callable[..., None], show: Callable[..., AppTest]
) -> None:
    add("worker", steps=30)
    at = show(JOB, job="worker")
    names = at.session_state._state._state._key_id_mapper._id_key_mapping
    sizes, alive, drawn = [], [], set()
    for first in range(30, 38, 2):
        more_steps(lake, first)
        at.run()
        assert not at.exception
        drawn |= {one.proto.id for one in at.get("plotly_chart") if one.proto.id.endswith("-heat")}
        sizes.append((len(known(at)), len(names)))
        alive.append(views())
    assert len(drawn) == len(sizes)  # each of them is another widget to Streamlit
    assert sizes[-1] == sizes[1]
    assert alive[-1] == alive[1]


def test_what_was_chosen_in_the_figure_before_still_counts(
    lake: Lake, add: Callable[..., None], show: Callable[..., AppTest]
) -> None:
    add("worker", steps=30)
    at = show(JOB, job="worker")
    before = {one for one in known(at) if one.endswith("-heat")}
    more_steps(lake, 30)
    at.run()
    # The browser may have sent the choice before it got the next figure.
    assert before <= known(at).keys()
    at.run()
    assert not before & known(at).keys()


def test_a_page_that_was_left_is_forgotten(
    lake: Lake, add: Callable[..., None], show: Callable[..., AppTest]
) -> None:
    add("worker", steps=30)
    at = show(JOB, job="worker")
    of_job = {one for one in known(at) if one.endswith(("-heat", "-ranks"))}
    assert of_job
    at.switch_page(FLEET).run()
    at.run()
    assert not at.exception
    assert not of_job & known(at).keys()
    # Back again, all is there.
    at.switch_page(JOB).run()
    assert not at.exception
    assert {one for one in known(at) if one.endswith(("-heat", "-ranks"))}
