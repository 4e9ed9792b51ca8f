"""What the connectors of bills share: lines with an identity, exact money, one account of sums."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from steptax.app.errors import InputError
from steptax.app.schema import Batch, table
from steptax.connectors.base import Capabilities, Options, RawChunk, Run
from steptax.connectors.money.amounts import amounts, tags
from steptax.connectors.money.bill_run import COSTS, BillBatch, BillRun
from steptax.connectors.tables.cells import Cells, is_text
from steptax.connectors.tables.columns import Kind, Plan, Target, make_plan
from steptax.connectors.tables.rows import Header, Rows
from steptax.connectors.tables.screen import Screen, source_stem
from steptax.connectors.tables.tabular import TableChunk, TabularConnector, split_rows

MOMENTS = ("billing_start_us", "billing_end_us", "charge_start_us", "charge_end_us")
#: How the spellings of the columns with few values are said.
_WORDS = {
    "used": "Used",
    "unused": "Unused",
    "usage": "Usage",
    "purchase": "Purchase",
    "tax": "Tax",
    "credit": "Credit",
    "adjustment": "Adjustment",
}
_WORDED = ("charge_category", "commitment_status", "reservation_status")


class BillConnector(TabularConnector):
    """A table whose rows are lines of a bill."""

    table = "charges"
    dialect: ClassVar[str]
    """What the file is, in messages."""

    def probe(self, source: Path, options: Options) -> Capabilities:
        """Level 0; InputError when the table is no bill of this kind."""
        self.first_rows(source, options)
        return Capabilities(
            ("charges",),
            0,
            "what was billed and what it is worth, by resource, account, SKU, tag and hour",
            "which job a resource worked for; GPUs, where the SKU does not tell them",
        )

    def plan(self, header: Header, options: Options, where: str) -> Plan:
        """What each target is read from; InputError without any cost."""
        plan = make_plan(self.targets, header, options, where)
        if not plan.terms.keys() & {"billed_cost", "effective_cost"}:
            raise InputError(
                f"is no bill as {self.dialect} writes it: no column for its cost; the file has "
                f"{', '.join(header.columns)[:500]}",
                where=where,
                hint="say which one it is: --map billed_cost=COLUMN --map effective_cost=COLUMN",
            )
        notes = tuple(
            f"there is no column for {name}: it stays unknown"
            for name in ("effective_cost", "billed_cost", "currency", "resource_id")
            if name not in plan.terms
        )
        return replace(plan, notes=notes)

    def parse(self, raw: RawChunk, options: Options) -> list[Batch]:
        """Rows and rejects of one chunk."""
        chunk: TableChunk = raw.payload
        plan = self.plan(chunk.header, options, raw.source)
        rows = self.prepared(split_rows(chunk, raw.first_row, plan), plan)
        screen = Screen(rows, plan, self.table)
        values: dict[str, Any] = {}
        rounded = 0
        for target in self.targets:
            terms = plan.terms.get(target.name)
            if target.column in COSTS and terms:
                found = amounts(rows.columns[terms[0].column])
                screen.refuse(found.cells.bad, target, terms[0].column, "an amount of money")
                values[target.column] = found.cells
                rounded += found.rounded
            elif target.column == "tags" and terms:
                values["tags"] = tags(rows.columns[terms[0].column])
            else:
                values[target.column] = screen.values(target)
        self.settle(screen, values, raw.source)
        for name in _WORDED:
            if values.get(name) is not None:
                values[name] = _worded(values[name])
        _refuse_without_cost(screen, values)
        _refuse_backwards(screen, values)
        named = values.get("line") is not None
        digests = _digests(rows, plan, np.flatnonzero(~screen.failed))
        known = set(table(self.table).names)
        good = screen.keep({k: v for k, v in values.items() if k in known and k != "line"})
        own = screen.kept(values["line"]).to_pylist() if named else [None] * len(digests)
        lines = [line or digest for line, digest in zip(own, digests, strict=True)]
        good = good.append_column("line", pa.array(lines, pa.string()))
        notes = list(plan.notes)
        if rounded:
            notes.append(
                f"amounts with more than 12 decimal places are rounded to 12 ({rounded:,})"
            )
        all_notes = (*notes, *rows.notes)
        return [BillBatch(self.table, good, screen.rejects(), all_notes, tuple(digests), named)]

    def prepared(self, rows: Rows, plan: Plan) -> Rows:
        """Rows with moments as ISO 8601 writes them: BigQuery says ``UTC`` behind them."""
        columns = dict(rows.columns)
        for target in self.targets:
            for term in plan.terms.get(target.name, ()):
                if target.kind is Kind.MOMENT and is_text(columns[term.column].type):
                    columns[term.column] = _iso(columns[term.column])
        return replace(rows, columns=columns)

    def settle(self, screen: Screen, values: dict[str, Any], source: str) -> None:
        """Fill ``provider`` and ``invoice``, which every line needs."""
        count = len(screen.rows)
        stem = source_stem(source)
        provider = filled(values.get("provider"), values.pop("issuer", None), count, "unknown")
        values["provider"] = provider
        account = filled(values.pop("billing_account", None), None, count, stem)
        starts = values.get("billing_start_us") or values.get("charge_start_us")
        months = ["" if m is None else m for m in _months(starts, count)]
        made = [f"{a} {m}".strip() for a, m in zip(account.values.to_pylist(), months, strict=True)]
        none = np.zeros(count, bool)
        stated = Cells(pa.array(made, pa.string()), none, none)
        values["invoice"] = filled(values.get("invoice"), stated, count, stem)

    def begin(self, source: Path, options: Options) -> Run:
        """Numbers lines that say the same."""
        return BillRun()


def filled(first: Cells | None, second: Cells | None, count: int, last: str) -> Cells:
    """The first of two columns of text, where it is null the second, else ``last``."""
    none = np.zeros(count, bool)
    out: pa.Array = pa.nulls(count, pa.string())
    for cells in (first, second):
        if cells is not None:
            told = pc.if_else(pa.array(cells.null), pa.scalar(None, pa.string()), cells.values)
            out = pc.coalesce(out, told)
    return Cells(pc.fill_null(out, last), none, none)


def words_of(words: Sequence[str | None]) -> Cells:
    """A column of text from words; None where there is none."""
    null = np.array([word is None for word in words], bool)
    return Cells(pa.array(words, pa.string()), null, np.zeros(len(words), bool))


def text_target(column: str, doc: str, *aliases: str, name: str | None = None) -> Target:
    """A target that is a name."""
    return Target(name or column, column, Kind.TEXT, doc, aliases)


def charge_targets(aliases: Mapping[str, Sequence[str]]) -> tuple[Target, ...]:
    """Targets of ``charges`` for one kind of bill, by the names that it gives to columns."""
    found = []
    for column in table("charges").columns:
        names = tuple(aliases.get(column.name, ()))
        if column.name in ("source", "source_row", "ingested_at_us"):
            continue
        kind = Kind.TEXT
        name = column.name
        if column.name in MOMENTS:
            kind, name = Kind.MOMENT, column.name.removesuffix("_us")
        elif column.name == "consumed_quantity":
            kind = Kind.REAL
        found.append(Target(name, column.name, kind, column.doc, names))
    return tuple(found)


def _iso(column: pa.Array) -> pa.Array:
    text = pc.cast(column, pa.string())
    text = pc.replace_substring_regex(text, r"^\s*(\d\d)/(\d\d)/(\d{4})\s*$", r"\3-\1-\2")
    return pc.replace_substring_regex(text, r" UTC\s*$", "Z")


def _worded(cells: Cells) -> Cells:
    words = [None if w is None else _WORDS.get(w.lower(), w) for w in cells.values.to_pylist()]
    return Cells(pa.array(words, pa.string()), cells.null, cells.bad)


def _months(cells: Cells | None, count: int) -> list[str | None]:
    if cells is None:
        return [None] * count
    values = np.where(cells.null | cells.bad, 0, cells.values).astype("datetime64[us]")
    months = np.datetime_as_string(values, unit="M").tolist()
    return [None if gone else m for m, gone in zip(months, cells.null, strict=True)]


def _digests(rows: Rows, plan: Plan, keep: Any) -> list[str]:
    """What identifies each kept row: all that it says in the columns that are read."""
    columns = [rows.columns[name].to_pylist() for name in sorted(plan.wanted)]
    return [
        hashlib.blake2b(
            "\x1f".join(str(column[i]) for column in columns).encode("utf-8", "replace"),
            digest_size=12,
        ).hexdigest()
        for i in keep.tolist()
    ]


def _refuse_without_cost(screen: Screen, values: dict[str, Any]) -> None:
    """A line of which no cost is known says nothing of money."""
    found = [values[name] for name in ("billed_cost", "effective_cost") if values.get(name)]
    mask = np.logical_and.reduce([c.null for c in found]) & ~screen.failed
    reason = "expected a billed or an effective cost, found neither"
    screen.refuse_because(mask, "billed_cost", [reason] * int(mask.sum()))


def _refuse_backwards(screen: Screen, values: dict[str, Any]) -> None:
    for first, last in (MOMENTS[:2], MOMENTS[2:]):
        start, end = values.get(first), values.get(last)
        if start is None or end is None:
            continue
        mask = ~start.null & ~end.null & (end.values < start.values) & ~screen.failed
        field = last.removesuffix("_us")
        screen.refuse_because(
            mask, field, [f"expected a {field} after its start"] * int(mask.sum())
        )
