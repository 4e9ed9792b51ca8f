"""Why a device's clock is below its maximum: the bit mask of the driver, decoded.

The bits are those of NVML's ``nvmlClocksEventReasons`` (called ``nvmlClocksThrottleReasons`` before
driver 535). A mask that is not zero does not mean throttling: an idle device, a clock that somebody
set, and cards kept in step say so too. Throttling is what holds a busy device below the clock that
was asked for: power cap, thermal and power-brake slowdowns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steptax.app.compute.devices.series import NO_MASK
from steptax.app.compute.stats.rows import Flags, Ints

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
#: Bits that hold a busy device back, and their names.
THROTTLING = 0x4 | 0x8 | 0x20 | 0x40 | 0x80
THROTTLES = frozenset(name for bit, name in REASONS.items() if bit & THROTTLING)


@dataclass(frozen=True)
class ThrottleTime:
    """[D] time by what the clock of each device was held by, us.

    ``by_reason_us`` has the reasons of the time at work, of those in ``REASONS`` all but idle; the
    ones that throttle may add up to more than ``throttled_us``, as they come together. ``free_us``
    is time at work that nothing throttled. ``unknown_us`` is time whose mask is not known: it is
    neither throttled nor free.
    """

    throttled_us: Ints
    by_reason_us: dict[str, Ints]
    free_us: Ints
    idle_us: Ints
    unknown_us: Ints


def throttle_time(device: Ints, masks: Ints, time_us: Ints, devices: int) -> ThrottleTime:
    """Sum up samples [N] of ``devices`` devices: masks and the time that each stands for."""
    known = masks != NO_MASK
    idle = known & (masks & IDLE != 0)
    at_work = known & ~idle

    def total(chosen: Flags) -> Ints:
        sums = np.bincount(device[chosen], weights=time_us[chosen], minlength=devices)
        return np.asarray(np.rint(sums), dtype=np.int64)

    held = at_work & (masks & THROTTLING != 0)
    return ThrottleTime(
        total(held),
        {name: total(at_work & (masks & bit != 0)) for bit, name in REASONS.items() if bit != IDLE},
        total(at_work & ~held),
        total(idle),
        total(~known),
    )
