"""What the readers of benchmark results share: one file, one chunk, rows of ``bench_results``."""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from pathlib import Path
from typing import Any

from steptax.app.errors import InputError
from steptax.app.schema import Batch, Reject
from steptax.connectors.base import Capabilities, Options, RawChunk
from steptax.connectors.sources import head
from steptax.connectors.tables.facts import rows_of
from steptax.connectors.wholefile import Whole, WholeFileConnector, text_in

#: No device of today reaches it in any of the units here; more is a damaged number.
MOST = 1e15
_NUMBER = re.compile(r"\d{1,15}(\.\d*)?([eE][+-]?\d{1,2})?")
#: Notes of one file that a person is told.
_MOST_NOTES = 20


class Found:
    """Rows, rejects and notes of one file; a key that comes again is a reject."""

    def __init__(self, run_id: str, host: str) -> None:
        self.run_id, self.host = run_id, host
        self.rows: list[dict[str, Any]] = []
        self.rejects: list[Reject] = []
        self.notes: dict[str, None] = {}
        self.software: str | None = None
        self._keys: set[tuple[str, ...]] = set()

    def add(
        self,
        line: int,
        *,
        device: str,
        test: str,
        size: str,
        dtype: str,
        value: float,
        unit: str | None,
        host: str | None = None,
        **more: Any,
    ) -> None:
        """Take one figure."""
        key = (host or self.host, device, test, size, dtype)
        if key in self._keys:
            reason = f"expected each figure once; {test} of {device} comes again"
            self.reject(line, reason, "test")
            return
        self._keys.add(key)
        row: dict[str, Any] = {
            "run_id": self.run_id,
            "host": key[0],
            "gpu_uuid": device,
            "test": test,
        }
        row |= {"size": size, "dtype": dtype, "value": value, "unit": unit}
        self.rows.append(row | {"software": self.software, "source_row": line} | more)

    def reject(self, line: int, reason: str, field: str | None, raw: str | None = None) -> None:
        """Keep what cannot be taken."""
        self.rejects.append(Reject("bench_results", reason, line, field, raw))


def positive(found: Any) -> float | None:
    """A number above 0 as a figure can have it, also as text; None for everything else."""
    if isinstance(found, str) and _NUMBER.fullmatch(found.strip()):
        found = float(found)
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        return None
    # An integer may be longer than any float.
    return float(found) if 0 < found < MOST and math.isfinite(found) else None


class BenchFileConnector(WholeFileConnector):
    """A file that one run of a benchmark wrote."""

    sees: str
    cannot_see: str
    marks: tuple[bytes, ...]
    """One of them stands in the head of every such file."""
    is_not: str
    hint: str

    def probe(self, source: Path, options: Options) -> Capabilities:
        """Look for the marks in the head of the file."""
        data = head(source)
        if not any(mark in data for mark in self.marks):
            raise InputError(self.is_not, where=str(source), hint=self.hint)
        return Capabilities(("bench_results",), 3, self.sees, self.cannot_see)

    def parse(self, raw: RawChunk, options: Options) -> list[Batch]:
        """Rows of ``bench_results``."""
        whole: Whole = raw.payload
        text = text_in(whole, raw.source)
        found = Found(options.job_id or whole.job_id, options.extra.get("host") or "unknown")
        if whole.fault:
            found.reject(text.count("\n") + 1, whole.fault, None)
        self.take(text, found, raw.source)
        if not found.rows and not found.rejects:
            raise InputError("holds no figure", where=raw.source, hint=self.hint)
        if all(row["host"] == "unknown" for row in found.rows) and found.rows:
            found.notes[
                "the file names no node: give --host NODE, so that nodes can be compared"
            ] = None
        notes = list(found.notes)
        more = (f"and {len(notes) - _MOST_NOTES} more",) if len(notes) > _MOST_NOTES else ()
        batch = Batch(
            "bench_results",
            rows_of("bench_results", found.rows),
            tuple(found.rejects),
            (*notes[:_MOST_NOTES], *more),
        )
        return [batch]

    @abstractmethod
    def take(self, text: str, found: Found, where: str) -> None:
        """Put the figures of ``text`` into ``found``; InputError where it is no such file."""
