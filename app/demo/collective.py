"""A real all-reduce between the processes of the demo, with the failure mode of a real one.

Arrival is announced by one byte in the pipe of every peer, and a process that waits is blocked in
the kernel: 8 waiting processes on 2 cores cost nothing. Every process holds every pipe open, so a
peer that is killed breaks nothing: the others wait, as with NCCL, until the timeout, and then can
name who did not arrive. The numbers travel through shared memory without a name, which the kernel
frees with its last user, however that one ends.
"""

from __future__ import annotations

import mmap
import os
import select
import tempfile
import time
from typing import Protocol

import numpy as np

from steptax.app.demo.model import Array
from steptax.app.errors import SteptaxError


class CollectiveTimeoutError(SteptaxError):
    """A peer did not arrive in time; ``missing`` are their ranks."""

    def __init__(self, timeout_s: float, missing: tuple[int, ...]) -> None:
        who = ", ".join(str(rank) for rank in missing)
        super().__init__(
            f"collective timed out after {timeout_s:g} s: "
            f"rank{'s' if len(missing) > 1 else ''} {who} never arrived"
        )
        self.missing = missing


class Mesh:
    """One process's place in the group: meets its peers, round after round.

    ``inbox_fd`` is read; ``peer_fds[r]`` is the writing end of rank r's inbox.
    """

    def __init__(self, rank: int, inbox_fd: int, peer_fds: tuple[int, ...]) -> None:
        self.rank = rank
        self.size = len(peer_fds)
        self._inbox_fd = inbox_fd
        self._peer_fds = peer_fds
        self._round = 0
        self._rounds_of = [0] * self.size

    def meet(self, timeout_s: float) -> None:
        """Return when every rank has called this as often as this one.

        Raises CollectiveTimeoutError when one has not within ``timeout_s``.
        """
        deadline = time.monotonic() + timeout_s
        self._round += 1
        self._rounds_of[self.rank] = self._round
        for peer, fd in enumerate(self._peer_fds):
            if peer != self.rank:
                os.write(fd, bytes((self.rank,)))
        while missing := self._missing():
            # A peer may be one round ahead; the byte says whose it is, so none is miscounted.
            left_s = deadline - time.monotonic()
            ready, _, _ = select.select([self._inbox_fd], [], [], max(0.0, left_s))
            if not ready:
                raise CollectiveTimeoutError(timeout_s, missing)
            for sender in os.read(self._inbox_fd, 4096):
                self._rounds_of[sender] += 1

    def _missing(self) -> tuple[int, ...]:
        return tuple(r for r, rounds in enumerate(self._rounds_of) if rounds < self._round)


class AllReduce(Protocol):
    """Averages a vector over all processes."""

    def mean(self, vector: Array) -> Array:
        """The mean of every rank's ``vector``, bit for bit the same on all ranks.

        Raises CollectiveTimeoutError when a peer does not arrive.
        """


class SharedMemoryMean:
    """All-reduce of float32 vectors of one length through shared memory.

    Each rank writes its slot, meets the others once, and adds up all slots in the order of the
    ranks. Two sets of slots alternate: a rank can only reach the second-next round after everyone
    has left this one, so nobody's slot is overwritten while it is read.
    """

    def __init__(self, mesh: Mesh, memory_fd: int, length: int, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._mesh = mesh
        self._memory = mmap.mmap(memory_fd, memory_bytes(mesh.size, length))
        slots = np.frombuffer(self._memory, dtype=np.float32)
        self._slots = slots.reshape(2, mesh.size, length)
        self._turn = 0

    def mean(self, vector: Array) -> Array:
        """See `AllReduce.mean`."""
        slots = self._slots[self._turn]
        self._turn = 1 - self._turn
        slots[self._mesh.rank] = vector
        self._mesh.meet(self.timeout_s)
        result: Array = slots.mean(axis=0)
        return result


def memory_bytes(ranks: int, length: int) -> int:
    """Size in bytes of the shared memory for vectors of ``length`` float32."""
    return 2 * ranks * length * np.dtype(np.float32).itemsize


def shared_memory(size_bytes: int) -> int:
    """A descriptor of ``size_bytes`` zeroed bytes without a name; the caller closes it."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("steptax-demo")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, size_bytes)
    return fd
