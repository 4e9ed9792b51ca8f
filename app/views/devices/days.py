"""Days of all sampled devices, from the roll-up: cheap however many samples there are."""

from __future__ import annotations

from dataclasses import dataclass

from steptax.app.schema.rollups import DAY_US
from steptax.app.views.workspace import Workspace


@dataclass(frozen=True)
class DeviceDay:
    """One day (UTC) of all devices; None where no sample tells it.

    Means are over samples that are not ``stale_samples``: those of hours in which nothing of a
    device moved, to the last digit, and of the minutes beside them that say the same repeat an old
    value. ``throttled_ratio`` is the share of those
    that tell why the clock is below its maximum in which power or heat held a busy device back.
    """

    day_us: int
    hosts: int
    devices: int
    samples: int
    stale_samples: int
    util_ratio: float | None
    sm_active_ratio: float | None
    power_w: float | None
    power_max_w: float | None
    temperature_max_c: float | None
    hottest: str | None
    throttled_ratio: float | None
    unhealthy_samples: int


def device_days(
    ws: Workspace, *, first_us: int | None = None, end_us: int | None = None
) -> tuple[DeviceDay, ...]:
    """Days that begin in [``first_us``, ``end_us``), oldest first; None leaves a side open."""
    rows = ws.engine.run(
        "device_sums_by_day",
        first_us=None if first_us is None else first_us // DAY_US * DAY_US,
        last_us=None if end_us is None else end_us - 1,
    ).to_pylist()
    return tuple(DeviceDay(day_us=row.pop("bucket_us"), **row) for row in rows)
