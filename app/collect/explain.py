"""Which line and which field of a segment is wrong: looked for only once something is."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from steptax.app.schema import Column, Table

_SHOWN_CHARACTERS = 40


def explain_lines(spec: Table, data: bytes) -> tuple[str, str | None] | None:
    """Reason and column of the first thing that is wrong; None when nothing is found."""
    for number, line in enumerate(data.splitlines(), 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            return f"line {number}: expected an object of JSON", None
        if not isinstance(row, dict):
            return f"line {number}: expected an object of JSON", None
        for name in row:
            if name not in spec.names:
                return f"line {number}: there is no column {name[:_SHOWN_CHARACTERS]!r}", name
        for column in spec.columns:
            expected = _expected(column, row.get(column.name))
            if expected is not None:
                found = json.dumps(row.get(column.name))[:_SHOWN_CHARACTERS]
                return (
                    f"line {number}, {column.name}: expected {expected}, found {found}",
                    column.name,
                )
    return None


def _expected(column: Column, value: Any) -> str | None:
    """What the column wants, when ``value`` is something else."""
    if value is None:
        return None if column.nullable else "a value"
    kind = column.type
    if pa.types.is_string(kind):
        return None if isinstance(value, str) else "text"
    if pa.types.is_boolean(kind):
        return None if isinstance(value, bool) else "true or false"
    if isinstance(value, bool):
        return "a number"
    if pa.types.is_integer(kind):
        limit = 2 ** (kind.bit_width - 1)
        is_whole = isinstance(value, int) and -limit <= value < limit
        return None if is_whole else f"a whole number of {kind.bit_width} bits"
    return None if isinstance(value, (int, float)) else "a number"
