"""Who is slow *inside* a collective: the links between neighbours, timed two by two.

In a collective every rank waits for the slowest, so that its time is the same on all of them. The
probe exchanges a message with each neighbour in a ring of the ranks, in rounds in which every rank
has one partner, as FALCON validates links (Wu et al., "FALCON: Pinpointing and Mitigating
Stragglers for Large-Scale Hybrid-Parallel Training", 2024). A rank that communicates slowly is slow
on both of its links, a slow link is slow for one pair, a slow network for all.

    probe = LinkProbe(rec, every=100)
    for step, batch in recorded_steps(rec, loader):
        probe(step)
        ...

It costs in every ``every``-th step and nothing in the others: with the defaults 8 MiB to and from
each rank, in 8 exchanges. That is what the network makes of it, and took 30 ms with gloo where four
ranks shared two busy cores. Under NCCL it also waits for the device, and makes a communicator for
each pair of neighbours (not tried on devices so far).
"""

from __future__ import annotations

import time
from typing import Any

from steptax.connectors.recorder.integrations.quiet import warn_once
from steptax.connectors.recorder.recorder import StepRecorder

#: The tag of its messages, so that they are nobody else's; NCCL has none.
TAG = 0x57E9


def rounds(place: int, size: int) -> list[int | None]:
    """Partner of the rank at ``place`` of a ring of ``size`` in each round; None where it has none.

    Over all rounds every rank meets both of its neighbours once; two ranks have one link.
    """
    if size < 2:
        return []
    edges = [(k, (k + 1) % size) for k in range(size if size > 2 else 1)]
    turns = [edges[0::2], edges[1::2]]
    if size % 2 and size > 1:  # the last edge of an odd ring ends where the first one begins
        turns = [edges[0:-1:2], edges[1:-1:2], edges[-1:]]
    partners: list[int | None] = []
    for turn in turns:
        met = [a + b - place for a, b in turn if place in (a, b)]
        partners.append(met[0] if met else None)
    return partners


def sends_from_device(backend: str, has_device: bool) -> bool:
    """Whether messages of a group go from device to device, by what torch calls its ``backend``.

    ``init_process_group()`` without a backend takes the one of the accelerator, and calls it
    undefined; a group may have one for each kind of device: ``cpu:gloo,cuda:nccl``.
    """
    return has_device if backend == "undefined" else "nccl" in backend


class LinkProbe:
    """Times the links of this rank in every ``every``-th step; called on all ranks of ``group``.

    ``size_bytes`` go in each direction, ``repeats`` times, of which the shortest counts. Its time
    is communication of the step. It never raises; what goes wrong ends the probing, and is said. A
    rank that stops while others go on leaves its neighbours waiting, as with any message: until the
    time-out of the group.
    """

    def __init__(
        self,
        rec: StepRecorder,
        every: int = 100,
        size_bytes: int = 1 << 20,
        repeats: int = 3,
        group: Any = None,
    ) -> None:
        self._rec = rec
        self._every = max(1, int(every))
        self._size_bytes = max(1, int(size_bytes))
        self._repeats = max(1, int(repeats))
        self._group = group
        self._buffers: tuple[Any, Any] | None = None
        self._last = -1
        self._is_broken = False
        self.probes = 0
        """How often it has probed."""

    def __call__(self, step: int) -> bool:
        """Probe, if it is time to; call it once in a step, at the same place on every rank."""
        if self._is_broken or step == self._last or step <= 0 or step % self._every:
            return False
        self._last = step
        try:
            with self._rec.collective():
                measured = self._probe()
        except Exception as error:
            self._is_broken = True
            warn_once("links are not probed any more", error)
            return False
        for peer, duration_ns in measured:
            self._rec.link(step, peer, duration_ns // 1000, self._size_bytes)
        self.probes += 1
        return True

    def _probe(self) -> list[tuple[int, int]]:
        import torch
        import torch.distributed as dist

        if not dist.is_available() or not dist.is_initialized():
            raise RuntimeError("torch.distributed is not initialised")
        size = dist.get_world_size(self._group)
        place = dist.get_rank(self._group)
        backend = str(dist.get_backend(self._group))
        on_device = sends_from_device(backend, torch.cuda.is_available())
        if self._buffers is None:
            device = torch.device("cuda", torch.cuda.current_device()) if on_device else "cpu"
            sent = torch.zeros(self._size_bytes, dtype=torch.uint8, device=device)
            self._buffers = sent, torch.empty_like(sent)
        measured = []
        for partner in rounds(place, size):
            if partner is None:
                continue
            peer = partner if self._group is None else dist.get_global_rank(self._group, partner)
            # The first exchange waits for the partner to come here, and opens the connection.
            times = [self._exchange(dist, torch, peer, on_device) for _ in range(self._repeats + 1)]
            measured.append((peer, min(times[1:])))
        return measured

    def _exchange(self, dist: Any, torch: Any, peer: int, on_device: bool) -> int:
        """Nanoseconds until both messages are there."""
        sent, received = self._buffers or (None, None)
        if on_device:
            torch.cuda.synchronize()
        begin_ns = time.perf_counter_ns()
        both = [
            dist.P2POp(dist.isend, sent, peer, self._group, TAG),
            dist.P2POp(dist.irecv, received, peer, self._group, TAG),
        ]
        for work in dist.batch_isend_irecv(both):
            work.wait()
        if on_device:
            torch.cuda.synchronize()
        return time.perf_counter_ns() - begin_ns
