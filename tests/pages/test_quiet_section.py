"""The quiet failures on the job page."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from streamlit.testing.v1 import AppTest

from steptax.app.views.job import quiet_failures

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


def test_the_steps_of_a_job_that_is_over_are_read_and_analysed_once(
    add: Add, show: Show, text_of: Callable[[AppTest], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Doing both again would make the page of a big job take half as long again."""

    def again(*_: object, **__: object) -> None:
        raise AssertionError("the view of the job has what the section needs")

    monkeypatch.setattr(quiet_failures, "load_job", again)
    monkeypatch.setattr(quiet_failures, "analyse_stragglers", again)
    add("worker")
    at = show("../pages/job.py", job="worker")
    assert not at.exception
    assert "Quiet failures" in text_of(at)
    assert any("failure" in frame.value.columns for frame in at.dataframe)
