"""What devices print of themselves, read with its unit: a value, or the word that stands for none.

A word is not a number: ``[N/A]`` becomes null, ``[GPU is lost]`` and ``ERR!`` become null and say
what is wrong with the device. A number that no device can have (a code for "no value" that slipped
through as a number) becomes null too and is counted.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from typing import Any

from steptax.connectors.values import BadValueError

_NUMBER = re.compile(r"([-+]?\d{1,30}(?:\.\d{0,30})?(?:[eE][-+]?\d{1,3})?)\s*([%A-Za-z/]*)")
_NONE = frozenset(
    (
        *("", "-", "--", "n/a", "na", "none", "nan", "null", "unknown", "not supported"),
        *("not available", "not found", "no data", "insufficient permissions", "disabled"),
        *("requested functionality has been deprecated", "function not found"),
    )
)
#: Words that say what is wrong with the whole device.
_DEVICE_FAULTS = {
    "gpu is lost": "lost",
    "gpu lost": "lost",
    "unknown error": "unknown error",
    "gpu requires reset": "reset required",
    "reset required": "reset required",
}
_YES = ("1", "yes")
_SENSOR_FAULTS = ("err!", "err", "error")
_BYTES = {
    "B": 1.0,
    "KB": 1e3,
    "MB": 1e6,
    "GB": 1e9,
    "KiB": 2.0**10,
    "MiB": 2.0**20,
    "GiB": 2.0**30,
}
#: Words of a device that a note shows.
_SHOWN = 8


@dataclass(frozen=True)
class Dimension:
    """Units with their factors; ``bare`` is the factor of a number without a unit."""

    units: Mapping[str, float]
    bare: float
    low: float
    high: float
    whole: bool = False


RATIO = Dimension({"%": 0.01}, 0.01, 0.0, 1.0)
POWER = Dimension({"W": 1.0, "mW": 1e-3}, 1.0, 0.0, 20_000.0)
TEMPERATURE = Dimension({"C": 1.0, "c": 1.0}, 1.0, -60.0, 200.0)
CLOCK = Dimension({"MHz": 1.0, "Mhz": 1.0, "GHz": 1e3}, 1.0, 0.0, 20_000.0)
MEMORY = Dimension(_BYTES, 2.0**20, 0.0, 2.0**50, whole=True)
MEMORY_BYTES = Dimension(_BYTES, 1.0, 0.0, 2.0**50, whole=True)
ENERGY = Dimension({"J": 1.0, "mJ": 1e-3, "kJ": 1e3}, 1.0, 0.0, 1e15)
COUNT = Dimension({}, 1.0, 0.0, 2.0**53, whole=True)
INDEX = Dimension({}, 1.0, 0.0, 65_535.0, whole=True)
LANES = Dimension({"x": 1.0}, 1.0, 0.0, 64.0, whole=True)


def plain_word(text: str) -> str:
    """``text`` without brackets and blanks around it, in lower case."""
    return text.strip().strip("[]").strip().lower()


def fault_word(text: str) -> str | None:
    """What ``text`` says is wrong with the whole device; None where it says no such thing."""
    return _DEVICE_FAULTS.get(plain_word(text))


def is_none(text: str) -> bool:
    """Whether ``text`` stands for no value."""
    word = plain_word(text)
    return word in _NONE or word in _DEVICE_FAULTS or word in _SENSOR_FAULTS


@dataclass
class Notes:
    """Counts what had no value, over the rows of one stretch."""

    words: Counter[str] = field(default_factory=Counter)
    odd: Counter[str] = field(default_factory=Counter)
    others: dict[str, None] = field(default_factory=dict)

    def tell(self) -> tuple[str, ...]:
        """One note per kind."""
        said = list(self.others)
        if self.words:
            shown = ", ".join(sorted(self.words)[:_SHOWN])
            said.append(f"not available, kept as unknown and not as 0: {shown}")
        for column, count in sorted((+self.odd).items()):
            said.append(f"{column}: {count:,} values that no device can have were taken as unknown")
        return tuple(said)


@dataclass
class SampleRow:
    """One row of ``device_samples`` in the making."""

    notes: Notes
    row: dict[str, Any] = field(default_factory=dict)
    faults: dict[str, None] = field(default_factory=dict)

    def put(self, column: str, text: str | None, dimension: Dimension) -> None:
        """Set ``column`` from ``text``, unless it is set; BadValueError for what is no value."""
        if text is None or self.row.get(column) is not None:
            return
        value = self.number(column, text, dimension)
        if value is not None:
            self.row[column] = value

    def number(self, column: str, text: str, dimension: Dimension) -> float | int | None:
        """The number in ``text``; None for a word, which is kept."""
        if self.is_word(column, text):
            return None
        found = _NUMBER.fullmatch(text.strip())
        if found is None:
            raise BadValueError(column, "a number with its unit, or N/A", text)
        unit = found[2]
        if unit and unit not in dimension.units:
            wanted = ", ".join(dimension.units) or "no unit"
            raise BadValueError(column, f"a number with the unit {wanted}", text)
        value = float(found[1]) * (dimension.units[unit] if unit else dimension.bare)
        return self.bounded(column, value, dimension)

    def bounded(self, column: str, value: float, dimension: Dimension) -> float | int | None:
        """``value``, or None and a count where no device can have it."""
        if not math.isfinite(value) or not dimension.low <= value <= dimension.high:
            self.notes.odd[column] += 1
            return None
        return round(value) if dimension.whole else round(value, 9)

    def is_word(self, column: str, text: str) -> bool:
        """Whether ``text`` is a word for no value; what is wrong with the device is kept."""
        word = plain_word(text)
        if word in _DEVICE_FAULTS:
            self.faults.setdefault(_DEVICE_FAULTS[word])
            return True
        if word in _SENSOR_FAULTS:
            name = column.removesuffix("_ratio").rsplit("_", 1)[0].replace("_", " ")
            self.faults.setdefault(f"{name} sensor error")
            return True
        if word in _NONE:
            self.notes.words[column] += 1
            return True
        return False

    def text(self, column: str, text: str | None) -> None:
        """Set ``column`` to a name, unless it is a word for none."""
        if text is not None and text.strip() and not self.is_word(column, text):
            self.row.setdefault(column, text.strip())

    def flag(self, column: str, text: str | None) -> None:
        """Set ``column`` from Enabled or Disabled."""
        word = None if text is None else plain_word(text)
        if word in ("enabled", "disabled"):
            self.row[column] = word == "enabled"
        elif text is not None and not self.is_word(column, text):
            raise BadValueError(column, "Enabled, Disabled or N/A", text)

    def finish(self) -> dict[str, Any]:
        """The row, with what is wrong with the device."""
        self.row["health"] = next(iter(self.faults), None)
        return self.row


def remapping_fault(pending: object, failed: object) -> str | None:
    """What is wrong with a memory whose rows wait to be remapped, or could not be.

    The flags are 1 or Yes where it is so.
    """
    if str(failed).strip().lower() in _YES:
        return "remapping of memory rows failed"
    if str(pending).strip().lower() in _YES:
        return "memory rows wait for a reset to be remapped"
    return None


def mask_of(text: str) -> int | None:
    """A bit mask in hexadecimal or decimal; None for all bits, a code for no value.

    BadValueError for anything else.
    """
    clean = text.strip().lower()
    if re.fullmatch(r"0x[0-9a-f]{1,16}", clean):
        value = int(clean, 16)
    elif re.fullmatch(r"\d{1,19}", clean):
        value = int(clean)
    else:
        raise BadValueError("throttle_reasons", "a bit mask such as 0x0000000000000004", text)
    return value if value < 2**63 else None


#: The part of a reason's name that tells it, in every generation of the tools, and its bit in NVML.
_REASON_BITS = (
    *(("gpu_idle", 0x1), ("applications_clocks", 0x2), ("sw_power_cap", 0x4)),
    *(("hw_thermal", 0x40), ("hw_power_brake", 0x80), ("hw_slowdown", 0x8)),
    *(("sync_boost", 0x10), ("sw_thermal", 0x20), ("display_clock", 0x100)),
)


def reason_bit(name: str) -> int | None:
    """The bit of the reason called ``name``; None for a name that is none."""
    return next((bit for part, bit in _REASON_BITS if part in name), None)


def mask_from(named: Mapping[str, str]) -> int | None:
    """The mask of reasons that are each said to be Active or Not Active; None where none is."""
    mask: int | None = None
    for name, said in named.items():
        bit, word = reason_bit(name), plain_word(said)
        if bit is None or word not in ("active", "not active"):
            continue
        mask = (mask or 0) | (bit if word == "active" else 0)
    return mask


_STAMPS = (
    *("%Y/%m/%d %H:%M:%S.%f", "%Y/%m/%d %H:%M:%S", "%a %b %d %H:%M:%S %Y", "%Y%m%d %H:%M:%S"),
    *("%Y-%m-%d %H:%M:%S.%f", "%Y-%m-%d %H:%M:%S"),
)


@lru_cache(maxsize=4096)
def time_us(text: str, zone: tzinfo = UTC) -> tuple[int, bool] | None:
    """Microseconds since 1970 and whether the text says its zone; None where it is no time.

    A time without a zone is taken to be in ``zone``.
    """
    clean = " ".join(text.split())
    found: datetime | None = None
    if re.match(r"\d{4}-\d\d-\d\dT", clean):
        try:
            found = datetime.fromisoformat(clean)
        except ValueError:
            return None
    for shape in _STAMPS if found is None else ():
        try:
            found = datetime.strptime(clean, shape)
            break
        except ValueError:
            continue
    if found is None or not 1990 <= found.year <= 2200:
        return None
    zoned = found.tzinfo is not None
    whole = found if zoned else found.replace(tzinfo=zone)
    since = whole - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds, zoned
