"""What else is known in ``steptax demo --company``: ranks, nodes, devices, the bill and offers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from steptax.app.demo.company_plan import (
    CLUSTER,
    DAY_US,
    DAYS,
    GPU_MODEL,
    GPUS_PER_NODE,
    HOT_GPU,
    HOT_NODE,
    HOUR_US,
    NODES,
    Job,
    uuid_of,
)
from steptax.app.demo.company_steps import tokens_per_rank

SAMPLE_EVERY_US = HOUR_US // 2
#: Nodes are rented in blocks of so long.
RENTED_US = 4 * HOUR_US
#: The bit of the NVIDIA driver for a hardware thermal slowdown (NVML, clocks event reasons).
_THERMAL_BIT = 0x40
_CLOCK_MHZ, _WARM_C, _POWER_W = 1755.0, 63.0, 655.0
_HOT_C, _HOT_W = 90.0, 455.0
_IDLE_CLOCK_MHZ, _IDLE_C, _IDLE_W = 345.0, 34.0, 72.0
_MEMORY_BYTES = 80 * 1024**3
#: (seller, segment, device, form factor, term, USD per GPU-hour). Made up, near what was asked for
#: in 2026; the first is what the company pays for its own devices.
_OFFERS = (
    ("Northlight", "neocloud", "H100", "SXM", "1y", "2.50"),
    ("Northlight", "neocloud", "H200", "SXM", "1y", "3.10"),
    ("Northlight", "neocloud", "B200", "SXM", "1y", "4.60"),
    ("Harbor", "neocloud", "H200", "SXM", "on-demand", "3.60"),
    ("Harbor", "neocloud", "B200", "SXM", "on-demand", "5.40"),
)


def jobs_table(jobs: Sequence[Job], until_us: int) -> pa.Table:
    """What the scheduler and the jobs say of themselves."""
    return _table([_job_row(job, until_us) for job in jobs])


def _job_row(job: Job, until_us: int) -> dict[str, Any]:
    row: dict[str, Any] = {
        "job_id": job.job_id,
        "name": f"{job.job_id} (synthetic)",
        "team": job.team,
        "project": job.project,
        "cluster": CLUSTER,
        "owner": job.owner,
        "state": job.state,
        "state_detail": job.state_detail,
        "submit_us": job.start_us - HOUR_US // 4,
        "start_us": job.start_us,
        "end_us": None if job.state == "running" else min(job.end_us, until_us),
        "gpu_model": GPU_MODEL,
        "world_size": job.gpus,
        "hosts": ",".join(job.nodes),
        "target_steps": job.target_steps,
    }
    if job.has_steps:
        model = job.model
        row |= {
            "framework": "synthetic",
            "dp_size": job.gpus,
            "tp_size": 1,
            "pp_size": 1,
            "tokens_per_step": tokens_per_rank(job) * job.gpus,
            "params_total": model.params,
            "params_active": model.params,
            "layers": model.layers,
            "hidden": model.hidden,
            "ffn": model.ffn,
            "heads": model.heads,
            "kv_heads": model.kv_heads,
            "vocab": model.vocab,
            "seq_len": model.seq_len,
            "causal": True,
            "recompute": "selective",
            "dtype": "bf16",
        }
    return row


def ranks_table(jobs: Sequence[Job]) -> pa.Table:
    """Where each rank of the jobs with steps runs."""
    return _table(
        [
            {
                "job_id": job.job_id,
                "rank": rank,
                "host": node,
                "local_rank": gpu,
                "gpu_uuid": uuid_of(node, gpu),
                "gpu_index": gpu,
                "dp": rank,
                "tp": 0,
                "pp": 0,
            }
            for job in jobs
            if job.has_steps
            for rank in range(job.gpus)
            for node, gpu in [job.device(rank)]
        ]
    )


def nodes_table(until_us: int) -> pa.Table:
    """The inventory of the cluster."""
    return _table(
        [
            {
                "cluster": CLUSTER,
                "host": node,
                "gpu_model": GPU_MODEL,
                "gpus": GPUS_PER_NODE,
                "cpus": 192.0,
                "memory_bytes": 2 * 1024**4,
                "listed_us": until_us,
            }
            for node in NODES
        ]
    )


def device_table(
    jobs: Sequence[Job], hot_from_us: Mapping[str, int], until_us: int, seed: int
) -> pa.Table:
    """Every device of the cluster each half hour: at work, idle, or held back by heat.

    ``hot_from_us`` is when the hot device begins to throttle in the jobs that meet it.
    """
    dice = np.random.default_rng([seed, 3])
    first_us = until_us - DAYS * DAY_US
    moments = np.arange(first_us, until_us, SAMPLE_EVERY_US, dtype=np.int64)
    shape = (len(NODES) * GPUS_PER_NODE, len(moments))
    busy, hot = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
    for job in jobs:
        inside = (moments >= job.start_us + HOUR_US // 12) & (moments < job.end_us)
        for node in job.nodes:
            first = NODES.index(node) * GPUS_PER_NODE
            busy[first : first + GPUS_PER_NODE, inside] = True
        if job.story == "throttle":
            late = inside & (moments >= hot_from_us[job.job_id])
            hot[NODES.index(HOT_NODE) * GPUS_PER_NODE + HOT_GPU, late] = True
    factor = max(job.slow_factor for job in jobs if job.story == "throttle")

    def told(work: float, heat: float, idle: float, spread: float) -> np.ndarray[Any, Any]:
        level = np.where(hot, heat, np.where(busy, work, idle))
        return (level + dice.normal(0, spread, shape)).reshape(-1)

    places = [(node, gpu) for node in NODES for gpu in range(GPUS_PER_NODE)]
    hosts = pa.array([node for node, _ in places])
    uuids = pa.array([uuid_of(*place) for place in places])
    which = pa.array(np.repeat(np.arange(shape[0], dtype=np.int32), shape[1]))
    return pa.table(
        {
            "host": hosts.take(which),
            "gpu_uuid": uuids.take(which),
            "ts_us": np.tile(moments, shape[0]),
            "util_ratio": np.clip(np.where(busy, 0.985, 0.0), 0, 1).reshape(-1),
            "memory_used_bytes": np.where(busy, _MEMORY_BYTES * 9 // 10, 0).reshape(-1),
            "memory_total_bytes": np.full(busy.size, _MEMORY_BYTES, np.int64),
            "power_w": told(_POWER_W, _HOT_W, _IDLE_W, 5.0).round(1),
            "temperature_c": told(_WARM_C, _HOT_C, _IDLE_C, 0.8).round(),
            "sm_clock_mhz": told(_CLOCK_MHZ, _CLOCK_MHZ / factor, _IDLE_CLOCK_MHZ, 4.0).round(),
            "throttle_reasons": np.where(hot, _THERMAL_BIT, 0).astype(np.int64).reshape(-1),
            "gpu_index": pa.array(np.array([gpu for _, gpu in places], np.int32)).take(which),
            "gpu_model": pa.repeat(pa.scalar(GPU_MODEL), busy.size),
        }
    )


def rented(jobs: Sequence[Job], until_us: int) -> list[tuple[str, int, int]]:
    """(node, start, end) of the blocks of `RENTED_US` in which a job holds a node.

    Times are in microseconds since 1970; the last block ends at ``until_us``.
    """
    blocks = {
        (node, block)
        for job in jobs
        for node in job.nodes
        for block in range(
            job.start_us // RENTED_US, (min(job.end_us, until_us) - 1) // RENTED_US + 1
        )
    }
    return [
        (node, block * RENTED_US, min((block + 1) * RENTED_US, until_us))
        for node, block in sorted(blocks)
    ]


def charges_table(jobs: Sequence[Job], until_us: int, usd_per_gpu_hour: Decimal) -> pa.Table:
    """The provider's bill: a line for each node and block of hours, whatever a job used of it."""
    return _table(
        [
            {
                "provider": f"{_OFFERS[0][0]} (synthetic)",
                "invoice": f"{datetime.fromtimestamp(start_us / 1e6, UTC):%Y-%m}",
                "line": f"{node}-{start_us // RENTED_US}",
                "charge_start_us": start_us,
                "charge_end_us": end_us,
                "billed_cost": cost,
                "effective_cost": cost,
                "currency": "USD",
                "resource_id": node,
                "charge_category": "Usage",
                "service_name": f"{GPUS_PER_NODE} x H100 SXM, blocks of four hours",
            }
            for node, start_us, end_us in rented(jobs, until_us)
            for cost in [
                (GPUS_PER_NODE * usd_per_gpu_hour * (end_us - start_us) / HOUR_US).quantize(
                    Decimal("0.01")
                )
            ]
        ]
    )


def offers_table(until_us: int, usd_per_gpu_hour: Decimal) -> pa.Table:
    """What devices are offered for, seen a week ago; H100 at what the company pays."""
    seen = datetime.fromtimestamp((until_us - 7 * DAY_US) / 1e6, UTC).date().isoformat()
    names = ("provider", "segment", "gpu_model", "form_factor", "term")
    return _table(
        [
            dict(zip(names, offer[:5], strict=True))
            | {
                "region": "us-east",
                "observed_on": seen,
                "usd_per_gpu_hour": usd_per_gpu_hour if k == 0 else Decimal(offer[5]),
                "source_url": "synthetic",
            }
            for k, offer in enumerate(_OFFERS)
        ]
    )


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    """Rows that need not have the same fields."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    return pa.Table.from_pylist([{name: row.get(name) for name in names} for row in rows])
