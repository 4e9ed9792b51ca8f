"""A named query as it is: its rows, for programs of the user's own."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from steptax.app.queries import QUERIES, Query
from steptax.app.views.workspace import Workspace

#: Rows that are made into Python objects at a time: they take many times the room of a column.
_TOGETHER_ROWS = 10_000


@dataclass(frozen=True)
class Answer:
    """The rows of a query, in their order."""

    table: pa.Table

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self.table.column_names)

    def first(self, rows: int) -> list[dict[str, Any]]:
        """The first ``rows`` of them, each by column."""
        found: list[dict[str, Any]] = self.table.slice(0, rows).to_pylist()
        return found

    def each(self) -> Generator[dict[str, Any]]:
        """All of them, one by one."""
        for part in self.table.to_batches(max_chunksize=_TOGETHER_ROWS):
            yield from part.to_pylist()


def named_queries() -> Sequence[Query]:
    """All that there are, by name."""
    return list(QUERIES.values())


def answer(
    ws: Workspace, name: str, *, job_id: str | None = None, parameters: Mapping[str, Any]
) -> Answer:
    """Rows of query ``name``; KeyError where there is none of that name."""
    return Answer(ws.engine.run(name, job_id=job_id, **parameters))
