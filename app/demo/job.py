"""The supervisor of the demo: starts the workers, watches them, and leaves none behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from steptax.app.demo.collective import memory_bytes, shared_memory
from steptax.app.demo.config import JOINED, DemoConfig, WorkerResult, WorkerSpec, usable_cores
from steptax.app.demo.model import Shape
from steptax.app.demo.plan import Contention
from steptax.app.demo.records import record_event
from steptax.app.errors import UserError

__all__ = ["DemoConfig", "DemoJob", "DemoState", "EndedRank", "WorkerResult"]

#: Workers write their records down when they are asked to stop; after this they are killed.
STOP_GRACE_S = 5.0
WATCH_EVERY_S = 0.2
#: One thread per worker: eight workers that each use every core would only measure that.
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)


@dataclass(frozen=True)
class EndedRank:
    """A worker that is no more: its exit code, or the signal that ended it.

    ``joined`` tells whether it had met the others. ``message`` is the last line of its standard
    error, ``result`` what a worker says that has done all its steps; None where there is none.
    """

    rank: int
    exit_code: int | None
    signal: str | None
    joined: bool
    message: str | None
    result: WorkerResult | None

    @property
    def failed(self) -> bool:
        """Whether it ended otherwise than by finishing or being asked to stop."""
        return self.exit_code != 0

    def describe(self) -> str:
        """For people, e.g. ``rank 3 was ended by SIGKILL``."""
        if self.signal is not None:
            return f"rank {self.rank} was ended by {self.signal}"
        why = f": {self.message}" if self.message else ""
        return f"rank {self.rank} exited with code {self.exit_code}{why}"


@dataclass(frozen=True)
class DemoState:
    """Which ranks run and which have ended; ``finished`` when none runs any more.

    ``failure`` names the first ranks that failed; their peers' timeouts are its consequence.
    """

    alive: tuple[int, ...]
    dead: tuple[EndedRank, ...]
    finished: bool
    failure: str | None


class DemoJob:
    """One training job of worker processes on this machine.

    The methods may be called from any thread. A thread of its own notices a dead worker within
    ``WATCH_EVERY_S`` and writes the failure into the lake's events.
    """

    def __init__(self, config: DemoConfig) -> None:
        self.config = config
        self._lock = threading.RLock()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._streams = ExitStack()
        self._output: list[tuple[IO[bytes], IO[bytes]]] = []
        self._ended: dict[int, EndedRank] = {}
        self._failure: str | None = None
        self._started_us = 0
        self._stopping = threading.Event()
        self._leash_fd: int | None = None
        self._scratch: Path | None = None
        self._watcher: threading.Thread | None = None

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids by rank; of ended workers too."""
        return tuple(process.pid for process in self._processes)

    def start(self) -> None:
        """Start the workers and return at once; they take a second or two to their first step.

        Raises UserError on a system without inheritable pipes, for a backend that is not
        installed, and when called twice; OSError when a process cannot be started, and then
        none is left.
        """
        if os.name != "posix":
            raise UserError(
                "the demo runs on Linux and macOS", where="demo", hint="use WSL on Windows"
            )
        backend = self.config.resolved_backend()
        with self._lock:
            if self._processes:
                raise UserError("this job was started before", where="demo", hint="make a new one")
            self.config.lake.mkdir(parents=True, exist_ok=True)
            self._started_us = time.time_ns() // 1000
            record_event(self.config, "allocated", at_us=self._started_us)
            self._scratch = Path(
                tempfile.mkdtemp(prefix=".steptax-demo-", dir=self.config.lake.parent)
            )
            inherited: list[int] = []
            try:
                self._launch(backend, inherited)
            except BaseException:
                self.stop()
                raise
            finally:
                for fd in inherited:
                    os.close(fd)
        self._watcher = threading.Thread(target=self._watch, name="demo-watch", daemon=True)
        self._watcher.start()

    def poll(self) -> DemoState:
        """The state now."""
        with self._lock:
            fresh = [
                self._reap(rank, process)
                for rank, process in enumerate(self._processes)
                if rank not in self._ended and process.poll() is not None
            ]
            self._ended.update((ended.rank, ended) for ended in fresh)
            failed = [ended for ended in fresh if ended.failed]
            if failed and self._failure is None and not self._stopping.is_set():
                self._failure = self._record_failure(failed)
                if any(not ended.joined for ended in failed):
                    # The group never formed: nobody is to wait for it, as no launcher would.
                    self._signal_alive(signal.SIGTERM)
            alive = tuple(r for r in range(len(self._processes)) if r not in self._ended)
            dead = tuple(self._ended[rank] for rank in sorted(self._ended))
            return DemoState(alive, dead, bool(dead) and not alive, self._failure)

    def wait(self, timeout_s: float | None = None) -> DemoState:
        """Wait until all workers have ended or the time is over; returns the state then."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            state = self.poll()
            over = deadline is not None and time.monotonic() >= deadline
            if over or not state.alive:
                return state
            time.sleep(WATCH_EVERY_S / 4)

    def stop(self) -> None:
        """End all workers, first asking, then by force; no process and no file is left.

        May be called at any time and more than once.
        """
        self.poll()
        self._stopping.set()
        if self._watcher is not None and self._watcher is not threading.current_thread():
            self._watcher.join(WATCH_EVERY_S * 5)
        self._signal_alive(signal.SIGTERM)
        if self.wait(STOP_GRACE_S).alive:
            self._signal_alive(signal.SIGKILL)
            self.wait()
        with self._lock:
            if self._leash_fd is not None:
                os.close(self._leash_fd)
                self._leash_fd = None
            self._streams.close()
            if self._scratch is not None:
                shutil.rmtree(self._scratch, ignore_errors=True)
                self._scratch = None

    def _record_failure(self, failed: list[EndedRank]) -> str:
        """Write the failure into the events; returns it for people."""
        what = "; ".join(ended.describe() for ended in failed)
        try:
            record_event(
                self.config,
                "failure",
                at_us=time.time_ns() // 1000,
                ranks=tuple(ended.rank for ended in failed),
                detail=what,
            )
        except OSError as error:  # e.g. a full disk, which may be why the worker failed
            return f"{what} (could not be recorded: {error})"
        return what

    def _launch(self, backend: str, inherited: list[int]) -> None:
        """Start every worker; the descriptors that only they need are added to ``inherited``."""
        config = self.config
        inboxes = []
        for _ in range(config.workers):
            inboxes.append(os.pipe())
            inherited.extend(inboxes[-1])
        cores = usable_cores()
        context = Contention.of(config.workers, cores).context
        length = Shape(context=context).size + 1
        memory_fd = shared_memory(memory_bytes(config.workers, length))
        inherited.append(memory_fd)
        leash_fd, self._leash_fd = os.pipe()
        inherited.append(leash_fd)
        peer_fds = tuple(write_fd for _, write_fd in inboxes)
        # A pipe breaks when its last reader is gone: everyone holds both ends of all of them.
        pipe_fds = tuple(fd for ends in inboxes for fd in ends)
        for rank in range(config.workers):
            spec = WorkerSpec(
                lake=str(config.lake.resolve()),
                job_id=config.job_id,
                rank=rank,
                workers=config.workers,
                cores=cores,
                straggler=config.straggler,
                straggler_rank=config.straggler_rank,
                steps=config.steps,
                seed=config.seed,
                backend=backend,
                step_target_ms=config.step_target_ms,
                checkpoint_every=config.checkpoint_every,
                collective_timeout_s=config.collective_timeout_s,
                inbox_fd=inboxes[rank][0],
                peer_fds=peer_fds,
                memory_fd=memory_fd,
                leash_fd=leash_fd,
                scratch=str(self._scratch),
                started_us=self._started_us,
            )
            output = (self._unnamed_file(), self._unnamed_file())
            self._output.append(output)
            self._processes.append(
                subprocess.Popen(
                    # -P: a file of the working directory must not pass for a library's module.
                    [sys.executable, "-P", "-m", "steptax.app.demo.worker", spec.to_json()],
                    stdin=subprocess.DEVNULL,
                    stdout=output[0],
                    stderr=output[1],
                    env={**os.environ, **ONE_THREAD},
                    pass_fds=(*pipe_fds, memory_fd, leash_fd),
                    # Out of the terminal's group: Ctrl-C is the supervisor's to act on.
                    start_new_session=True,
                )
            )

    def _unnamed_file(self) -> IO[bytes]:
        """A file that `stop` closes and that then is no more."""
        return self._streams.enter_context(tempfile.TemporaryFile())

    def _watch(self) -> None:
        while not self._stopping.wait(WATCH_EVERY_S):
            if self.poll().finished:
                return

    def _signal_alive(self, number: signal.Signals) -> None:
        for rank in self.poll().alive:
            self._processes[rank].send_signal(number)

    def _reap(self, rank: int, process: subprocess.Popen[bytes]) -> EndedRank:
        """What is known of a worker that has ended."""
        said, complained = (_last_lines(stream) for stream in self._output[rank])
        code = process.returncode
        return EndedRank(
            rank,
            exit_code=code if code >= 0 else None,
            signal=_signal_name(-code) if code < 0 else None,
            joined=JOINED in said,
            message=complained[-1] if complained else None,
            result=WorkerResult(**json.loads(said[-1])) if len(said) > 1 and code == 0 else None,
        )


def _last_lines(stream: IO[bytes]) -> list[str]:
    """The lines in the last 16 KiB that a process wrote."""
    stream.seek(0, os.SEEK_END)
    stream.seek(max(0, stream.tell() - (1 << 14)))
    return stream.read().decode(errors="replace").strip().splitlines()


def _signal_name(number: int) -> str:
    """SIGKILL for 9; the real-time signals have only numbers."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
