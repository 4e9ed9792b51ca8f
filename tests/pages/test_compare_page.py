"""The Compare page without a browser."""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamlit.testing.v1 import AppTest

from steptax.app.lake import Lake
from steptax.app.views.compare.load import Part, part_of, read_part
from tests.app.device_lake import store_steps
from tests.hostile import NAMES

COMPARE = "../pages/compare.py"
Add = Callable[..., None]
Show = Callable[..., AppTest]
Text = Callable[[AppTest], str]


def test_it_starts_with_both_halves_of_the_job_and_keeps_them_in_the_link(
    add: Add, show: Show, text_of: Text
) -> None:
    add("worker")
    at = show(COMPARE)
    assert not at.exception
    assert not at.error
    said = text_of(at)
    assert "No difference between worker in steps 0–29 and worker in steps 30–59" in said
    assert dict(at.query_params) | {"job": "worker"} == {
        "job": "worker",
        "a": "worker",
        "a_steps": "0-29",
        "b": "worker",
        "b_steps": "30-59",
    }
    assert "steptax compare worker@0-29 worker@30-59" in "\n".join(c.value for c in at.code)
    assert at.get("plotly_chart")


def test_a_link_restores_the_comparison(add: Add, show: Show, text_of: Text) -> None:
    add("worker")
    add("other", ranks=6)
    at = show(COMPARE, a="other", b="worker", b_steps="10-49", price="2.0")
    assert not at.error
    said = text_of(at)
    assert "worker in steps 10–49" in said
    assert "A thousand steps cost $" in said
    assert at.selectbox(key="a").value == "other"
    assert at.text_input(key="b_steps").value == "10-49"
    assert "What differs between the jobs" in said


@pytest.mark.parametrize(
    ("steps", "said"),
    [("9-3", "before step"), ("900-", "no steps there"), ("x", "expected steps as FIRST-LAST")],
)
def test_steps_that_cannot_be_are_told(add: Add, show: Show, steps: str, said: str) -> None:
    add("worker")
    at = show(COMPARE, a="worker", a_steps="0-29", b="worker", b_steps=steps)
    assert not at.exception
    assert said in at.error[0].value.replace("\\", "")


def test_without_steps_it_says_what_to_do(lake: Lake, add: Add, show: Show) -> None:
    add("accounting", kind="jobs", text="job_id,gpus,hours\nk1,8,1\n")
    at = show(COMPARE)
    assert not at.exception
    assert "steptax ingest" in at.info[0].value


@pytest.mark.parametrize(
    "name", [*NAMES.values(), "line\nend", " led", "trailed ", "x@1-2", "a&b=c#d"]
)
def test_a_link_leads_to_a_job_whatever_its_name(
    lake: Lake, show: Show, text_of: Text, name: str
) -> None:
    store_steps(lake, name)
    store_steps(lake, "other", slow=None)
    at = show(COMPARE, a="other", b=name)
    assert not at.exception
    assert not at.error
    assert at.selectbox(key="b").value == name
    link = next(c.value for c in at.code if "?" in c.value and "steptax" not in c.value)
    asked = dict(parse_qsl(link.partition("?")[2], keep_blank_values=True))
    assert asked == {"a": "other", "b": name}
    assert "What differs" in text_of(at) or "Side by side" in text_of(at)


@given(
    st.text(min_size=1).filter(lambda name: not re.search(r"@\d*-\d*\Z", name)),
    st.one_of(st.none(), st.integers(0, 10**9)),
    st.one_of(st.none(), st.integers(10**9, 10**12)),
)
def test_a_part_is_read_as_it_is_written(name: str, first: int | None, last: int | None) -> None:
    part = Part(name, first, last)
    assert part_of(part.job_id, part.steps_text, "A") == part
    assert read_part(part.text, "A") == part
