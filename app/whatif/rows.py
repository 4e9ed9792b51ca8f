"""Operations as flat columns, read from Parquet or from the ``ops`` table without pandas."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from steptax.app.errors import InputError, NotFoundError
from steptax.app.whatif.optypes import FORWARD, KNOWN, canonical

Ints = npt.NDArray[np.integer[Any]]

#: Columns of the public artifact of Lin et al., OSDI'25, by ours.
FILE_COLUMNS: Mapping[str, str] = {
    "dp": "dp_rank",
    "stage": "stage",
    "rank": "rank",
    "step": "step",
    "op_type": "optype",
    "start": "start_ts",
    "duration": "duration",
    "seq": "seq_id",
    "chunk": "mc",
    "global_chunk": "gmc",
}
#: Columns of the lake's ``ops`` table, by ours.
LAKE_COLUMNS: Mapping[str, str] = {
    "dp": "dp",
    "stage": "pp",
    "rank": "rank",
    "step": "step",
    "op_type": "op_type",
    "start": "start_ns",
    "duration": "duration_ns",
    "seq": "seq",
    "chunk": "model_chunk",
    "global_chunk": "global_chunk",
}
_DEFAULT_POOL = pa.default_memory_pool()
_SCALES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


@dataclass(frozen=True)
class OpRows:
    """Columns of N operations.

    ``type_code`` indexes ``types``, in which some may not occur and some be twice. A chunk of -1
    means that none applies. ``start`` and ``duration`` are in units of ``unit_s`` seconds;
    ``resolution_s`` is the coarsest step between two start times that the source could hold.
    ``in_stream`` names unknown types that run on the compute stream. ``name`` is what ran, None
    where the source does not say.
    """

    types: tuple[str, ...]
    type_code: Ints
    dp: Ints
    stage: Ints
    rank: Ints
    step: Ints
    seq: Ints
    chunk: Ints
    global_chunk: Ints
    start: npt.NDArray[Any]
    duration: npt.NDArray[Any]
    unit_s: float
    resolution_s: float
    in_stream: frozenset[str] = frozenset()
    name: npt.NDArray[np.str_] | None = None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.type_code)

    def only(self, mask: npt.NDArray[np.bool_]) -> OpRows:
        """The rows where ``mask`` holds."""
        columns: dict[str, Any] = {
            f.name: value[mask]
            for f in fields(self)
            if isinstance(value := getattr(self, f.name), np.ndarray)
        }
        return replace(self, **columns)


def rows_from_parquet(path: Path, *, unit: str = "s", in_stream: Collection[str] = ()) -> OpRows:
    """Rows of a per-operation Parquet file with the columns of ``FILE_COLUMNS``.

    ``unit`` is that of start and duration. NotFoundError when there is no file; InputError when it
    is no Parquet file, lacks a column or has no rows.
    """
    where = str(path)
    if not path.is_file():
        raise NotFoundError("no such file", where=where)
    try:
        with _plain_memory(), pq.ParquetFile(path, memory_map=True, pre_buffer=False) as file:
            have = set(file.schema_arrow.names)
            wanted = [c for c in (*FILE_COLUMNS.values(), "stream", "name") if c in have]
            # One thread: the columns are few and small, and starting threads costs more.
            table = file.read(columns=wanted, use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f"cannot be read as Parquet: {str(error).splitlines()[0][:200]}",
            where=where,
            hint="give the Parquet file of operations",
        ) from error
    return rows_from_arrow(
        table, FILE_COLUMNS, unit=unit, in_stream=in_stream, where=where, required=True
    )


@contextmanager
def _plain_memory() -> Iterator[None]:
    """Let Arrow allocate from the C library, which gives decoding buffers back at once.

    Its own allocator kept 13 to 20 MiB more of a trace of 118,000 operations, and took a third
    longer. Arrow knows one allocator for the process: what other threads read meanwhile comes from
    it too, which does them no harm.
    """
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(_DEFAULT_POOL)


def rows_from_lake(
    table: pa.Table, *, in_stream: Collection[str] = (), where: str = "ops"
) -> OpRows:
    """Rows of the ``ops`` table of one job; see ``rows_from_arrow``."""
    one_job(table, where)
    return rows_from_arrow(table, LAKE_COLUMNS, unit="ns", in_stream=in_stream, where=where)


def one_job(table: pa.Table, where: str = "ops") -> None:
    """InputError unless all rows are of one job."""
    jobs = _distinct_jobs(table)
    if len(jobs) > 1:
        raise InputError(
            f"expected one job, found {len(jobs)}: {', '.join(jobs[:3])}",
            where=where,
            hint="give the operations of one job",
        )


def rows_from_arrow(
    table: pa.Table,
    names: Mapping[str, str],
    *,
    unit: str,
    in_stream: Collection[str] = (),
    where: str = "ops",
    required: bool = False,
) -> OpRows:
    """Columns of ``table``, called as ``names`` says, as numpy arrays.

    With ``required`` every column must be there; otherwise dp, stage, seq and the chunks may be
    absent or null and are then derived: no stage means one stage, no dp means that each rank is
    its own data-parallel rank, no sequence number means the order of starts.
    InputError names missing columns, unknown units, null cells, and empty tables.
    """
    if unit not in _SCALES:
        raise InputError(f"unknown unit {unit!r}", where=where, hint="one of s, ms, us, ns")
    have = set(table.column_names)
    optional = () if required else ("dp", "stage", "seq", "chunk", "global_chunk")
    missing = [c for key, c in names.items() if c not in have and key not in optional]
    if missing:
        raise InputError(
            f"no column {', '.join(missing)}; there are {', '.join(table.column_names)}",
            where=where,
            hint="every operation needs its type, place, step, start and duration",
        )
    if table.num_rows == 0:
        raise InputError("no operations", where=where, hint="record at least one step")
    types, code = _types(table.column(names["op_type"]), f"{where}, {names['op_type']}")
    notes: list[str] = []
    column: dict[str, npt.NDArray[Any]] = {"type_code": code}
    for key in ("rank", "step", "start", "duration"):
        values, valid = numbers(table.column(names[key]), f"{where}, {names[key]}")
        if valid is not None:
            row = int(np.argmin(valid))
            raise InputError("empty cell", where=f"{where}, {names[key]}, row {row + 1}")
        column[key] = values
    for key in ("chunk", "global_chunk"):
        column[key] = _filled(table, names[key], -1, where)
    column["stage"] = _place(table, names["stage"], where, None)
    column["dp"] = _place(table, names["dp"], where, column["rank"])
    if names["dp"] not in have or table.column(names["dp"]).null_count:
        notes.append("no data-parallel rank recorded: each rank counts as its own")
    seq = _filled(table, names["seq"], -1, where)
    if (seq < 0).any():
        seq = _sequence(column)
        notes.append("no sequence numbers recorded: taken from the order of starts")
    column["seq"] = seq
    start = column["start"]
    resolution = 0.0
    if start.dtype.kind == "f":
        largest = np.abs(start).max(initial=0)
        resolution = float(np.spacing(largest)) * _SCALES[unit]
    return OpRows(
        types=types,
        unit_s=_SCALES[unit],
        resolution_s=resolution,
        in_stream=frozenset(canonical(t) for t in in_stream) | _compute_stream(table, types, code),
        name=_names(table),
        notes=tuple(notes),
        **column,
    )


def numbers(
    column: pa.ChunkedArray, where: str
) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_] | None]:
    """Values of a numeric column, and where they are valid (None: everywhere).

    Through the buffers, since ``to_numpy`` imports pandas. InputError when it is not numeric.
    """
    parts = [_chunk_numbers(c, where) for c in column.chunks if len(c)]
    values = [p[0] for p in parts]
    if not values:
        return np.zeros(0), None
    array = values[0] if len(values) == 1 else np.concatenate(values)
    if all(p[1] is None for p in parts):
        return array, None
    valid = [np.ones(len(v), bool) if ok is None else ok for v, ok in parts]
    return array, np.concatenate(valid)


def _chunk_numbers(
    array: pa.Array, where: str
) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_] | None]:
    if not (pa.types.is_integer(array.type) or pa.types.is_floating(array.type)):
        raise InputError(f"expected numbers, found {array.type}", where=where)
    dtype = np.dtype(array.type.to_pandas_dtype())
    bits, data = array.buffers()
    values = np.frombuffer(data, dtype, count=array.offset + len(array))[array.offset :]
    if not array.null_count:
        return values, None
    flags = np.unpackbits(
        np.frombuffer(bits, np.uint8), count=array.offset + len(array), bitorder="little"
    )
    return values, flags[array.offset :].astype(bool)


def _filled(table: pa.Table, name: str, missing: int, where: str) -> npt.NDArray[Any]:
    """An integer column with ``missing`` in empty cells, or everywhere when it is absent."""
    if name not in table.column_names or table.column(name).null_count == table.num_rows:
        return np.full(table.num_rows, missing, np.int32)
    values, valid = numbers(table.column(name), f"{where}, {name}")
    if values.dtype.kind == "u":
        values = values.astype(np.int64)
    return values if valid is None else np.where(valid, values, missing)


def _place(
    table: pa.Table, name: str, where: str, otherwise: npt.NDArray[Any] | None
) -> npt.NDArray[Any]:
    """A coordinate of every row; ``otherwise`` (or zero) where none is recorded at all."""
    place = _filled(table, name, -1, where)
    empty = place < 0
    if not empty.any():
        return place
    if not empty.all():
        row = int(np.argmax(empty))
        raise InputError(
            "no place in the parallel layout",
            where=f"{where}, {name}, row {row + 1}",
            hint="record it for every operation or for none",
        )
    return np.zeros(len(place), np.int32) if otherwise is None else otherwise


def _types(column: pa.ChunkedArray, where: str) -> tuple[tuple[str, ...], Ints]:
    """Names of types, and which one each row has."""
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks)
    if not pa.types.is_dictionary(array.type):
        if not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
            raise InputError(f"expected names of operations, found {array.type}", where=where)
        array = array.dictionary_encode()
    if array.null_count:
        raise InputError(f"{array.null_count} operations have no type", where=where)
    codes, _ = _chunk_numbers(array.indices, where)
    return tuple([canonical(str(n)) for n in array.dictionary.to_pylist()]), codes


def _compute_stream(table: pa.Table, types: tuple[str, ...], code: Ints) -> frozenset[str]:
    """Unknown types that are recorded on the streams of forward computing and nowhere else."""
    unknown = [t for t in types if t not in KNOWN]
    if not unknown or "stream" not in table.column_names or FORWARD not in types:
        return frozenset()
    column = table.column("stream").combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks)
    stream = np.array(column.to_pylist(), dtype=object)
    op_type = np.array(types, dtype=object)[code]
    home = set(stream[op_type == FORWARD]) - {None}
    return frozenset(t for t in unknown if home and set(stream[op_type == t]) <= home)


def _names(table: pa.Table) -> npt.NDArray[np.str_] | None:
    if "name" not in table.column_names or table.column("name").null_count == table.num_rows:
        return None
    return np.array([n or "" for n in table.column("name").to_pylist()])


def _sequence(column: dict[str, npt.NDArray[Any]]) -> Ints:
    """Number of each operation inside its step, rank and type, in the order of starts."""
    keys = (column["step"], column["rank"], column["type_code"])
    order = np.lexsort((column["start"], *keys[::-1]))
    first = np.ones(len(order), bool)
    first[1:] = False
    for key in keys:
        first[1:] |= key[order][1:] != key[order][:-1]
    begin = np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))
    seq = np.empty(len(order), np.int64)
    seq[order] = np.arange(len(order)) - begin
    return seq


def _distinct_jobs(table: pa.Table) -> list[str]:
    if "job_id" not in table.column_names:
        return []
    return [str(j) for j in table.column("job_id").unique().to_pylist()]
