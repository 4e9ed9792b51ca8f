"""Model FLOPs utilisation: how much of what the devices could compute went into the model.

MFU = model FLOPs per second / (devices * dense peak); HFU is the same with the FLOPs that were
executed, recomputation included (Chowdhery et al. 2022, section 4.1 and appendix B). A value means
nothing without its convention, device, precision and peak, so they travel with it.

More than the peak cannot be: such a value is missing with its reason, never shown.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from steptax.app.compute.measure import Level, Measure, Ratio
from steptax.app.compute.mfu.flops import (
    Convention,
    Recompute,
    active_params,
    flops_per_token,
    hardware_factor,
)
from steptax.app.compute.mfu.model_shape import ModelShape
from steptax.app.compute.mfu.peaks import Peak
from steptax.app.errors import UserError
from steptax.app.format import format_share

#: What floating point may add to a ratio of exactly 1.
_ROUNDING = 1e-9
_OVER_HINT = (
    "likely a peak with or without sparsity, the wrong device or precision, fewer devices than "
    "there are, or the total parameters of a mixture of experts"
)


def missing_ratio(reason: str | None) -> Measure:
    """No share, and why."""
    return Measure.missing("ratio", reason or "not known", level=Level.LOG)


def require_positive(value: float, name: str, *, zero: bool = False) -> None:
    """Refuse a number that is not positive, or below zero where zero may be.

    Raises:
        UserError: it is.
    """
    if not math.isfinite(value) or value < 0 or (value == 0 and not zero):
        raise UserError(
            f"must be {'zero or more' if zero else 'positive'}, not {value}", where=name
        )


def _share(
    part: float, whole: float, of_what: str, *inputs: str, warnings: tuple[str, ...]
) -> Measure:
    """A share of at most 1, or why it cannot be."""
    ratio = part / whole
    if ratio > 1 + _ROUNDING:
        return missing_ratio(f"{format_share(ratio)} is more than {of_what}: {_OVER_HINT}")
    return Ratio(min(ratio, 1.0), level=Level.LOG, inputs=inputs, warnings=warnings)


def mfu(model_flops_per_s: float, devices: int, peak: Peak) -> Measure:
    """Model FLOPs per second of all ``devices`` together / (devices * peak), 0..1.

    Missing, with the reason, where there is no peak, and where it would exceed 1.

    Raises:
        UserError: a rate below zero, or no device.
    """
    require_positive(model_flops_per_s, "model_flops_per_s", zero=True)
    require_positive(devices, "devices")
    if peak.flops_per_s is None:
        return missing_ratio(f"no peak: {peak.reason}")
    what = f"the peak of {peak.device or 'the device'} ({peak.tflops:g} TFLOP/s {peak.dtype} dense)"
    return _share(
        model_flops_per_s,
        devices * peak.flops_per_s,
        what,
        f"peak {peak.source}",
        warnings=peak.warnings,
    )


def of_achievable(flops_per_s: float, devices: int, peak: Peak) -> Measure:
    """FLOPs per second / (devices * best matrix-multiply rate measured on such a device), 0..1.

    Says how much is left to software, where MFU also counts what no matrix product reaches.

    Raises:
        UserError: a rate below zero, or no device.
    """
    require_positive(flops_per_s, "flops_per_s", zero=True)
    require_positive(devices, "devices")
    if peak.achievable_tflops is None:
        device = peak.device or "this device"
        return missing_ratio(
            f"no matrix-multiply rate measured on {device} at {peak.dtype} is known"
        )
    ratio = flops_per_s / (devices * peak.achievable_tflops * 1e12)
    if ratio > 1:
        return missing_ratio(
            f"{format_share(ratio)} of the {peak.achievable_tflops:g} TFLOP/s that were measured "
            "elsewhere: measure your own devices"
        )
    return Ratio(ratio, level=Level.LOG, inputs=("measured matrix-multiply rate",))


@dataclass(frozen=True)
class Utilization:
    """MFU with all that it depends on."""

    mfu: Measure
    hfu: Measure
    of_achievable: Measure
    """Executed FLOPs by the best measured matrix-multiply rate."""
    tflops_per_device: Measure
    """Model TFLOP/s of a device."""
    flops_per_token: Measure
    params: Measure
    """N that the convention used; missing for ``megatron``, which counts matrices."""
    hfu_factor: Measure
    """Executed / model FLOPs."""
    convention: Convention
    peak: Peak
    devices: int
    tokens_per_s: float

    def measures(self) -> dict[str, Measure]:
        """By metric id."""
        return {
            "mfu_ratio": self.mfu,
            "hfu_ratio": self.hfu,
            "of_achievable_ratio": self.of_achievable,
            "tflops_per_device": self.tflops_per_device,
            "flops_per_token": self.flops_per_token,
            "params": self.params,
            "hfu_factor_ratio": self.hfu_factor,
        }

    def as_json(self) -> dict[str, Any]:
        """The measures, and what they are stated for."""
        out: dict[str, Any] = {name: m.as_json() for name, m in self.measures().items()}
        peak = dataclasses.asdict(self.peak)
        peak["warnings"] = list(self.peak.warnings)
        return {
            **out,
            "convention": str(self.convention),
            "devices": self.devices,
            "tokens_per_s": self.tokens_per_s,
            "peak": peak,
        }


def utilization(
    shape: ModelShape,
    convention: Convention,
    *,
    tokens_per_s: float,
    devices: int,
    peak: Peak,
    recompute: Recompute | None = None,
    hfu_factor: float | None = None,
    seq_len: float | None = None,
    exclude_input_embedding: bool = False,
) -> Utilization:
    """MFU and HFU of a training job.

    ``tokens_per_s`` counts real tokens of all devices together, no padding; ``seq_len`` is the
    effective length of packed sequences. HFU needs to know what is recomputed, or the factor
    executed / model FLOPs itself (``hfu_factor``).

    Raises:
        UserError: a rate below zero, no device, or a factor below 1.
    """
    require_positive(tokens_per_s, "tokens_per_s", zero=True)
    require_positive(devices, "devices")
    per_token = flops_per_token(
        shape, convention, seq_len=seq_len, exclude_input_embedding=exclude_input_embedding
    )
    if hfu_factor is None:
        factor = hardware_factor(shape, convention, recompute, seq_len=seq_len)
    elif math.isfinite(hfu_factor) and hfu_factor >= 1:
        factor = Measure(hfu_factor, "ratio", level=Level.LOG, inputs=("hfu_factor",))
    else:
        raise UserError(f"must be at least 1, not {hfu_factor}", where="hfu_factor")
    if convention is Convention.MEGATRON:
        params = Measure.missing("parameters", "convention megatron counts matrices, not N")
    else:
        params = active_params(shape, exclude_input_embedding=exclude_input_embedding)
    rate = per_token.map(lambda f: f * tokens_per_s, "FLOP/s")
    if rate.value is None:
        model = hardware = achievable = missing_ratio(rate.reason)
    else:
        model = _with_input(mfu(rate.value, devices, peak), f"convention {convention}")
        if factor.value is None:
            hardware = achievable = missing_ratio(factor.reason)
        elif model.value is None:
            hardware, achievable = model, missing_ratio(model.reason)
        else:
            executed = rate.value * factor.value
            hardware = _with_input(mfu(executed, devices, peak), f"convention {convention}")
            achievable = of_achievable(executed, devices, peak)
    return Utilization(
        mfu=model,
        hfu=hardware,
        of_achievable=achievable,
        tflops_per_device=rate.map(lambda f: f / devices / 1e12, "TFLOP/s"),
        flops_per_token=per_token,
        params=params,
        hfu_factor=factor,
        convention=convention,
        peak=peak,
        devices=devices,
        tokens_per_s=tokens_per_s,
    )


def _with_input(measure: Measure, name: str) -> Measure:
    return dataclasses.replace(measure, inputs=(*measure.inputs, name))


def peak_device_seconds(flops: Mapping[str, float], peaks: Mapping[str, Peak]) -> Measure:
    """Device-seconds that FLOPs by precision take at their peaks: sum of F / peak.

    The useful part of the paid time, and the denominator of a job that mixes precisions.

    Raises:
        UserError: FLOPs below zero.
    """
    seconds = 0.0
    for dtype, amount in flops.items():
        require_positive(amount, f"flops of {dtype}", zero=True)
        own = peaks.get(dtype)
        if own is None or own.flops_per_s is None:
            reason = own.reason if own else f"no peak at {dtype} is given"
            return Measure.missing("device-seconds", reason or "no peak", level=Level.LOG)
        seconds += amount / own.flops_per_s
    return Measure(seconds, "device-seconds", level=Level.LOG)


def mixed_mfu(
    flops: Mapping[str, float], peaks: Mapping[str, Peak], device_seconds: float
) -> Measure:
    """MFU over several precisions: sum over precision of F / peak, by device-seconds, 0..1.

    ``flops`` and ``peaks`` are keyed by precision. FP8 products held against a BF16 peak would
    look twice as good.

    Raises:
        UserError: FLOPs below zero, or no time.
    """
    require_positive(device_seconds, "device_seconds")
    ideal = peak_device_seconds(flops, peaks)
    if ideal.value is None:
        return missing_ratio(f"no peak: {ideal.reason}")
    warnings = tuple(w for dtype in flops for w in peaks[dtype].warnings)
    return _share(
        ideal.value, device_seconds, "the peaks", *(f"peak {d}" for d in flops), warnings=warnings
    )


def run_mfu(flops: float, device_hours: float, peak: Peak) -> Measure:
    """MFU over everything that was paid: FLOPs of the run / (device-hours * peak), 0..1.

    Stops, restarts and lost work are in it, so it lies below the MFU of the steps by the goodput.

    Raises:
        UserError: FLOPs below zero, or no time.
    """
    require_positive(device_hours, "device_hours")
    require_positive(flops, "flops", zero=True)
    return mfu(flops / (device_hours * 3600), 1, peak)
