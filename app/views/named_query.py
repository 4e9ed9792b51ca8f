"""A named query as it is: its rows, for programs of the user's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from steptax.app.queries import QUERIES, Query
from steptax.app.views.workspace import Workspace


@dataclass(frozen=True)
class Answer:
    """The rows in their order, each by column."""

    columns: tuple[str, ...]
    rows: list[dict[str, Any]]


def named_queries() -> Sequence[Query]:
    """All that there are, by name."""
    return list(QUERIES.values())


def answer(
    ws: Workspace, name: str, *, job_id: str | None = None, parameters: Mapping[str, Any]
) -> Answer:
    """Rows of query ``name``; KeyError where there is none of that name."""
    found = ws.engine.run(name, job_id=job_id, **parameters)
    return Answer(tuple(found.column_names), found.to_pylist())
