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
from urllib.parse import quote

from steptax.connectors.recorder.columns import TABLES
from steptax.connectors.recorder.rows import Columns

#: Columns, number of rows -> the bytes of a segment of ``steps``.
Encoder = Callable[[Columns, int], bytes]


def job_folder(job_id: str) -> str:
    """Folder name of a job; any text is a valid job id."""
    return f"job={quote(job_id, safe='')}"


class SegmentWriter:
    """Appends segments of one job: ``steps`` by ``encoder`` as Parquet, the rest as JSON Lines.

    Without an encoder everything is JSON Lines.
    """

    def __init__(self, root: str, job_id: str, encoder: Encoder | None) -> None:
        self._tables = os.path.join(root, "tables")
        self._job_folder = job_folder(job_id)
        self._encoder = encoder

    def write(self, table: str, columns: Columns, rows: int, now_us: int) -> None:
        """Append ``rows`` rows, visible when this returns; absent columns are null.

        Raises OSError when the disk does not take them; nothing is visible then.
        """
        data, suffix = encode_segment(table, columns, rows, self._encoder)
        name, _, _ = segment_name(table, columns, rows, now_us, suffix)
        folder = os.path.join(self._tables, table)
        if table != "jobs":
            folder = os.path.join(folder, self._job_folder)
        write_whole(folder, name, data)


def encode_segment(
    table: str, columns: Columns, rows: int, encoder: Encoder | None
) -> tuple[bytes, str]:
    """The bytes of a segment, and the suffix of its name."""
    if table == "steps" and encoder is not None:
        return encoder(columns, rows), "parquet"
    return encode_json_lines(table, columns, rows), "jsonl"


def segment_name(
    table: str, columns: Columns, rows: int, now_us: int, suffix: str
) -> tuple[str, int, int]:
    """A new name, and the first and last step that it says."""
    steps = columns["step"] if table == "steps" else (0,)
    first, last = min(steps), max(steps)
    unique = os.urandom(4).hex()
    return f"live-{now_us:017d}-{first}-{last}-{rows}-{unique}.{suffix}", first, last


def encode_json_lines(table: str, columns: Columns, rows: int) -> bytes:
    """One JSON object a line with every column of ``table``."""
    names = [column.name for column in TABLES[table]]
    nothing = [None] * rows
    values = zip(*(columns.get(name, nothing) for name in names), strict=True)
    encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
    return "".join(f"{encode(dict(zip(names, row, strict=True)))}\n" for row in values).encode()


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
