"""Collectives over torch.distributed: NCCL or RCCL on GPUs, gloo on CPUs."""

from __future__ import annotations

import datetime
import platform
from typing import Any

from steptax.benchmarks.hardware.backend import UnsupportedError, Work
from steptax.benchmarks.hardware.comm import ITEM_BYTES, OPERATIONS, PATTERN, Comm, Exchange
from steptax.benchmarks.hardware.free_memory import free_host_bytes
from steptax.benchmarks.hardware.software import cpu_model

_TIMEOUT_S = 300.0
#: Taken as free where the kernel does not tell.
_UNKNOWN_FREE_BYTES = 8 << 30
#: Input, work buffer, output and what the library itself needs.
_COPIES = 4
_GPU_WORK, _CPU_WORK = 4096, 256
_MULTIPLIES = 16


#: Elements that are filled and checked at once: the check must not need more memory than the call.
_BLOCK = 1 << 24


def right_pattern(op: str, index: Any, me: int, n: int, part: int) -> Any:
    """What rank ``me`` of ``n`` must hold at ``index`` where rank r sent (i + r) mod `PATTERN`.

    ``part`` is the number of elements of each rank where the operation has parts.
    """
    if op == "all_gather":
        return (index % part + index // part) % PATTERN
    if op == "all_to_all":
        return (me * part + index % part + index // part) % PATTERN
    if op == "broadcast":
        return index % PATTERN
    if op == "send_recv":
        return (index + (me - 1) % n) % PATTERN
    at = index + (me * part if op == "reduce_scatter" else 0)
    # Seven ranks in a row add up to the same everywhere.
    whole = n // PATTERN * sum(range(PATTERN))
    return 0 * at + whole + sum((at + r) % PATTERN for r in range(n % PATTERN))


class TorchComm(Comm):
    """One process of a group that `init_method` brings together."""

    operations = OPERATIONS

    def __init__(
        self, torch: Any, *, rank: int, size: int, local_rank: int, init_method: str
    ) -> None:
        self._torch = torch
        self._dist = torch.distributed
        self.rank, self.size, self.host = rank, size, platform.node()
        self.on_gpu = bool(torch.cuda.is_available())
        if self.on_gpu:
            torch.cuda.set_device(local_rank)
            about = torch.cuda.get_device_properties(local_rank)
            uuid = getattr(about, "uuid", None)
            self.device = torch.device("cuda", local_rank)
            self.device_id = f"cuda:{local_rank}" if uuid is None else f"GPU-{uuid}"
            self.device_model = str(about.name)
            name = "nccl"
        else:
            self.device, self.device_id = torch.device("cpu"), f"cpu rank {rank}"
            self.device_model = cpu_model()
            # Ranks of one machine would otherwise each take every core.
            torch.set_num_threads(1)
            name = "gloo"
        self._dist.init_process_group(
            name,
            rank=rank,
            world_size=size,
            init_method=init_method,
            timeout=datetime.timedelta(seconds=_TIMEOUT_S),
        )
        self.driven_by = f"{name}, torch {torch.__version__}"
        self.note = (
            None if self.on_gpu else "gloo between processes on CPUs: no GPU and no NCCL took part"
        )

    def _sync(self) -> None:
        if self.on_gpu:
            self._torch.cuda.synchronize()

    def exchange(self, op: str, size_bytes: int) -> Exchange:
        """See `Comm.exchange`."""
        torch, n, me = self._torch, self.size, self.rank
        count = size_bytes // ITEM_BYTES
        part = count // n
        sent = part if op == "all_gather" else count
        got = part if op == "reduce_scatter" else count
        source = torch.zeros(sent, device=self.device)
        out = torch.zeros(got, device=self.device)

        def fill(seed: int | None) -> None:
            if seed is not None:
                source.normal_(generator=torch.Generator(self.device).manual_seed(seed + me))
                return
            for first in range(0, sent, _BLOCK):
                mine = source[first : first + _BLOCK]
                index = torch.arange(first, first + len(mine), device=self.device)
                mine.copy_((index + me) % PATTERN)

        def reset() -> None:
            # Broadcast begins at rank 0 only; the others must not hold its answer already.
            if op == "all_reduce" or (op == "broadcast" and me == 0):
                out.copy_(source)
            self._sync()

        call = self._call(op, source, out)

        def run() -> None:
            call()
            self._sync()

        def wrong() -> int:
            bad = 0
            for first in range(0, got, _BLOCK):
                found = out[first : first + _BLOCK]
                index = torch.arange(first, first + len(found), device=self.device)
                bad += int((found != right_pattern(op, index, me, n, part)).sum())
            return bad

        return Exchange(fill, reset, run, wrong)

    def _call(self, op: str, source: Any, out: Any) -> Work:
        dist, n, me = self._dist, self.size, self.rank
        calls: dict[str, Work] = {
            "all_reduce": lambda: dist.all_reduce(out),
            "all_gather": lambda: dist.all_gather_into_tensor(out, source),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(out, source),
            "all_to_all": lambda: dist.all_to_all_single(out, source),
            "broadcast": lambda: dist.broadcast(out, 0),
        }

        def send_recv() -> None:
            ways = [
                dist.P2POp(dist.isend, source, (me + 1) % n),
                dist.P2POp(dist.irecv, out, (me - 1) % n),
            ]
            for request in dist.batch_isend_irecv(ways):
                request.wait()

        call = calls.get(op, send_recv)

        def checked() -> None:
            try:
                call()
            except NotImplementedError as error:
                raise UnsupportedError(str(error)) from None
            except RuntimeError as error:
                # The library refuses on every rank alike, before anything is sent.
                if "not support" in str(error) or "not implemented" in str(error).lower():
                    raise UnsupportedError(str(error).splitlines()[0]) from None
                raise

        return checked

    def own_work(self) -> Work:
        """See `Comm.own_work`: matrix multiplies."""
        torch = self._torch
        side = _GPU_WORK if self.on_gpu else _CPU_WORK
        a = torch.randn(side, side, device=self.device)
        out = torch.empty_like(a)

        def run() -> None:
            for _ in range(_MULTIPLIES):
                torch.mm(a, a, out=out)
            self._sync()

        return run

    def barrier(self) -> None:
        """See `Comm.barrier`."""
        self._dist.barrier()
        self._sync()

    def everyone(self, mine: Any) -> list[Any]:
        """See `Comm.everyone`."""
        found: list[Any] = [None] * self.size
        self._dist.all_gather_object(found, mine)
        return found

    def most_bytes(self) -> int:
        """See `Comm.most_bytes`."""
        if self.on_gpu:
            free, _ = self._torch.cuda.mem_get_info()
        else:
            free = (free_host_bytes() or _UNKNOWN_FREE_BYTES) // self.size
        return int(min(self.everyone(int(free)))) // _COPIES

    def close(self) -> None:
        """See `Comm.close`."""
        self._dist.destroy_process_group()
