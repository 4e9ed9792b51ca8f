"""Answers as columns of numbers for numpy, without the table in between.

A table of millions of rows takes as much again as what is made of it, also for columns in which
nothing is stored. And whoever asks pyarrow for an array of numpy has pandas imported.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

#: Rows of an answer that are held besides the columns.
ROWS_AT_ONCE = 65_536

Columns = dict[str, NDArray[np.generic]]


def arrays_of(rows: pa.Table) -> Columns:
    """Columns of ``rows``, all of them numbers, by name.

    One that is null throughout was not measured and is left out; one with nulls is in float64, and
    NaN there.
    """
    return gathered(rows.schema, rows.to_batches(), rows.num_rows)


def numbers_of(column: pa.ChunkedArray) -> NDArray[np.generic]:
    """A column of numbers without nulls, such as those of steps."""
    parts = [_numbers(part) for part in column.chunks]
    return np.concatenate(parts) if parts else np.empty(0, column.type.to_pandas_dtype())


def gathered(schema: pa.Schema, batches: Iterable[pa.RecordBatch], most_rows: int) -> Columns:
    """The same of the rows of ``batches``, at most ``most_rows``; no batch is kept."""
    columns: dict[str, NDArray[np.generic] | None] = dict.fromkeys(schema.names)
    count = 0
    for batch in batches:
        end = count + batch.num_rows
        if end > most_rows:
            most_rows = 2 * end  # rows have come in since they were counted
            columns = {name: _longer(column, most_rows) for name, column in columns.items()}
        for name, values in zip(schema.names, batch.columns, strict=True):
            column = columns[name]
            if values.null_count == len(values):
                if column is not None and len(values):
                    columns[name] = column = _with_room_for_nan(column)
                    column[count:end] = np.nan
                continue
            given = _numbers(values)
            if column is None:
                # Memory that is never written to is never taken.
                column = np.empty(most_rows, np.float64 if count else given.dtype)
                column[:count] = np.nan if count else 0
            if given.dtype.kind == "f":
                column = _with_room_for_nan(column)
            column[count:end] = given
            columns[name] = column
        count = end
    if not count:
        return {field.name: np.empty(0, field.type.to_pandas_dtype()) for field in schema}
    return {name: column[:count] for name, column in columns.items() if column is not None}


def _longer(column: NDArray[np.generic] | None, rows: int) -> NDArray[np.generic] | None:
    if column is None:
        return None
    out = np.empty(rows, column.dtype)
    out[: len(column)] = column
    return out


def _with_room_for_nan(column: NDArray[np.generic]) -> NDArray[np.generic]:
    return column if column.dtype.kind == "f" else column.astype(np.float64)


def _numbers(column: pa.Array) -> NDArray[np.generic]:
    """A view of the numbers of ``column``; a copy in float64 where some are null."""
    if column.null_count:
        column = pc.fill_null(column.cast(pa.float64(), safe=False), float("nan"))
    dtype = np.dtype(column.type.to_pandas_dtype())
    values = column.buffers()[1]
    return np.frombuffer(values, dtype, len(column), column.offset * dtype.itemsize)
