"""What NVML keeps in fields, and NVLink: how many links are up, and their errors."""

from __future__ import annotations

from steptax.connectors.devices.nvml_calls import (
    MEMORY_TEMPERATURE,
    NEVER,
    NVLINK5_ERRORS,
    NVLINK_ERRORS,
)
from steptax.connectors.devices.nvml_device import (
    Ask,
    Device,
    error_number,
    field_number,
    reason_of,
)


def read_slow(ask: Ask, device: Device, count: int) -> None:
    """Keep link states, link errors and the temperature of the memory; ``count`` is the sample."""
    there = _read_links(ask, device, count)
    fields = [MEMORY_TEMPERATURE, *NVLINK_ERRORS]
    told, why = _fields(ask, device, list(fields))
    device.keep("memory_temperature_c", told.pop(0, None), why, count)
    if not told and there:
        # From the fifth generation on errors are counted by link, in other fields.
        told, why = _fields(ask, device, [(f, link) for f in NVLINK5_ERRORS for link in there])
    device.keep("nvlink_errors", sum(told.values()) if told else None, why, count)


def _fields(
    ask: Ask, device: Device, fields: list[int | tuple[int, int]]
) -> tuple[dict[int, int], str]:
    """Values by their place in ``fields``, those that the device has; why others are not there."""
    found, error = ask("nvmlDeviceGetFieldValues", device.handle, fields)
    if error is not None or found is None:
        return {}, "not supported" if error is None else reason_of(error)
    told = {i: field_number(value) for i, value in enumerate(found) if value.nvmlReturn == 0}
    return told, "not supported"


def _read_links(ask: Ask, device: Device, count: int) -> list[int]:
    """Keep how many links are up; links that the device has not are not asked for again."""
    states: dict[int, bool] = {}
    there, why = [], "not supported"
    for link in device.links:
        state, error = ask("nvmlDeviceGetNvLinkState", device.handle, link)
        if error is None:
            there.append(link)
            states[link] = bool(state)
        elif error_number(error) not in NEVER:
            why = reason_of(error)
            there.append(link)
    device.links = there
    device.keep("nvlink_up", sum(states.values()) if states else None, why, count)
    return list(states)
