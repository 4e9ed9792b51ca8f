"""Samples of many devices as columns, each sample with the time that it stands for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from steptax.app.compute.stats.rows import Floats, Ints

#: A distance of so many usual ones to the next sample is a gap: nothing is known of it.
GAP_INTERVALS = 2.5
#: In ``masks``: the device did not say.
NO_MASK = -1


class SeriesName(NamedTuple):
    """Whose samples a series holds: the node and the device as the monitor calls them."""

    host: str
    gpu_uuid: str
    monitor: str
    """The connector that they came by: two monitors of one device are two series."""
    gpu_model: str | None = None


@dataclass(frozen=True)
class DeviceSeries:
    """Samples by series and time, one entry per sample [N]; NaN is what a device did not say.

    ``values`` holds columns of ``device_samples`` by name, in the units of that table.
    """

    names: tuple[SeriesName, ...]
    series: Ints
    """[N] place in ``names``; does not fall."""
    ts_us: Ints
    duration_us: Ints
    """[N] time that the sample stands for: up to the next one, or its usual distance at a gap."""
    values: Mapping[str, Floats]
    masks: Ints
    """[N] throttle reasons as the driver gives them; ``NO_MASK`` where unknown."""
    health: NDArray[np.object_]
    """[N] what is wrong with the whole device, or None."""

    def value(self, name: str) -> Floats:
        """[N] the column ``name``; NaN throughout where no device told it."""
        found = self.values.get(name)
        return np.full(len(self.series), np.nan) if found is None else found


def build_series(
    names: tuple[SeriesName, ...],
    series: Ints,
    ts_us: Ints,
    values: Mapping[str, Floats],
    *,
    masks: Ints | None = None,
    health: NDArray[np.object_] | None = None,
    end_us: int | None = None,
) -> DeviceSeries:
    """Order samples [N] by series and time and give each its time; no sample reaches ``end_us``."""
    order = np.lexsort((ts_us, series))
    count = len(order)
    series, ts_us = series[order].astype(np.int64), ts_us[order].astype(np.int64)
    masks = np.full(count, NO_MASK) if masks is None else masks[order]
    health = np.full(count, None, dtype=object) if health is None else health[order]
    return DeviceSeries(
        names,
        series,
        ts_us,
        _durations(series, ts_us, end_us),
        {name: column[order].astype(np.float64) for name, column in values.items()},
        masks.astype(np.int64),
        health,
    )


def _durations(series: Ints, ts_us: Ints, end_us: int | None) -> Ints:
    """[N] time until the next sample of the series; its usual distance where that is a gap."""
    out = np.zeros(len(series), dtype=np.int64)
    edges = np.flatnonzero(np.diff(series)) + 1
    for place in np.split(np.arange(len(series)), edges):
        if len(place) < 2:
            continue  # A single sample stands for no time.
        steps = np.diff(ts_us[place])
        usual = int(np.median(steps))
        out[place[:-1]] = np.where(steps > GAP_INTERVALS * usual, usual, steps)
        out[place[-1]] = usual
    if end_us is not None:
        out = np.clip(np.minimum(out, end_us - ts_us), 0, None)
    return out
