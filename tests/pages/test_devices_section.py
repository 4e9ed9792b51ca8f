"""Devices of a job on its page: who runs slower than its peers and why, and who is not known."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from steptax.app.lake import Lake
from steptax.app.lake.segments import job_folder
from steptax.pages import data
from tests.app import device_lake
from tests.app.device_lake import (
    HOT,
    START,
    STEPS,
    hot,
    store_ranks,
    store_samples,
    store_steps,
)
from tests.app.fleet_lake import S, job, rows

JOB = "../pages/job.py"
Show = Callable[..., AppTest]
Text = Callable[[AppTest], str]


def store(lake: Lake, *, steps: bool = True, state: str = "completed") -> None:
    record = job("a", START, START + STEPS * S, world_size=8, state=state)
    lake.append("jobs", rows([record]), source="test")
    store_ranks(lake, "a")
    if steps:
        store_steps(lake, "a")


def frame(at: AppTest) -> Any:
    (found,) = [e.value for e in at.dataframe if "sm_clock_mhz" in e.value.columns]
    return found


def test_the_slow_rank_and_its_hot_device_stand_on_one_page(
    lake: Lake, show: Show, text_of: Text
) -> None:
    store(lake)
    store_samples(lake, devices=range(7))
    at = show(JOB, job="a")
    assert not at.exception
    assert not at.error
    said = text_of(at)
    pointed = "something is out of line with the GPU of rank 5"
    verdict = (
        ") ran at 1,218 MHz while its peers ran at 1,755 (thermal slowdown 83.3 % of "
        "its time at work)"
    )
    assert f"Devices](#devices): {pointed}" in said
    # It is said once, with the place of the device; what leads there names the rank alone.
    assert said.count("ran at 1,218 MHz") == 1
    assert verdict in said
    assert "Rank 5 makes the other 7 wait" in said
    assert "7 of 8 ranks' devices observed by nvml" in said
    assert "1 not known: no samples of GPU-00000007" in said
    shown = frame(at)
    assert shown["rank"].tolist() == [HOT, 0, 1, 2, 3, 4, 6, 7]
    assert shown["throttled_ratio"].tolist()[:2] == pytest.approx([100 * 50 / 60, 0.0])
    assert shown["peers_sm_clock_mhz"].tolist()[:2] == [1755.0, 1755.0]
    assert shown["finding"].tolist()[1] == "nothing"
    # what is not known is empty and not 0
    assert shown.iloc[-1][["sm_clock_mhz", "throttled_ratio", "finding"]].isna().all()
    assert "no samples" in shown["unknown"].tolist()[-1]


def test_the_window_of_the_page_is_that_of_the_devices(
    lake: Lake, show: Show, text_of: Text
) -> None:
    store(lake)
    store_samples(lake, {HOT: lambda s: hot(s) if s < 30 else {}})
    assert "steps 0 to 59" in text_of(show(JOB, job="a", window="all"))


def test_no_section_where_no_device_was_sampled(lake: Lake, show: Show, text_of: Text) -> None:
    store(lake)
    assert "Devices" not in text_of(show(JOB, job="a"))


def test_where_no_device_is_identified_it_says_so_and_shows_no_table(
    lake: Lake, show: Show, text_of: Text
) -> None:
    store(lake)
    store_ranks(lake, "b", gpu_uuid=None)
    store_steps(lake, "b")
    store_samples(lake)
    at = show(JOB, job="b")
    said = text_of(at)
    assert "Nothing is known of the devices: GPU not identified" in said
    assert "](#devices)" not in said
    assert not any("sm_clock_mhz" in e.value.columns for e in at.dataframe)


def test_a_job_without_steps_has_its_devices_too(lake: Lake, show: Show, text_of: Text) -> None:
    store(lake, steps=False)
    store_samples(lake)
    at = show(JOB, job="a")
    assert not at.exception
    said = text_of(at)
    assert "Rank 5's GPU (" in said
    assert "the job, as its record has it" in said


def test_a_job_whose_time_is_not_known_says_what_to_do(
    lake: Lake, show: Show, text_of: Text
) -> None:
    lake.append("jobs", rows([job("a", None, None, time_basis="relative")]), source="test")
    store_ranks(lake, "a")
    store_steps(lake, "a")
    store_samples(lake)
    at = show(JOB, job="a")
    assert not at.exception
    assert "when job 'a' ran is not known" in text_of(at)


def test_new_samples_are_seen_and_the_rest_is_kept(lake: Lake) -> None:
    store(lake)
    store_samples(lake, {})
    st.cache_resource.clear()
    first = data.devices("a", None, is_live=False)
    assert data.devices("a", None, is_live=False) is first
    assert first.findings == ()
    # what the nodes say after the job's end is not of it
    store_samples(lake, {HOT: hot}, seconds=range(10 * STEPS, 11 * STEPS))
    assert data.devices("a", None, is_live=False) is first
    store_samples(lake, {HOT: hot}, source="prometheus:dcgm", seconds=range(STEPS))
    assert data.devices("a", None, is_live=False).findings


def test_a_running_job_is_looked_at_again_and_again(
    lake: Lake, show: Show, text_of: Text, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time_ns() // 1000 - STEPS * S
    monkeypatch.setattr(device_lake, "START", now)
    record = job("a", now, None, world_size=8, state="running")
    lake.append("jobs", rows([record]), source="test")
    store_ranks(lake, "a")
    store_steps(lake, "a")
    store_samples(lake)
    folder = lake.root / "live" / job_folder("a")
    folder.mkdir(parents=True)
    for rank in range(8):
        beat = {"rank": rank, "state": "running", "ts_us": now + STEPS * S, "step": STEPS}
        beat |= {"phase": "compute", "phase_since_us": now, "last_step_done": STEPS - 1}
        (folder / f"rank-{rank:05d}.json").write_text(json.dumps(beat))
    at = show(JOB, job="a")
    assert not at.exception
    said = text_of(at)
    # the line at the top does not say what may have changed since it was drawn
    assert "Devices](#devices): clocks, throttling and errors of each rank's GPU" in said
    assert ") ran at 1,218 MHz" in said
    clock = data.time.time() + data.DEVICES_EVERY_S
    store_samples(lake, {3: lambda _: {"pcie_width": 4}}, source="dcgm:more")
    monkeypatch.setattr(data.time, "time", lambda: clock)
    assert any(f.facts.rank == 3 for f in data.devices("a", 500, is_live=True).findings)
