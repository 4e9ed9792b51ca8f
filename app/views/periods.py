"""GPU-hours by month: of the jobs' starts, or as a source without dates states it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from steptax.app.views.models import JobSummary, PeriodRow

UNKNOWN_PERIOD = "unknown"


def by_period(
    jobs: Sequence[dict[str, Any]], summaries: Sequence[JobSummary]
) -> tuple[PeriodRow, ...]:
    """One row per month, in calendar order, the unknown last. ``jobs`` and ``summaries`` run alike.

    A job counts in the month in which it started.
    """
    groups: dict[str, list[JobSummary]] = defaultdict(list)
    for job, summary in zip(jobs, summaries, strict=True):
        groups[_period(job)].append(summary)
    rows = []
    for period in sorted(groups, key=_order):
        known = [s.gpu_hours.value for s in groups[period] if s.gpu_hours.value is not None]
        rows.append(
            PeriodRow(
                period,
                len(groups[period]),
                sum(known) if known else None,
                len(groups[period]) - len(known),
            )
        )
    return tuple(rows)


def _period(job: dict[str, Any]) -> str:
    if job.get("start_us") is not None:
        return datetime.fromtimestamp(job["start_us"] / 1e6, UTC).strftime("%Y-%m")
    return job.get("period") or UNKNOWN_PERIOD


def _order(period: str) -> tuple[int, int, str]:
    """Bare numbers as numbers (2 before 12), dates as text, the unknown last."""
    if period == UNKNOWN_PERIOD:
        return 2, 0, period
    return (0, int(period), period) if period.isdecimal() else (1, 0, period)
