"""What a job's record says of the time between steps: rows of the ``events`` table, read."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Rows = Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""Equally long columns by name, or one mapping per row."""

SAVE = "checkpoint_save"
#: Events after which training goes on from an earlier step, if it was training.
RETURNS = ("rollback", "checkpoint_restore")
#: Events that stop training in the middle of a step.
BREAKS = ("failure", "evict")

_NUMBER = re.compile(r"([a-z_]+)\s*[=: ]\s*(\d+)", re.IGNORECASE)
_ASYNC = re.compile(r"\basync", re.IGNORECASE)
_STEP_NAMES = ("step", "restored_step", "iteration")
_UNITS_US = {"blocking_us": 1, "blocking_ms": 1000, "blocking_s": 1_000_000}


@dataclass(frozen=True)
class Finding:
    """Something in a record that had to be decided, or that could not be used."""

    kind: str
    """overlap, outside, clock, inferred, duplicate, rejected, released or shared."""
    text: str


@dataclass(frozen=True)
class Event:
    """A row of the ``events`` table."""

    attempt: int
    start_us: int
    kind: str
    end_us: int | None = None
    ranks: str | None = None
    detail: str | None = None

    def _said(self, names: Sequence[str]) -> tuple[str, int] | None:
        """The first of ``names`` that ``detail`` gives a whole number for, with that number.

        ``detail`` may be a JSON object, or text such as ``step=40`` or ``rolled back to step 40``.
        """
        text = self.detail or ""
        try:
            found = json.loads(text)
        except ValueError:
            found = {name.lower(): int(number) for name, number in _NUMBER.findall(text)}
        if not isinstance(found, dict):
            return None
        for name in names:
            number = found.get(name)
            if isinstance(number, int) and not isinstance(number, bool) and number >= 0:
                return name, number
        return None

    @property
    def restored_step(self) -> int | None:
        """Last step that holds after a rollback or a restore; None if ``detail`` does not say."""
        said = self._said(_STEP_NAMES)
        return None if said is None else said[1]

    @property
    def blocking_end_us(self) -> int:
        """Until when training is held up; a moment holds nothing up.

        An asynchronous save holds it up for its copy only, as far as ``detail`` tells how long
        that took (``blocking_us``, ``blocking_ms`` or ``blocking_s``).
        """
        if self.end_us is None:
            return self.start_us
        said = self._said(tuple(_UNITS_US))
        if said is not None:
            return min(self.end_us, self.start_us + said[1] * _UNITS_US[said[0]])
        return self.start_us if _ASYNC.search(self.detail or "") else self.end_us

    @property
    def last_us(self) -> int:
        """End, or the moment itself."""
        return self.start_us if self.end_us is None else self.end_us

    @property
    def order(self) -> tuple[int, int, str, int, str, str, bool, bool, bool]:
        """A full order, so that the order of rows does not matter."""
        return (
            self.attempt,
            self.start_us,
            self.kind,
            self.last_us,
            self.ranks or "",
            self.detail or "",
            # What is not known is not what it reads as above.
            self.end_us is None,
            self.ranks is None,
            self.detail is None,
        )


def columns_of(rows: Rows, names: Sequence[str]) -> dict[str, list[Any]]:
    """The columns ``names`` as lists, with None for null and where a row has none."""
    if not isinstance(rows, Mapping):
        return {name: [_known(row.get(name)) for row in rows] for name in names}
    count = max((len(rows[name]) for name in names if name in rows), default=0)
    return {
        name: [_known(value) for value in np.asarray(rows[name]).tolist()]
        if name in rows
        else [None] * count
        for name in names
    }


def _known(value: Any) -> Any:
    """None for the ways in which a table says null."""
    return None if isinstance(value, float) and math.isnan(value) else value


def read_events(rows: Rows) -> tuple[tuple[Event, ...], tuple[Finding, ...]]:
    """Rows of the ``events`` table in order; rows that cannot be are named and left out.

    ``start_us`` and ``kind`` must be there; ``attempt`` (0 if absent), ``end_us``, ``ranks`` and
    ``detail`` may be. Equal rows count once.
    """
    names = ("start_us", "kind", "attempt", "end_us", "ranks", "detail")
    columns = columns_of(rows, names)
    events: set[Event] = set()
    findings = []
    for start, kind, attempt, end, ranks, detail in zip(
        *(columns[name] for name in names), strict=True
    ):
        where = f"event {kind or 'without kind'} of attempt {attempt or 0}"
        if start is None or not kind:
            findings.append(Finding("rejected", f"{where}: start or kind is missing"))
        elif end is not None and end < start:
            text = f"{where} at {start} us: it ends {start - end} us before it starts"
            findings.append(Finding("rejected", text))
        else:
            stop = None if end is None else int(end)
            events.add(Event(int(attempt or 0), int(start), str(kind), stop, ranks, detail))
    return (
        tuple(sorted(events, key=lambda event: event.order)),
        tuple(sorted(findings, key=lambda finding: finding.text)),
    )
