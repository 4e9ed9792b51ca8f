"""Rows of ``ops``, ``steps`` and ``collectives`` from the timeline of one rank."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from steptax.app.intervals import Ints
from steptax.app.schema import table
from steptax.connectors.kineto.fields import DEVICE, Kind
from steptax.connectors.kineto.groups import fill_groups
from steptax.connectors.kineto.header import Header
from steptax.connectors.kineto.names import COLLECTIVE
from steptax.connectors.kineto.timeline import Events, Steps, phases, ready_ns

#: Operation types besides the communications.
STEP, READY = "step", "ready"
_TYPES = {
    Kind.STEP: STEP,
    Kind.KERNEL: "kernel",
    Kind.H2D: "h2d-copy",
    Kind.COPY: "copy",
    Kind.MEMSET: "memset",
    Kind.INPUT: "input",
    Kind.HOST: "cpu",
}
#: Collectives of one communicator in a step are numbered below this, steps above.
_PER_STEP = 1_000_000
_SIZE = re.compile(r"/(\d+)$")


@dataclass(frozen=True, eq=False)
class RankRows:
    """What one trace gives; ``outside`` counts device work that belongs to no step."""

    ops: pa.Table
    steps: pa.Table
    collectives: pa.Table
    communications: int
    unlabelled: int
    outside: int
    notes: tuple[str, ...]


def rank_rows(
    events: Events, steps: Steps, header: Header, key: Mapping[str, Any], *, whole: bool
) -> RankRows:
    """Rows of the rank; ``key`` has job_id, attempt and rank.

    Of a trace that is not ``whole`` the phases are not known, nor whether a step has all of its
    operations: its ops have no step boundaries then.
    """
    device = events.on_device
    comm_kind = Kind.COMM if device else Kind.HOST_COMM
    kinds = [*DEVICE, Kind.INPUT] if device else [Kind.HOST_COMM, Kind.HOST, Kind.INPUT]
    wanted = np.isin(events.kind, [int(k) for k in kinds])
    place = steps.at(events.launch_ns)
    rows = np.flatnonzero(wanted & (place >= 0))
    outside = int((wanted & (place < 0) & (events.kind != Kind.INPUT)).sum())
    comm = rows[events.kind[rows] == comm_kind]
    labels = events.table.strings("group", comm)
    labels, note = fill_groups(labels, events.lane[comm], header.groups, gloo=not device)
    op = events.table.strings("op", comm)
    seq = _numbers(labels, op, place[comm])
    parts = [_operations(events, steps, place, rows, comm, op, labels, seq)]
    parts.append(_ready(events, steps, place, comm, op, labels, seq))
    if whole:
        parts.append(_boundaries(steps))
    return RankRows(
        _ops(parts, header, key),
        _steps(events, steps, key, whole=whole),
        _collectives(events, place, comm, op, labels, seq, steps, key),
        len(comm),
        sum(label is None for label in labels),
        outside,
        () if note is None else (note,),
    )


#: Operation type by kind, as an array that kinds index.
_TYPE_OF = np.array([_TYPES.get(kind) for kind in Kind], dtype=object)
Texts = list[str | None]


def _operations(
    events: Events,
    steps: Steps,
    place: Ints,
    rows: Ints,
    comm: Ints,
    op: Texts,
    labels: Texts,
    seq: list[int],
) -> pa.Table:
    """The events ``rows``, of which ``comm`` are communications."""
    op_type = _TYPE_OF[events.kind[rows]]
    group = np.full(len(rows), None, dtype=object)
    number = np.full(len(rows), -1, np.int64)
    at = np.searchsorted(rows, comm)
    op_type[at] = [name or COLLECTIVE for name in op]
    group[at] = labels
    number[at] = seq
    return pa.table(
        {
            "step": steps.number[place[rows]],
            "op_type": pa.array(op_type, pa.string()),
            "name": _texts(events, "name", rows),
            "stream": pc.cast(pa.array(events.lane[rows]), pa.string()),
            "group": pa.array(group, pa.string()),
            "seq": pa.array(number, mask=number < 0),
            "bytes": _sizes(events, rows),
            "start_ns": events.start_ns[rows],
            "duration_ns": events.end_ns[rows] - events.start_ns[rows],
            "launch_ns": pa.array(events.launch_ns[rows], mask=~events.launched[rows]),
            "source_row": events.table.column("row")[rows],
        }
    )


def _texts(events: Events, name: str, rows: Ints) -> pa.Array:
    """The texts of a field of the events ``rows``, which are many and few of them different."""
    codes = events.table.rows[name][rows]
    known = pa.array(events.table.texts, pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), known).cast(pa.string())


def _sizes(events: Events, rows: Ints) -> pa.Array:
    """Bytes of the messages of the events ``rows``, null where unknown."""
    size = events.table.column("bytes")[rows]
    return pa.array(size, mask=size < 0)


def _ready(
    events: Events,
    steps: Steps,
    place: Ints,
    comm: Ints,
    op: Texts,
    labels: Texts,
    seq: list[int],
) -> pa.Table:
    """The moments at which communications could have begun on this rank, as far as known."""
    moment = ready_ns(events, comm)
    known = np.flatnonzero(moment >= 0)
    rows = comm[known]
    return pa.table(
        {
            "step": steps.number[place[rows]],
            "op_type": pa.array([READY] * len(rows), pa.string()),
            "name": pa.array([op[i] or COLLECTIVE for i in known.tolist()], pa.string()),
            "stream": pc.cast(pa.array(events.lane[rows]), pa.string()),
            "group": pa.array([labels[i] for i in known.tolist()], pa.string()),
            "seq": pa.array([seq[i] for i in known.tolist()], pa.int64()),
            "bytes": pa.nulls(len(rows), pa.int64()),
            "start_ns": moment[known],
            "duration_ns": np.zeros(len(rows), np.int64),
            "launch_ns": pa.nulls(len(rows), pa.int64()),
            "source_row": events.table.column("row")[rows],
        }
    )


def _boundaries(steps: Steps) -> pa.Table:
    """The steps themselves."""
    count = len(steps.number)
    return pa.table(
        {
            "step": steps.number,
            "op_type": pa.array([STEP] * count, pa.string()),
            "name": pa.array([f"ProfilerStep#{n}" for n in steps.number.tolist()], pa.string()),
            "stream": pa.array(["host"] * count, pa.string()),
            "group": pa.nulls(count, pa.string()),
            "seq": pa.nulls(count, pa.int64()),
            "bytes": pa.nulls(count, pa.int64()),
            "start_ns": steps.start_ns,
            "duration_ns": steps.end_ns - steps.start_ns,
            "launch_ns": pa.nulls(count, pa.int64()),
            "source_row": steps.row,
        }
    )


def _ops(parts: list[pa.Table], header: Header, key: Mapping[str, Any]) -> pa.Table:
    """All rows in the order of step and start, numbered inside each step."""
    spec = table("ops")
    out = pa.concat_tables(parts).sort_by(
        [(name, "ascending") for name in ("step", "start_ns", "source_row", "op_type")]
    )
    step = out["step"].to_numpy()
    first = np.searchsorted(step, step) if len(step) else step
    out = out.append_column("op_id", pa.array(np.arange(len(step)) - first, pa.int64()))
    constants: dict[str, Any] = {"job_id": key["job_id"], "rank": key["rank"]}
    places = header.places(key["rank"])
    constants |= {name: places[name][0] for name in ("dp", "pp") if name in places}
    for name, value in constants.items():
        kind = spec.column(name).type
        out = out.append_column(name, pa.repeat(pa.scalar(value, kind), len(step)))
    return out


def _numbers(labels: list[str | None], op: list[str | None], place: Ints) -> list[int]:
    """Number of each communication in its step and group; without a group, in its type."""
    count: dict[tuple[Any, ...], int] = {}
    out = []
    for label, what, step in zip(labels, op, place.tolist(), strict=True):
        key = (step, label) if label is not None else (step, None, what)
        out.append(count.get(key, 0))
        count[key] = out[-1] + 1
    return out


def _steps(events: Events, steps: Steps, key: Mapping[str, Any], *, whole: bool) -> pa.Table:
    spec = table("steps")
    count = len(steps.number)
    duration = np.rint((steps.end_ns - steps.start_ns) / 1000).astype(np.int64)
    out: dict[str, pa.Array] = {
        n: pa.repeat(pa.scalar(v, spec.column(n).type), count) for n, v in key.items()
    }
    out["step"] = pa.array(steps.number)
    out["start_us"] = pa.array(steps.start_ns // 1000)
    out["duration_us"] = pa.array(duration)
    out["source_row"] = pa.array(steps.row)
    if whole and count:
        found = phases(events, steps)
        for name in ("compute", "comm", "h2d", "input", "other"):
            values = [getattr(p, f"{name}_ns") for p in found]
            out[f"{name}_us"] = pa.array(
                [None if v is None else v // 1000 for v in values], pa.int64()
            )
    return pa.table(out)


def _collectives(
    events: Events,
    place: Ints,
    comm: npt.NDArray[np.intp],
    op: list[str | None],
    labels: list[str | None],
    seq: list[int],
    steps: Steps,
    key: Mapping[str, Any],
) -> pa.Table:
    spec = table("collectives")
    keep = [i for i, label in enumerate(labels) if label is not None]
    rows = comm[keep]
    number = steps.number[place[rows]].tolist()
    size = [_SIZE.search(labels[i] or "") for i in keep]
    start = events.start_ns[rows]
    columns: dict[str, Any] = {
        "comm_id": [labels[i] for i in keep],
        "seq": [n * _PER_STEP + seq[i] for n, i in zip(number, keep, strict=True)],
        "op": [(op[i] or COLLECTIVE).replace("-", "_") for i in keep],
        "dtype": events.table.strings("dtype", rows),
        "bytes": _sizes(events, rows),
        "name": _texts(events, "name", rows),
        "rank_scope": ["global"] * len(keep),
        "enqueued_us": np.where(events.launched[rows], events.launch_ns[rows] // 1000, -1),
        "timing": ["kernel_gpu" if events.on_device else "collective_cpu"] * len(keep),
        "n_ranks": [int(s[1]) if s else None for s in size],
        "start_us": start // 1000,
        "duration_us": np.rint((events.end_ns[rows] - start) / 1000).astype(np.int64),
        "source_row": events.table.column("row")[rows],
        "job_id": [key["job_id"]] * len(keep),
        "rank": [key["rank"]] * len(keep),
    }
    out = {
        n: v if isinstance(v, pa.Array) else pa.array(v, spec.column(n).type)
        for n, v in columns.items()
    }
    asked = out["enqueued_us"]
    out["enqueued_us"] = pc.if_else(pc.greater_equal(asked, 0), asked, None)
    return pa.table(out)
