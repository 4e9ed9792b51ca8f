"""Lines that training logs of every family have: failures, and what nobody needs to keep."""

from __future__ import annotations

import re

from steptax.connectors.logs.lines import Line
from steptax.connectors.logs.marks import Kind, Mark

_FAILED = re.compile(
    r"(?:CUDA|HIP) out of memory|OutOfMemoryError|RESOURCE_EXHAUSTED"
    r"|Watchdog caught collective operation timeout|ChildFailedError"
    r"|exits with return code = -?[1-9]|\(exitcode: -?[1-9]|failed \(exitcode: -?[1-9]"
    r"|Segmentation fault|DUE TO TIME LIMIT|slurmstepd: error: .*CANCELLED"
)
_NOISE = re.compile(
    # warnings, tracebacks and the shell's own trace
    r"\s*warnings\.warn\(|.*(?:Warning|WARNING)\b|Traceback \(most recent call last\)"
    r"|\s*File \"[^\"]+\", line \d+|\s+\^+\s*$|\+ "
    # any line with a logger's level in front
    r"|\[?[\d\-/: .,]*\]?\s*\[(?:INFO|DEBUG|WARNING|I|D|W|E|ERROR)\s*[\]|]"
    r"|(?:INFO|DEBUG):[\w.]+:|[IWEF]\d{4} \d\d:\d\d:\d\d"
    r"|\[(?:INFO|WARNING|DEBUG)\|"
    r"|NCCL (?:version|INFO|WARN)"
)


def read_failure(line: Line) -> Mark | None:
    """A line by which a process says that it dies."""
    found = _FAILED.search(line.text)
    if found is None:
        return None
    return Mark(Kind.EVENT, line, event="failure", detail=line.text[found.start() :].strip())


def read_noise(line: Line) -> Mark | None:
    """A line that carries nothing of what is kept."""
    return Mark(Kind.NOISE, line) if _NOISE.match(line.text) else None
