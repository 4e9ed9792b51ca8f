"""How procurement is said: titles of its measures, for commands, tables and pages."""

from __future__ import annotations

COLUMN_TITLES = {
    "usd_per_result": "cost",
    "result_min": "time",
    "speedup": "as fast",
    "break_even_usd_per_gpu_hour": "break-even",
    "straggler_adjusted_usd_per_gpu_hour": "without waits",
    "usd_per_pflop_hour": "$/PFLOP-hour",
    "delivered_pflops": "delivered",
    "step_ms": "step",
    "wait_ratio": "waiting",
    "gpu_hours_per_result": "GPU-hours",
    "energy_kwh": "energy",
}

SWING_LABELS = {
    "compute_speedup": "compute, times as fast",
    "comm_speedup": "communication, times as fast",
    "wait_speedup": "waiting, times as short",
    "usd_per_gpu_hour": "price of a GPU-hour, 10 % either way",
}

#: Whether other offers were seen than the time before.
COVERAGE = {True: "other offers than before", False: "", None: "an index: its offers are not told"}
