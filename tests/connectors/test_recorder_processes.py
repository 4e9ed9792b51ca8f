"""Many ranks at once, forked children, exits without a close, signs of life."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from steptax.app.lake.lake import Lake
from steptax.app.lake.segments import job_folder
from steptax.connectors.recorder import StepRecorder
from tests.patience import until

ROOT = Path(__file__).resolve().parents[2]
ENV = {**os.environ, "PYTHONPATH": str(ROOT / "src")}


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    # From 3.12 on Python warns of every fork in a process with threads, such as the recorder's.
    return subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=ENV,
    )


RANK = """
import sys, time
from steptax.connectors.recorder import StepRecorder
lake, rank = sys.argv[1], int(sys.argv[2])
with StepRecorder(lake, "eight", rank, 8, flush_s=0.02, topology={"dp": rank}) as rec:
    for step in range(200):
        with rec.step(step):
            with rec.phase("compute"):
                time.sleep(0.0005)
            with rec.collective():
                pass
assert rec.stats["rows_dropped"] == rec.stats["misuse"] == rec.stats["errors"] == 0, rec.stats
"""


def test_eight_processes_write_into_one_lake(tmp_path: Path) -> None:
    processes = [
        subprocess.Popen([sys.executable, "-c", RANK, str(tmp_path), str(rank)], env=ENV)
        for rank in range(8)
    ]
    assert [process.wait() for process in processes] == [0] * 8
    lake = Lake(tmp_path)
    rows = lake.read("steps", "eight")
    keys = set(zip(rows["rank"].to_pylist(), rows["step"].to_pylist(), strict=True))
    assert rows.num_rows == len(keys) == 8 * 200
    assert sum(s.rows for s in lake.segments("steps", "eight")) == rows.num_rows
    assert len(lake.segments("steps", "eight")) > 8
    assert sorted(lake.read("ranks", "eight")["dp"].to_pylist()) == list(range(8))
    [job] = lake.read("jobs").to_pylist()
    assert (job["state"], job["world_size"]) == ("completed", 8)
    kinds = sorted(lake.read("events", "eight")["kind"].to_pylist())
    assert kinds == ["first_step", "process_end", "process_start"]
    assert [beat["rank"] for beat in lake.heartbeats("eight")] == list(range(8))


FORK = """
import gc, os, sys
from steptax.connectors.recorder import StepRecorder
rec = StepRecorder(sys.argv[1], "forked", 0, 1, flush_s=0.01)
with rec:
    for step in range(5):
        with rec.step(step):
            with rec.phase("input"):
                child = os.fork()
                if child == 0:
                    gc.collect()
                    with rec.phase("compute"):
                        rec.event("eval", 1)
                    with rec.step(100 + step):
                        pass
                    rec.close()
                    assert rec.stats["state"] == "forked" and rec.stats["misuse"] == 0, rec.stats
                    sys.exit(0)  # runs exit handlers and the ends of all blocks, like a worker
                _, status = os.waitpid(child, 0)
                assert status == 0, status
assert rec.stats["misuse"] == 0, rec.stats
"""


def test_a_forked_child_records_nothing_and_the_parent_goes_on(tmp_path: Path) -> None:
    done = run(FORK, str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    lake = Lake(tmp_path)
    assert sorted(lake.read("steps", "forked")["step"].to_pylist()) == list(range(5))
    assert sum(s.rows for s in lake.segments("jobs")) == 2
    assert "eval" not in lake.read("events", "forked")["kind"].to_pylist()


NO_CLOSE = """
import sys
from steptax.connectors.recorder import StepRecorder
rec = StepRecorder(sys.argv[1], "open", 0, 1, flush_s=60)
rec.start()
for step in range(3):
    rec.on_step_begin(step)
    rec.on_step_end()
exec(sys.argv[2])
"""


@pytest.mark.parametrize(
    ("last", "state"), [("pass", "completed"), ("raise OSError('disk')", "failed")]
)
def test_an_exit_without_a_close_loses_nothing(last: str, state: str, tmp_path: Path) -> None:
    run(NO_CLOSE, str(tmp_path), last)
    lake = Lake(tmp_path)
    assert lake.read("steps", "open").num_rows == 3
    assert lake.read("jobs")["state"].to_pylist() == [state]
    assert [beat["state"] for beat in lake.heartbeats("open")] == ["closed"]


def beat_of(lake: Path, job_id: str, rank: int) -> dict[str, Any]:
    path = lake / "live" / job_folder(job_id) / f"rank-{rank:06d}.json"
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {"phase": None, "step": None, "state": None}
    return found


def test_a_heartbeat_says_what_a_rank_is_doing_even_while_it_hangs(tmp_path: Path) -> None:
    before_us = time.time_ns() // 1000
    with StepRecorder(tmp_path, "a/b", 3, 8, attempt=2, flush_s=0.01) as rec:
        until(lambda: beat_of(tmp_path, "a/b", 3)["phase"] == "idle")
        assert beat_of(tmp_path, "a/b", 3)["step"] is None
        with rec.step(6):
            until(lambda: beat_of(tmp_path, "a/b", 3)["phase"] == "host")
        with rec.step(7):
            with rec.phase("compute"):
                until(lambda: beat_of(tmp_path, "a/b", 3)["phase"] == "compute")
            with rec.collective():
                until(lambda: beat_of(tmp_path, "a/b", 3)["phase"] == "collective")
                first = beat_of(tmp_path, "a/b", 3)
                until(lambda: beat_of(tmp_path, "a/b", 3)["ts_us"] > first["ts_us"])
                second = beat_of(tmp_path, "a/b", 3)
    assert (first["step"], first["last_step_done"]) == (7, 6)
    assert (first["rank"], first["attempt"], first["state"]) == (3, 2, "running")
    assert (first["host"], first["pid"]) == (os.uname().nodename, os.getpid())
    assert before_us <= first["phase_since_us"] <= first["ts_us"] <= time.time_ns() // 1000
    # The same moment seen twice, through two clocks that are read one after the other.
    assert abs(second["phase_since_us"] - first["phase_since_us"]) < second["ts_us"] - before_us
    last = beat_of(tmp_path, "a/b", 3)
    assert first["overhead_us_mean"] is None
    assert last["overhead_us_mean"] > 0
    assert (last["state"], last["phase"], last["last_step_done"]) == ("closed", "idle", 7)
    assert (last["rows_written"], last["rows_dropped"], last["last_error"]) == (3, 0, None)


HANG = """
import sys, time
from steptax.connectors.recorder import StepRecorder
with StepRecorder(sys.argv[1], "hang", 0, 1, flush_s=0.01) as rec:
    with rec.step(0):
        with rec.collective():
            time.sleep(600)
"""


def test_after_a_kill_the_last_sign_of_life_tells_where_it_was(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", HANG, str(tmp_path)], env=ENV)
    try:
        until(lambda: beat_of(tmp_path, "hang", 0)["phase"] == "collective")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    beat = beat_of(tmp_path, "hang", 0)
    assert (beat["state"], beat["step"], beat["last_step_done"]) == ("running", 0, None)


def test_it_leaves_nothing_behind_in_the_process(tmp_path: Path) -> None:
    callbacks, threads = list(gc.callbacks), threading.active_count()
    with StepRecorder(tmp_path, "j", 0, 1):
        assert len(gc.callbacks) == len(callbacks) + 1
    assert gc.callbacks == callbacks
    assert threading.active_count() == threads
