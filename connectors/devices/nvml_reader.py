"""Reading every device of a node through NVML, as plain values and without ever failing.

What a device cannot tell is kept with the reason (``not supported``, ``lost``, ``not in this
library``); the other values and the other devices go on. A call that is not supported is asked
again only now and then, and what changes slowly is read less often than the rest: sampling must
cost a training node next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from steptax.connectors.devices.nvml_calls import (
    DEVICE_DOWN,
    ERRORS,
    EVENTS_AT_ONCE,
    READINGS,
    RETRY_EVERY,
    SLOW_EVERY,
    TIMEOUT,
    Reading,
)
from steptax.connectors.devices.nvml_device import Device, error_number, reason_of, text_of
from steptax.connectors.devices.nvml_links import read_slow


class NvmlReader:
    """Samples all devices of this node.

    ``nvml`` is the module ``pynvml`` (nvidia-ml-py) or what answers like it; ``clock_us`` gives
    microseconds since 1970, UTC.
    """

    def __init__(self, nvml: Any, host: str, clock_us: Callable[[], int]) -> None:
        self._nvml = nvml
        self._host = host
        self._clock_us = clock_us
        self._devices: dict[int, Device] = {}
        self._events: Any = None
        self._up = False
        self._count = 0
        self.driver: str | None = None
        self.no_driver: str | None = None
        """Why the driver did not answer at the last sample; None where it did."""

    def sample(self) -> list[dict[str, Any]]:
        """One reading of each device, JSON can hold it; empty where the driver never answered.

        A device that was known and does not answer comes with ``down`` and no values.
        """
        ts_us = self._clock_us()
        self._count += 1
        reason = self.no_driver = self._count_devices()
        if reason is not None:
            return [self._down(device, ts_us, reason) for device in self._devices.values()]
        self._take_events()
        return [self._read(device, ts_us) for device in self._devices.values()]

    def close(self) -> None:
        """Let the library go."""
        self._drop()

    def _count_devices(self) -> str | None:
        """Begin, or begin again after a driver restart; the reason where there is no driver."""
        try:
            if not self._up:
                self._nvml.nvmlInit()
                self._up = True
                self.driver = text_of(self._nvml.nvmlSystemGetDriverVersion())
                self._listen()
            for index in range(self._nvml.nvmlDeviceGetCount()):
                device = self._devices.setdefault(index, Device(index, None))
                since = device.down_since
                if device.handle is None and (since is None or self._count - since >= SLOW_EVERY):
                    self._open(device)
        except Exception as error:
            self._drop()
            return reason_of(error)
        return None

    def _drop(self) -> None:
        """Forget handles, which do not outlive the driver; keep who the devices were."""
        if self._up:
            self._try("nvmlShutdown")
        self._up, self._events = False, None
        for device in self._devices.values():
            device.forget()

    def _listen(self) -> None:
        self._events, _ = self._try("nvmlEventSetCreate")

    def _open(self, device: Device) -> None:
        handle, _ = self._try("nvmlDeviceGetHandleByIndex", device.index)
        device.handle, device.down_since = handle, self._count if handle is None else None
        if handle is None:
            return
        uuid, _ = self._try("nvmlDeviceGetUUID", handle)
        model, _ = self._try("nvmlDeviceGetName", handle)
        device.uuid, device.model = text_of(uuid) or device.uuid, text_of(model) or device.model
        if self._events is not None:
            kind = getattr(self._nvml, "nvmlEventTypeXidCriticalError", 8)
            _, fault = self._try("nvmlDeviceRegisterEvents", handle, kind, self._events)
            if fault is None:
                device.xid = 0

    def _take_events(self) -> None:
        """Xids since the last sample, without waiting."""
        wait = getattr(self._nvml, "nvmlEventSetWait_v2", None)
        if self._events is None or wait is None:
            return
        for _ in range(EVENTS_AT_ONCE):
            try:
                event = wait(self._events, 0)
                uuid = text_of(self._nvml.nvmlDeviceGetUUID(event.device))
            except Exception as error:
                if error_number(error) not in (TIMEOUT, *DEVICE_DOWN):
                    # Nobody listens any more: what was said of Xids no longer holds.
                    self._events = None
                    for device in self._devices.values():
                        device.xid = None
                return
            for device in self._devices.values():
                if device.uuid == uuid:
                    device.xid = int(event.eventData)

    def _read(self, device: Device, ts_us: int) -> dict[str, Any]:
        if device.handle is None:
            return self._down(device, ts_us, "lost")
        values: dict[str, Any] = {}
        slow = self._count % SLOW_EVERY == 1 or not device.kept
        for reading in READINGS:
            if reading.slow and not slow:
                continue
            found, fault = self._ask(device, reading)
            if fault in DEVICE_DOWN:
                device.handle, device.down_since = None, self._count
                return self._down(device, ts_us, ERRORS.get(fault, "lost"))
            if reading.slow:
                device.kept[reading.name] = found
            else:
                values[reading.name] = found
        if slow:
            read_slow(self._try, device, self._count)
        return self._head(device, ts_us) | {
            "values": device.kept | values,
            "unavailable": {name: why for name, (why, _) in device.missing.items()},
        }

    def _ask(self, device: Device, reading: Reading) -> tuple[Any, int | None]:
        """The value, or None with the error number; why it is not there is kept."""
        known = device.missing.get(reading.name)
        if known is not None and self._count - known[1] < RETRY_EVERY:
            return None, None
        fault: int | None = None
        first = device.using.get(reading.name, 0)
        for place, (name, arguments) in enumerate(reading.calls[first:], first):
            found, error = self._try(name, device.handle, *arguments)
            if error is None:
                device.using[reading.name] = place
                device.missing.pop(reading.name, None)
                return _plain(reading.name, found), None
            fault = error_number(error)
            device.missing[reading.name] = (reason_of(error), self._count)
            if fault in DEVICE_DOWN:
                break
        return None, fault

    def _head(self, device: Device, ts_us: int) -> dict[str, Any]:
        return {
            "ts_us": ts_us,
            "host": self._host,
            "index": device.index,
            "uuid": device.uuid,
            "model": device.model,
            "xid": device.xid,
        }

    def _down(self, device: Device, ts_us: int, reason: str) -> dict[str, Any]:
        return self._head(device, ts_us) | {"down": reason}

    def _try(self, name: str, *arguments: Any) -> tuple[Any, Exception | None]:
        function = getattr(self._nvml, name, None)
        if function is None:
            return None, NotImplementedError(name)
        try:
            return function(*arguments), None
        except Exception as error:
            return None, error


def _plain(name: str, found: Any) -> Any:
    """What a call gave, as JSON can hold it."""
    if name == "utilization":
        return {"gpu": int(found.gpu), "memory": int(found.memory)}
    if name == "memory":
        return {"total": int(found.total), "used": int(found.used)}
    if name == "remapped_rows":
        return [int(value) for value in found]
    if name == "mig_mode":
        return int(found[0])
    if name == "processes":
        return len(found)
    return int(found)
