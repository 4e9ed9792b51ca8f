"""GPU-hours of the rows of a table of jobs, from whatever of time and devices the table has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from steptax.connectors.tables.cells import Cells
from steptax.connectors.tables.columns import Kind, Plan, Target
from steptax.connectors.tables.screen import Screen

_HOUR_US = 3600e6
#: GPU-time of whole fleets: 39,994,296,320 s of one of them are published. 146,000 years.
_FLEET_US = 2.0**62
RUN_TIME = Target(
    "run_time",
    "run_time",
    Kind.TIME,
    "time that the job held its devices; with the devices it gives gpu_hours where the file "
    "has none. A clock without a calendar: end-start",
    ("hours", "duration", "runtime", "elapsed"),
    floor=0,
)
DEVICES = Target(
    "devices",
    "devices",
    Kind.REAL,
    "devices that were held, where they need not be whole, such as the mean of an hour",
    floor=0,
)
SHARE = Target(
    "gpu_share",
    "gpu_share",
    Kind.REAL,
    "part that a job holds of each of its devices, 1 = all; in thousandths where the column's name "
    "ends in milli, in hundredths where it ends in percent or pct",
    ("gpu_milli", "gpu_percent", "gpu_pct", "gpu_fraction"),
    floor=0,
)
GPU_TIME = Target(
    "gpu_time",
    "gpu_time",
    Kind.TIME,
    "time of all devices together; gives gpu_hours where the file has none",
    ("device_time",),
    floor=0,
    ceiling=_FLEET_US,
)
#: Final state, and the GPU-time of the jobs that ended in it, in summaries of whole fleets.
BY_STATE: Mapping[str, Target] = {
    state: Target(
        f"{state}_gpu_time",
        f"{state}_gpu_time",
        Kind.TIME,
        f"GPU-time of jobs that were {state}, of a row that sums many jobs",
        aliases,
        floor=0,
        ceiling=_FLEET_US,
    )
    for state, aliases in (
        ("completed", ("complete_gpu_time",)),
        ("cancelled", ("cancel_gpu_time", "canceled_gpu_time")),
        ("failed", ("fail_gpu_time",)),
    )
}
TARGETS = (RUN_TIME, DEVICES, SHARE, GPU_TIME, *BY_STATE.values())
_PARTS = {"milli": 1000.0, "percent": 100.0, "pct": 100.0}


@dataclass(frozen=True)
class Held:
    """What rows held: ``world_size`` in whole devices, and GPU-hours; None where nothing tells."""

    world_size: Cells | None
    gpu_hours: Cells | None


def told(plan: Plan) -> str:
    """Where GPU-hours come from that the file does not state, for people; empty where nowhere."""
    terms = plan.terms.keys()
    if terms & {target.name for target in BY_STATE.values()}:
        return "each row sums many jobs: one row per final state, with the GPU-time of that state"
    if GPU_TIME.name in terms:
        return "GPU-hours are the GPU-time of each row"
    if RUN_TIME.name in terms and terms & {"world_size", DEVICES.name}:
        share = f", times {SHARE.name}" if SHARE.name in terms else ""
        return f"GPU-hours are the devices times the run time of each row{share}"
    return ""


def held_by(screen: Screen, world_size: Cells | None) -> Held:
    """What each row held; bad rows are refused.

    A part of a device is no rank, so a row with parts has hours and no ``world_size``.
    """
    values = {target.name: screen.values(target) for target in (RUN_TIME, DEVICES, GPU_TIME)}
    share = _share(screen)
    devices = values[DEVICES.name] if values[DEVICES.name] is not None else world_size
    if world_size is None and devices is not None:
        uneven = devices.null | (devices.values != np.rint(devices.values))
        world_size = Cells(np.where(uneven, 0, devices.values).astype(np.int64), uneven, uneven)
    if share is not None and devices is not None:
        parted = share.null | ((share.values != 1.0) & (devices.values > 0))
        null = devices.null | share.null
        devices = Cells(devices.values * share.values, null, null)
        if world_size is not None:
            world_size = replace(world_size, null=world_size.null | parted)
    gpu_time = values[GPU_TIME.name]
    if gpu_time is not None:
        return Held(world_size, hours_of(gpu_time))
    run_time = values[RUN_TIME.name]
    if devices is None or run_time is None:
        return Held(world_size, None)
    null = devices.null | run_time.null
    return Held(world_size, Cells(devices.values * (run_time.values / _HOUR_US), null, null))


def hours_of(time_us: Cells) -> Cells:
    """Microseconds as hours."""
    return Cells(time_us.values / _HOUR_US, time_us.null, time_us.null)


def _share(screen: Screen) -> Cells | None:
    found = screen.values(SHARE)
    if found is None:
        return None
    column = screen.plan.terms[SHARE.name][0].column
    parts = _PARTS.get(column.lower().rpartition("_")[2], 1.0)
    values = np.where(found.null, 0.0, found.values) / parts
    expected = f"a part of a device, at most {parts:g}"
    screen.refuse(~found.null & (values > 1.0), SHARE, column, expected)
    return Cells(values, found.null, found.null)
