"""A named query as it is: its rows, for programs of the user's own."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from steptax.app.errors import UserError
from steptax.app.queries import QUERIES, Query
from steptax.app.schema.rollups import LEVELS
from steptax.app.views.workspace import Workspace

#: Rows that are made into Python objects at a time: they take many times the room of a column.
_TOGETHER_ROWS = 10_000
#: What a parameter is that nobody gave: all there is.
_ALL: Mapping[str, Any] = {
    **dict.fromkeys(("first_step", "first_us", "since_us"), 0),
    **dict.fromkeys(("last_step", "last_us"), 2**62),
    "first_job": "",
    "last_job": "\U0010ffff",
    "limit_rows": 2**31 - 1,
}


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
    """Rows of query ``name``, always in the same order; KeyError where there is none of that name.

    UserError where it is about one job and none is named, and where a parameter means nothing;
    NotFoundError where there is no such job.
    """
    spec = QUERIES[name]
    if job_id is not None:
        ws.job(job_id)
    elif spec.is_of_one_job:
        raise UserError(
            f"{name} is about one job: of several it would make one",
            where="--job",
            hint="--job NAME; steptax jobs lists them",
        )
    told = {k: v for k, v in parameters.items() if v is not None}
    given = {**parameters, **{k: v for k, v in _ALL.items() if k in spec.parameters}, **told}
    _check(spec, given)
    found = ws.engine.run(name, job_id=job_id, **given)
    return Answer(found if spec.is_ordered else _in_order(found))


def _in_order(rows: pa.Table) -> pa.Table:
    """``rows`` by their columns from the left, nulls last.

    Here and not in the text: pages ask for as many as there are, and make matrices of them.
    """
    return rows.sort_by([(column, "ascending") for column in rows.column_names])


def _check(spec: Query, given: Mapping[str, Any]) -> None:
    """Refuse values of parameters that would be answered by nothing, or by something else."""
    for name in spec.parameters:
        value: Any = given.get(name)
        if name in ("step_block", "window_steps", "step"):
            least = 0 if name == "step" else 1
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise _wrong(name, f"a whole number, {least} or more", value)
        elif name == "quantile_ratio":
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not (is_number and 0 < value <= 1):
                raise _wrong(name, "a share above 0, up to 1", value)
        elif name == "printed_name" and value is None:
            raise _wrong(name, "the name of a printed metric", value)
    if "window_steps" not in spec.parameters:
        return
    window, block = given["window_steps"], given["step_block"]
    stored = max(LEVELS[level].levels[level] for level in (*spec.levels, *spec.spans))
    if window % stored:
        raise _wrong("window_steps", f"a multiple of the {stored:,} that are stored", window)
    if block % window:
        raise _wrong("step_block", f"a multiple of the {window:,} of window_steps", block)


def _wrong(name: str, expected: str, value: object) -> UserError:
    found = "nothing" if value is None else repr(value)
    return UserError(f"{name}: expected {expected}, found {found}", where="--set")
