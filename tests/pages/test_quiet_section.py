"""The quiet failures on the job page."""

from __future__ import annotations

from collections.abc import Callable

from streamlit.testing.v1 import AppTest

Add = Callable[..., None]
Show = Callable[..., AppTest]


def test_a_job_tells_its_quiet_failures(
    add: Add, show: Show, text_of: Callable[[AppTest], str]
) -> None:
    add("worker")
    at = show("../pages/job.py", job="worker")
    assert not at.exception
    assert "Quiet failures" in text_of(at)
    (table,) = [f.value for f in at.dataframe if "failure" in f.value.columns]
    found = table.set_index("title")
    assert not {"value", "unit"} & set(table.columns)  # what was found says both
    assert float(found.loc["waiting for slow ranks", "found"].split(" %")[0]) > 10
    assert found.loc["steps that stalled", "found"].startswith("0")
    assert "no save has a begin" in found.loc["a save takes", "found"]
