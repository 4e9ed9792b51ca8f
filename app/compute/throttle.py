"""Why a device's clock is below its maximum: the bit mask of the driver, decoded.

The bits are those of NVML's ``nvmlClocksEventReasons`` (called ``nvmlClocksThrottleReasons`` before
driver 535). A mask that is not zero does not mean throttling: an idle device, a clock that somebody
set, and cards kept in step say so too. Throttling is what holds a busy device below the clock that
was asked for: power cap, thermal and power-brake slowdowns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

#: Name of each bit, from the NVML API reference.
REASONS: dict[int, str] = {
    0x1: "idle",
    0x2: "applications_clocks",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "hw_power_brake",
    0x100: "display_clocks",
}
IDLE = 0x1
#: Bits that hold a busy device back.
THROTTLING = 0x4 | 0x8 | 0x20 | 0x40 | 0x80


@dataclass(frozen=True)
class Sample:
    """The mask of one device over a stretch of time; ``mask`` None: the device did not say."""

    device: str
    mask: int | None
    duration_us: int


@dataclass(frozen=True)
class ThrottleTime:
    """Time by what the clock was held by.

    ``throttled_us`` is by device, with zero for one that was watched and never throttled;
    ``by_reason_us`` may add up to more, as reasons come together. ``unknown_us`` is time whose
    mask is not known: it is neither throttled nor free.
    """

    throttled_us: dict[str, int]
    by_reason_us: dict[str, int]
    idle_us: int
    unknown_us: int

    @property
    def odd(self) -> tuple[str, ...]:
        """Devices that were throttled while most of their peers never were, worst first."""
        hit = [name for name, time_us in self.throttled_us.items() if time_us]
        if not hit or 2 * len(hit) > len(self.throttled_us):
            return ()
        return tuple(sorted(hit, key=lambda name: (-self.throttled_us[name], name)))


def reasons(mask: int) -> tuple[str, ...]:
    """Names of the bits in ``mask``, lowest first; a bit that NVML does not document by number."""
    bits = (1 << place for place in range(mask.bit_length()))
    return tuple(REASONS.get(bit, f"bit 0x{bit:x}") for bit in bits if mask & bit)


def throttling(mask: int | None) -> tuple[str, ...] | None:
    """The reasons in ``mask`` that hold a busy device back; None where the mask is not known.

    An idle device is not throttled, whatever else its mask holds: it had nothing to do.
    """
    if mask is None:
        return None
    return () if mask & IDLE else reasons(mask & THROTTLING)


def throttle_time(samples: Iterable[Sample]) -> ThrottleTime:
    """Sum up ``samples``: throttled time by device and by reason, idle and unknown time."""
    by_device: Counter[str] = Counter()
    by_reason: Counter[str] = Counter()
    idle_us = unknown_us = 0
    for sample in samples:
        by_device[sample.device] += 0
        held = throttling(sample.mask)
        if held is None or sample.mask is None:
            unknown_us += sample.duration_us
            continue
        if sample.mask & IDLE:
            idle_us += sample.duration_us
        if held:
            by_device[sample.device] += sample.duration_us
        for name in held:
            by_reason[name] += sample.duration_us
    return ThrottleTime(dict(by_device), dict(by_reason), idle_us, unknown_us)
