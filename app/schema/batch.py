"""What a connector hands over: rows of one table, and the rows it could not accept."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa


@dataclass(frozen=True)
class Reject:
    """A row that was read and not accepted.

    ``reason`` says what was expected and what was found; ``row`` counts from 1 in the source.
    """

    table: str
    reason: str
    row: int | None = None
    field: str | None = None
    raw: str | None = None


@dataclass(frozen=True)
class Batch:
    """Rows of one table, with the columns of its schema except ``source`` and ``ingested_at_us``.

    Columns that are absent count as null. ``rejects`` are the rows of the same stretch of the
    source that were not accepted; ``notes`` are said to the person once each.
    """

    table: str
    rows: pa.Table
    rejects: tuple[Reject, ...] = ()
    notes: tuple[str, ...] = field(default=())
