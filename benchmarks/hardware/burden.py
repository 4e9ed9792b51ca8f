"""Loading the core of one rank on purpose: how to see that the benchmark names it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from steptax.app.errors import UserError

#: Processes that share the core with the rank, and how much they go before it.
_OTHERS = 8
_NICE = 2
#: Ends with whoever started it, however that one ends: its standard input closes then.
_SPIN = (
    "import os, sys, threading\n"
    "def leash():\n"
    "    sys.stdin.read()\n"
    "    os._exit(0)\n"
    "threading.Thread(target=leash, daemon=True).start()\n"
    "while True: pass\n"
)


@contextmanager
def burden(pids: Sequence[int], rank: int) -> Iterator[None]:
    """Put ``rank`` alone on the last core with eight busy processes, the others on the rest.

    UserError where the system cannot bind processes to cores, or there is one core only.
    """
    if not hasattr(os, "sched_setaffinity"):
        raise UserError(
            "this system does not bind processes to cores",
            where="--burden-rank",
            hint="try it on Linux",
        )
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise UserError("one core: there is none to load apart", where="--burden-rank")
    spinning = []
    try:
        for place, pid in enumerate(pids):
            _bind(pid, {cores[-1]} if place == rank else set(cores[:-1]))
            if place == rank:
                os.setpriority(os.PRIO_PROCESS, pid, _NICE)
        for _ in range(_OTHERS):
            process = subprocess.Popen([sys.executable, "-c", _SPIN], stdin=subprocess.PIPE)
            spinning.append(process)
            _bind(process.pid, {cores[-1]})
        yield
    finally:
        for process in spinning:
            process.kill()
            process.communicate()


def _bind(pid: int, cores: set[int]) -> None:
    """Bind a process with the threads that it has by now; later ones inherit it."""
    try:
        threads = [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        threads = [pid]
    for thread in threads:
        try:
            os.sched_setaffinity(thread, cores)
        except ProcessLookupError:
            continue  # it ended: whoever waits for it will say so
