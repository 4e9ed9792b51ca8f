"""Links of a device: to the host from pinned memory, and to each other device of the node."""

from __future__ import annotations

from collections.abc import Sequence

from steptax.benchmarks.hardware.backend import Backend, UnsupportedError, Work
from steptax.benchmarks.hardware.case import GB_PER_S, Case

#: As nvbandwidth does.
BUFFER_BYTES = 512 << 20


def cases(backends: Sequence[Backend], size_bytes: int = BUFFER_BYTES) -> list[Case]:
    """Host to device and back on all devices at once; then each pair of devices on its own."""
    both = [_host(direction, size_bytes) for direction in ("h2d", "d2h")]
    return both + [
        _peer(a.index, b, size_bytes) for a in backends for b in backends if a.index != b.index
    ]


def _host(direction: str, size_bytes: int) -> Case:
    def prepare(backend: Backend, seed: int) -> Work:
        return backend.host_copy(direction, size_bytes, seed)

    return Case(f"link {direction}", str(size_bytes), "fp32", GB_PER_S, float(size_bytes), prepare)


def _peer(source: int, target: Backend, size_bytes: int) -> Case:
    """One pair: only the device that sends runs it."""

    def prepare(backend: Backend, seed: int) -> Work:
        if backend.index != source:
            raise UnsupportedError("")
        return backend.peer_copy(target, size_bytes, seed)

    name = f"link d2d to {target.index}"
    return Case(name, str(size_bytes), "fp32", GB_PER_S, float(size_bytes), prepare, alone=True)
