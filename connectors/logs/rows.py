"""Rows that the reading of a log makes, until they are handed on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from steptax.app.schema import Batch, Reject, table
from steptax.connectors.logs.marks import Printed
from steptax.connectors.logs.state import LogState
from steptax.connectors.tables.facts import rows_of

#: Newest steps whose printed names are remembered, to tell a value that is printed twice.
_REMEMBERED = 64


class LogRows:
    """Collects rows, rejects and notes of job ``job_id``."""

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        self._rows: dict[str, list[dict[str, Any]]] = {}
        self._rejects: list[Reject] = []
        self._notes: dict[str, None] = {}
        self._named: dict[tuple[int, int], set[tuple[str, str]]] = {}

    def add(self, target: str, line: int, /, **values: Any) -> None:
        """A row of table ``target``, read from ``line``."""
        row = {"job_id": self.job_id, **values, "source_row": line}
        self._rows.setdefault(target, []).append(row)

    def reject(self, *rejects: Reject) -> None:
        """Lines that are no rows."""
        self._rejects += rejects

    def note(self, text: str) -> None:
        """Something to say, once."""
        self._notes.setdefault(text)

    def printed(
        self,
        state: LogState,
        line: int,
        attempt: int,
        step: int,
        at_us: int | None,
        value: Printed,
        interval: int | None,
    ) -> None:
        """A printed value; one that is printed twice for a step is counted and left out."""
        names = self._named.setdefault((attempt, step), set())
        if (value.subject, value.name) in names:
            state.count("printed twice")
            return
        names.add((value.subject, value.name))
        while len(self._named) > _REMEMBERED:
            del self._named[next(iter(self._named))]
        number = value.value
        if number is not None and not math.isfinite(number):
            number = None
        state.flags["printed"] = True
        self.add(
            "printed_metrics",
            line,
            attempt=attempt,
            step=step,
            subject=value.subject,
            name=value.name,
            rank=value.rank,
            value=number,
            unit=value.unit or None,
            text=value.text,
            printed_as=value.printed_as,
            at_us=at_us,
            interval_steps=interval,
        )

    def emit(self) -> Iterator[Batch]:
        """What was collected since the last time."""
        rejects, self._rejects = tuple(self._rejects), []
        rows, self._rows = self._rows, {}
        notes, self._notes = tuple(self._notes), {}
        if rejects or notes:
            rows.setdefault("steps", [])
        for name, found in rows.items():
            made = rows_of(name, found) if found else _no_rows(name)
            own = name == "steps"
            yield Batch(name, made, rejects if own else (), notes if own else ())


def _no_rows(name: str) -> pa.Table:
    stored = ("source", "ingested_at_us")
    columns = [field for field in table(name).arrow if field.name not in stored]
    return pa.schema(columns).empty_table()
