"""What one reading of a bill remembers: which lines were there, and what they add up to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal, localcontext

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from steptax.app.schema import Batch, Reject
from steptax.connectors.base import Run
from steptax.connectors.tables.norows import no_rows

COSTS = ("billed_cost", "effective_cost", "list_cost", "contracted_cost")


@dataclass(frozen=True)
class BillBatch(Batch):
    """Lines of a bill, each with the digest of what it says; ``named`` where it has its own id."""

    digests: tuple[str, ...] = ()
    named: bool = False


class BillRun(Run):
    """Gives every line an identity of its own, and sums what was read, to be compared."""

    def __init__(self) -> None:
        self._seen: Counter[tuple[str, str, str]] = Counter()
        self._digest_of: dict[tuple[str, str, str], str] = {}
        self._alike = 0
        self._sums: dict[tuple[str, str], Decimal] = {}

    def take(self, batch: Batch) -> Iterator[Batch]:
        """Number repeated lines; refuse one that repeats an id together with all it says."""
        if not isinstance(batch, BillBatch):
            yield batch
            return
        rows = batch.rows
        columns = [rows[name].to_pylist() for name in ("provider", "invoice", "line")]
        lines: list[str] = []
        repeats: list[Reject] = []
        keep = np.ones(rows.num_rows, bool)
        places = rows["source_row"].to_pylist()
        for i, (provider, invoice, line) in enumerate(zip(*columns, strict=True)):
            key = (provider, invoice, line)
            same = self._digest_of.setdefault(key, batch.digests[i]) == batch.digests[i]
            if batch.named and same and self._seen[key]:
                keep[i] = False
                reason = f"expected each line of the bill once, found {line!r} again"
                repeats.append(Reject("charges", reason[:500], places[i], "line", None))
                continue
            self._seen[key] += 1
            number = self._seen[key]
            self._alike += number > 1
            lines.append(line if number == 1 else f"{line}#{number}")
        kept = rows.filter(pa.array(keep))
        at = kept.schema.get_field_index("line")
        kept = kept.set_column(at, "line", pa.array(lines, pa.string()))
        self._sum(kept)
        rejects = tuple(sorted((*batch.rejects, *repeats), key=lambda r: r.row or 0))
        yield Batch(batch.table, kept, rejects, batch.notes)

    def close(self) -> Iterator[Batch]:
        """What the bill adds up to, so that a person can hold it against the invoice."""
        notes = []
        if self._alike:
            notes.append(f"{self._alike:,} lines say the same as an earlier one; each is counted")
        for currency in sorted({currency for currency, _ in self._sums}):
            said = ", ".join(
                f"{name.replace('_', ' ')} {self._sums[currency, name]:,.2f}"
                for name in COSTS
                if (currency, name) in self._sums
            )
            notes.append(f"sums in {currency}: {said}")
        if notes:
            yield Batch("charges", no_rows("charges"), notes=tuple(notes))

    def _sum(self, rows: pa.Table) -> None:
        names = [name for name in COSTS if name in rows.column_names]
        if "currency" in rows.column_names:
            currency = pc.fill_null(rows["currency"], "an unnamed currency")
        else:
            currency = pa.array(["an unnamed currency"] * rows.num_rows, pa.string())
        for word in pc.unique(currency).to_pylist():
            own = rows.filter(pc.equal(currency, word))
            for name in names:
                total = pc.sum(own[name]).as_py()
                if total is not None:
                    key = (word, name)
                    with localcontext() as context:
                        context.prec = 60  # more digits than the column has: the sum is exact
                        self._sums[key] = self._sums.get(key, Decimal(0)) + total
