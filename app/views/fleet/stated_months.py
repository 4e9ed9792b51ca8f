"""The month of hours of which no record tells when they were held, and the order of periods."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from steptax.app.compute.bill.apportion import zone

#: Group of jobs of which no month is known.
NO_MONTH = "unknown"


def stated_month(job: Mapping[str, Any], tz: str = "UTC") -> str | None:
    """The month in which a job began or was submitted, else the period that its source states."""
    us = None if job.get("time_basis") == "relative" else began_us(job)
    if us is not None:
        return datetime.fromtimestamp(us / 1e6, UTC).astimezone(zone(tz)).strftime("%Y-%m")
    stated: str | None = job.get("period")
    return stated or None


def began_us(job: Mapping[str, Any]) -> int | None:
    """When a job started; where no source tells, when it was submitted; None where neither is."""
    start: int | None = job.get("start_us")
    return start if start is not None else job.get("submit_us")


def in_time(period: str) -> tuple[int, int, str]:
    """Sorts periods: bare numbers as numbers (2 before 12), dates as text, the unknown last."""
    if period == NO_MONTH:
        return 2, 0, period
    is_number = period.lstrip("-").isdecimal()
    return (0, int(period), period) if is_number else (1, 0, period)
