"""Bins of work as they are defined, in plain Python: what SQL and numpy are compared with."""

from __future__ import annotations


def bin_of(value: int) -> int:
    """128 bins in each octave from 256 on, one a number below; of 44 bits at the most."""
    held = max(0, min(value, (1 << 44) - 1))
    shift = max(held.bit_length() - 8, 0)
    return shift * 128 + (held >> shift)
