"""Counts and days in sentences, written the same way by every part of the product."""

from __future__ import annotations

from datetime import date


def count_text(count: int, one: str, several: str | None = None) -> str:
    """``1 job``, ``1,024 jobs``; ``several`` is the plural where it is not ``one`` with an s."""
    return f"{count:,} {one if count == 1 else several or f'{one}s'}"


def day_text(day: date) -> str:
    """A day as it is typed into every command and field: ``2026-11-02``."""
    return f"{day:%Y-%m-%d}"


def rows_text(rows: int, sums: int) -> str:
    """``12 jobs``, ``12 sums of many jobs``, or both: of sums it is not known how many jobs."""
    if not sums:
        return count_text(rows, "job")
    text = f"{count_text(sums, 'sum')} of many jobs"
    return text if rows == sums else f"{count_text(rows - sums, 'job')} and {text}"
