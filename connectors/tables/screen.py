"""Columns of a chunk converted to what a table needs, and an account of the rows that fail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from steptax.app.schema import Reject, table
from steptax.connectors.tables import cells
from steptax.connectors.tables.columns import Kind, Plan, Target, Term
from steptax.connectors.tables.rows import Rows

#: No duration that we read is longer, unless its target says so: 285 years in microseconds.
_FAR_US = 2.0**53


@dataclass
class Screen:
    """Converts the columns of a chunk and keeps account of the rows that fail."""

    rows: Rows
    plan: Plan
    table: str
    failed: npt.NDArray[np.bool_] = field(init=False)
    _why: dict[int, tuple[str, str]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """Nothing has failed yet."""
        self.failed = np.zeros(len(self.rows), bool)

    def values(self, target: Target) -> cells.Cells | None:
        """The target's values, summed over its columns and rounded; None where it has none.

        A column with a minus is taken away, and a difference below the target's floor is refused.

        Rows whose cells are not what the target needs are refused. Of a sum, a missing part makes
        the whole missing.
        """
        terms = self.plan.terms.get(target.name)
        if not terms:
            return None
        found = [_convert(target, self.rows.columns[t.column], t.unit) for t in terms]
        for term, cell in zip(terms, found, strict=True):
            self.refuse(cell.bad, target, term.column)
            if target.floor is not None:
                low = ~cell.null & ~cell.bad & (cell.values < target.floor)
                self.refuse(low, target, term.column)
            if target.ceiling is not None:
                high = ~cell.null & ~cell.bad & (cell.values > target.ceiling)
                self.refuse(high, target, term.column)
            if target.required:
                self.refuse(cell.null, target, term.column)
        null = np.logical_or.reduce([cell.null | cell.bad for cell in found])
        if target.kind is Kind.TEXT:
            return cells.Cells(found[0].values, null, null)
        signed = zip(terms, found, strict=True)
        parts = [np.where(null, 0, cell.values) * term.sign for term, cell in signed]
        rough = np.abs(sum(part.astype(np.float64) for part in parts))
        longest_us = max(_FAR_US, target.ceiling or 0.0)
        far = rough >= (longest_us if target.kind is Kind.TIME else 2.0**63)
        if target.kind is not Kind.REAL:
            self.refuse(far, target, terms[0].column)
        total = sum(np.where(far, 0, part) for part in parts)
        if target.kind is Kind.TIME:
            total = np.rint(total).astype(np.int64)
        if target.floor is not None and any(term.sign < 0 for term in terms):
            self._refuse_below(~null & (total < target.floor), target, terms)
        return cells.Cells(total, null, null)

    def _refuse_below(
        self, mask: npt.NDArray[np.bool_], target: Target, terms: Sequence[Term]
    ) -> None:
        """Mark rows as failed whose difference is below the target's floor."""
        fresh = mask & ~self.failed
        reasons = []
        for row in np.flatnonzero(fresh).tolist():
            parts = [(t.sign, cells.cell_text(self.rows.columns[t.column], row)) for t in terms]
            text = " ".join(f"{'+' if sign > 0 else '-'} {found}" for sign, found in parts)
            expected = f"a difference of at least {target.floor:g}"
            reasons.append(f"expected {expected}, found {text.removeprefix('+ ')}")
        self.refuse_because(fresh, target.name, reasons)

    def refuse(
        self, mask: npt.NDArray[np.bool_], target: Target, column: str, expected: str = ""
    ) -> None:
        """Mark rows as failed, unless they failed before: the first reason is the one told."""
        for row in np.flatnonzero(mask & ~self.failed).tolist():
            found = cells.cell_text(self.rows.columns[column], row)
            self._why[row] = (target.name, f"expected {expected or _wants(target)}, found {found}")
        self.failed |= mask

    def refuse_because(self, mask: npt.NDArray[np.bool_], field: str, reasons: list[str]) -> None:
        """Mark rows as failed, with one reason for each row set in ``mask``."""
        for row, reason in zip(np.flatnonzero(mask).tolist(), reasons, strict=True):
            self._why.setdefault(row, (field, reason))
        self.failed |= mask

    def kept(self, column: cells.Cells) -> pa.Array:
        """The accepted rows of one column."""
        good = ~self.failed
        if isinstance(column.values, pa.Array):
            return column.values.filter(pa.array(good))
        return pa.array(column.values[good], mask=column.null[good])

    def keep(self, columns: Mapping[str, Any]) -> pa.Table:
        """The accepted rows of ``columns``, with the table's types and ``source_row``.

        A column is ``Cells``, or a single value for all rows; None is left out.
        """
        good = ~self.failed
        count = int(good.sum())
        out: dict[str, pa.Array] = {}
        for name, column in columns.items():
            kind = table(self.table).column(name).type
            if column is None:
                continue
            if isinstance(column, cells.Cells):
                out[name] = self.kept(column).cast(kind)
            else:
                out[name] = pa.repeat(pa.scalar(column, kind), count)
        out["source_row"] = pa.array(self.rows.source_row[good])
        return pa.table(out)

    def rejects(self) -> tuple[Reject, ...]:
        """One reject for each row and line that failed, in the order of the source."""
        lines = [Reject(self.table, bad.reason, bad.row, None, bad.raw) for bad in self.rows.bad]
        rows = [
            Reject(self.table, why, int(self.rows.source_row[i]), name, self.rows.raw(i))
            for i, (name, why) in self._why.items()
        ]
        return tuple(sorted(lines + rows, key=lambda r: r.row or 0))


def source_stem(source: str) -> str:
    """A file's name without folder and endings: the job id where nobody gives one."""
    name = Path(source).name
    for ending in (".gz", ".csv", ".tsv", ".txt", ".jsonl", ".ndjson", ".json", ".parquet"):
        name = name[: -len(ending)] if name.lower().endswith(ending) and name != ending else name
    return name


def rank_facts(
    screen: Screen, good: pa.Table, values: dict[str, Any], place: tuple[Target, ...]
) -> pa.Table:
    """The ranks of the accepted rows ``good``, with their place as far as the file tells it."""
    columns = {"job_id": good["job_id"], "rank": good["rank"]}
    for target in place:
        found: cells.Cells | None = values.get(target.column)
        if found is not None:
            kind = table("ranks").column(target.column).type
            columns[target.column] = screen.kept(found).cast(kind)
    return pa.table(columns).group_by(list(columns), use_threads=False).aggregate([])


def _wants(target: Target) -> str:
    words = {
        Kind.TEXT: "a name",
        Kind.WHOLE: "a whole number",
        Kind.MASK: "a bit mask, decimal or as 0x0000000000000004",
        Kind.REAL: "a number",
        Kind.TIME: "a duration",
        Kind.TIME_NS: "a time",
        Kind.MOMENT: "a time before the year 10000: ISO 8601, or a number with a unit in the "
        "column's name",
    }
    floor = f" of at least {target.floor:g}" if target.floor is not None else ""
    ceiling = f", at most {target.ceiling:.0f}" if target.ceiling is not None else ""
    return words[target.kind] + floor + ceiling


def _convert(target: Target, column: pa.Array, unit: str | None) -> cells.Cells:
    if target.kind is Kind.TEXT:
        return cells.names(column)
    if target.kind is Kind.WHOLE:
        return cells.whole(column)
    if target.kind is Kind.MASK:
        return cells.masks(column)
    if target.kind is Kind.REAL:
        return cells.reals(column)
    if target.kind is Kind.TIME:
        return cells.times_us(column, unit)
    if target.kind is Kind.TIME_NS:
        return cells.times_ns(column, unit or "ns")
    return cells.moments_us(column, unit)
