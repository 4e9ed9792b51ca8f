"""All roll-ups of the lake."""

from __future__ import annotations

from steptax.app.schema.rollup import (
    Rollup,
    Total,
    counted,
    histogram,
    moment_of_greatest,
    spread,
)

MINUTE_US, HOUR_US, DAY_US = 60_000_000, 3_600_000_000, 86_400_000_000
#: Bits of the clock mask that hold a busy device back, and the bit of an idle one.
THROTTLING, IDLE = 0xEC, 0x1
_PPM = 1_000_000
_MILLI = 1_000


def _counter(column: str, doc: str, unit: str) -> tuple[Total, ...]:
    return (
        Total(f"{column}_min", f"min({column})", f"min({column}_min)", f"least {doc}", unit),
        Total(f"{column}_max", f"max({column})", f"max({column}_max)", f"greatest {doc}", unit),
    )


DEVICES = Rollup(
    "devices",
    1,
    "device_samples",
    ("host", "gpu_uuid"),
    "ts_us",
    "bucket_us",
    {"device_minutes": MINUTE_US, "device_hours": HOUR_US, "device_days": DAY_US},
    (
        Total("samples", "count(*)", "sum(samples)", "samples in the bucket", "samples"),
        Total("first_us", "min(ts_us)", "min(first_us)", "first sample", "us"),
        Total("last_us", "max(ts_us)", "max(last_us)", "last sample", "us"),
        *spread("util_ratio", "util_ppm", _PPM, "ppm", "share of time with a kernel resident"),
        *histogram("util_ratio", "util", _PPM, tuple(range(0, _PPM + 1, _PPM // 10)), "that share"),
        *spread("sm_active_ratio", "sm_active_ppm", _PPM, "ppm", "share of SM cycles active"),
        *spread(
            "tensor_active_ratio", "tensor_active_ppm", _PPM, "ppm", "tensor-pipe cycles active"
        ),
        *spread("memory_used_bytes", "memory_used_bytes", 1, "bytes", "device memory in use"),
        *spread("power_w", "power_mw", _MILLI, "mW", "power"),
        moment_of_greatest("power_w", "power_mw", _MILLI, "ts_us", "power"),
        *spread("temperature_c", "temperature_mc", _MILLI, "m degC", "temperature"),
        moment_of_greatest("temperature_c", "temperature_mc", _MILLI, "ts_us", "temperature"),
        *spread("memory_temperature_c", "memory_temperature_mc", _MILLI, "m degC", "HBM heat"),
        *spread("sm_clock_mhz", "sm_clock_khz", _MILLI, "kHz", "SM clock"),
        counted("throttle_known", "throttle_reasons IS NOT NULL", "samples that tell the clock"),
        counted(
            "throttled",
            f"throttle_reasons & {THROTTLING} <> 0 AND throttle_reasons & {IDLE} = 0",
            "samples of a busy device that power or heat held back",
        ),
        Total(
            "throttle_reasons",
            "bit_or(throttle_reasons)",
            "bit_or(throttle_reasons)",
            "every bit that was set",
            "bits",
        ),
        counted("unhealthy", "health IS NOT NULL", "samples with something wrong"),
        counted("xid_set", "xid <> 0", "samples with a last Xid code"),
        Total("xid_max", "max(xid)", "max(xid_max)", "greatest Xid code"),
        *_counter("ecc_corrected", "corrected errors", "errors"),
        *_counter("ecc_uncorrected", "uncorrected errors", "errors"),
        *_counter("remapped_rows", "remapped rows", "rows"),
        *_counter("nvlink_errors", "NVLink errors", "errors"),
        Total("gpu_model", "max(gpu_model)", "max(gpu_model)", "device", type="VARCHAR"),
    ),
)

ROLLUPS: tuple[Rollup, ...] = (DEVICES,)
#: The roll-up behind each relation that queries can name.
LEVELS: dict[str, Rollup] = {level: rollup for rollup in ROLLUPS for level in rollup.levels}
