"""MFU of many jobs together: one ratio of sums, with the jobs that cannot be in it listed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from steptax.app.compute.measure import Level, Measure, Ratio
from steptax.app.compute.mfu.peaks import Peak
from steptax.app.compute.mfu.utilisation import missing_ratio, require_positive


@dataclass(frozen=True)
class FleetEntry:
    """One job in a fleet average."""

    job: str
    mfu: Measure
    peak: Peak
    device_seconds: float


@dataclass(frozen=True)
class FleetMfu:
    """MFU of many jobs together, and the jobs that could not be in it, with why."""

    mfu: Measure
    excluded: tuple[tuple[str, str], ...]
    covered_ratio: float
    """Share of the device time that the value covers."""


def fleet_mfu(entries: Sequence[FleetEntry]) -> FleetMfu:
    """Model FLOPs of all jobs / what their devices could have computed, 0..1.

    Weighted by peak * time, so that it is one ratio of sums and not a mean of shares. Jobs whose
    MFU is missing stay out and are listed.

    Raises:
        UserError: time below zero.
    """
    done = possible = covered = total = 0.0
    excluded = []
    for entry in entries:
        require_positive(entry.device_seconds, f"device_seconds of {entry.job}", zero=True)
        total += entry.device_seconds
        if entry.mfu.value is None or entry.peak.flops_per_s is None:
            reason = entry.mfu.reason or entry.peak.reason or "no peak"
            excluded.append((entry.job, reason))
            continue
        capacity = entry.device_seconds * entry.peak.flops_per_s
        done += entry.mfu.value * capacity
        possible += capacity
        covered += entry.device_seconds
    if not possible:
        value = missing_ratio("no job has an MFU")
    else:
        said = f"{len(excluded)} of {len(entries)} jobs have no MFU and are left out"
        value = Ratio(
            min(done / possible, 1.0), level=Level.LOG, warnings=(said,) if excluded else ()
        )
    return FleetMfu(value, tuple(excluded), covered / total if total else 0.0)
