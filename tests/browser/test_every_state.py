"""What pages look like when not all is well: with parts missing, stale, refused, with nothing.

Each state is the real one, of a real lake. Writes what it saw to ``screenshots/`` as the test of
every page does.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from steptax.app.lake import Lake
from tests.app.fleet_lake import S, event, job, rows, us
from tests.browser.looking import look, open_page

pytestmark = [pytest.mark.browser, pytest.mark.slow]

Save = Callable[[Page, str], None]

#: A program whose eight ranks are recorded until it is killed: nothing tells of its end.
KILLED = """
import os, sys, time
from steptax.connectors.recorder import StepRecorder
ranks = [StepRecorder(sys.argv[1], "killed", rank, 8, flush_s=0.1) for rank in range(8)]
for recorder in ranks:
    recorder.start()
for step in range(40):
    for rank, recorder in enumerate(ranks):
        with recorder.step(step):
            time.sleep(0.004 if rank == 5 else 0.001)
time.sleep(1.5)
os._exit(9)
"""
STEPS = 40
#: Of the eight ranks of a job, those whose rows arrived.
ARRIVED = range(6)


def store(lake: Lake, name: str) -> None:
    """A job whose rank 2 is slow, and of which two ranks and the price are missing."""
    start = us(2026, 11, 2)
    lake.append(
        "jobs",
        rows([job(name, start, start + STEPS * S, world_size=8, gpu_model="NVIDIA H100 80GB")]),
        source="made",
    )
    placed = [{"job_id": name, "rank": rank, "host": f"node-{rank // 4}"} for rank in range(8)]
    lake.append("ranks", rows(placed), source="made")
    lake.append(
        "steps",
        rows(
            [
                {
                    "job_id": name,
                    "attempt": 0,
                    "step": step,
                    "rank": rank,
                    "start_us": start + step * S,
                    "duration_us": S,
                    "compute_us": 800_000 if rank == 2 else 500_000 + 1_000 * (step * rank % 7),
                    "comm_us": 200_000 if rank == 2 else 500_000 - 1_000 * (step * rank % 7),
                }
                for step in range(STEPS)
                for rank in ARRIVED
            ]
        ),
        source="made",
    )
    lake.append("events", rows([event(name, "allocated", start, start + STEPS * S)]), source="made")


def test_what_is_missing_stale_refused_or_damaged_is_said_on_the_page(
    tmp_path: Path, served: Callable[..., str], page: Page, screenshot: Save
) -> None:
    lake = Lake(tmp_path / "lake", create=True)
    killed = subprocess.run([sys.executable, "-c", KILLED, str(lake.root)], check=False)
    assert killed.returncode == 9
    for name in ("partial", "damaged"):
        store(lake, name)
    [segment] = lake.root.glob("tables/steps/*damaged*/*.parquet")
    segment.write_bytes(segment.read_bytes()[:100])
    address = served(lake.root)
    wrong: list[str] = []
    for name, path, query, said in (
        ("job-partial", "job", "?job=partial", "6 of 8 ranks reported"),
        ("job-stale", "job", "?job=killed&live=false", "no rank gives a sign of life"),
        ("job-unknown", "job", "?job=nobody", "there is no job 'nobody'"),
        ("compare-refused", "compare", "?a=partial@0-x&b=partial", "expected steps as FIRST-LAST"),
        ("job-damaged", "job", "?job=damaged", "is damaged and set aside"),
    ):
        open_page(page, address, path, query)
        expect(page.get_by_test_id("stMain")).to_contain_text(said)
        wrong += look(page, name, screenshot)
    assert not wrong, "\n".join(wrong)


def test_an_empty_lake_says_what_to_connect_and_what_is_here(
    tmp_path: Path, served: Callable[..., str], page: Page, screenshot: Save
) -> None:
    home = tmp_path / "home"
    traces = home / "runs" / "profile"
    traces.mkdir(parents=True)
    for rank in range(2):
        (traces / f"rank{rank}.pt.trace.json").write_text('{"traceEvents": []}')
    store(Lake(home / "old-lake", create=True), "old")
    root = Lake(tmp_path / "lake", create=True).root
    address = served(root, HOME=str(home), TMPDIR=str(tmp_path))
    wrong: list[str] = []
    # Pages without a job of their own are as they always are.
    for path in ("executive", "whatif", "procurement"):
        open_page(page, address, path)
        if path == "executive":
            expect(page.get_by_text("2 traces of torch.profiler")).to_be_visible()
            expect(page.get_by_text(f"a lake in {home}/old-lake").first).to_be_visible()
        wrong += look(page, f"{path}-empty", screenshot)
    assert not wrong, "\n".join(wrong)
