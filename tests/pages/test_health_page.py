"""Data & health without a browser."""

from __future__ import annotations

from collections.abc import Callable

from streamlit.testing.v1 import AppTest

from steptax.app.metrics import METRICS

HEALTH = "../pages/health.py"

Add = Callable[..., None]
Show = Callable[..., AppTest]


def test_sources_rows_and_rejects_with_their_reason(
    add: Add, show: Show, text_of: Callable[[AppTest], str]
) -> None:
    add("broken", text="step,rank,duration_ms\n0,0,10\n0,1,abc\n1,0,10\n1,1,12\n")
    at = show(HEALTH)
    assert not at.exception
    assert "1 rows were rejected" in text_of(at)
    sources = at.dataframe[0].value
    assert list(sources["source"]) == ["steps:broken.csv"]
    assert list(sources["rejected"]) == [1]
    rejects = at.dataframe[1].value
    assert "abc" in rejects["reason"][0]
    assert rejects["source_row"][0] == 3
    stored = at.dataframe[2].value.set_index("table")
    assert stored.loc["steps", "rows"] == 3
    listed = at.dataframe[3].value
    assert set(listed["id"]) == set(METRICS)


def test_nothing_rejected_is_said(add: Add, show: Show, text_of: Callable[[AppTest], str]) -> None:
    add("fine")
    at = show(HEALTH)
    assert not at.exception
    assert "None." in text_of(at)
