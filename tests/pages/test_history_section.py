"""The whole of a big job on the job page."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from streamlit.testing.v1 import AppTest

from steptax.app.lake import Lake
from steptax.app.lake.retain import retain
from steptax.app.views.job import extent
from steptax.pages import data

Add = Callable[..., None]
Show = Callable[..., AppTest]
TextOf = Callable[[AppTest], str]


def test_a_big_job_tells_its_whole_history(
    add: Add, show: Show, text_of: TextOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extent, "BIG_ROWS", 10)
    add("worker")
    at = show("../pages/job.py", job="worker")
    assert not at.exception
    text = text_of(at)
    assert "The whole job: " in text
    assert "a column is 60 steps" in text, "the whole job, which is shorter than a block"
    (table,) = [f.value for f in at.dataframe if "slow_blocks" in f.value.columns]
    assert table["excess_ms"].iloc[0] == table["excess_ms"].max()
    assert f"rank {table['rank'].iloc[0]} worked" in text


def test_a_small_job_has_no_section_of_its_own(add: Add, show: Show, text_of: TextOf) -> None:
    add("worker")
    assert "The whole job: " not in text_of(show("../pages/job.py", job="worker"))


def test_a_job_whose_rows_were_dropped_says_so_and_tells_its_history(
    add: Add, show: Show, text_of: TextOf
) -> None:
    add("worker")
    lake = Lake(data.settings().lake)
    assert retain(lake, 2**62, tables=["steps"]).dropped
    at = show("../pages/job.py", job="worker")
    assert not at.exception
    text = text_of(at)
    assert "480 raw rows of steps 0 to 59 were dropped on" in text
    assert "their roll-ups remain" in text
    assert "The whole job: 60 steps" in text
    (table,) = [f.value for f in at.dataframe if "slow_blocks" in f.value.columns]
    assert table["rank"].iloc[0] == 5
    assert "raw rows of steps 0 to 59 were dropped" in text_of(show("../pages/health.py"))
