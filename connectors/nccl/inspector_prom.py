"""The Prometheus form of NCCL Inspector: gauges with labels, one line each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from steptax.app.schema import Batch, Reject
from steptax.connectors.nccl.names import operation
from steptax.connectors.prometheus.exposition import labels_of, line_of
from steptax.connectors.sources import text_of
from steptax.connectors.tables.facts import rows_of
from steptax.connectors.values import (
    BadValueError,
    optional_number,
    real_number,
    text_value,
    whole_number,
)
from steptax.connectors.wholefile import numbered

#: Gauge -> what it measures and its unit.
GAUGES = {
    "nccl_bus_bandwidth_gbs": ("busbw", "GB/s"),
    "nccl_algo_bandwidth_gbs": ("algbw", "GB/s"),
    "nccl_algorithm_bandwidth_gbs": ("algbw", "GB/s"),
    "nccl_collective_exec_time_microseconds": ("time", "us"),
    "nccl_p2p_bus_bandwidth_gbs": ("busbw", "GB/s"),
    "nccl_p2p_exec_time_microseconds": ("time", "us"),
}
COLUMN = {"busbw": "busbw_gb_per_s", "algbw": "algbw_gb_per_s", "time": "duration_us"}
_PLACE = re.compile(r"(?:GPU)?[ -]?\d{1,3}", re.IGNORECASE)
_METRIC = re.compile(r"\s*nccl_\w+\{")


def is_prometheus(text: str) -> bool:
    """Whether a file begins with a metric of the plugin."""
    lines = (line for line in text.splitlines() if line.strip() and not line.startswith("#"))
    return _METRIC.match(next(lines, "")) is not None


def prometheus_batches(
    text: str, first_line: int, job_id: str, rejects: list[Reject]
) -> list[Batch]:
    """Gauges as rows of ``bench_results``; those of one collective on one rank as ``collectives``.

    The newer labels name neither rank nor sequence number, so such a gauge is a figure of a
    device for a size bucket.
    """
    results: list[dict[str, Any]] = []
    joined: dict[tuple[str, str, int, int], dict[str, Any]] = {}
    for number, line in numbered(text):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        row = first_line + number - 1
        try:
            name, labels, value = _split(line)
            what, unit = GAUGES[name]
            if value is None:
                continue
            if "coll_sn" in labels:
                found = collective_of(labels, job_id)
                key = (found["comm_id"], found["op"], found["seq"], found["rank"])
                known = joined.setdefault(key, found | {"source_row": row})
                known[COLUMN[what]] = round(value) if what == "time" else value
            else:
                found = result_of(labels, what, unit, job_id)
                results.append(found | {"value": value, "source_row": row})
        except BadValueError as bad:
            raw = text_of(line.encode("utf-8", "surrogateescape"))
            rejects.append(Reject("bench_results", str(bad), row, bad.field, raw))
    rejects.sort(key=lambda reject: reject.row or 0)
    return [
        Batch("bench_results", rows_of("bench_results", results), tuple(rejects)),
        Batch("collectives", rows_of("collectives", list(joined.values()))),
    ]


def _split(line: str) -> tuple[str, dict[str, str], float | None]:
    found = line_of(line)
    if found.name not in GAUGES:
        raise BadValueError("metric", f"one of {', '.join(GAUGES)}", found.name)
    return found.name, labels_of(found.labels), real_number({"value": found.value}, "value")


def _what(labels: Mapping[str, str]) -> str:
    name = text_value(labels, "collective") or text_value(labels, "p2p_operation")
    if name is None:
        raise BadValueError(
            "collective", "the label collective or p2p_operation", ", ".join(labels)
        )
    return operation(name)


def collective_of(labels: Mapping[str, str], job_id: str) -> dict[str, Any]:
    """Which collective on which rank a series with older labels is of.

    BadValueError where the labels do not tell it.
    """
    comm_id = text_value(labels, "comm_id")
    if comm_id is None:
        raise BadValueError("comm_id", "the id of a communicator", labels.get("comm_id"))
    return {
        "job_id": job_id,
        "comm_id": comm_id,
        "op": _what(labels),
        "seq": whole_number(labels, "coll_sn"),
        "rank": whole_number(labels, "rank", small=True),
        "rank_scope": "communicator",
        "n_ranks": optional_number(labels, "nranks", floor=1, small=True),
    }


def _device(labels: Mapping[str, str]) -> str:
    """The uuid of the device; its place on its node where that is all that is told.

    ``gpu="GPU0"`` is a place: on every node there is one.
    """
    told = labels.get("gpu") or labels.get("gpu_device_id") or "unknown"
    node = labels.get("node") or labels.get("hostname")
    return f"{told} of {node}" if node and _PLACE.fullmatch(told) else told


def result_of(labels: Mapping[str, str], what: str, unit: str, job_id: str) -> dict[str, Any]:
    """Whose figure a series without sequence number is, but for its value.

    ``what`` and ``unit`` are those of its gauge. BadValueError where no label names the operation.
    """
    told = labels.get("slurm_job_id") or labels.get("slurm_job")
    group = labels.get("comm_name") or labels.get("comm_id") or "unknown"
    protocol = labels.get("algo_proto")
    return {
        "run_id": job_id if told in (None, "", "unknown") else told,
        "host": labels.get("node") or labels.get("hostname") or "unknown",
        "gpu_uuid": _device(labels),
        "test": f"inspector {_what(labels)} {what} in {group}"
        + (f" ({protocol})" if protocol else ""),
        "size": labels.get("message_size") or "unknown",
        "dtype": "any",
        "unit": unit,
        "ranks": optional_number(labels, "nranks", floor=1, small=True),
        "nodes": optional_number(labels, "n_nodes", floor=1, small=True),
    }
