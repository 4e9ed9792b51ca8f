"""Step rows as Parquet, where pyarrow is installed.

Columns are handed to Arrow as memory and not as Python lists: turning a list into an Arrow array
makes pyarrow import pandas, which is not wanted in somebody's training process.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from steptax.connectors.recorder.columns import STEPS
from steptax.connectors.recorder.rows import Columns

_ZERO = {"int": ("q", 0), "int32": ("i", 0), "real": ("d", 0.0)}


def steps_encoder() -> Callable[[Columns, int], bytes]:
    """Encoder of ``steps``: columns and number of rows to the bytes of a file.

    zstd at level 1, integers delta-encoded, text by dictionary: a dozen bytes a row. Columns that
    are absent are null. Raises ImportError without pyarrow.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {"text": pa.string(), "int": pa.int64(), "int32": pa.int32(), "real": pa.float64()}
    schema = pa.schema([pa.field(c.name, types[c.kind], nullable=not c.required) for c in STEPS])

    def arrow(kind: str, values: Sequence[Any] | None, rows: int) -> Any:
        if values is None or all(value is None for value in values):
            return pa.nulls(rows, types[kind])
        buffers = [None if data is None else pa.py_buffer(data) for data in memory(kind, values)]
        return pa.Array.from_buffers(types[kind], rows, buffers)

    def encode(columns: Columns, rows: int) -> bytes:
        out = pa.BufferOutputStream()
        pq.write_table(
            pa.Table.from_arrays(
                [arrow(c.kind, columns.get(c.name), rows) for c in STEPS], schema=schema
            ),
            out,
            compression="zstd",
            compression_level=1,
            use_dictionary=[c.name for c in STEPS if c.kind == "text"],
            column_encoding={
                c.name: "DELTA_BINARY_PACKED" for c in STEPS if c.kind.startswith("int")
            },
        )
        data: bytes = out.getvalue().to_pybytes()
        return data

    return encode


def memory(kind: str, values: Sequence[Any]) -> list[Any]:
    """The buffers of an Arrow array, in its order: which are not null, offsets of text, data."""
    known = _bits([value is not None for value in values])
    if kind == "text":
        texts = [("" if value is None else value).encode() for value in values]
        return [known, array("i", accumulate(map(len, texts), initial=0)), b"".join(texts)]
    code, zero = _ZERO[kind]
    return [known, array(code, [zero if value is None else value for value in values])]


def _bits(flags: Sequence[bool]) -> bytes | None:
    """``flags`` as bits, the first in the lowest; None when all are set."""
    if all(flags):
        return None
    bits = bytearray((len(flags) + 7) // 8)
    for place, flag in enumerate(flags):
        if flag:
            bits[place >> 3] |= 1 << (place & 7)
    return bytes(bits)
