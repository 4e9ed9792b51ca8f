"""One device through torch: a GPU of CUDA or ROCm, or all cores of the CPU.

``torch`` is an argument everywhere, so that nothing here needs it to be installed, and a test can
stand in for its devices.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from steptax.benchmarks.hardware.backend import Backend, BlockShape, UnsupportedError, Work
from steptax.benchmarks.hardware.free_memory import free_host_bytes
from steptax.benchmarks.hardware.software import cpu_model

#: The largest last-level cache of today's accelerators, as mamf-finder flushes it.
GPU_FLUSH_BYTES = 256 << 20
CPU_FLUSH_BYTES = 64 << 20
#: Compute capability from which on there are fp8 tensor cores: Ada 8.9, Hopper 9.0.
_FP8_SINCE = (8, 9)
_NO_LINK = "no GPU on this machine, so there is no link to measure"


def torch_backends(torch: Any) -> Sequence[Backend]:
    """One backend per GPU that torch sees; where it sees none, the CPU."""
    if not torch.cuda.is_available():
        return [TorchBackend(torch, None)]
    return [TorchBackend(torch, index) for index in range(torch.cuda.device_count())]


class TorchBackend(Backend):
    """See `Backend`. ``index`` None is the CPU."""

    def __init__(self, torch: Any, index: int | None) -> None:
        self._torch = torch
        self.index = index or 0
        self.driven_by = f"torch {torch.__version__}"
        self._flush: Any = None
        if index is None:
            self.kind, self.device_id, self.device_model = "cpu", "cpu", cpu_model()
            self.device = torch.device("cpu")
            self.dtypes: tuple[str, ...] = ("fp32", "bf16")
            self.flush_bytes = CPU_FLUSH_BYTES
            return
        self.kind = "rocm" if torch.version.hip else "cuda"
        self.device = torch.device("cuda", index)
        about = torch.cuda.get_device_properties(index)
        self.device_model = str(about.name)
        uuid = getattr(about, "uuid", None)
        self.device_id = f"{self.kind}:{index}" if uuid is None else f"GPU-{uuid}"
        self.flush_bytes = GPU_FLUSH_BYTES
        self.dtypes = ("bf16", "fp16", *(("fp8",) if self._fp8_type() else ()), "fp32")

    def _fp8_type(self) -> Any:
        """Torch's fp8 type that this device multiplies in; None where it has none."""
        if self.kind == "rocm":
            arch = str(self._torch.cuda.get_device_properties(self.index).gcnArchName)
            # MI300 has the older encoding without infinities and without minus zero.
            name = "float8_e4m3fnuz" if arch.startswith("gfx94") else "float8_e4m3fn"
            known = arch.startswith(("gfx94", "gfx95"))
            return getattr(self._torch, name, None) if known else None
        if self._torch.cuda.get_device_capability(self.index) < _FP8_SINCE:
            return None
        return getattr(self._torch, "float8_e4m3fn", None)

    def _type(self, dtype: str) -> Any:
        if dtype not in self.dtypes:
            raise UnsupportedError(f"{self.device_model or self.kind} has no {dtype} in torch")
        if dtype == "fp8":
            return self._fp8_type()
        names = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
        return getattr(self._torch, names[dtype])

    def _normal(self, shape: tuple[int, ...], dtype: str, seed: int) -> Any:
        maker = self._torch.Generator(device=self.device)
        maker.manual_seed(seed)
        values = self._torch.randn(shape, generator=maker, device=self.device)
        return values.to(self._type(dtype))

    def free_bytes(self) -> int | None:
        """See `Backend.free_bytes`."""
        if not self.is_gpu:
            return free_host_bytes()
        free, _total = self._torch.cuda.mem_get_info(self.index)
        return int(free)

    # -- time --------------------------------------------------------------------------------

    def timed_us(self, work: Work, iterations: int, *, flush: bool) -> list[float]:
        """See `Backend.timed_us`: by CUDA events; on the CPU by the host's clock."""
        if flush and self._flush is None:
            self._flush = self._torch.zeros(
                self.flush_bytes // 4, dtype=self._torch.int32, device=self.device
            )
        if not self.is_gpu:
            return self._timed_on_cpu(work, iterations, flush=flush)
        cuda = self._torch.cuda
        with cuda.device(self.index):
            marks = [
                (cuda.Event(enable_timing=True), cuda.Event(enable_timing=True))
                for _ in range(iterations)
            ]
            for start, end in marks:
                if flush:
                    self._flush.zero_()
                start.record()
                work()
                end.record()
            cuda.synchronize(self.index)
            return [float(start.elapsed_time(end)) * 1e3 for start, end in marks]

    def _timed_on_cpu(self, work: Work, iterations: int, *, flush: bool) -> list[float]:
        out = []
        for _ in range(iterations):
            if flush:
                self._flush.add_(1)
            began = time.perf_counter_ns()
            work()
            out.append((time.perf_counter_ns() - began) / 1e3)
        return out

    def wall_us(self, work: Work, calls: int) -> float:
        """See `Backend.wall_us`."""
        if not self.is_gpu:
            began = time.perf_counter_ns()
            for _ in range(calls):
                work()
            return (time.perf_counter_ns() - began) / 1e3 / calls
        cuda = self._torch.cuda
        with cuda.device(self.index):
            cuda.synchronize(self.index)
            began = time.perf_counter_ns()
            for _ in range(calls):
                work()
            cuda.synchronize(self.index)
            return (time.perf_counter_ns() - began) / 1e3 / calls

    # -- work --------------------------------------------------------------------------------

    def gemm(self, m: int, n: int, k: int, dtype: str, seed: int) -> Work:
        """See `Backend.gemm`; fp8 by ``torch._scaled_mm`` with bf16 out, fp32 without TF32."""
        torch = self._torch
        a = self._normal((m, k), dtype, seed)
        if dtype == "fp8":
            # cuBLASLt takes the second operand column-major.
            b = self._normal((n, k), dtype, seed + 1).t()
            one = torch.ones((), device=self.device, dtype=torch.float32)
            return lambda: torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16)
        b = self._normal((k, n), dtype, seed + 1)
        out = self._normal((m, n), dtype, seed + 2)
        return lambda: torch.mm(a, b, out=out)

    def copy(self, size_bytes: int, seed: int) -> Work:
        """See `Backend.copy`."""
        source = self._normal((size_bytes // 4,), "fp32", seed)
        target = self._torch.empty_like(source)
        return lambda: target.copy_(source)

    def triad(self, size_bytes: int, seed: int) -> Work:
        """See `Backend.triad`."""
        b = self._normal((size_bytes // 4,), "fp32", seed)
        c = self._normal((size_bytes // 4,), "fp32", seed + 1)
        out = self._torch.empty_like(b)
        return lambda: self._torch.add(b, c, alpha=1e-3, out=out)

    def tiny(self) -> Work:
        """See `Backend.tiny`."""
        x = self._torch.zeros(1, device=self.device)
        return lambda: x.add_(1.0)

    def attention(self, shape: BlockShape, dtype: str, seed: int, *, backward: bool) -> Work:
        """See `Backend.attention`, by scaled_dot_product_attention."""
        torch, scale = self._torch, shape.hidden**-0.5
        d = shape.head_dim
        parts = (shape.heads * d, shape.kv_heads * d, shape.kv_heads * d)
        x = self._normal((shape.sequences, shape.seq_len, shape.hidden), dtype, seed)
        w_in = self._normal((shape.hidden, sum(parts)), dtype, seed + 1) * scale
        w_out = self._normal((shape.hidden, shape.hidden), dtype, seed + 2) * scale

        def forward() -> Any:
            q, k, v = (
                part.reshape(shape.sequences, shape.seq_len, -1, d).transpose(1, 2)
                for part in (x @ w_in).split(parts, dim=-1)
            )
            if shape.kv_heads != shape.heads:
                k, v = (p.repeat_interleave(shape.heads // shape.kv_heads, dim=1) for p in (k, v))
            mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return mixed.transpose(1, 2).reshape(x.shape) @ w_out

        return self._pass(forward, (x, w_in, w_out), backward=backward)

    def mlp(self, shape: BlockShape, dtype: str, seed: int, *, backward: bool) -> Work:
        """See `Backend.mlp`: SwiGLU where the shape is gated, else GELU."""
        f, scale = self._torch.nn.functional, shape.hidden**-0.5
        x = self._normal((shape.tokens, shape.hidden), dtype, seed)
        width = shape.ffn * (2 if shape.gated else 1)
        up = self._normal((shape.hidden, width), dtype, seed + 1) * scale
        down = self._normal((shape.ffn, shape.hidden), dtype, seed + 2) * scale

        def forward() -> Any:
            inner = x @ up
            if shape.gated:
                gate, inner = inner.chunk(2, dim=-1)
                return (f.silu(gate) * inner) @ down
            return f.gelu(inner) @ down

        return self._pass(forward, (x, up, down), backward=backward)

    def _pass(self, forward: Work, leaves: tuple[Any, ...], *, backward: bool) -> Work:
        """Forward alone without gradients, or forward and backward through ``leaves``."""
        torch = self._torch
        if not backward:

            def alone() -> Any:
                with torch.no_grad():
                    return forward()

            return alone
        for leaf in leaves:
            leaf.requires_grad_()

        def both() -> Any:
            out = forward()
            return torch.autograd.grad(out, leaves, grad_outputs=torch.ones_like(out))

        return both

    def host_copy(self, direction: str, size_bytes: int, seed: int) -> Work:
        """See `Backend.host_copy`."""
        if not self.is_gpu:
            raise UnsupportedError(_NO_LINK)
        here = self._normal((size_bytes // 4,), "fp32", seed)
        there = self._torch.empty(size_bytes // 4, pin_memory=True)
        if direction == "h2d":
            there.copy_(here)
            return lambda: here.copy_(there, non_blocking=True)
        return lambda: there.copy_(here, non_blocking=True)

    def peer_copy(self, other: Backend, size_bytes: int, seed: int) -> Work:
        """See `Backend.peer_copy`."""
        if not (self.is_gpu and isinstance(other, TorchBackend)):
            raise UnsupportedError(_NO_LINK)
        if not self._torch.cuda.can_device_access_peer(self.index, other.index):
            raise UnsupportedError(f"GPU {self.index} has no direct access to GPU {other.index}")
        source = self._normal((size_bytes // 4,), "fp32", seed)
        target = self._torch.empty(size_bytes // 4, device=other.device)
        return lambda: target.copy_(source, non_blocking=True)
