"""A stretch of a table before anything in it is converted."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from steptax.app.errors import InputError
from steptax.connectors.sources import BadLine, Format


@dataclass(frozen=True)
class Header:
    """The columns of a table as its file names them, and how the file is written.

    ``first_row`` is the line or row of the first data; ``samples`` the first value of each
    column, as text, where the head of the file has one.
    """

    format: Format
    columns: tuple[str, ...]
    delimiter: str = ","
    first_row: int = 1
    samples: tuple[str | None, ...] = ()

    def sample(self, column: str) -> str | None:
        """The first value of ``column``, or None when the head has none."""
        return dict(zip(self.columns, self.samples, strict=False)).get(column)


@dataclass(frozen=True)
class Rows:
    """Arrow columns of equal length, text or typed, and where each row stands in its source.

    ``source_row`` counts lines (text) or rows (Parquet) from 1; ``raw(i)`` is the i-th row as
    read; ``bad`` are the lines that are no rows.
    """

    columns: Mapping[str, pa.Array]
    source_row: npt.NDArray[np.int64]
    raw: Callable[[int], str]
    bad: tuple[BadLine, ...] = ()
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.source_row)


def column_names(names: list[str], where: str) -> tuple[str, ...]:
    """``names`` without blanks around them; InputError when one occurs twice.

    A column without a name (an index that pandas wrote) is called by its place.
    """
    clean = [name.strip() or f"column {i}" for i, name in enumerate(names, 1)]
    twice = [name for name, n in Counter(clean).items() if n > 1]
    if twice:
        raise InputError(
            f"column {twice[0]!r} occurs more than once", where=where, hint="rename one of them"
        )
    return tuple(clean)


def looks_like_number(text: str | None) -> bool:
    """Whether ``text`` is a finite number."""
    try:
        return text is not None and math.isfinite(float(text))
    except ValueError:
        return False


def batch_rows(batch: pa.RecordBatch, first_row: int) -> Rows:
    """Rows of a typed batch; the first one is row ``first_row`` of its source."""
    return Rows(
        {name: batch.column(i) for i, name in enumerate(batch.schema.names)},
        np.arange(first_row, first_row + batch.num_rows, dtype=np.int64),
        lambda i: str(batch.slice(i, 1).to_pylist()[0])[:500],
    )
