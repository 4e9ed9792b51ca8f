"""Torch with GPUs that are not there: a clock for each, which every operation moves on.

Only what `torch_backend` uses. An operation costs its device a fixed time, times how slow that
device is; events read the clock, so what a benchmark reports can be told beforehand.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

COST_MS = {"mm": 2.0, "copy": 1.0, "add": 4.0, "scaled_mm": 1.0, "add_": 0.005, "zero_": 0.5}


class Tensor:
    def __init__(self, owner: FakeTorch, place: int | None, dtype: str = "float32") -> None:
        self.owner, self.place, self.dtype = owner, place, dtype

    def _did(self, what: str) -> Tensor:
        self.owner.did(what, self.place)
        return self

    def to(self, dtype: str) -> Tensor:
        return Tensor(self.owner, self.place, dtype)

    def t(self) -> Tensor:
        return self

    def zero_(self) -> Tensor:
        return self._did("zero_")

    def add_(self, _value: float) -> Tensor:
        return self._did("add_")

    def copy_(self, source: Tensor, non_blocking: bool = False) -> Tensor:
        # The device that reads or writes does the work; pinned host memory has none.
        place = source.place if self.place is None else self.place
        self.owner.did("copy", place)
        return self


class FakeTorch:
    __version__ = "2.99.0"

    def __init__(
        self,
        slow: tuple[float, ...] = (1.0, 1.0),
        *,
        capability: tuple[int, int] = (9, 0),
        hip: str | None = None,
        peers: bool = True,
    ) -> None:
        self.slow = slow
        self.clock_ms = [0.0] * len(slow)
        self.calls: Counter[tuple[str, int | None]] = Counter()
        self.seeds: list[int] = []
        self._here = threading.local()
        self.version = SimpleNamespace(hip=hip, cuda=None if hip else "13.0")
        self.float32, self.int32, self.bfloat16, self.float16 = "float32", "int32", "bf16", "fp16"
        self.float8_e4m3fn, self.float8_e4m3fnuz = "fp8", "fp8 of MI300"
        self.distributed = SimpleNamespace(is_nccl_available=lambda: True)
        self.cuda = SimpleNamespace(
            is_available=lambda: bool(slow),
            device_count=lambda: len(slow),
            get_device_properties=self._about,
            get_device_capability=lambda _index: capability,
            mem_get_info=lambda _index=None: (80 << 30, 80 << 30),
            can_device_access_peer=lambda _a, _b: peers,
            synchronize=lambda _index=None: None,
            device=self._device,
            Event=lambda enable_timing: Event(self),
            nccl=SimpleNamespace(version=lambda: (2, 28, 3)),
        )

    def _about(self, index: int) -> Any:
        return SimpleNamespace(
            name="NVIDIA H100 80GB HBM3", uuid=f"uuid-{index}", gcnArchName="gfx942"
        )

    @contextlib.contextmanager
    def _device(self, index: int) -> Iterator[None]:
        self._here.index = index
        yield

    def did(self, what: str, place: int | None) -> None:
        assert place is not None
        self.calls[what, place] += 1
        self.clock_ms[place] += COST_MS[what] * self.slow[place]

    def now_ms(self) -> float:
        return self.clock_ms[self._here.index]

    def device(self, kind: str, index: int | None = None) -> Any:
        return SimpleNamespace(type=kind, index=index)

    def Generator(self, device: Any) -> Any:  # noqa: N802
        return SimpleNamespace(manual_seed=self.seeds.append)

    def randn(self, shape: Any, generator: Any, device: Any) -> Tensor:
        return Tensor(self, device.index)

    def zeros(self, *_shape: Any, device: Any, dtype: str = "float32") -> Tensor:
        return Tensor(self, device.index, dtype)

    def ones(self, *_shape: Any, device: Any, dtype: str = "float32") -> Tensor:
        return Tensor(self, device.index, dtype)

    def empty(self, *_shape: Any, device: Any = None, pin_memory: bool = False) -> Tensor:
        return Tensor(self, None if pin_memory else device.index)

    def empty_like(self, other: Tensor) -> Tensor:
        return Tensor(self, other.place, other.dtype)

    def mm(self, a: Tensor, b: Tensor, out: Tensor) -> Tensor:
        assert a.dtype == b.dtype == out.dtype
        return out._did("mm")

    def add(self, b: Tensor, c: Tensor, *, alpha: float, out: Tensor) -> Tensor:
        return out._did("add")

    def _scaled_mm(self, a: Tensor, b: Tensor, _x: Any, _y: Any, *, out_dtype: str) -> Tensor:
        assert a.dtype.startswith("fp8")
        return a._did("scaled_mm")


class Event:
    def __init__(self, owner: FakeTorch) -> None:
        self._owner = owner
        self.at_ms = 0.0

    def record(self) -> None:
        self.at_ms = self._owner.now_ms()

    def elapsed_time(self, end: Event) -> float:
        return end.at_ms - self.at_ms
