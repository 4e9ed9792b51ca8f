"""Between Arrow and NumPy without pandas, which Arrow's own conversions import.

It takes longer to import than a small trace to read, and more memory than one to hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from steptax.app.intervals import Ints

Bools = npt.NDArray[np.bool_]
_ARROW = {"i1": pa.int8(), "i4": pa.int32(), "i8": pa.int64()}


def to_arrow(values: npt.NDArray[Any], valid: Bools | None = None) -> pa.Array:
    """Whole numbers or truths [N] as an array, null where not ``valid``."""
    bits = None if valid is None else _bits(valid)
    if values.dtype == np.bool_:
        return pa.Array.from_buffers(pa.bool_(), len(values), [bits, _bits(values)])
    data = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(_ARROW[values.dtype.str[1:]], len(values), [bits, data])


def to_numpy(column: pa.ChunkedArray | pa.Array) -> Ints:
    """Whole numbers [N]; what is null is any number."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    parts = [_values(chunk) for chunk in chunks]
    return np.concatenate(parts, dtype=np.int64) if parts else np.zeros(0, np.int64)


def is_valid(column: pa.ChunkedArray) -> Bools:
    """[N] where ``column`` is not null."""
    parts = []
    for chunk in column.chunks:
        bits, length = chunk.buffers()[0], chunk.offset + len(chunk)
        if bits is None:
            parts.append(np.ones(len(chunk), bool))
            continue
        flags = np.unpackbits(np.frombuffer(bits, np.uint8), count=length, bitorder="little")
        parts.append(flags[chunk.offset :].astype(bool))
    return np.concatenate(parts) if parts else np.zeros(0, bool)


def _values(array: pa.Array) -> npt.NDArray[Any]:
    kind = np.dtype(f"i{array.type.bit_width // 8}")
    data = array.buffers()[1]
    if data is None:
        return np.zeros(len(array), kind)
    return np.frombuffer(data, kind, count=array.offset + len(array))[array.offset :]


def _bits(values: Bools) -> pa.Buffer:
    return pa.py_buffer(np.packbits(values, bitorder="little"))


def integers(values: Sequence[int | None], kind: pa.DataType) -> pa.Array:
    """Whole numbers [N] of the Arrow type ``kind``, null where None."""
    valid = np.array([v is not None for v in values], bool)
    found = np.array([v or 0 for v in values], f"i{kind.bit_width // 8}")
    return to_arrow(found, None if valid.all() else valid)


def texts(values: Sequence[str]) -> pa.Array:
    """Texts [N]. Halves of surrogate pairs, which no text can hold, become question marks."""
    parts = [v.encode("utf-8", "replace") for v in values]
    ends = np.cumsum([0, *map(len, parts)], dtype=np.int32)
    data = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(parts))]
    return pa.Array.from_buffers(pa.string(), len(parts), data)


def coded_texts(values: Sequence[str | None]) -> pa.DictionaryArray:
    """Texts [N] by the number of each different one, null where None."""
    number: dict[str, int] = {}
    codes = [None if v is None else number.setdefault(v, len(number)) for v in values]
    return pa.DictionaryArray.from_arrays(integers(codes, pa.int32()), texts(list(number)))
