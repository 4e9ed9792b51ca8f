"""A device as NVML is asked about it, and what its answers and errors mean."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from steptax.connectors.devices.nvml_calls import ERRORS, FIELD_TYPES, LINKS

#: Calls a function of the library by name: what it gave, or why it did not.
Ask = Callable[..., tuple[Any, Exception | None]]


@dataclass
class Device:
    """What is known of one device of this node from sample to sample."""

    index: int
    handle: Any
    uuid: str | None = None
    model: str | None = None
    xid: int | None = None
    down_since: int | None = None
    """The sample at which it was last tried in vain; one that is gone may answer slowly."""
    links: list[int] = field(default_factory=lambda: list(range(LINKS)))
    using: dict[str, int] = field(default_factory=dict)
    """Which of the calls for a reading this driver has."""
    kept: dict[str, Any] = field(default_factory=dict)
    missing: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Why a value is not there, and the sample at which it was last tried."""

    def forget(self) -> None:
        """Keep who it is, and nothing that does not outlive the driver."""
        self.handle, self.down_since, self.xid = None, None, None
        self.kept.clear()
        self.using.clear()
        self.missing.clear()
        self.links = list(range(LINKS))

    def keep(self, name: str, found: Any, why: str, count: int) -> None:
        """Keep a value that changes slowly; where it is None, ``why`` at the sample ``count``."""
        self.kept[name] = found
        if found is None:
            self.missing[name] = (why, count)
        else:
            self.missing.pop(name, None)


def error_number(error: Exception) -> int | None:
    """NVML's number of an error of the library."""
    found = getattr(error, "value", None)
    return found if isinstance(found, int) else None


def reason_of(error: Exception) -> str:
    """Why a call gave nothing, in words."""
    if isinstance(error, NotImplementedError):
        return "not in this library"
    number = error_number(error)
    return ERRORS.get(number or 0) or (f"NVML error {number}" if number else str(error)[:100])


def field_number(field_value: Any) -> int:
    """The number of a field, by the type that the driver gives it."""
    part = FIELD_TYPES.get(int(field_value.valueType), "ullVal")
    return int(getattr(field_value.value, part))


def text_of(found: Any) -> str | None:
    """A name as text: older libraries give bytes."""
    if isinstance(found, bytes):
        return found.decode("utf-8", "replace")
    return None if found is None else str(found)
