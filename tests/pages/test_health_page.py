"""Data & health without a browser."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from streamlit.testing.v1 import AppTest

from steptax.app.alerts.store import STATE_FILE, AlertStore
from steptax.app.compute.alerting import Phase, Standing
from steptax.app.lake import Lake
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
    score = at.dataframe[3].value
    assert score["target"].notna().sum() >= 4
    by_group = at.dataframe[4].value
    assert "lost rows" in set(by_group["group"])
    listed = at.dataframe[5].value
    assert set(listed["id"]) == set(METRICS)


def test_nothing_rejected_is_said(add: Add, show: Show, text_of: Callable[[AppTest], str]) -> None:
    add("fine")
    at = show(HEALTH)
    assert not at.exception
    assert "None." in text_of(at)


def test_alerts_are_listed_with_who_was_told(
    lake: Lake, add: Add, show: Show, text_of: Callable[[AppTest], str]
) -> None:
    add("worker")
    store = AlertStore(lake.root / STATE_FILE)
    store.keep("tax", "worker", Standing(Phase.FIRING, 1))
    store.fired(
        rule="tax",
        job="worker",
        severity="critical",
        metric="straggler_tax_ratio",
        value=0.2,
        text="too much",
        at_us=1_800_000_000_000_000,
        channels=("ops",),
    )
    store.close()
    at = show(HEALTH)
    assert not at.exception
    assert "Alerts" in text_of(at)
    found = at.dataframe[0].value
    assert list(found["told"]) == ["ops fired: waiting"]
    assert found["cleared_us"].isna().all()


def test_gaps_between_samples_are_marked(
    lake: Lake, add: Add, show: Show, text_of: Callable[[AppTest], str]
) -> None:
    add("fine")
    begin_us = 1_746_000_000_000_000
    at_us = [begin_us + s * 1_000_000 for s in range(1200) if not 300 <= s < 900]
    rows = pa.table(
        {"host": ["node-a"] * len(at_us), "gpu_uuid": ["GPU-1"] * len(at_us), "ts_us": at_us}
    )
    lake.append("device_samples", rows, source="t")
    at = show(HEALTH)
    assert not at.exception
    assert "Gaps between samples of devices" in text_of(at)
    assert "10 min of 1 device of node-a, begins at 2025-04-30 08:04:59 UTC" in text_of(at)
    [gaps] = [d.value for d in at.dataframe if "hours" in d.value]
    assert list(gaps["where"]) == ["1 device of node-a"]
    assert list(gaps["state"]) == ["over"]
