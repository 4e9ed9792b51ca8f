"""The boundary between a benchmark and the library that runs it on one device."""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from steptax.app.errors import UserError, install_hint

Work = Callable[[], object]
"""One iteration of what is timed; its data lies on the device already."""

BACKENDS = ("auto", "torch", "numpy")


class UnsupportedError(Exception):
    """The device or its library cannot run this; the text says why."""


@dataclass(frozen=True)
class BlockShape:
    """A transformer block. ``tokens`` = ``sequences`` * ``seq_len``; ``gated``: SwiGLU."""

    name: str
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    seq_len: int
    sequences: int = 1
    gated: bool = True

    @property
    def tokens(self) -> int:
        """Tokens of one pass."""
        return self.sequences * self.seq_len

    @property
    def head_dim(self) -> int:
        """Width of a head."""
        return self.hidden // self.heads


class Backend(ABC):
    """One device and the library that drives it.

    Each method that makes a `Work` allocates and fills its data with fresh normal values of the
    seed: regular data draws less power and runs faster than real data. Every one may raise
    UnsupportedError.
    """

    kind: str
    """``cuda``, ``rocm`` or ``cpu``."""
    driven_by: str
    """What computes, with its version."""
    index: int
    device_id: str
    device_model: str | None
    dtypes: tuple[str, ...]
    """Element types of matrix multiplies, the most used one first."""
    flush_bytes: int
    """Written before each iteration, so that none finds its data in a cache."""

    @property
    def is_gpu(self) -> bool:
        """Whether it is an accelerator with memory of its own."""
        return self.kind != "cpu"

    @abstractmethod
    def free_bytes(self) -> int | None:
        """Memory of the device that is free; None where that cannot be known."""

    @abstractmethod
    def timed_us(self, work: Work, iterations: int, *, flush: bool) -> list[float]:
        """Duration of each of ``iterations`` runs of ``work``, by events of the device."""

    @abstractmethod
    def wall_us(self, work: Work, calls: int) -> float:
        """Wall time per call of ``calls`` runs back to back, up to the end of the last."""

    @abstractmethod
    def gemm(self, m: int, n: int, k: int, dtype: str, seed: int) -> Work:
        """[m, k] x [k, n]."""

    @abstractmethod
    def copy(self, size_bytes: int, seed: int) -> Work:
        """Copy of ``size_bytes`` within the memory of the device."""

    @abstractmethod
    def triad(self, size_bytes: int, seed: int) -> Work:
        """A = b + s * c over arrays of ``size_bytes``: reads two, writes one."""

    @abstractmethod
    def tiny(self) -> Work:
        """The smallest operation there is: what is left is the launch."""

    @abstractmethod
    def attention(self, shape: BlockShape, dtype: str, seed: int, *, backward: bool) -> Work:
        """Projections and causal attention of a block."""

    @abstractmethod
    def mlp(self, shape: BlockShape, dtype: str, seed: int, *, backward: bool) -> Work:
        """The feed-forward part of a block."""

    @abstractmethod
    def host_copy(self, direction: str, size_bytes: int, seed: int) -> Work:
        """Copy between pinned host memory and the device; ``direction`` is ``h2d`` or ``d2h``."""

    @abstractmethod
    def peer_copy(self, other: Backend, size_bytes: int, seed: int) -> Work:
        """Copy from this device's memory to that of ``other``."""


def open_backends(name: str = "auto") -> Sequence[Backend]:
    """One backend per device of this machine: torch's GPUs, else the CPU by torch or numpy.

    UserError where torch is asked for and is not there.
    """
    if name not in BACKENDS:
        raise UserError(
            f"no backend {name!r}", where="--backend", hint=f"one of {', '.join(BACKENDS)}"
        )
    there = importlib.util.find_spec("torch") is not None
    if name == "torch" and not there:
        raise UserError(
            "torch is not installed in this environment",
            where="--backend",
            hint=f"{install_hint('gpu')}; or leave the flag out: numpy measures the CPU",
        )
    if name == "numpy" or not there:
        from steptax.benchmarks.hardware.numpy_backend import NumpyBackend

        return [NumpyBackend()]
    import torch

    from steptax.benchmarks.hardware.torch_backend import torch_backends

    return torch_backends(torch)
