"""What samples of a device can claim: busy, idle, or nothing.

Two failures make samples lie. A collector that hangs serves its last values for hours: power,
temperature and utilisation that are all the same, to the last digit, for many samples are no
measurements (https://github.com/microsoft/pai/issues/889). A profiling counter that is stuck reads
0 on a busy device (https://github.com/NVIDIA/dcgm-exporter/issues/662): where utilisation
contradicts it, utilisation holds. Time without a claim is unobserved: neither busy nor idle.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby

#: Samples beyond which identical power, temperature and utilisation are no measurements.
IDENTICAL = 10


@dataclass(frozen=True)
class DeviceSample:
    """What a device said at a moment that stands for ``duration_us``; None where it did not say."""

    device: str
    ts_us: int
    duration_us: int
    util_ratio: float | None = None
    active_ratio: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    health: str | None = None


class Claim(Enum):
    """What a sample says of its time."""

    BUSY = "busy"
    IDLE = "idle"
    STALE = "stale"
    """Unobserved: a repetition of an old value."""
    UNKNOWN = "unknown"
    """Unobserved: the device, or the split of it, did not say."""


@dataclass(frozen=True)
class Judged:
    """A sample and its claim; ``is_counter_broken``: activity read 0 against utilisation."""

    sample: DeviceSample
    claim: Claim
    is_counter_broken: bool


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


def judge(samples: Iterable[DeviceSample], *, identical: int = IDENTICAL) -> list[Judged]:
    """What each sample can claim, by device and time.

    The first of a run of identical samples is a measurement; the others are stale where the run is
    longer than ``identical``. Runs are told only where all three values are known.
    """
    judged: list[Judged] = []
    ordered = sorted(samples, key=lambda sample: (sample.device, sample.ts_us))
    for _, run in groupby(ordered, key=_reading):
        same = list(run)
        known = None not in _reading(same[0])
        stale = known and len(same) > identical
        judged += [_judge(one, stale=stale and place > 0) for place, one in enumerate(same)]
    return judged


def device_time(judged: Sequence[Judged]) -> DeviceTime:
    """Sums of what ``judge`` gave."""
    by_claim = dict.fromkeys(Claim, 0)
    for one in judged:
        by_claim[one.claim] += one.sample.duration_us
    return DeviceTime(
        by_claim[Claim.BUSY],
        by_claim[Claim.IDLE],
        by_claim[Claim.STALE],
        by_claim[Claim.UNKNOWN],
        sum(one.sample.duration_us for one in judged if one.is_counter_broken),
    )


def _reading(sample: DeviceSample) -> tuple[str, float | None, float | None, float | None]:
    return sample.device, sample.util_ratio, sample.power_w, sample.temperature_c


def _judge(sample: DeviceSample, *, stale: bool) -> Judged:
    if stale:
        return Judged(sample, Claim.STALE, False)
    broken = sample.active_ratio == 0 and bool(sample.util_ratio)
    use = sample.util_ratio if broken or sample.active_ratio is None else sample.active_ratio
    if use is None:
        return Judged(sample, Claim.UNKNOWN, False)
    return Judged(sample, Claim.BUSY if use > 0 else Claim.IDLE, broken)
