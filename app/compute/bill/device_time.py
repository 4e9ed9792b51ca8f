"""What samples of a device can claim: busy, idle, or nothing.

Two failures make samples lie. A collector that hangs serves its last values for hours: power,
temperature and utilisation that are all the same, to the last digit, for many samples are no
measurements (https://github.com/microsoft/pai/issues/889). A profiling counter that is stuck reads
0 on a busy device (https://github.com/NVIDIA/dcgm-exporter/issues/662): where utilisation
contradicts it, utilisation holds. Time without a claim is unobserved: neither busy nor idle.

This is the one place that tells stale values. They are judged when they are read and not when they
are stored: every source needs the rule, a run may be cut in two by a collector that asks every few
seconds, and an idle device whose sensors stand still must not lose its samples for good.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from steptax.app.compute.devices.series import DeviceSeries
from steptax.app.compute.stats.rows import Flags

#: Samples beyond which identical power, temperature and utilisation are no measurements.
IDENTICAL = 10
#: A run of equal samples needs all of these.
_LIVE = ("util_ratio", "power_w", "temperature_c")
#: One of these that moves shows that a sample is fresh, although the others stand still.
_MOVING = ("energy_j", "sm_clock_mhz", "memory_used_bytes", "sm_active_ratio")


class Claim(IntEnum):
    """What a sample says of its time."""

    UNKNOWN = 0
    """Unobserved: the device, or the split of it, did not say."""
    BUSY = 1
    IDLE = 2
    STALE = 3
    """Unobserved: a repetition of an old value."""


@dataclass(frozen=True)
class Judged:
    """[N] what each sample of a ``DeviceSeries`` says."""

    claims: NDArray[np.int8]
    """[N] values of ``Claim``."""
    broken: Flags
    """[N] the activity counter read 0 against utilisation."""


@dataclass(frozen=True)
class DeviceTime:
    """Sums over samples, us. ``broken_counter_us`` is part of the busy time."""

    busy_us: int
    idle_us: int
    stale_us: int
    unknown_us: int
    broken_counter_us: int

    @property
    def unobserved_us(self) -> int:
        """Time of which nothing is claimed."""
        return self.stale_us + self.unknown_us


def stale_samples(samples: DeviceSeries, *, identical: int = IDENTICAL) -> Flags:
    """[N] whether a sample only repeats the one before it.

    The first of a run of identical samples is a measurement; the others are stale where the run is
    longer than ``identical``. Runs are told only where power, temperature and utilisation are all
    known, and one that another value moves in is none.
    """
    count = len(samples.series)
    begins = np.ones(count, dtype=bool)
    begins[1:] = np.diff(samples.series) != 0
    known = np.ones(count, dtype=bool)
    for name in (*_LIVE, *_MOVING):
        values = samples.value(name)
        begins[1:] |= values[1:] != values[:-1] if name in _LIVE else _moved(values)
        if name in _LIVE:
            known &= ~np.isnan(values)
    run = np.cumsum(begins) - 1
    length = np.bincount(run, minlength=1)[run] if count else np.zeros(0, dtype=np.int64)
    return np.asarray(known & ~begins & (length > identical), dtype=np.bool_)


def _moved(values: NDArray[np.float64]) -> Flags:
    both = ~np.isnan(values[1:]) & ~np.isnan(values[:-1])
    return np.asarray(both & (values[1:] != values[:-1]), dtype=np.bool_)


def judge(samples: DeviceSeries, *, identical: int = IDENTICAL) -> Judged:
    """What each sample can claim."""
    util, active = samples.value("util_ratio"), samples.value("sm_active_ratio")
    stale = stale_samples(samples, identical=identical)
    broken = ~stale & (active == 0) & (util > 0)
    use = np.where(broken | np.isnan(active), util, active)
    claims = np.where(np.isnan(use), Claim.UNKNOWN, np.where(use > 0, Claim.BUSY, Claim.IDLE))
    return Judged(np.where(stale, Claim.STALE, claims).astype(np.int8), broken)


def device_time(samples: DeviceSeries, judged: Judged) -> DeviceTime:
    """Sums of what ``judge`` gave."""

    def total(chosen: Flags) -> int:
        return int(samples.duration_us[chosen].sum())

    return DeviceTime(
        total(judged.claims == Claim.BUSY),
        total(judged.claims == Claim.IDLE),
        total(judged.claims == Claim.STALE),
        total(judged.claims == Claim.UNKNOWN),
        total(judged.broken),
    )
