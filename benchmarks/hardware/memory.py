"""Memory of the device: copy and triad, every byte that is read or written counted once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from steptax.benchmarks.hardware.backend import Backend
from steptax.benchmarks.hardware.case import GB_PER_S, Case

GPU_SIZES = (1 << 30, 4 << 30)
CPU_SIZES = (64 << 20,)


def cases(backend: Backend, sizes: Sequence[int] = ()) -> list[Case]:
    """``sizes`` are the bytes of one array. A copy moves two of them, a triad three."""

    def asked(size: int) -> dict[str, Any]:
        return {"needs_bytes": 2.0 * size, "flag": "--memory-bytes" if sizes else None}

    out = []
    for size in sizes or (GPU_SIZES if backend.is_gpu else CPU_SIZES):
        out += [
            Case(
                "memory copy",
                str(size),
                "fp32",
                GB_PER_S,
                2.0 * size,
                lambda b, seed, size=size: b.copy(size, seed),  # type: ignore[misc]
                **asked(size),
            ),
            Case(
                "memory triad",
                str(size),
                "fp32",
                GB_PER_S,
                3.0 * size,
                lambda b, seed, size=size: b.triad(size, seed),  # type: ignore[misc]
                **asked(size),
            ),
        ]
    return out
