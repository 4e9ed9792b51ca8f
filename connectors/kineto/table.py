"""Events as rows of an array, with their texts beside them.

NumPy alone: Arrow takes more memory to import than a small trace to hold, and who only looks at a
trace, without storing it, needs none of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from steptax.app.intervals import Ints
from steptax.connectors.kineto.fields import EVENT

Rows = npt.NDArray[np.void]
Bools = npt.NDArray[np.bool_]
_TEXTS = ("name", "op", "group", "dtype")
_EMPTY = np.zeros(0, EVENT)


class Texts:
    """Different texts and the number of each, in the order in which they come."""

    def __init__(self) -> None:
        self._code: dict[str, int] = {}
        self.known: list[str] = []

    def code(self, text: str | None) -> int:
        """The number of ``text``; -1 for None.

        Halves of surrogate pairs, which no text can hold, become question marks.
        """
        if text is None:
            return -1
        found = self._code.get(text)
        if found is None:
            found = self._code[text] = len(self.known)
            self.known.append(text.encode("utf-8", "replace").decode())
        return found


@dataclass(frozen=True, eq=False)
class EventTable:
    """N events: ``rows`` [N] of the fields of ``EVENT``, whose codes index ``texts``."""

    rows: Rows
    texts: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EventTable):
            return NotImplemented
        return self.texts == other.texts and bool(np.array_equal(self.rows, other.rows))

    __hash__ = None  # type: ignore[assignment]

    def column(self, name: str) -> Ints:
        """[N] whole numbers of a field."""
        return self.rows[name].astype(np.int64)

    def only(self, which: Bools | Ints) -> EventTable:
        """The events where ``which`` [N] is true, or those that it numbers."""
        return EventTable(self.rows[which], self.texts)

    def strings(self, name: str, which: Ints) -> list[str | None]:
        """The texts of a field, of the events that ``which`` numbers; None where there is none."""
        told = (*self.texts, None)
        return [told[code] for code in self.rows[name][which].tolist()]


def rows_of(values: Sequence[tuple[Any, ...]]) -> Rows:
    """Rows from a tuple for each, in the order of the fields of ``EVENT``."""
    return np.array(values, EVENT) if values else _EMPTY


class Gathered:
    """Tables of events put together, with one list of texts for all of them."""

    def __init__(self) -> None:
        self._parts: list[Rows] = []
        self._texts = Texts()
        self.count = 0

    def add(self, table: EventTable) -> None:
        """Put the events of ``table`` behind those that are held."""
        rows = table.rows.copy()
        codes = np.full(len(table.texts) + 1, -1, np.int32)  # The last one is that of no text.
        for name in _TEXTS:
            for used in np.unique(rows[name][rows[name] >= 0]).tolist():
                codes[used] = self._texts.code(table.texts[used])
            rows[name] = codes[rows[name]]
        self._parts.append(rows)
        self.count += len(rows)

    def drop(self, kind: int) -> None:
        """Forget the events of ``kind``."""
        self._parts = [part[part["kind"] != kind] for part in self._parts]
        self.count = sum(map(len, self._parts))

    def all(self) -> EventTable:
        """All events that are held, and hold none of them any more."""
        rows = np.concatenate(self._parts) if self._parts else _EMPTY
        self._parts = []
        self.count = 0
        return EventTable(rows, tuple(self._texts.known))
