"""Bills of jobs of which nothing but their record is known: a scheduler's log has no more.

They differ by whose they are, when and how many devices, and by nothing else. So one bill is worked
out as every other is, and all the rest are made after it: one by one where somebody asks for one,
added up without ever being made where a fleet of fifty thousand is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from steptax.app.compute.bill.attempt_layer import State
from steptax.app.compute.bill.goodput import GPU_US_PER_HOUR
from steptax.app.compute.bill.timeline import Timeline
from steptax.app.compute.bill.waterfall import make_waterfall
from steptax.app.compute.bill.waterfall_rows import Labels, Waterfall
from steptax.app.compute.devices.claims import Lost, Span
from steptax.app.compute.measure import Level, Measure
from steptax.app.views.bill.view import job_waterfall
from steptax.app.views.pricing.given import RELATIVE_TIME

NOT_STARTED = "it has not started"
NO_DEVICES = "it held no devices"
NO_TIMES = "its record has neither start and end nor GPU-hours"
NO_GPUS = "its record does not say how many devices it held"
NO_END = "it has no end on record, and no steps or events tell until when it ran"
#: Nothing holds devices for longer: a start or an end of zero, or of the year 9999, is a blank.
LONGEST_US = 10 * 366 * 24 * GPU_US_PER_HOUR
#: No cluster has ten million devices: a job that states more has a wrong number.
MOST_GPUS = 10_000_000
#: GPU-hours beyond this are no int64 of GPU-microseconds.
MOST_HOURS = (2**63 - 1) // GPU_US_PER_HOUR
_LABELS = ("team", "project", "cluster", "owner")


@dataclass(frozen=True, slots=True)
class Held:
    """``gpus`` devices from start to end, and nothing else that is known of the job."""

    job: Mapping[str, Any]
    """Its record, for its labels."""
    start_us: int
    end_us: int
    gpus: int

    @property
    def gpu_us(self) -> int:
        """GPU-microseconds, exact."""
        return (self.end_us - self.start_us) * self.gpus

    def bill(self) -> Waterfall:
        """The bill of that one job."""
        job = self.job
        labels = Labels(str(job["job_id"]), *(job.get(name) for name in _LABELS))
        first = record_template()
        assert first.source is not None
        columns = (self.start_us, self.end_us, State.UNEXPLAINED, self.gpus)
        count = int(self.end_us > self.start_us)
        line = Timeline(*(np.array([v] * count, dtype=np.int64) for v in columns))
        return make_waterfall(
            replace(first.source, timeline=line), line, replace(first, labels=labels)
        )


@lru_cache(maxsize=1)
def record_template() -> Waterfall:
    """The bill of a job of which nothing but its record is known, for a microsecond of one GPU."""
    job = {"job_id": "", "start_us": 0, "end_us": 1, "world_size": 1}
    return job_waterfall(job, [], None, None)[0]


@dataclass(frozen=True)
class JobBill:
    """A job's bill over its whole life, or why there is none."""

    job_id: str
    made: Waterfall | None = None
    """None also where ``held`` tells all that there is to tell."""
    reason: str = ""
    undated: str = ""
    """Why its hours cannot be placed in time, though they are known; empty if they can."""
    lost: tuple[Lost, ...] = ()
    """Devices that its record claims and the bill of another job holds."""
    held: Held | None = None
    stops: tuple[tuple[str, str | None], ...] = ()
    """Failures and evictions that its events tell, with the ranks that each names."""
    saves_us: tuple[int, ...] = ()
    """When checkpoints were saved that were kept."""

    @property
    def is_known(self) -> bool:
        """Whether there is a bill."""
        return self.made is not None or self.held is not None

    @property
    def bill(self) -> Waterfall | None:
        """The bill; one after the record alone is made anew at every look."""
        return self.made if self.held is None else self.held.bill()

    @cached_property
    def gpu_hours(self) -> Measure | None:
        """GPU-hours of the bill; None without one."""
        if self.held is not None:
            hours = self.held.gpu_us / GPU_US_PER_HOUR
            return Measure(hours, "GPU-hours", level=Level.LOG, inputs=("paid time",))
        return None if self.made is None else self.made.goodput.gpu_hours

    @property
    def span(self) -> Span | None:
        """From when to when the job held devices; None where that is not known."""
        if self.undated:
            return None
        if self.held is not None:
            start, end = self.held.start_us, self.held.end_us
        elif self.made is not None and self.made.timeline is not None:
            start, end = self.made.timeline.span_us
        else:
            return None
        return (start, end) if end > start else None


def too_long(job: Mapping[str, Any]) -> str:
    """Why a job cannot have held devices for as long as its record says; empty if it can."""
    start, end = job.get("start_us"), job.get("end_us")
    if start is None or end is None or end - start <= LONGEST_US:
        return ""
    years = (end - start) / (365.25 * 24 * GPU_US_PER_HOUR)
    return f"its record says that it ran for {years:,.0f} years: its start or its end is wrong"


def until_its_record(job: dict[str, Any]) -> dict[str, Any]:
    """A job that ran when its record was written ends, for its bill, where the record leaves it.

    The record says so by the GPU-hours that it states for the devices that the job held.
    """
    start, end, gpus = job.get("start_us"), job.get("end_us"), job.get("world_size")
    hours = job.get("gpu_hours")
    if start is None or end is not None or not gpus or not hours:
        return job
    end_us = start + round(hours * GPU_US_PER_HOUR / gpus)
    return {**job, "end_us": end_us, "state": None}  # of a job that runs an end would not count


def record_bill(job: dict[str, Any]) -> JobBill:
    """The bill of a job of which nothing but its record is known, or why it has none.

    GPU-hours that a record states without dates, or without devices, still are hours that were
    held: they count as one device for that long, at no known time.
    """
    job_id = str(job["job_id"])
    if job.get("time_basis") == "relative":
        return JobBill(job_id, reason=RELATIVE_TIME)
    start, end, gpus = job.get("start_us"), job.get("end_us"), job.get("world_size")
    if (
        start is not None
        and end is not None
        and gpus
        and 0 <= end - start <= LONGEST_US
        and gpus <= MOST_GPUS
    ):
        return JobBill(job_id, held=Held(job, start, end, gpus))  # nearly all of them
    told = until_its_record(job)
    end = told.get("end_us")
    if gpus == 0:
        return JobBill(job_id, reason=NO_DEVICES)
    if gpus and gpus > MOST_GPUS:
        return JobBill(job_id, reason=f"its record states {gpus:,} devices: no job held as many")
    if start is not None and end is not None:
        if reason := too_long(told):
            return JobBill(job_id, reason=reason)
        if gpus and end < start:
            return JobBill(job_id, reason=f"the job ends {start - end} us before it starts")
        if gpus:
            return JobBill(job_id, held=Held(job, start, end, gpus))
    hours = told.get("gpu_hours")
    if hours and hours > MOST_HOURS:
        return JobBill(job_id, reason=f"its record states {hours:,.3g} GPU-hours: that cannot be")
    if hours:
        lacks = "start and end" if start is None or end is None else "how many devices it held"
        undated = f"its record states {hours:,.6g} GPU-hours, but not {lacks}"
        return JobBill(
            job_id, undated=undated, held=Held(job, 0, round(hours * GPU_US_PER_HOUR), 1)
        )
    if hours == 0:
        return JobBill(job_id, reason=NO_DEVICES)
    if start is None:
        pending = told.get("state") == "pending"
        return JobBill(job_id, reason=NOT_STARTED if pending else NO_TIMES)
    return JobBill(job_id, reason=NO_END if end is None else NO_GPUS)
