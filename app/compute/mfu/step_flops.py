"""What a step would take at peak speed: the useful part of its time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from steptax.app.compute.measure import Measure
from steptax.app.compute.mfu.peaks import Peak
from steptax.app.compute.mfu.utilisation import peak_device_seconds
from steptax.app.errors import UserError


@dataclass(frozen=True)
class StepFlops:
    """GPU-microseconds at peak that the model FLOPs of one step take, all devices together."""

    useful_gpu_us: Fraction | None
    """Per step; None with ``reason``."""
    executed_ratio: Fraction | None = None
    """Executed / model FLOPs, at least 1; None if what is recomputed is not known."""
    note: str = ""
    """Convention, device and precision: without these the value means nothing."""
    reason: str = "no model FLOPs known"

    @property
    def recompute_gpu_us(self) -> Fraction | None:
        """Per step, what recomputation takes at peak."""
        if self.useful_gpu_us is None or self.executed_ratio is None:
            return None
        return self.useful_gpu_us * (self.executed_ratio - 1)


def step_flops(
    model_flops: Mapping[str, float],
    peaks: Mapping[str, Peak],
    *,
    hfu_factor: Measure | None = None,
    convention: str,
) -> StepFlops:
    """Useful time of a step from its model FLOPs and the peaks, both keyed by precision.

    ``model_flops``: of one step of the whole job, no recomputation; where tokens per step vary,
    those of all steps that count divided by their number. ``hfu_factor``: executed / model FLOPs
    (``flops.hardware_factor``).

    Raises:
        UserError: FLOPs below zero, or a factor below 1.
    """
    seconds = peak_device_seconds(model_flops, peaks)
    if seconds.value is None:
        return StepFlops(None, reason=f"no peak: {seconds.reason}")
    if not seconds.value:
        return StepFlops(None)
    factor = None if hfu_factor is None else hfu_factor.value
    if factor is not None and not (math.isfinite(factor) and factor >= 1):
        raise UserError(f"must be at least 1, not {factor}", where="hfu_factor")
    used = "; ".join(
        f"{dtype} peak {peaks[dtype].tflops:g} TFLOP/s"
        + (f" of {peaks[dtype].device}" if peaks[dtype].device else "")
        for dtype in model_flops
    )
    return StepFlops(
        Fraction(seconds.value) * 1_000_000,
        None if factor is None else Fraction(factor),
        f"convention {convention}; {used}",
    )
