"""The demo's job as a whole: real processes that train, fail, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from steptax.app.demo import job as job_module
from steptax.app.demo.job import DemoConfig, DemoJob
from steptax.app.errors import UserError
from steptax.app.lake import Lake

Start = Callable[..., DemoJob]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a small job; whatever happens, it is stopped at the end."""
    jobs: list[DemoJob] = []

    def run(**changes: Any) -> DemoJob:
        settings: dict[str, Any] = {"workers": 3, "step_target_ms": 30.0, "seed": 1}
        job = DemoJob(DemoConfig(tmp_path / "lake", "job-1", **{**settings, **changes}))
        jobs.append(job)
        job.start()
        return job

    yield run
    for job in jobs:
        job.stop()


def running(pid: int) -> bool:
    """Whether a process of this id runs; a zombie that awaits its parent does not."""
    try:
        os.kill(pid, 0)
        if Path("/proc/self/stat").exists():
            # The state follows the name, which is in brackets and may hold anything.
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
    found = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return not found.stdout.startswith("Z")


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for something that must come; a test that hangs here is ended from outside."""
    while not condition():
        time.sleep(0.05)


def trains(lake: Path) -> bool:
    """Whether the job has got as far as writing records of steps."""
    return any((lake / "tables" / "steps").glob("*/live-*"))


def test_ranks_train_one_model_and_its_loss_falls(start: Start, tmp_path: Path) -> None:
    job = start(steps=20, checkpoint_every=8)
    state = job.wait()
    assert state.finished
    assert state.failure is None
    results = [rank.result for rank in state.dead]
    assert [rank.rank for rank in state.dead] == [0, 1, 2]
    assert all(result is not None and result.steps == 20 for result in results)
    assert len({result.parameters for result in results if result}) == 1
    assert len({result.loss for result in results if result}) == 1
    # A guess among 256 bytes costs 5.5 nats; the starting point is near it.
    assert all(result.loss < 4.5 for result in results if result)
    job.stop()
    assert [path.name for path in tmp_path.iterdir()] == ["lake"]


def test_stop_leaves_no_process_and_no_file(start: Start, tmp_path: Path) -> None:
    job = start()
    wait_until(lambda: trains(tmp_path / "lake"))
    pids = job.pids
    assert all(running(pid) for pid in pids)
    assert len(list(tmp_path.glob(".steptax-demo-*"))) == 1
    job.stop()
    job.stop()
    assert not any(running(pid) for pid in pids)
    state = job.poll()
    assert state.finished
    assert state.failure is None
    assert {rank.exit_code for rank in state.dead} == {0}
    assert not list(tmp_path.glob(".steptax-demo-*"))


def test_stop_right_after_start(start: Start, tmp_path: Path) -> None:
    job = start()
    job.stop()
    assert not any(running(pid) for pid in job.pids)
    assert job.poll().finished
    assert job.poll().failure is None
    assert not list(tmp_path.glob(".steptax-demo-*"))


def test_stop_ends_a_worker_that_does_not_answer(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_module, "STOP_GRACE_S", 0.5)
    job = start()
    wait_until(lambda: trains(tmp_path / "lake"))
    os.kill(job.pids[1], signal.SIGSTOP)
    job.stop()
    assert not any(running(pid) for pid in job.pids)
    assert job.poll().dead[1].signal == "SIGKILL"
    assert job.poll().failure is None


def test_before_its_start_a_job_has_no_ranks_and_a_second_start_is_refused(
    start: Start, tmp_path: Path
) -> None:
    idle = DemoJob(DemoConfig(tmp_path / "lake", "idle"))
    assert idle.poll().alive == ()
    assert not idle.poll().finished
    idle.stop()
    with pytest.raises(UserError, match="started before"):
        start(steps=1).start()


def test_a_worker_that_cannot_be_started_takes_the_others_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = subprocess.Popen
    started: list[subprocess.Popen[bytes]] = []

    def second_fails(*args: Any, **kwargs: Any) -> subprocess.Popen[bytes]:
        if started:
            raise OSError("no more processes")
        started.append(real(*args, **kwargs))
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", second_fails)
    open_before = len(os.listdir("/dev/fd"))
    with pytest.raises(OSError, match="no more processes"):
        DemoJob(DemoConfig(tmp_path / "lake", "j", workers=3)).start()
    assert not running(started[0].pid)
    assert not list(tmp_path.glob(".steptax-demo-*"))
    assert len(os.listdir("/dev/fd")) == open_before


def test_a_killed_worker_is_named_and_the_others_time_out(start: Start, tmp_path: Path) -> None:
    job = start(collective_timeout_s=4)
    wait_until(lambda: trains(tmp_path / "lake"))
    os.kill(job.pids[2], signal.SIGKILL)
    wait_until(lambda: bool(job.poll().dead))
    state = job.poll()
    # The others hang in the all-reduce, as they would on a cluster.
    assert state.alive == (0, 1)
    assert state.dead[0].rank == 2
    assert state.dead[0].signal == "SIGKILL"
    assert state.failure == "rank 2 was ended by SIGKILL"
    state = job.wait()
    assert state.finished
    for survivor in state.dead[:2]:
        assert survivor.exit_code == 1
        assert survivor.message == "collective timed out after 4 s: rank 2 never arrived"
    assert state.failure == "rank 2 was ended by SIGKILL"
    job.stop()
    events = Lake(tmp_path / "lake").read("events", "job-1").to_pylist()
    (failure,) = (event for event in events if event["kind"] == "failure")
    (begin,) = (event for event in events if event["kind"] == "allocated")
    assert failure["ranks"] == "2"
    assert failure["detail"] == "rank 2 was ended by SIGKILL"
    assert failure["start_us"] > begin["start_us"]


def test_when_a_worker_cannot_join_nobody_waits_for_it(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = subprocess.Popen

    def rank_1_is_broken(command: list[str], **kwargs: Any) -> subprocess.Popen[bytes]:
        if '"rank": 1' in command[-1]:
            command = [sys.executable, "-c", "import sys; sys.exit('no such library')"]
        return real(command, **kwargs)

    monkeypatch.setattr(subprocess, "Popen", rank_1_is_broken)
    state = start(collective_timeout_s=600).wait()
    assert state.finished
    assert state.failure == "rank 1 exited with code 1: no such library"


SUPERVISOR = """
import sys, time
from pathlib import Path
from steptax.app.demo.job import DemoConfig, DemoJob
job = DemoJob(DemoConfig(Path(sys.argv[1]), "job-1", workers=3, step_target_ms=30.0))
job.start()
print(*job.pids, flush=True)
time.sleep(600)
"""


def test_workers_end_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, str(tmp_path / "lake")],
        stdout=subprocess.PIPE,
        text=True,
    ) as supervisor:
        assert supervisor.stdout is not None
        pids = [int(word) for word in supervisor.stdout.readline().split()]
        wait_until(lambda: trains(tmp_path / "lake"))
        assert all(running(pid) for pid in pids)
        supervisor.kill()
    assert len(pids) == 3
    wait_until(lambda: not any(running(pid) for pid in pids))
    assert not list(tmp_path.glob(".steptax-demo-*"))


def test_ctrl_c_does_not_reach_the_workers(start: Start, tmp_path: Path) -> None:
    job = start()
    wait_until(lambda: trains(tmp_path / "lake"))
    for pid in job.pids:
        assert os.getpgid(pid) != os.getpgid(0)
        os.kill(pid, signal.SIGINT)
    time.sleep(0.3)
    assert job.poll().alive == (0, 1, 2)


def test_checkpoints_are_events_of_rank_0(start: Start, tmp_path: Path) -> None:
    start(steps=7, checkpoint_every=3).wait()
    events = Lake(tmp_path / "lake").read("events", "job-1").to_pylist()
    saves = [event for event in events if event["kind"] == "checkpoint_save"]
    assert len(saves) == 2
    assert all(event["end_us"] > event["start_us"] for event in saves)
