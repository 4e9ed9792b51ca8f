"""Writing rows into a lake: a segment is visible whole or not at all.

    <lake>/tables/<table>/job=<job id>/<segment>      steps, ranks, events
    <lake>/tables/jobs/<segment>

A segment is called ``live-<created us>-<first step>-<last step>-<rows>-<8 hex>`` with the suffix
``.parquet`` or ``.jsonl``. It is written under a name that begins with a dot, which no reader
lists, forced to the disk, and renamed.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from steptax.connectors.recorder.columns import TABLES, Column
from steptax.connectors.recorder.rows import Columns

#: Table, columns, number of rows -> the bytes of a segment.
Encoder = Callable[[str, Columns, int], bytes]


def job_folder(job_id: str) -> str:
    """Folder name of a job; any text is a valid job id."""
    return f"job={quote(job_id, safe='')}"


class SegmentWriter:
    """Appends segments of one job. ``steps`` come in the given encoding, the rest as JSON Lines."""

    def __init__(self, root: str, job_id: str, encoder: Encoder | None) -> None:
        self._tables = os.path.join(root, "tables")
        self._job_folder = job_folder(job_id)
        self._encoder = encoder

    def write(self, table: str, columns: Columns, rows: int, now_us: int) -> None:
        """Append ``rows`` rows, visible when this returns; absent columns are null.

        Raises OSError when the disk does not take them; nothing is visible then.
        """
        steps = columns["step"] if table == "steps" else (0,)
        encoder = self._encoder if table == "steps" and self._encoder else encode_json_lines
        suffix = "jsonl" if encoder is encode_json_lines else "parquet"
        unique = os.urandom(4).hex()
        name = f"live-{now_us:017d}-{min(steps)}-{max(steps)}-{rows}-{unique}.{suffix}"
        folder = os.path.join(self._tables, table)
        if table != "jobs":
            folder = os.path.join(folder, self._job_folder)
        write_whole(folder, name, encoder(table, columns, rows))


def encode_json_lines(table: str, columns: Columns, rows: int) -> bytes:
    """One JSON object a line with every column of ``table``."""
    names = [column.name for column in TABLES[table]]
    nothing = [None] * rows
    values = zip(*(columns.get(name, nothing) for name in names), strict=True)
    encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
    return "".join(f"{encode(dict(zip(names, row, strict=True)))}\n" for row in values).encode()


def parquet_encoder() -> Encoder:
    """The encoder that needs pyarrow; raises ImportError without it.

    zstd at level 1, integers delta-encoded, text by dictionary: a dozen bytes a row.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {
        "text": pa.string(),
        "int": pa.int64(),
        "int32": pa.int32(),
        "real": pa.float64(),
        "flag": pa.bool_(),
    }

    def field(column: Column) -> Any:
        return pa.field(column.name, kinds[column.kind], nullable=not column.required)

    schemas = {table: pa.schema([field(c) for c in columns]) for table, columns in TABLES.items()}

    def encode(table: str, columns: Columns, rows: int) -> bytes:
        schema = schemas[table]
        arrays = [
            pa.array(columns[f.name], f.type) if f.name in columns else pa.nulls(rows, f.type)
            for f in schema
        ]
        buffer = pa.BufferOutputStream()
        pq.write_table(
            pa.Table.from_arrays(arrays, schema=schema),
            buffer,
            compression="zstd",
            compression_level=1,
            use_dictionary=[c.name for c in TABLES[table] if c.kind == "text"],
            column_encoding={
                c.name: "DELTA_BINARY_PACKED" for c in TABLES[table] if c.kind.startswith("int")
            },
        )
        data: bytes = buffer.getvalue().to_pybytes()
        return data

    return encode


def write_whole(folder: str, name: str, data: bytes) -> None:
    """Write ``data`` to ``folder/name``, whole or not at all; raises OSError."""
    os.makedirs(folder, exist_ok=True)
    temporary = os.path.join(folder, f".{name}.tmp")
    try:
        _write_and_sync(temporary, data)
        os.rename(temporary, os.path.join(folder, name))
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    # The segment is visible from here on: a failure below must not make anybody write it again.
    with contextlib.suppress(OSError):
        _sync_folder(folder)


def replace_file(folder: str, name: str, data: bytes) -> None:
    """Replace ``folder/name`` by ``data`` for readers now; not forced to the disk."""
    os.makedirs(folder, exist_ok=True)
    temporary = os.path.join(folder, f".{name}.tmp")
    with open(temporary, "wb") as file:
        file.write(data)
    os.replace(temporary, os.path.join(folder, name))


def _write_and_sync(path: str, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    handle = os.open(path, flags, 0o666)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(handle, rest) :]
        os.fsync(handle)
    finally:
        os.close(handle)


def _sync_folder(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY)  # Windows opens no folders
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
