"""A job of eight ranks on two nodes whose devices are sampled each second."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from steptax.app.lake import Lake
from tests.app.fleet_lake import S, rows, us

START = us(2026, 3, 1)
RANKS = 8
STEPS = 60
HOT = 5


def uuid(rank: int) -> str:
    return f"GPU-{rank:08x}-1111-2222-3333-444444444444"


def hot(second: int) -> dict[str, Any]:
    """A device that its temperature holds back from the eleventh second on."""
    if second < 10:
        return {}
    return {"sm_clock_mhz": 1110.0, "throttle_reasons": 0x20, "temperature_c": 88.0}


def store_steps(lake: Lake, job_id: str, slow: int | None = HOT) -> None:
    """Steps of a second; rank ``slow`` computes 200 ms longer than the others."""
    found = [
        {
            "job_id": job_id,
            "attempt": 0,
            "step": step,
            "rank": rank,
            "start_us": START + step * S,
            "duration_us": S,
            "compute_us": 900_000 if rank == slow else 700_000 + step % 7,
            "comm_us": 100_000 if rank == slow else 300_000 - step % 7,
        }
        for step in range(STEPS)
        for rank in range(RANKS)
    ]
    lake.append("steps", rows(found), source="test")


def store_ranks(lake: Lake, job_id: str, **more: Any) -> None:
    """Where the ranks run; the scheduler counts devices the other way round."""
    found = [
        {
            "job_id": job_id,
            "rank": rank,
            "host": f"node-{rank // 4}",
            "local_rank": rank % 4,
            "gpu_uuid": uuid(rank),
            "gpu_index": 3 - rank % 4,
        }
        | more
        for rank in range(RANKS)
    ]
    lake.append("ranks", rows(found), source="test")


def store_samples(
    lake: Lake,
    odd: Mapping[int, Callable[[int], dict[str, Any]]] | None = None,
    *,
    seconds: range = range(-30, STEPS + 30),
    devices: range = range(RANKS),
    source: str = "nvml:node",
) -> None:
    """Samples from before the first step until after the last; ``odd`` are devices out of line."""
    told = {HOT: hot} if odd is None else odd
    found = [
        {
            "host": f"node-{device // 4}",
            "gpu_uuid": uuid(device),
            "ts_us": START + second * S,
            "gpu_index": device % 4,
            "gpu_model": "NVIDIA H100 80GB HBM3",
            "util_ratio": 0.99,
            "power_w": 600.0 + (second * 7 + device) % 11,
            "power_limit_w": 700.0,
            "temperature_c": 62.0,
            "sm_clock_mhz": 1755.0,
            "throttle_reasons": 0,
            "ecc_uncorrected": 0,
            "remapped_rows": 0,
            "xid": 0,
            "pcie_gen": 5,
            "pcie_gen_max": 5,
            "pcie_width": 16,
            "pcie_width_max": 16,
            "nvlink_errors": 0,
            "nvlink_up": 18,
        }
        | (told[device](second) if device in told else {})
        for device in devices
        for second in seconds
    ]
    lake.append("device_samples", rows(found), source=source)
