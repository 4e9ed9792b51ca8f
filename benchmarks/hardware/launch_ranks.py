"""How the ranks of a collective benchmark come together: torchrun, Slurm, or processes of ours."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from steptax.app.demo.job import ONE_THREAD
from steptax.app.errors import UserError
from steptax.benchmarks.hardware.burden import burden
from steptax.benchmarks.hardware.collectives import ARRIVAL_BYTES, Sweep
from steptax.benchmarks.hardware.comm import ITEM_BYTES
from steptax.benchmarks.hardware.free_memory import free_host_bytes

MOST_RANKS = 64
_COPIES = 4
_SLURM_PORT = 29400


@dataclass(frozen=True)
class Place:
    """Where a process stands among those that a launcher started."""

    rank: int
    size: int
    local_rank: int
    init_method: str


def launched(environment: Mapping[str, str]) -> Place | None:
    """The place that torchrun or ``srun`` gave this process; None where neither started it.

    Slurm names no meeting place: it is the first node of the step, at a port that follows from
    the job's number. UserError where the variables contradict each other.
    """
    try:
        if "RANK" in environment and "WORLD_SIZE" in environment:
            rank, size = int(environment["RANK"]), int(environment["WORLD_SIZE"])
            return Place(rank, size, int(environment.get("LOCAL_RANK", "0")), "env://")
        if int(environment.get("SLURM_NTASKS", "1")) < 2 or "SLURM_PROCID" not in environment:
            return None
        if environment.get("SLURM_STEP_ID") in (None, "4294967291"):
            return None  # the batch script itself, or an interactive shell: not started by srun
        rank, size = int(environment["SLURM_PROCID"]), int(environment["SLURM_NTASKS"])
        local = int(environment.get("SLURM_LOCALID", "0"))
        job = int(environment.get("SLURM_JOB_ID", "0"))
    except ValueError as error:
        raise UserError(
            f"the launcher's variables hold no numbers: {error}", where="RANK, WORLD_SIZE"
        ) from None
    nodes = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_NODELIST", "")
    host = environment.get("MASTER_ADDR") or first_node(nodes)
    port = environment.get("MASTER_PORT") or str(_SLURM_PORT + job % 1000)
    return Place(rank, size, local, f"tcp://{host}:{port}")


def first_node(nodes: str) -> str:
    """First host of Slurm's list: ``gpu[007-010,12],login1`` begins with ``gpu007``."""
    found = re.match(r"([^,\[]+)(?:\[(\d+)[^\]]*\]([^,\[]*))?", nodes)
    if found is None:
        raise UserError(
            "Slurm names no nodes", where="SLURM_NODELIST", hint="set MASTER_ADDR yourself"
        )
    return found[1] + (found[2] or "") + (found[3] or "")


def has_torch() -> bool:
    """Whether torch is installed here."""
    return importlib.util.find_spec("torch") is not None


def start_local(
    ranks: int,
    sweep: Sweep,
    *,
    torch: bool,
    timeout_s: float,
    burden_rank: int | None = None,
) -> dict[str, Any]:
    """Start ``ranks`` processes here, wait for them, and give what rank 0 gathered.

    ``burden_rank`` shares its core with work that is in its way (see `burden`), to see that it is
    named.

    UserError where a rank fails or does not end in time: the others are ended, and the last lines
    of the one that failed are told.
    """
    if not 2 <= ranks <= MOST_RANKS:
        raise UserError(f"2 to {MOST_RANKS} ranks, not {ranks}", where="--ranks")
    if burden_rank is not None and not 0 <= burden_rank < ranks:
        raise UserError(f"there is no rank {burden_rank} among {ranks}", where="--burden-rank")
    with ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="steptax-bench-"))
        folder = Path(name)
        told = {"sweep": asdict(sweep), "size": ranks, "folder": name, "torch": torch}
        fds: list[int] = []
        try:
            if not torch:
                told |= _mesh(ranks, sweep, fds)
            processes = [_start(told | {"rank": r}, folder, fds) for r in range(ranks)]
        finally:
            for fd in fds:
                os.close(fd)
        if burden_rank is not None:
            stack.enter_context(burden([p.pid for p in processes], burden_rank))
        _wait(processes, folder, timeout_s)
        found: dict[str, Any] = json.loads((folder / "result.json").read_text())
        return found


def _mesh(ranks: int, sweep: Sweep, fds: list[int]) -> dict[str, Any]:
    """Pipes of every rank and the memory that they share; ``fds`` is what must be closed."""
    from steptax.app.demo.collective import memory_bytes, shared_memory

    pipes = [os.pipe() for _ in range(ranks)]
    fds += [fd for pipe in pipes for fd in pipe]
    # Each rank has its input and its output beside two parts of the shared memory.
    most = (free_host_bytes() or sweep.last_bytes) // (_COPIES * ranks)
    largest = max(min(sweep.last_bytes, most), ARRIVAL_BYTES)
    memory = shared_memory(memory_bytes(ranks, largest // ITEM_BYTES))
    fds.append(memory)
    return {"pipes": pipes, "memory_fd": memory, "most_bytes": largest}


def _start(told: dict[str, Any], folder: Path, fds: Sequence[int]) -> subprocess.Popen[bytes]:
    with (folder / f"rank-{told['rank']}.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "steptax.benchmarks.hardware.rank", json.dumps(told)],
            # Every rank has one core's worth of BLAS threads, whatever the machine has.
            env=os.environ | ONE_THREAD,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            pass_fds=tuple(fds),
        )


def _wait(processes: list[subprocess.Popen[bytes]], folder: Path, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    try:
        while any(process.poll() is None for process in processes):
            failed = [r for r, p in enumerate(processes) if p.poll() not in (None, 0)]
            if failed:
                break
            if time.monotonic() > deadline:
                raise UserError(
                    f"the ranks did not end within {timeout_s:g} s",
                    where="bench collectives",
                    hint="fewer sizes (--max-bytes), operations (--op) or repeats, or --timeout",
                )
            time.sleep(0.05)
        for rank, process in enumerate(processes):
            if process.poll() not in (None, 0):
                lines = (folder / f"rank-{rank}.log").read_text(errors="replace").splitlines()
                said = [line for line in lines if line.strip()]
                raise UserError(
                    f"rank {rank} failed: {said[-1] if said else 'it said nothing'}",
                    where="bench collectives",
                    hint="one rank that fails ends the benchmark; STEPTAX_DEBUG=1 shows where",
                )
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
            process.wait()
