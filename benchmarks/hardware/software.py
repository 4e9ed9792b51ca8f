"""What runs a benchmark: versions, and the name of the processor."""

from __future__ import annotations

import contextlib
import importlib.metadata
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from steptax.benchmarks.hardware.backend import Backend


def cpu_model(path: Path = Path("/proc/cpuinfo")) -> str | None:
    """Name of the processor as the kernel tells it; None where it does not."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return None
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next((name for name in named if name), None)


def versions(backends: Sequence[Backend], torch: Any = None) -> dict[str, str]:
    """Names and versions of what a result depends on; what is not known is left out."""
    first = backends[0]
    found = {
        "backend": first.kind,
        "library": first.driven_by,
        "python": platform.python_version(),
        "kernel": platform.release(),
    }
    # Run from its sources it has no version.
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        found["steptax"] = importlib.metadata.version("steptax")
    if torch is not None:
        found |= {name: str(v) for name in ("cuda", "hip") if (v := getattr(torch.version, name))}
        if first.is_gpu and torch.distributed.is_nccl_available():
            found["nccl"] = ".".join(str(part) for part in torch.cuda.nccl.version())
    return found
