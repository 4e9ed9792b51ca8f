"""The demo's own all-reduce through shared memory, where torch is not installed.

It shows the method on a machine that has nothing else; it is no figure of a network.
"""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

import numpy as np

from steptax.app.demo.collective import Mesh, SharedMemoryMean
from steptax.benchmarks.hardware.backend import UnsupportedError, Work
from steptax.benchmarks.hardware.comm import ITEM_BYTES, PATTERN, Comm, Exchange
from steptax.benchmarks.hardware.software import cpu_model

_TIMEOUT_S = 300.0
_WORK = 256
_MULTIPLIES = 16


class ShmComm(Comm):
    """One process of a mesh of pipes; ``folder`` takes what ranks tell each other."""

    operations = ("all_reduce",)
    note = (
        "torch is not installed: all-reduce by Steptax's own shared memory between processes of "
        "this machine (a mean, one round), neither NCCL nor gloo; other operations are left out"
    )

    def __init__(
        self,
        rank: int,
        inbox_fd: int,
        peer_fds: tuple[int, ...],
        memory_fd: int,
        folder: Path,
        most_bytes: int,
    ) -> None:
        self.rank, self.size, self.host = rank, len(peer_fds), platform.node()
        self.driven_by = f"steptax shared memory, numpy {np.__version__}"
        self.device_id, self.device_model = f"cpu rank {rank}", cpu_model()
        self._mesh = Mesh(rank, inbox_fd, peer_fds)
        self._memory_fd, self._folder, self._most_bytes = memory_fd, folder, most_bytes
        self._told = 0

    def exchange(self, op: str, size_bytes: int) -> Exchange:
        """See `Comm.exchange`."""
        if op != "all_reduce":
            raise UnsupportedError("only all_reduce without torch")
        count = size_bytes // ITEM_BYTES
        reduce = SharedMemoryMean(self._mesh, self._memory_fd, count, _TIMEOUT_S)
        source = np.zeros(count, np.float32)
        out = np.zeros(count, np.float32)

        def pattern(rank: int) -> Any:
            return ((np.arange(count) + rank) % PATTERN).astype(np.float32)

        def fill(seed: int | None) -> None:
            source[:] = (
                pattern(self.rank)
                if seed is None
                else np.random.default_rng(seed + self.rank).standard_normal(count)
            )

        def run() -> None:
            out[:] = reduce.mean(source)

        def wrong() -> int:
            right = np.mean([pattern(r) for r in range(self.size)], axis=0, dtype=np.float32)
            return int((~np.isclose(out, right, rtol=1e-6, atol=1e-6)).sum())

        return Exchange(fill, lambda: None, run, wrong)

    def own_work(self) -> Work:
        """See `Comm.own_work`."""
        a = np.random.default_rng(self.rank).standard_normal((_WORK, _WORK), dtype=np.float32)
        out = np.empty_like(a)

        def run() -> None:
            for _ in range(_MULTIPLIES):
                np.matmul(a, a, out=out)

        return run

    def barrier(self) -> None:
        """See `Comm.barrier`."""
        self._mesh.meet(_TIMEOUT_S)

    def everyone(self, mine: Any) -> list[Any]:
        """See `Comm.everyone`."""
        self._told += 1
        names = [self._folder / f"told-{self._told}-{r}.json" for r in range(self.size)]
        names[self.rank].write_text(json.dumps(mine))
        self.barrier()
        return [json.loads(path.read_text()) for path in names]

    def most_bytes(self) -> int:
        """See `Comm.most_bytes`."""
        return self._most_bytes

    def close(self) -> None:
        """See `Comm.close`: nothing is held."""
