"""What a table declaration is, and how it becomes an Arrow schema."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

TEXT = pa.string()
INT = pa.int64()
INT32 = pa.int32()
REAL = pa.float64()
FLAG = pa.bool_()
#: 26 digits before the point, 12 after: an hourly price split over milliseconds still adds up.
MONEY = pa.decimal128(38, 12)


@dataclass(frozen=True)
class Column:
    """One column. ``unit`` is empty for names, ids and counts without a dimension."""

    name: str
    type: pa.DataType
    doc: str
    unit: str = ""
    nullable: bool = True


@dataclass(frozen=True)
class Table:
    """One table of the lake.

    ``key`` identifies a row. In a ``latest_wins`` table a row with a known key is newer knowledge:
    what it says holds from then on, and where it is null what was known before does. Elsewhere such
    a row is a duplicate and is rejected. ``by_job`` tables are
    partitioned by ``job_id``. Of ``earliest`` and ``latest`` columns the least and the greatest
    value holds, whatever its age: a source that saw part of a span does not shorten it.
    """

    name: str
    version: int
    doc: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    by_job: bool = False
    latest_wins: bool = False
    earliest: tuple[str, ...] = ()
    latest: tuple[str, ...] = ()

    @cached_property
    def arrow(self) -> pa.Schema:
        """The Arrow schema, with unit and doc of each column as field metadata."""
        return pa.schema(
            [
                pa.field(
                    c.name, c.type, nullable=c.nullable, metadata={"unit": c.unit, "doc": c.doc}
                )
                for c in self.columns
            ],
            metadata={"table": self.name, "version": str(self.version)},
        )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Column names in their order."""
        return tuple(c.name for c in self.columns)

    def column(self, name: str) -> Column:
        """The column called ``name``; KeyError when there is none."""
        for candidate in self.columns:
            if candidate.name == name:
                return candidate
        raise KeyError(f"table {self.name} has no column {name}")
