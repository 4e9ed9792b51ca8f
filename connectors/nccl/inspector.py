"""``nccl-inspector``: what NCCL's profiler plugin logs of each collective on each rank."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from steptax.app.errors import InputError
from steptax.app.schema import Batch, Reject
from steptax.connectors.base import Capabilities, Connector, Options, RawChunk, Run
from steptax.connectors.nccl.communicators import CommunicatorFacts
from steptax.connectors.nccl.inspector_prom import is_prometheus, prometheus_batches
from steptax.connectors.nccl.names import operation, send_recv
from steptax.connectors.sources import TextBlock, blocks, head, text_of, whole_lines
from steptax.connectors.tables.facts import rows_of
from steptax.connectors.values import (
    BadValueError,
    optional_number,
    real_number,
    text_value,
    whole_number,
)
from steptax.connectors.wholefile import job_of

_MARKS = ('"coll_perf"', '"p2p_perf"', '"coll_sn"', '"p2p_sn"')
#: An object begins on a line of its own, at its first column.
_BEGIN = re.compile(r"^\{", re.MULTILINE)
_SOMETHING = re.compile(r"\S")
#: Operations whose logged size is that of one rank's part.
_PER_RANK = {"all_gather", "reduce_scatter"}
#: 285 years in microseconds; every whole number up to it is exact in a double.
_FAR_US = 2.0**53


@dataclass(frozen=True)
class InspectorChunk:
    """Payload of a chunk: whole objects, or lines of metrics."""

    block: TextBlock
    job_id: str
    prometheus: bool


class NcclInspectorConnector(Connector):
    """Logs and metrics of NCCL Inspector."""

    kind = "nccl-inspector"
    version = 2
    title = "NCCL Inspector: each collective on each rank; JSON logs and .prom files"
    in_folder = ("*.log", "*.log.gz", "*.prom", "*.json", "*.jsonl")
    doc = (
        "Logs of NCCL's profiler plugin (NCCL_PROFILER_PLUGIN=libnccl-profiler-inspector.so, "
        "NCCL_INSPECTOR_ENABLE=1), one file per process, HOST-pidPID.log: JSON objects, one per "
        "line or pretty-printed, also packed by gzip. A folder of them is read whole.\n"
        "Fields: header (id, rank, n_ranks, nnodes, comm_name), metadata (hostname, pid, "
        "dump_timestamp_us) and coll_perf (coll, coll_sn, coll_msg_size_bytes, "
        "coll_exec_time_us, coll_timing_source, coll_algobw_gbs, coll_busbw_gbs) or p2p_perf; "
        "also flat, and with exec times as fractions. 'nan' is unknown. Verbose logs also give "
        "when each rank issued and started it.\n"
        "rank is the rank inside the communicator. Ranks are joined by communicator, operation "
        "and sequence number. The time of a rank includes waiting for its peers, so the rank "
        "that comes last has the shortest. Sizes of all-gather and reduce-scatter are logged per "
        "rank and stored as the whole.\n"
        "Metrics (nccl_inspector_metrics_GPU.prom) go to bench_results, by size bucket; with the "
        "older labels (comm_id, rank, coll_sn) to collectives.\n"
        "Job: the folder, or the Slurm job that it is named after (nccl-inspector-JOB); else "
        "--job."
    )

    def probe(self, source: Path, options: Options) -> Capabilities:
        """Look for a record of the plugin in the head of the file."""
        text = head(source).decode("utf-8", "replace")
        if not is_prometheus(text) and not any(mark in text for mark in _MARKS):
            raise InputError(
                "holds no record of NCCL Inspector: no coll_perf, p2p_perf or nccl_ metric",
                where=str(source),
                hint="name the HOST-pidPID.log files of NCCL_INSPECTOR_DUMP_DIR; they are written "
                "when a communicator ends, or every NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_"
                "MICROSECONDS",
            )
        return Capabilities(
            tables=("collectives", "communicators", "bench_results"),
            level=3,
            sees="per communicator and operation: which rank came last, bandwidth by size, "
            "missing ranks and records",
            cannot_see="the step, computing, global ranks (unless host and pid of the ranks are "
            "known), messages below 8 KiB, stalls before the collective",
        )

    def begin(self, source: Path, options: Options) -> Run:
        """Each communicator and rank is told once."""
        return CommunicatorFacts()

    def fetch(self, source: Path, options: Options) -> Iterator[RawChunk]:
        """The log in stretches of whole objects, of about 4 MiB."""
        prometheus = is_prometheus(head(source).decode("utf-8", "replace"))
        job_id = options.job_id or job_of(source, by_folder=True)
        for block in blocks(source, cut_at=whole_lines if prometheus else _cut_before_object):
            chunk = InspectorChunk(block, job_id, prometheus)
            yield RawChunk(str(source), block.first_line, chunk)

    def parse(self, raw: RawChunk, options: Options) -> list[Batch]:
        """Rows of ``collectives`` and ``communicators``."""
        chunk: InspectorChunk = raw.payload
        broken = [Reject("collectives", b.reason, b.row, None, b.raw) for b in chunk.block.broken]
        text = chunk.block.data.decode("utf-8", "surrogateescape")
        job_id = options.job_id or chunk.job_id
        if chunk.prometheus:
            return prometheus_batches(text, chunk.block.first_line, job_id, broken)
        rows: list[dict[str, Any]] = []
        communicators: dict[tuple[str, int], dict[str, Any]] = {}
        rejects = broken
        for line, found in _objects(text, chunk.block.first_line):
            if isinstance(found, Reject):
                rejects.append(found)
                continue
            try:
                row, communicator = _read(found, job_id)
            except BadValueError as bad:
                rejects.append(Reject("collectives", str(bad), line, bad.field, _raw(found)))
                continue
            rows.append(row | {"source_row": line})
            communicators[row["comm_id"], row["rank"]] = communicator | {"source_row": line}
        rejects.sort(key=lambda reject: reject.row or 0)
        return [
            Batch("collectives", rows_of("collectives", rows), tuple(rejects)),
            Batch("communicators", rows_of("communicators", list(communicators.values()))),
        ]


def _cut_before_object(data: bytes, cut: int) -> int:
    """A cut where an object begins, so that none is cut; 0 where none does."""
    return data.rfind(b"\n{", 0, cut) + 1


def _objects(text: str, first_line: int) -> Iterator[tuple[int, dict[str, Any] | Reject]]:
    """Objects of a text with their line; whatever is none of them as one reject each.

    After a fault reading goes on at the next line that begins with ``{``.
    """
    at = 0
    line = first_line
    while True:
        begins = _SOMETHING.search(text, at)
        if begins is None:
            return
        start = begins.start()
        line += text.count("\n", at, start)
        found, end = _decode(text, start)
        if isinstance(found, str):
            follows = _BEGIN.search(text, start + 1)
            end = follows.start() if follows else len(text)
            raw = text_of(text[start:end].encode("utf-8", "surrogateescape"))
            yield line, Reject("collectives", found, line, None, raw)
        else:
            yield line, found
        line += text.count("\n", start, end)
        at = end


def _decode(text: str, start: int) -> tuple[dict[str, Any] | str, int]:
    """The object that begins at ``start`` and its end; or why there is none."""
    if text[start] != "{":
        return "expected a JSON object, found something else", start
    try:
        found, end = _DECODER.raw_decode(text, start)
    except RecursionError:
        return "expected a flat object, found deep nesting", start
    except ValueError as error:
        return f"expected a JSON object, found none: {error}", start
    part = text[start:end]
    try:
        part.encode()
        if "\\ud" in part or "\\uD" in part:
            json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return "expected UTF-8 text, found other bytes or half of a character", start
    return found, end


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key occurs twice")
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_once)


def _raw(record: dict[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False)[:500]


def _read(record: dict[str, Any], job_id: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A row of ``collectives`` and one of ``communicators``; BadValueError where it is neither."""
    flat = {key: value for key, value in record.items() if not isinstance(value, dict)}
    for part in ("header", "metadata", "coll_perf", "p2p_perf"):
        inner = record.get(part)
        if isinstance(inner, dict):
            flat |= inner
    number = partial(optional_number, flat, small=True)
    comm_id = text_value(flat, "id") or text_value(flat, "comm_id")
    if comm_id is None:
        raise BadValueError("id", "the id of a communicator", flat.get("id"))
    rank = whole_number(flat, "rank", small=True)
    n_ranks = number("n_ranks", floor=1)
    if n_ranks is not None and rank >= n_ranks:
        raise BadValueError("rank", f"a rank below n_ranks = {n_ranks}", rank)
    name, op, seq, prefix = _operation(flat, rank)
    size = optional_number(flat, f"{prefix}_msg_size_bytes")
    bytes_ = _whole_bytes(op, size, n_ranks)
    duration = real_number(flat, f"{prefix}_exec_time_us")
    if duration is not None and duration >= _FAR_US:
        raise BadValueError(f"{prefix}_exec_time_us", "a duration", duration)
    times = record.get(f"{prefix}_perf", {}).get("event_trace_ts") if prefix else None
    issued, started = _times(times if isinstance(times, dict) else {}, prefix)
    place = {"job_id": job_id, "comm_id": comm_id, "rank": rank, "rank_scope": "communicator"}
    row = place | {
        "op": op,
        "seq": seq,
        "name": name,
        "bytes": bytes_,
        "n_ranks": n_ranks,
        "enqueued_us": issued,
        "start_us": started,
        # A time of 0 was not measured: no collective takes none.
        "duration_us": round(duration) or None if duration is not None else None,
        "timing": text_value(flat, f"{prefix}_timing_source"),
        "algbw_gb_per_s": real_number(flat, f"{prefix}_algobw_gbs"),
        "busbw_gb_per_s": real_number(flat, f"{prefix}_busbw_gbs"),
    }
    told = text_value(flat, "comm_name")
    communicator = place | {
        "name": None if told == "unknown" else told,
        "n_ranks": n_ranks,
        "n_nodes": number("nnodes", floor=1),
        "host": text_value(flat, "hostname"),
        "pid": optional_number(flat, "pid"),
        "device": text_value(flat, "gpu_uuid"),
    }
    return row, communicator


def _operation(flat: dict[str, Any], rank: int) -> tuple[str, str, int, str]:
    """Name as logged, operation, sequence number, and the prefix of its fields."""
    name = text_value(flat, "coll")
    if name is not None:
        return name, operation(name), whole_number(flat, "coll_sn"), "coll"
    name = text_value(flat, "p2p")
    if name is None:
        raise BadValueError("coll", "coll_perf or p2p_perf", ", ".join(map(str, flat))[:80])
    what = name.lower().removeprefix("nccl")
    if what not in {"send", "recv"}:
        raise BadValueError("p2p", "Send or Recv", name)
    peer = whole_number(flat, "p2p_peer", small=True)
    return name, send_recv(what, rank, peer), whole_number(flat, "p2p_sn"), "p2p"


def _whole_bytes(op: str, size: int | None, n_ranks: int | None) -> int | None:
    """Bytes of the whole; None where the size of a part is known and the number of parts not."""
    if size is None or op not in _PER_RANK:
        return size
    if n_ranks is None:
        return None
    if size * n_ranks >= 2**63:
        raise BadValueError(
            "coll_msg_size_bytes", "a size of which all ranks hold less than 8 EiB", size
        )
    return size * n_ranks


def _times(times: dict[str, Any], prefix: str) -> tuple[int | None, int | None]:
    """When the rank issued the operation, and when its first kernel started, in epoch us."""
    issued = optional_number(times, f"{prefix}_start_ts")
    kernels = times.get("kernel_events")
    starts = [
        start
        for event in (kernels if isinstance(kernels, list) else [])
        if isinstance(event, dict)
        and (start := optional_number(event, "kernel_start_ts")) is not None
    ]
    # 0 = not recorded.
    return issued or None, min((s for s in starts if s > 0), default=None)
