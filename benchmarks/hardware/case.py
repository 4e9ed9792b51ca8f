"""A case: what is timed, and how its time becomes the figure that is reported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from steptax.benchmarks.hardware.backend import Backend, Work

TFLOPS = "TFLOP/s"
GB_PER_S = "GB/s"
US = "us"


@dataclass(frozen=True)
class Case:
    """One test at one size. ``amount`` is the FLOPs or bytes of one iteration; unused for times.

    ``wall_calls`` above 0: timed from the host, over so many calls back to back. ``alone``: the
    devices take turns, since the case needs two of them. ``needs_bytes``: memory of the device that
    it needs at least. ``flag``: who asked for this size; None where it is the usual one.
    """

    test: str
    size: str
    dtype: str
    unit: str
    amount: float
    prepare: Callable[[Backend, int], Work]
    """Backend and seed to the work; may raise UnsupportedError."""
    wall_calls: int = 0
    alone: bool = False
    needs_bytes: float = 0.0
    flag: str | None = None

    def value(self, duration_us: float) -> float:
        """The figure of one duration: FLOP / us / 10^6 = TFLOP/s, bytes / us / 10^3 = GB/s."""
        if self.unit == US:
            return duration_us
        scale = 1e6 if self.unit == TFLOPS else 1e3
        # A clock that does not tick between two events would give no number.
        return self.amount / max(duration_us, 1e-3) / scale
