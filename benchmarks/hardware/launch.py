"""What it costs to start the smallest operation: on the device, and as the host sees it."""

from __future__ import annotations

from steptax.benchmarks.hardware.backend import Backend
from steptax.benchmarks.hardware.case import US, Case

#: Calls back to back of which the host's time is the mean.
CALLS = 1000


def cases(backend: Backend) -> list[Case]:
    """Time between two events around an operation on one element, and wall time per call."""
    wall = Case("launch wall", "1", "fp32", US, 0, lambda b, _seed: b.tiny(), wall_calls=CALLS)
    if not backend.is_gpu:
        return [wall]
    return [Case("launch event", "1", "fp32", US, 0, lambda b, _seed: b.tiny()), wall]
