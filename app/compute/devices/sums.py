"""Sums over the samples of each device, for all devices at once."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steptax.app.compute.bill.device_time import Claim, judge
from steptax.app.compute.causes.throttle import IDLE, throttle_time
from steptax.app.compute.devices.series import NO_MASK, DeviceSeries
from steptax.app.compute.stats.rows import Flags, Floats, Ints

#: Counters: what matters of them is by how much they grew.
COUNTERS = ("ecc_corrected", "ecc_uncorrected", "remapped_rows", "nvlink_errors")
#: Figures of the time at work and of all time: name, column.
_MEANS_AT_WORK = ("sm_clock_mhz", "memory_clock_mhz", "power_w")
_MEANS = ("util_ratio", "temperature_c")
#: Name, column, whether the highest holds (else the lowest), whether of the time at work only.
_EXTREMES = (
    ("temperature_max_c", "temperature_c", True, False),
    ("memory_temperature_max_c", "memory_temperature_c", True, False),
    ("memory_used_bytes", "memory_used_bytes", True, False),
    ("power_limit_w", "power_limit_w", False, False),
    ("processes", "processes", True, False),
    ("nvlink_up", "nvlink_up", False, False),
    # A link of a device at rest is slow to save power: what it reached at work counts. The number
    # of lanes does not change with the load.
    ("pcie_gen", "pcie_gen", True, True),
    ("pcie_gen_max", "pcie_gen_max", True, False),
    ("pcie_width", "pcie_width", False, True),
    ("pcie_width_max", "pcie_width_max", True, False),
)
#: Columns of ``device_samples`` that are read, as numbers.
COLUMNS = tuple(
    dict.fromkeys(
        (
            *(column for _, column, _, _ in _EXTREMES),
            *(*_MEANS, *_MEANS_AT_WORK, *COUNTERS),
            *("energy_j", "sm_active_ratio", "xid", "mig_enabled"),
        )
    )
)


@dataclass(frozen=True)
class Xid:
    """An error code that the driver gave of a device (Xid, as NVIDIA's driver numbers them)."""

    code: int
    first_us: int
    is_new: bool
    """Whether the device said something else before, in the window; else it may be older."""


@dataclass(frozen=True)
class DeviceSums:
    """What the samples of ``D`` devices add up to; NaN where a device does not tell it."""

    samples: Ints
    """[D] samples, with stale ones."""
    newest_us: Ints
    """[D] newest fresh sample; -1 without one."""
    observed_us: Ints
    """[D] time of fresh samples."""
    stale_us: Ints
    at_work_us: Ints
    """[D] observed time in which the device was not idle."""
    seen_at_work: Flags
    """[D] whether a sample found it at work; a single one stands for no time."""
    figures: Mapping[str, Floats]
    """[D] each; counters as their increase in the window."""
    totals: Mapping[str, Floats]
    """[D] each: the newest value of a counter."""
    by_reason: Mapping[str, Floats]
    """[D] each: share of the time at work whose reasons are known, by reason."""
    xids: tuple[tuple[Xid, ...] | None, ...]
    """[D] codes by time; None where the device does not tell."""
    health_us: tuple[Mapping[str, int], ...]
    """[D] time by what was wrong with the whole device, as its samples put it."""
    has_mig: Flags


def sum_devices(samples: DeviceSeries, device_of: Ints, devices: int) -> DeviceSums:
    """Sums of the ``devices`` devices; ``device_of`` [series] gives each series its own, or -1."""
    own = device_of[samples.series] if len(samples.series) else np.zeros(0, dtype=np.int64)
    claims = judge(samples).claims
    fresh = (claims != Claim.STALE) & (own >= 0)
    work = fresh & _at_work(samples, claims)
    # A sample that stands for no time, the only one of a file, still says something.
    weights = np.maximum(samples.duration_us, 1).astype(np.float64)

    def mean(column: str, chosen: Flags) -> Floats:
        values = samples.value(column)
        chosen = chosen & ~np.isnan(values)
        at, w = own[chosen], weights[chosen]
        total = np.bincount(at, weights=w * values[chosen], minlength=devices)
        weight = np.bincount(at, weights=w, minlength=devices)
        return np.where(weight > 0, total / np.where(weight > 0, weight, 1.0), np.nan)

    figures = {name: mean(name, work) for name in _MEANS_AT_WORK}
    figures |= {name: mean(name, fresh) for name in _MEANS}
    for name, column, highest, at_work in _EXTREMES:
        chosen = work if at_work else fresh
        figures[name] = _extreme(samples.value(column), own, chosen, devices, highest=highest)
    held = throttle_time(own[work], samples.masks[work], weights[work].astype(np.int64), devices)
    known_us = held.throttled_us + held.free_us

    def share(time_us: Ints) -> Floats:
        return np.where(known_us > 0, time_us / np.maximum(known_us, 1), np.nan)

    figures["throttled_ratio"] = share(held.throttled_us)
    totals: dict[str, Floats] = {}
    for name in COUNTERS:
        grown, last = _counter(samples, samples.value(name), fresh)
        figures[name] = _best(grown, device_of, devices)
        totals[name] = _best(last, device_of, devices)

    def time_of(chosen: Flags) -> Ints:
        return _covered_us(samples, own, chosen, devices)

    newest = np.full(devices, -1, dtype=np.int64)
    np.maximum.at(newest, own[fresh], samples.ts_us[fresh])
    return DeviceSums(
        samples=np.bincount(own[own >= 0], minlength=devices),
        newest_us=newest,
        observed_us=time_of(fresh),
        stale_us=time_of((claims == Claim.STALE) & (own >= 0)),
        at_work_us=time_of(work),
        seen_at_work=np.bincount(own[work], minlength=devices) > 0,
        figures=figures,
        totals=totals,
        by_reason={name: share(time_us) for name, time_us in held.by_reason_us.items()},
        xids=_xids(samples, own, fresh, devices),
        health_us=_health(samples, own, fresh, devices),
        has_mig=np.bincount(own[fresh & (samples.value("mig_enabled") == 1)], minlength=devices)
        > 0,
    )


def _at_work(samples: DeviceSeries, claims: NDArray[np.int8]) -> Flags:
    """[N] not idle; where utilisation is not told, whatever is not said to be idle."""
    says_idle = (samples.masks != NO_MASK) & (samples.masks & IDLE != 0)
    tells = ~np.isnan(samples.value("sm_clock_mhz")) | ~np.isnan(samples.value("power_w"))
    busy = (claims == Claim.BUSY) | ((claims == Claim.UNKNOWN) & tells)
    return np.asarray(busy & ~says_idle, dtype=np.bool_)


def _covered_us(samples: DeviceSeries, own: Ints, chosen: Flags, devices: int) -> Ints:
    """[D] time that the ``chosen`` samples stand for; what two monitors saw at once counts once."""
    order = np.flatnonzero(chosen)
    order = order[np.lexsort((samples.ts_us[order], own[order]))]
    if not len(order):
        return np.zeros(devices, dtype=np.int64)
    at = own[order]
    start = samples.ts_us[order] - samples.ts_us[order].min()
    end = start + samples.duration_us[order]
    # Devices one behind the other on one line of time: none begins before the one before it ends.
    start, end = start + at * (end.max() + 1), end + at * (end.max() + 1)
    reached = np.maximum.accumulate(end)
    before = np.concatenate(([0], reached[:-1]))
    new = np.clip(end - np.maximum(start, before), 0, None)
    return np.asarray(np.rint(np.bincount(at, weights=new, minlength=devices)), dtype=np.int64)


def _extreme(values: Floats, own: Ints, chosen: Flags, devices: int, *, highest: bool) -> Floats:
    """[D] the highest or lowest of the ``chosen`` values."""
    chosen = chosen & ~np.isnan(values)
    out = np.full(devices, -np.inf if highest else np.inf)
    (np.maximum if highest else np.minimum).at(out, own[chosen], values[chosen])
    return np.where(np.isinf(out), np.nan, out)


def _counter(samples: DeviceSeries, values: Floats, fresh: Flags) -> tuple[Floats, Floats]:
    """[series] growth of a counter, and its newest value; one that began again grew from 0.

    The growth of what was told only once is not known.
    """
    count = len(samples.names)
    chosen = fresh & ~np.isnan(values)
    series, told = samples.series[chosen], values[chosen]
    same = series[1:] == series[:-1]
    steps = np.diff(told)
    steps = np.where(steps < 0, told[1:], steps)[same]
    grown = np.bincount(series[1:][same], weights=steps, minlength=count)
    seen = np.bincount(series, minlength=count)
    last = np.full(count, np.nan)
    last[series] = told
    return np.where(seen > 1, grown, np.nan), last


def _best(values: Floats, device_of: Ints, devices: int) -> Floats:
    """[D] the highest value over the series of each device: what its best monitor saw."""
    out = np.full(devices, -np.inf)
    chosen = (device_of >= 0) & ~np.isnan(values)
    np.maximum.at(out, device_of[chosen], values[chosen])
    return np.where(np.isinf(out), np.nan, out)


def _xids(
    samples: DeviceSeries, own: Ints, fresh: Flags, devices: int
) -> tuple[tuple[Xid, ...] | None, ...]:
    values = samples.value("xid")
    chosen = np.flatnonzero(fresh & ~np.isnan(values))
    tells = np.bincount(own[chosen], minlength=devices) > 0
    first = np.ones(len(chosen), dtype=bool)
    first[1:] = np.diff(samples.series[chosen]) != 0
    changed = first.copy()
    changed[1:] |= np.diff(values[chosen]) != 0
    found: dict[int, dict[tuple[int, int], Xid]] = defaultdict(dict)
    for place in np.flatnonzero(changed & (values[chosen] != 0)).tolist():
        at = chosen[place]
        one = Xid(int(values[at]), int(samples.ts_us[at]), not first[place])
        # Two monitors may tell the same.
        found[int(own[at])].setdefault((one.code, one.first_us), one)
    return tuple(
        tuple(sorted(found[d].values(), key=lambda x: (x.first_us, x.code))) if tells[d] else None
        for d in range(devices)
    )


def _health(
    samples: DeviceSeries, own: Ints, fresh: Flags, devices: int
) -> tuple[Mapping[str, int], ...]:
    found: list[Counter[str]] = [Counter() for _ in range(devices)]
    for at in np.flatnonzero(fresh & (samples.health != np.array(None))).tolist():
        found[int(own[at])][str(samples.health[at])] += int(samples.duration_us[at])
    return tuple(found)
