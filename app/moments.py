"""Moments that can be written as a date: those of the years 1 to 9999, in microseconds."""

from __future__ import annotations

#: The first of them, in microseconds UTC since 1970.
FIRST_US = -62_135_596_800_000_000
#: The first moment after them.
LAST_US = 253_402_300_800_000_000
