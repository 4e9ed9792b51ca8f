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
from steptax.connectors.wording import said as counted

COSTS = ("billed_cost", "effective_cost", "list_cost", "contracted_cost")


@dataclass(frozen=True)
class BillBatch(Batch):
    """Lines of a bill, each with the digest of what it says; ``named`` where it has its own id."""

    digests: tuple[str, ...] = ()
    named: bool = False


class BillRun(Run):
    """Gives every line an identity of its own, and sums what was read, to be compared."""

    def __init__(self) -> None:
        #: Digests of all lines without an id; those that came more than once with how often.
        self._once: set[bytes] = set()
        self._again: Counter[bytes] = Counter()
        #: Of lines with an id what those that have it say.
        self._said_of: dict[tuple[str, str, str], set[str]] = {}
        self._alike = 0
        self._sums: dict[tuple[str, str], Decimal] = {}

    def take(self, batch: Batch) -> Iterator[Batch]:
        """Number repeated lines; refuse one that repeats an id together with all it says."""
        if not isinstance(batch, BillBatch):
            yield batch
            return
        kept = batch.rows
        repeats: list[Reject] = []
        if batch.named:
            kept, repeats = self._by_id(batch)
        elif batch.digests:
            lines = [self._numbered(digest) for digest in batch.digests]
            kept = _with_lines(kept, lines)
        self._sum(kept)
        rejects = tuple(sorted((*batch.rejects, *repeats), key=lambda r: r.row or 0))
        yield Batch(batch.table, kept, rejects, batch.notes)

    def _numbered(self, digest: str) -> str:
        """A line that says what earlier ones said gets a number behind its digest."""
        key = bytes.fromhex(digest)
        if key not in self._once:
            self._once.add(key)
            return digest
        self._again[key] += 1
        self._alike += 1
        return f"{digest}#{self._again[key] + 1}"

    def _by_id(self, batch: BillBatch) -> tuple[pa.Table, list[Reject]]:
        rows = batch.rows
        columns = [rows[name].to_pylist() for name in ("provider", "invoice", "line")]
        lines: list[str] = []
        repeats: list[Reject] = []
        keep = np.ones(rows.num_rows, bool)
        places = rows["source_row"].to_pylist()
        for i, (provider, invoice, line) in enumerate(zip(*columns, strict=True)):
            key = (provider, invoice, line)
            said = self._said_of.setdefault(key, set())
            if batch.digests[i] in said:
                keep[i] = False
                reason = f"expected each line of the bill once, found {line!r} again"
                repeats.append(Reject("charges", reason[:500], places[i], "line", None))
                continue
            said.add(batch.digests[i])
            # A later export may give the line another price: both stay in the history.
            lines.append(f"{line}~{batch.digests[i][:8]}")
        return _with_lines(rows.filter(pa.array(keep)), lines), repeats

    def close(self) -> Iterator[Batch]:
        """What the bill adds up to, so that a person can hold it against the invoice."""
        notes = []
        if self._alike:
            notes.append(
                counted(self._alike, "line says", "lines say")
                + " the same as an earlier one; each is counted"
            )
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


def _with_lines(rows: pa.Table, lines: list[str]) -> pa.Table:
    at = rows.schema.get_field_index("line")
    return rows.set_column(at, "line", pa.array(lines, pa.string()))
