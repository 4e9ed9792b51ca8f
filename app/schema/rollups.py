"""All roll-ups of the lake."""

from __future__ import annotations

from steptax.app.schema.rollup import (
    Rollup,
    Total,
    counted,
    fixed,
    histogram,
    moment_of_greatest,
    spread,
)

MINUTE_US, HOUR_US, DAY_US = 60_000_000, 3_600_000_000, 86_400_000_000
#: Bits of the clock mask that hold a busy device back, and the bit of an idle one.
THROTTLING, IDLE = 0xEC, 0x1
_PPM = 1_000_000
_MILLI = 1_000
_BILLION = 1_000_000_000


def _counter(column: str, doc: str, unit: str) -> tuple[Total, ...]:
    return (
        Total(f"{column}_min", f"min({column})", f"min({column}_min)", f"least {doc}", unit),
        Total(f"{column}_max", f"max({column})", f"max({column}_max)", f"greatest {doc}", unit),
    )


DEVICES = Rollup(
    "devices",
    4,
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
        *spread("energy_j", "energy_mj", _MILLI, "mJ", "energy counter"),
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
        Total("gpu_model", "max(gpu_model)", "max(gpu_model)", "device", type="STRING"),
    ),
)

#: A rank's own time before it is ready, as far as one row tells it: see ``compute.arrival``.
_WORK_US = (
    "CASE WHEN comm_us IS NOT NULL THEN duration_us - comm_us "
    "WHEN compute_us IS NOT NULL THEN compute_us + COALESCE(input_us, 0) "
    "+ COALESCE(checkpoint_us, 0) + COALESCE(h2d_us, 0) + COALESCE(gc_us, 0) "
    "+ COALESCE(other_us, 0) + COALESCE(collective_us, 0) ELSE duration_us END"
)


def _sum(column: str, doc: str) -> Total:
    return Total(f"{column}_sum", f"sum({column})", f"sum({column}_sum)", f"sum of {doc}", "us")


_ROWS = Total("row_count", "count(*)", "sum(row_count)", "reports of ranks", "rows")
_WORK = (
    Total("work_sum", f"sum({_WORK_US})", "sum(work_sum)", "sum of the ranks' work", "us"),
    Total("work_max", f"max({_WORK_US})", "max(work_max)", "longest work", "us"),
)

#: A sum of losses is of two whole numbers. Of the billionths of one exploded loss (1e8) a sum over
#: a hundred ranks would be more than 64 bits hold.
_LOW_BITS = 32
#: More tokens than that no rank has in a step, nor so far below zero: they are not known. Of the
#: least whole number there is no ``abs``.
_TOKEN_BITS = 43
_LOSS_NANO = fixed("loss", _BILLION)

STEP_TOTALS = Rollup(
    "step-totals",
    3,
    "steps",
    ("job_id", "attempt"),
    "step",
    "step",
    {"step_totals": 1},
    (
        _ROWS,
        Total("first_start_us", "min(start_us)", "min(first_start_us)", "earliest start", "us"),
        Total("newest_us", "max(start_us + duration_us)", "max(newest_us)", "latest end", "us"),
        Total("stored_us", "max(ingested_at_us)", "max(stored_us)", "newest row stored", "us"),
        Total("duration_max", "max(duration_us)", "max(duration_max)", "longest report", "us"),
        _sum("duration_us", "the reports' durations"),
        *_WORK,
        Total(
            "work_max_rank",
            f"min_by(rank, (-({_WORK_US}), rank))",
            "min_by(work_max_rank, (-work_max, work_max_rank))",
            "the rank that worked longest; of equal ones the first",
        ),
        Total("comm_n", "count(comm_us)", "sum(comm_n)", "reports with communication", "rows"),
        _sum("comm_us", "communication"),
        Total("compute_n", "count(compute_us)", "sum(compute_n)", "reports with compute", "rows"),
        _sum("compute_us", "compute"),
        _sum("input_us", "waiting for data"),
        Total("loss_n", f"count({_LOSS_NANO})", "sum(loss_n)", "finite losses", "rows"),
        # Such a rank has no mean with the others: the step has no loss.
        Total(
            "loss_odd_n",
            f"count(loss) - count({_LOSS_NANO})",
            "sum(loss_odd_n)",
            "losses that are not finite, or beyond any",
            "rows",
        ),
        # What version 2 kept, and nothing since: a reader of that version finds no loss, not half.
        Total(
            "loss_nano_sum",
            "max(CAST(NULL AS BIGINT))",
            "sum(loss_nano_sum)",
            "sum of losses in billionths, of version 2",
        ),
        Total(
            "loss_low_sum",
            f"sum({_LOSS_NANO} & {(1 << _LOW_BITS) - 1})",
            "sum(loss_low_sum)",
            f"sum of losses in billionths, of each the low {_LOW_BITS} bits",
        ),
        Total(
            "loss_high_sum",
            f"sum({_LOSS_NANO} >> {_LOW_BITS})",
            "sum(loss_high_sum)",
            f"sum of losses in 2^{_LOW_BITS} billionths, rounded down",
        ),
        # A job of a million ranks cannot add up to more than 64 bits hold.
        Total(
            "tokens_sum",
            "sum(tokens) FILTER "
            f"(WHERE tokens > {-1 << _TOKEN_BITS} AND tokens < {1 << _TOKEN_BITS})",
            "sum(tokens_sum)",
            "tokens",
            "tokens",
        ),
    ),
)

#: Steps of a job's whole history that one cell of a rank stands for.
WINDOW_STEPS = 256
#: The same of jobs of so many steps that their cells are wider anyway.
SPAN_STEPS = (1_024, 16_384)

RANK_WINDOWS = Rollup(
    "rank-windows",
    1,
    "steps",
    ("job_id", "attempt", "rank"),
    "step",
    "window_step",
    {"rank_windows": WINDOW_STEPS},
    (
        _ROWS,
        Total("first_step", "min(step)", "min(first_step)", "first step"),
        Total("last_step", "max(step)", "max(last_step)", "last step"),
        *_WORK,
        _sum("wait_us", "waiting as measured"),
    ),
    SPAN_STEPS,
)

#: Bins of work in each octave (2^k to 2^(k+1) us) beyond the first two, whose bins hold 1 us each.
WORK_BINS = 128
_FIRST_BITS = WORK_BINS.bit_length()
#: Work beyond 2^44 us, 203 days, counts as that, and below zero, which no time is, as zero.
_WORK_BITS = 44


def _shift(low: int = 0, high: int = _WORK_BITS - _FIRST_BITS) -> str:
    """SQL of log2 of the width of the bin of ``work_us``, which is from ``low`` to ``high``.

    By halves, of whole numbers: a logarithm's last digit is another one on another machine.
    """
    if low == high:
        return str(low)
    middle = (low + high) // 2
    limit = 1 << (middle + _FIRST_BITS)
    low_half, high_half = _shift(low, middle), _shift(middle + 1, high)
    return f"CASE WHEN work_us < {limit} THEN {low_half} ELSE {high_half} END"


#: A roll-up by itself, not columns more of that of steps: a step has few bins of all there are.
STEP_BINS = Rollup(
    "step-bins",
    1,
    "steps",
    ("job_id", "attempt", "work_bin"),
    "step",
    "step",
    {"step_bins": 1},
    (_ROWS,),
    SPAN_STEPS,
    f"(SELECT job_id, attempt, step, shift * {WORK_BINS} + (work_us >> shift) AS work_bin "
    f"FROM (SELECT *, {_shift()} AS shift "
    "FROM (SELECT job_id, attempt, step, "
    f"greatest(least({_WORK_US}, {(1 << _WORK_BITS) - 1}), 0) AS work_us "
    "FROM {rows}) AS _own) AS _told)",
)

ROLLUPS: tuple[Rollup, ...] = (DEVICES, STEP_TOTALS, RANK_WINDOWS, STEP_BINS)
#: The roll-up behind each relation that queries can name.
LEVELS: dict[str, Rollup] = {level: rollup for rollup in ROLLUPS for level in rollup.levels}
