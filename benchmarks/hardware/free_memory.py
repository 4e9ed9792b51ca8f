"""What memory is left, and how each library says that there is not enough."""

from __future__ import annotations

from pathlib import Path

#: What numpy (by the class), torch on a GPU and torch on a CPU say.
_SAID = ("out of memory", "can't allocate memory", "cannot allocate memory")


def free_host_bytes(path: Path = Path("/proc/meminfo")) -> int | None:
    """Bytes that new processes can have without swapping; None where the kernel does not tell."""
    try:
        lines = path.read_text(encoding="ascii").splitlines()
        named = dict(line.split(":", 1) for line in lines)
        return int(named["MemAvailable"].split()[0]) << 10
    except (OSError, KeyError, ValueError):
        return None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether ``error`` says that memory ran out: also torch's OutOfMemoryError, a RuntimeError."""
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(s in str(error).lower() for s in _SAID)
