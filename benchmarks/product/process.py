"""What measured processes took, and measuring in a process of its own."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

_CACHES = Path("/proc/sys/vm/drop_caches")


def peak_mib(pid: int | None = None) -> float:
    """Most memory that this process held, or another one (Linux), MiB.

    Linux tells it per program; ``getrusage`` begins with the memory of whoever started it.
    """
    status = Path(f"/proc/{pid or 'self'}/status")
    if status.exists():
        line = next(n for n in status.read_text().splitlines() if n.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used / (1024 * 1024 if sys.platform == "darwin" else 1024)


def forget_files() -> bool:
    """Empty the system's cache of files, where that can be had (Linux, root)."""
    if not os.access(_CACHES, os.W_OK):
        return False
    os.sync()
    _CACHES.write_text("1")
    return True


def of_its_own(module: str, *arguments: str) -> dict[str, Any]:
    """Run ``python -m module arguments``; the JSON object of its last line."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def resident_mib(pid: int) -> float:
    """Memory that the process holds, in MiB."""
    text = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in text.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def cpu_s(pid: int) -> float:
    """Processor seconds that the process has used."""
    # Behind the name, which may hold spaces: utime and stime are fields 14 and 15 of proc(5).
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
