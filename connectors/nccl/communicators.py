"""Facts of communicators, folded over a whole reading."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from steptax.app.schema import Batch
from steptax.connectors.base import Run
from steptax.connectors.tables.facts import rows_of


class CommunicatorFacts(Run):
    """Folds the ``communicators`` batches of all chunks into one row per communicator and rank.

    What is known later holds; what is null leaves what was known before.
    """

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str, int], dict[str, Any]] = {}

    def take(self, batch: Batch) -> Iterator[Batch]:
        """Hold communicators back, pass everything else on."""
        if batch.table != "communicators":
            yield batch
            return
        if batch.rejects or batch.notes:
            yield Batch(batch.table, batch.rows.slice(0, 0), batch.rejects, batch.notes)
        for row in batch.rows.to_pylist():
            known = self._rows.setdefault((row["job_id"], row["comm_id"], row["rank"]), {})
            known.update({name: value for name, value in row.items() if value is not None})

    def close(self) -> Iterator[Batch]:
        """One row per communicator and rank, sorted."""
        if self._rows:
            rows = [row for _, row in sorted(self._rows.items())]
            yield Batch("communicators", rows_of("communicators", rows))
