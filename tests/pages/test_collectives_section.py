"""Collectives of a job on its page: who holds up a hang, who comes last, bandwidth by size."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from steptax.app.charts.collectives import bandwidth_table
from steptax.app.ingest import ingest_file
from steptax.app.lake import Lake
from steptax.app.lake.segments import job_folder
from steptax.connectors.base import Options
from steptax.pages import data

JOB = "../pages/job.py"
Show = Callable[..., AppTest]
Figures = Callable[[AppTest], list[dict[str, Any]]]
Text = Callable[[AppTest], str]
Add = Callable[..., None]


def inspector_logs(folder: Path, *, late_rank: int | None = 2) -> list[Path]:
    """Four ranks, six sizes; ``late_rank`` is 250 us late in 45 of 60, 4 MiB is thrice as slow."""
    folder.mkdir(exist_ok=True)
    paths = []
    for rank in range(4):
        lines = []
        for sn in range(60):
            size = 4 ** (7 + sn % 6)
            us = 20 + size / 40_000 * (3 if size == 4**11 else 1)
            waits = late_rank is not None and sn % 4 and rank != late_rank
            perf = {"coll": "AllReduce", "coll_sn": sn, "coll_msg_size_bytes": size}
            perf |= {"coll_exec_time_us": round(us) + (250 if waits else 0)}
            header = {"id": "0xa", "rank": rank, "n_ranks": 4, "nnodes": 2}
            place = {"hostname": f"node-{rank // 2}", "pid": 700 + rank}
            lines.append({"header": header, "metadata": place, "coll_perf": perf})
        paths.append(folder / f"node-{rank // 2}-pid{700 + rank}.log")
        paths[-1].write_text("\n".join(map(json.dumps, lines)))
    return paths


@pytest.fixture
def inspected(lake: Lake, tmp_path: Path) -> Callable[..., None]:
    """Store collectives under a job; by default its rank 2 is late."""

    def store(job_id: str, **shape: Any) -> None:
        for path in inspector_logs(tmp_path / job_id, **shape):
            ingest_file(lake, "nccl-inspector", path, Options(job_id=job_id))

    return store


def frame(at: AppTest, column: str) -> Any:
    (found,) = [element.value for element in at.dataframe if column in element.value.columns]
    return found


def test_a_hang_is_told_without_any_steps(
    lake: Lake, show: Show, text_of: Text, shared: Callable[[str], Path]
) -> None:
    # The injected fault: a GPU error on ranks 12 and 14 of 16.
    for path in sorted(shared("connectors/flight_recorder/nvrx_gpu_error_1st").glob("_dump_*")):
        ingest_file(lake, "flight-recorder", path, Options(job_id="hung"))
    at = show(JOB)
    assert at.selectbox(key="job").value == "hung"
    assert not at.exception
    assert not at.error
    said = text_of(at)
    verdict = "Rank 12 and rank 14 hold up the others: ranks 13 and 15 wait."
    assert f"**{verdict}**" in said
    assert f"Collectives](#collectives): {verdict}" in said
    assert "16 of 16 ranks are recorded." in said
    (shown,) = [e for e in at.expander if e.label == "Evidence"]
    texts = "\n".join(m.value for m in shown.markdown).replace("\\", "")
    assert "operations 20,530 to 20,536 end, which ranks 13 and 15 saw end" in texts
    arrivals = frame(at, "last_by_rank")
    assert len(arrivals) > 10
    # Nobody is named as late, so nothing is said of how late.
    assert "late_by_us" not in arrivals.columns
    assert "Bandwidth is not known" in said


def test_a_missing_rank_is_told(
    lake: Lake, show: Show, text_of: Text, shared: Callable[[str], Path]
) -> None:
    folder = shared("connectors/flight_recorder/nvrx_lock_gil_1st")
    for n in set(range(16)) - {9, 14}:
        ingest_file(lake, "flight-recorder", folder / f"_dump_{n}", Options(job_id="gone"))
    said = text_of(show(JOB, job="gone"))
    assert "Nothing was recorded of ranks 9 and 14." in said
    assert "rank 9: absent." in said


def test_who_comes_last_and_the_bandwidth_by_size(
    inspected: Callable[..., None], add: Add, show: Show, text_of: Text, figures: Figures
) -> None:
    add("worker")
    inspected("worker")
    at = show(JOB, job="worker")
    assert not at.exception
    said = text_of(at)
    assert "Rank 5 makes the other 7 wait" in said
    assert "](#collectives): 0xa: Rank 2 of the communicator comes last in 45 of 60" in said
    assert "It is node-1, process 702." in said
    row = frame(at, "late_rank").iloc[0]
    assert (row["late_rank"], row["place"]) == (2, "node-1, process 702")
    assert row["last_in"] == pytest.approx(75.0)
    assert row["late_by_us"] == pytest.approx(250.0)
    chart = next(f for f in figures(at) if f["id"].endswith("-busbw"))
    (trace,) = chart["spec"]["data"]
    assert trace["x"] == [4**n for n in range(7, 13)]
    assert trace["name"] == "0xa all_reduce"
    assert chart["config"]["showSendToCloud"] is False
    speeds = trace["y"]
    # 16 MiB in 439 us, times 2 x 3 / 4; the size that is thrice as slow is a dip in the line.
    assert speeds[-1] == pytest.approx(1.5 * 4**12 / 439e3)
    assert speeds[4] < speeds[3]


def test_the_table_holds_each_size_against_the_best(inspected: Callable[..., None]) -> None:
    inspected("alone", late_rank=None)
    made = bandwidth_table(data.collectives("alone", is_live=False))
    keys = [column.key for column in made.columns]
    shares = {row[keys.index("bytes")]: row[keys.index("share_of_best")] for row in made.rows}
    assert shares[4**12] == 1.0
    assert shares[4**11] == pytest.approx(1 / 3, abs=0.02)


def test_of_one_size_there_is_a_table_and_no_chart(
    lake: Lake, show: Show, figures: Figures, shared: Callable[[str], Path]
) -> None:
    path = shared("connectors/nccl_inspector/readme_verbose_pretty.json")
    ingest_file(lake, "nccl-inspector", path, Options(job_id="one"))
    at = show(JOB, job="one")
    assert not at.exception
    assert not [f for f in figures(at) if f["id"].endswith("-busbw")]
    assert len(frame(at, "busbw_gb_per_s")) == 1


def test_a_job_without_collectives_has_no_such_section(
    add: Add, inspected: Callable[..., None], show: Show, text_of: Text
) -> None:
    add("worker")
    inspected("other")
    said = text_of(show(JOB, job="worker"))
    assert "Collectives" not in said
    assert "Who comes last" not in said


@pytest.mark.parametrize("running", [True, False])
def test_of_a_running_job_they_are_drawn_again_now_and_then(
    lake: Lake,
    inspected: Callable[..., None],
    add: Add,
    show: Show,
    text_of: Text,
    monkeypatch: pytest.MonkeyPatch,
    running: bool,
) -> None:
    periods: list[Any] = []
    fragment = st.fragment

    def spy(*arguments: Any, **options: Any) -> Any:
        periods.append(options.get("run_every"))
        return fragment(*arguments, **options)

    monkeypatch.setattr(st, "fragment", spy)
    add("worker")
    inspected("worker")
    if running:
        now_us = time.time_ns() // 1000
        folder = lake.root / "live" / job_folder("worker")
        folder.mkdir(parents=True)
        for rank in range(8):
            beat = {"rank": rank, "state": "running", "ts_us": now_us, "step": 60}
            beat |= {"phase": "compute", "phase_since_us": now_us, "last_step_done": 59}
            (folder / f"rank-{rank:05d}.json").write_text(json.dumps(beat))
    said = text_of(show(JOB, job="worker"))
    assert "**0xa: Rank 2 of the communicator comes last" in said
    assert (data.COLLECTIVES_EVERY_S in periods) is running
    # The line at the top stays while the section changes, so of a running job it says no verdict.
    assert ("](#collectives): 0xa: Rank 2" in said) is not running


def test_new_rows_are_shown_at_once(
    lake: Lake, inspected: Callable[..., None], show: Show, text_of: Text, tmp_path: Path
) -> None:
    inspected("grows", late_rank=None)
    assert "No rank stands out" in text_of(show(JOB, job="grows"))
    logs = inspector_logs(tmp_path / "more", late_rank=1)
    for path in logs:
        path.write_text(path.read_text().replace('"0xa"', '"0xb"'))
        ingest_file(lake, "nccl-inspector", path, Options(job_id="grows"))
    assert "0xb: Rank 1 of the communicator comes last" in text_of(show(JOB, job="grows"))
