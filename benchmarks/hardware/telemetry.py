"""Clocks, power and temperature while a case runs, through the NVML reader; None with a reason."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from steptax.connectors.devices.nvml_reader import NvmlReader

#: Between two samples: a repeat of a second holds several, and they cost the device nothing.
EVERY_S = 0.1


@dataclass(frozen=True)
class Window:
    """What was seen of a device in a time; None where nothing was, with ``reason``."""

    clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    xid: int | None = None
    reason: str | None = None


class Telemetry:
    """Samples all devices of the node in a thread, between ``with`` and its end.

    ``nvml`` is the module ``pynvml`` or what answers like it; None where it is not installed.
    """

    def __init__(self, nvml: Any, host: str, every_s: float = EVERY_S) -> None:
        self.samples: list[dict[str, Any]] = []
        self.reason: str | None = None
        self._reader = None if nvml is None else NvmlReader(nvml, host, _now_us)
        self._every_s = every_s
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Telemetry:
        """Take a first sample; where there is no driver, none is taken again."""
        if self._reader is None:
            self.reason = "nvidia-ml-py is not installed"
        else:
            self.samples += self._reader.sample()
            self.reason = self._reader.no_driver
            if self.reason is None:
                self._thread = threading.Thread(target=self._sample, daemon=True)
                self._thread.start()
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        """End the thread."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        if self._reader is not None:
            self._reader.close()

    def _sample(self) -> None:
        while self._reader is not None and not self._ended.wait(self._every_s):
            self.samples += self._reader.sample()

    def window(self, device_id: str, spans_us: list[tuple[int, int]]) -> Window:
        """Mean clock and power and highest temperature of a device over ``spans_us``."""
        if self.reason is not None:
            return Window(reason=self.reason)
        mine = [s for s in list(self.samples) if s.get("uuid") == device_id and "values" in s]
        inside = [s for s in mine if any(a <= s["ts_us"] <= b for a, b in spans_us)]
        if not mine:
            return Window(reason=f"NVML knows no device {device_id}")
        if not inside:
            return Window(reason="shorter than the time between two samples")
        xids = [s["xid"] for s in inside if s.get("xid")]
        return Window(
            _mean(inside, "sm_clock_mhz"),
            _mean(inside, "power_mw", 1e-3),
            max(
                (v for s in inside if (v := s["values"].get("temperature_c")) is not None),
                default=None,
            ),
            xids[-1] if xids else None,
        )


def _mean(samples: list[dict[str, Any]], name: str, scale: float = 1.0) -> float | None:
    known = [s["values"][name] * scale for s in samples if s["values"].get(name) is not None]
    return sum(known) / len(known) if known else None


def _now_us() -> int:
    return time.time_ns() // 1000
