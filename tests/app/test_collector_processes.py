"""The whole way with real processes: ranks, a sender and a collector, of which some are killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from steptax.app.lake import Lake
from steptax.benchmarks.product import collector as benchmark
from tests.patience import until

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "correct-horse"
ENV = {
    **{name: value for name, value in os.environ.items() if not name.startswith("STEPTAX")},
    "PYTHONPATH": str(ROOT / "src"),
    "STEPTAX_TOKEN": TOKEN,
}

#: Runs so many steps, or with 0 until a file named stop is in the spool; its exit code is 0 only if
#: it dropped nothing, and it says how many steps it has made.
RANK = """
import os, sys, time
from steptax.connectors.recorder import StepRecorder
url, spool, rank, world, steps = *sys.argv[1:3], *map(int, sys.argv[3:])
with StepRecorder(url, "killed", rank, world, flush_s=0.05, spool=spool) as rec:
    step = 0
    while step < steps or (steps == 0 and not os.path.exists(spool + "/stop")):
        with rec.step(step):
            with rec.phase("compute"):
                time.sleep(0.02)
        step += 1
assert rec.stats["rows_dropped"] == rec.stats["misuse"] == 0, rec.stats
print("steps", step, file=sys.stderr)
"""

#: The same, for a machine on which a collector takes longer to start than a rank waits at its end.
PATIENT_RANK = f"""
from steptax.connectors.recorder import spoolsink
spoolsink.PATIENCE_S = spoolsink.SEND_WAIT_S = 120.0
{RANK}"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Processes:
    """Starts processes; those that are left at the end are killed."""

    def __init__(self) -> None:
        self.all: list[subprocess.Popen[bytes]] = []

    def start(self, *command: object, **environment: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, *map(str, command)],
            env={**ENV, **environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        self.all.append(process)
        return process

    def collector(self, lake: Path, port: int) -> subprocess.Popen[bytes]:
        process = self.start(
            "-m", "steptax.app.cli", "collect", "--lake", lake, "--port", port, "--compact-s", 1
        )

        def answers() -> bool:
            assert process.poll() is None
            with contextlib.suppress(urllib.error.URLError, OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                return True
            return False

        until(answers)
        return process


@pytest.fixture
def processes() -> Iterator[Processes]:
    found = Processes()
    yield found
    for process in found.all:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


def rows_in(lake: Path) -> int:
    return int(Lake(lake).row_counts()["steps"]) if (lake / "tables").is_dir() else 0


def steps_of(rank: subprocess.Popen[bytes]) -> int:
    """How many steps a rank has made, once it has ended."""
    assert rank.stderr is not None
    said = rank.stderr.read().decode()
    assert rank.wait() == 0, said
    return int(said.split()[-1])


def kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


def test_every_row_arrives_once_though_collector_and_sender_are_killed(
    tmp_path: Path, processes: Processes
) -> None:
    lake, spool, port = tmp_path / "lake", tmp_path / "spool", free_port()
    url = f"http://127.0.0.1:{port}"
    collector = processes.collector(lake, port)
    sidecar = processes.start("-m", "steptax.app.cli", "forward", url, "--spool", spool)
    until((spool / "sender.lock").exists)
    ranks = [processes.start("-c", PATIENT_RANK, url, spool, rank, 3, 0) for rank in range(3)]
    until(lambda: rows_in(lake) > 0)
    kill(collector)
    until(lambda: any((spool / "batches").glob("*.gz")))  # kept, since nobody takes it
    collector = processes.collector(lake, port)
    seen = rows_in(lake)
    until(lambda: rows_in(lake) > seen)
    kill(sidecar)  # one of the ranks takes over
    seen = rows_in(lake)
    until(lambda: rows_in(lake) > seen)
    kill(collector)
    (spool / "stop").touch()  # while there is no collector
    collector = processes.collector(lake, port)
    steps = [steps_of(rank) for rank in ranks]
    collector.send_signal(signal.SIGTERM)
    assert collector.wait() == 0
    rows = Lake(lake).read("steps", "killed")
    keys = sorted(zip(rows["rank"].to_pylist(), rows["step"].to_pylist(), strict=True))
    assert keys == [(rank, step) for rank in range(3) for step in range(steps[rank])]
    events = Lake(lake).read("events", "killed")["kind"].to_pylist()
    assert sorted(events) == ["first_step", "process_end", "process_start"]
    [job] = Lake(lake).read("jobs").to_pylist()
    assert (job["state"], job["world_size"]) == ("completed", 3)
    beats = Lake(lake).heartbeats("killed")
    assert [(b["rank"], b["state"], b["rows_dropped"]) for b in beats] == [
        (rank, "closed", 0) for rank in range(3)
    ]
    assert not list((spool / "batches").glob("*.gz"))
    assert not list((spool / "in").rglob("live-*"))


def test_a_wrong_token_loses_nothing_and_is_in_no_log(tmp_path: Path, processes: Processes) -> None:
    lake, spool, port = tmp_path / "lake", tmp_path / "spool", free_port()
    url = f"http://127.0.0.1:{port}"
    processes.collector(lake, port)
    rank = processes.start("-c", RANK, url, spool, 0, 1, 5, STEPTAX_TOKEN="hunter2")
    assert rank.wait() == 0
    assert rank.stderr is not None
    said = rank.stderr.read().decode()
    assert "HTTP 401" in said
    assert f"rows wait in {spool}" in said
    kept = [path for path in spool.rglob("*") if path.is_file()]
    assert not any(b"hunter2" in path.read_bytes() for path in kept)
    assert "hunter2" not in said
    assert rows_in(lake) == 0
    forward = processes.start(
        "-m", "steptax.app.cli", "forward", url, "--spool", spool, "--once", "--json"
    )
    assert forward.wait() == 0
    assert rows_in(lake) == 5


def test_what_a_network_that_is_away_leaves_no_room_for_is_said(
    tmp_path: Path, processes: Processes
) -> None:
    lake, spool, port = tmp_path / "lake", tmp_path / "spool", free_port()
    url = f"http://127.0.0.1:{port}"
    small = RANK.replace("spool=spool", "spool=spool, spool_bytes=4000")
    rank = processes.start("-c", small, url, spool, 0, 1, 300)
    until(lambda: (spool / "gaps.json").exists())
    processes.collector(lake, port)
    assert rank.wait() == 0, rank.stderr.read() if rank.stderr else None
    steps = sorted(Lake(lake).read("steps", "killed")["step"].to_pylist())
    assert 0 < len(steps) < 300
    assert steps == sorted(set(steps))
    assert steps[-1] == 299  # the newest came through
    # The collector writes heartbeats every second.
    until(lambda: [b["state"] for b in Lake(lake).heartbeats("killed")] == ["closed"])
    [beat] = Lake(lake).heartbeats("killed")
    lost = json.loads((spool / "gaps.json").read_bytes())["by_rank"]["0 killed"]["rows"]
    arrived = sum(Lake(lake).row_counts().values())
    # 300 steps, a rank, two rows of the job and three events: arrived, or counted as lost.
    assert arrived + lost == 306
    assert beat["rows_dropped"] == lost
    assert "were lost on the way: the spool was full" in beat["last_error"]


def test_the_benchmark_counts_every_row(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--ranks", "8", "--nodes", "2", "--steps", "10", "--step-s", "0.1", "--kills", "1"]
    assert benchmark.main([*flags, "--outage-s", "0.2", "--flush-s", "0.1", "--json"]) == 0
    data: dict[str, Any] = json.loads(capsys.readouterr().out)["data"]
    assert data["rows_expected"] == data["rows_found"] == data["rows_distinct"] == 80
    assert data["rows_dropped"] == 0
    assert data["collector_cpu_s"] > 0
    assert data["node_peak_mib"] > 0
    assert 0 < data["latency_p50_s"] <= data["latency_p95_s"] <= data["latency_max_s"]
