"""Results as rows of the lake's tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from steptax.app.compute.collectives.bus_bandwidth import Collective, algbw_gb_per_s, busbw_factor
from steptax.benchmarks.hardware.collectives import ARRIVAL_BYTES, slowest_of
from steptax.benchmarks.hardware.runner import Result
from steptax.benchmarks.hardware.timing import Spread, spread_of

Row = dict[str, Any]
#: Communicator of the rounds that show who arrives last.
ARRIVAL_COMM = "arrival test"


def of_results(
    results: Sequence[Result], run_id: str, host: str, began_us: int, software: Mapping[str, str]
) -> list[Row]:
    """``bench_results`` of cases on devices."""
    always = {
        "run_id": run_id,
        "host": host,
        "measured_at_us": began_us,
        "software": json.dumps(software, sort_keys=True),
        "ranks": 1,
        "nodes": 1,
    }
    return [
        always
        | {
            "gpu_uuid": r.backend.device_id,
            "gpu_model": r.backend.device_model,
            "test": r.case.test,
            "size": r.case.size,
            "dtype": r.case.dtype,
            "clock_mhz": r.window.clock_mhz,
            "power_w": r.window.power_w,
            "temperature_c": r.window.temperature_c,
        }
        | figures(r.spread, r.case.unit)
        for r in results
    ]


def figures(spread: Spread, unit: str) -> Row:
    """The columns of a spread."""
    return {
        "value": spread.value,
        "unit": unit,
        "p5": spread.p5,
        "p50": spread.p50,
        "p95": spread.p95,
        "p99": spread.p99,
        "n": spread.n,
        "repeats": json.dumps([round(v, 6) for v in spread.repeats]),
    }


def of_collectives(
    found: Mapping[str, Any], run_id: str, began_us: int, software: Mapping[str, str]
) -> list[Row]:
    """``bench_results`` of `collectives.run_rank`: time, algbw and busbw of each size as the
    slowest rank has them, and the time of every single rank.
    """
    ranks = found["ranks"]
    hosts = sorted({r["host"] for r in ranks})
    models = sorted({r["device_model"] for r in ranks if r["device_model"]})
    always = {
        "run_id": run_id,
        "dtype": "float",
        "measured_at_us": began_us,
        "software": json.dumps(dict(software) | {"library": found["library"]}, sort_keys=True),
        "ranks": len(ranks),
        "nodes": len(hosts),
    }
    together = {
        "host": hosts[0] if len(hosts) == 1 else f"{len(hosts)} nodes",
        "gpu_uuid": "all",
        "gpu_model": models[0] if len(models) == 1 else None,
    }
    rows: list[Row] = []
    for cell in found["cells"]:
        mine = always | {"size": str(cell["size"])}
        by_repeat = slowest_of(cell["times_us"])
        for metric, unit in (("time", "us"), ("algbw", "GB/s"), ("busbw", "GB/s")):
            values = [
                [_figure(metric, cell["op"], len(ranks), cell["size"], us) for us in repeat]
                for repeat in by_repeat
            ]
            rows.append(
                mine
                | together
                | {"test": f"{cell['op']} {metric}", "wrong": cell["wrong"]}
                | figures(spread_of(values), unit)
            )
        for rank, times in zip(ranks, cell["times_us"], strict=True):
            rows.append(
                mine
                | {"host": rank["host"], "gpu_uuid": rank["device_id"], "rank": rank["rank"]}
                | {"gpu_model": rank["device_model"], "test": f"{cell['op']} rank time"}
                | figures(spread_of(times), "us")
            )
    return rows


def _figure(metric: str, op: str, ranks: int, size: int, duration_us: float) -> float:
    if metric == "time":
        return duration_us
    algbw = algbw_gb_per_s(size, duration_us / 1e6)
    return algbw if metric == "algbw" else algbw * busbw_factor(Collective.read(op), ranks)


def of_arrivals(found: Mapping[str, Any], run_id: str) -> list[Row]:
    """``collectives``: every round of the arrival test on every rank."""
    return [
        {
            "job_id": run_id,
            "comm_id": ARRIVAL_COMM,
            "op": "all_reduce",
            "seq": seq,
            "rank": rank,
            "rank_scope": "global",
            "dtype": "float",
            "bytes": ARRIVAL_BYTES,
            "n_ranks": len(found["arrivals"]),
            "start_us": one["start_us"],
            "duration_us": one["duration_us"],
            "state": "completed",
            "timing": "collective_cpu",
        }
        for rank, rounds in enumerate(found["arrivals"])
        for seq, one in enumerate(rounds)
    ]


def own_work_ms(found: Mapping[str, Any]) -> list[float]:
    """Median of the same own work on each rank, in milliseconds."""
    return [median(one["work_us"] for one in rounds) / 1e3 for rounds in found["arrivals"]]
