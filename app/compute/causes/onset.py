"""When something began on a device, against when its rank became slow: no cause comes later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from steptax.app.compute.devices.series import DeviceSeries
from steptax.app.compute.spoken import spoken_us
from steptax.app.compute.stats.rows import Flags

#: Counters that may begin to grow with the slowness, or because of it.
_COUNTERS = ("ecc_corrected", "ecc_uncorrected", "nvlink_errors")


@dataclass(frozen=True)
class Window:
    """An episode in time: before it (None from the first step on), and while it lasted."""

    before_us: tuple[int, int] | None
    during_us: tuple[int, int]
    onset_us: tuple[int, int]
    """Around its first step: what begins later came after it."""


@dataclass(frozen=True)
class Onset:
    """What one device told around the first slow step of its rank."""

    window: Window
    until_us: int
    """What it tells later began after the rank had become slow."""
    grew_us: Mapping[str, int | None]
    """When each counter first grew from the onset on; None where it did not."""

    @classmethod
    def of(cls, samples: DeviceSeries, gpu_uuid: str | None, window: Window) -> Onset:
        """Of the device ``gpu_uuid``. It tells things late by the time between two samples."""
        named = np.array([name.gpu_uuid == gpu_uuid for name in samples.names], dtype=bool)
        mine = np.asarray(named[samples.series], dtype=np.bool_)
        lengths = samples.duration_us[mine]
        lag_us = int(np.median(lengths)) if len(lengths) else 0
        begin_us, end_us = window.onset_us[0], window.during_us[1]
        seen = mine & (samples.ts_us >= begin_us) & (samples.ts_us < end_us)
        grew = {name: _grew_us(samples, name, seen) for name in _COUNTERS}
        return cls(window, window.onset_us[1] + lag_us, grew)

    def late(self, at_us: int | None) -> str | None:
        """How long after the onset that was, in words; None where it may have come first."""
        if at_us is None or at_us <= self.until_us:
            return None
        return f"{spoken_us(at_us - self.window.during_us[0])} after it had become slow"


def _grew_us(samples: DeviceSeries, name: str, seen: Flags) -> int | None:
    values = samples.value(name)
    kept = np.flatnonzero(seen & ~np.isnan(values))
    grown = (np.diff(values[kept]) > 0) & (np.diff(samples.series[kept]) == 0)
    return int(samples.ts_us[kept[1:]][grown].min()) if grown.any() else None
