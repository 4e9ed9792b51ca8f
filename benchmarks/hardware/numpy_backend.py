"""The CPU through numpy and scipy's BLAS, where torch is not installed."""

from __future__ import annotations

import platform
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from steptax.benchmarks.hardware.backend import Backend, BlockShape, UnsupportedError, Work
from steptax.benchmarks.hardware.free_memory import free_host_bytes
from steptax.benchmarks.hardware.software import cpu_model

_NO_GRADIENT = "numpy has no gradients: install torch to time the backward pass"
_NO_LINK = "no GPU on this machine, so there is no link to measure"
Array = npt.NDArray[np.float32]


class NumpyBackend(Backend):
    """All cores of this machine, as numpy's BLAS uses them; float32 only."""

    kind = "cpu"
    index = 0
    device_id = "cpu"
    dtypes = ("fp32",)
    flush_bytes = 64 << 20

    def __init__(self) -> None:
        self.driven_by = f"numpy {np.__version__}"
        self.device_model = cpu_model() or platform.processor() or None
        self._flushed: npt.NDArray[np.int64] | None = None

    def free_bytes(self) -> int | None:
        """See `Backend.free_bytes`."""
        return free_host_bytes()

    def timed_us(self, work: Work, iterations: int, *, flush: bool) -> list[float]:
        """See `Backend.timed_us`; the clock is the host's."""
        if flush and self._flushed is None:
            self._flushed = np.zeros(self.flush_bytes // 8, np.int64)
        out = []
        for _ in range(iterations):
            if flush and self._flushed is not None:
                self._flushed += 1
            began = time.perf_counter_ns()
            work()
            out.append((time.perf_counter_ns() - began) / 1e3)
        return out

    def wall_us(self, work: Work, calls: int) -> float:
        """See `Backend.wall_us`."""
        began = time.perf_counter_ns()
        for _ in range(calls):
            work()
        return (time.perf_counter_ns() - began) / 1e3 / calls

    def gemm(self, m: int, n: int, k: int, dtype: str, seed: int) -> Work:
        """See `Backend.gemm`."""
        _require_fp32(dtype)
        a, b, out = _normal((m, k), seed), _normal((k, n), seed + 1), np.empty((m, n), np.float32)
        return lambda: np.matmul(a, b, out=out)

    def copy(self, size_bytes: int, seed: int) -> Work:
        """See `Backend.copy`."""
        source = _normal((size_bytes // 4,), seed)
        target = np.empty_like(source)
        return lambda: np.copyto(target, source)

    def triad(self, size_bytes: int, seed: int) -> Work:
        """Y = y + s * x by BLAS: reads two arrays and writes one, like a triad."""
        from scipy.linalg import blas

        x, y = _normal((size_bytes // 4,), seed), _normal((size_bytes // 4,), seed + 1)
        return lambda: blas.saxpy(x, y, a=1e-3)

    def tiny(self) -> Work:
        """See `Backend.tiny`."""
        x = np.zeros(1, np.float32)
        return lambda: np.add(x, 1.0, out=x)

    def attention(self, shape: BlockShape, dtype: str, seed: int, *, backward: bool) -> Work:
        """See `Backend.attention`."""
        _require_fp32(dtype)
        if backward:
            raise UnsupportedError(_NO_GRADIENT)
        s, h, d = shape.seq_len, shape.heads, shape.head_dim
        width = shape.hidden + 2 * shape.kv_heads * d
        x = _normal((shape.tokens, shape.hidden), seed)
        w_in = _normal((shape.hidden, width), seed + 1) * np.float32(shape.hidden**-0.5)
        w_out = _normal((shape.hidden, shape.hidden), seed + 2) * np.float32(shape.hidden**-0.5)
        hidden = np.triu(np.full((s, s), -np.inf, np.float32), 1)

        def run() -> Array:
            mixed = np.empty((shape.tokens, shape.hidden), np.float32)
            qkv = x @ w_in
            for first in range(0, shape.tokens, s):
                rows = qkv[first : first + s]
                q = rows[:, : h * d].reshape(s, h, d).transpose(1, 0, 2)
                k, v = (
                    part.reshape(s, shape.kv_heads, d).transpose(1, 0, 2)
                    for part in np.split(rows[:, h * d :], 2, axis=1)
                )
                k, v = (np.repeat(part, h // shape.kv_heads, axis=0) for part in (k, v))
                score = q @ k.transpose(0, 2, 1) * np.float32(d**-0.5) + hidden
                score = np.exp(score - score.max(axis=-1, keepdims=True))
                score /= score.sum(axis=-1, keepdims=True)
                mixed[first : first + s] = (score @ v).transpose(1, 0, 2).reshape(s, h * d)
            return np.asarray(mixed @ w_out)

        return run

    def mlp(self, shape: BlockShape, dtype: str, seed: int, *, backward: bool) -> Work:
        """See `Backend.mlp`."""
        _require_fp32(dtype)
        if backward:
            raise UnsupportedError(_NO_GRADIENT)
        x = _normal((shape.tokens, shape.hidden), seed)
        up = _normal((shape.hidden, shape.ffn * (2 if shape.gated else 1)), seed + 1)
        down = _normal((shape.ffn, shape.hidden), seed + 2)

        def run() -> Array:
            inner = x @ up
            if shape.gated:
                gate, inner = np.split(inner, 2, axis=1)
                return np.asarray((np.maximum(gate, 0) * inner) @ down)
            return np.asarray(np.maximum(inner, 0) @ down)

        return run

    def host_copy(self, direction: str, size_bytes: int, seed: int) -> Work:
        """There is none."""
        raise UnsupportedError(_NO_LINK)

    def peer_copy(self, other: Backend, size_bytes: int, seed: int) -> Work:
        """There is none."""
        raise UnsupportedError(_NO_LINK)


def _normal(shape: tuple[int, ...], seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def _require_fp32(dtype: Any) -> None:
    if dtype != "fp32":
        raise UnsupportedError(f"numpy multiplies matrices in fp32, not {dtype}")
