"""What the connectors of bills share: lines with an identity, exact money, one account of sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from steptax.app.errors import InputError
from steptax.app.schema import Batch, table
from steptax.connectors.base import Capabilities, Options, RawChunk, Run
from steptax.connectors.money.amounts import amounts, currency_code, tags
from steptax.connectors.money.bill_run import COSTS, BillBatch, BillRun
from steptax.connectors.money.identity import digests as content_digests
from steptax.connectors.money.spelling import (
    COMMA_NOTE,
    divides_by_comma,
    iso_moments,
    plan_of,
    point_numbers,
)
from steptax.connectors.tables.cells import Cells, is_text
from steptax.connectors.tables.columns import Kind, Plan, Target
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
        plan = plan_of(self.targets, header, options, where)
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
        if divides_by_comma(header, plan, options):
            notes = (*notes, f"{COMMA_NOTE}; --decimal point says otherwise")
        return replace(plan, notes=notes)

    def parse(self, raw: RawChunk, options: Options) -> list[Batch]:
        """Rows and rejects of one chunk."""
        chunk: TableChunk = raw.payload
        plan = self.plan(chunk.header, options, raw.source)
        comma = divides_by_comma(chunk.header, plan, options)
        rows = self.prepared(split_rows(chunk, raw.first_row, plan), plan, comma=comma)
        screen = Screen(rows, plan, self.table)
        values: dict[str, Any] = {}
        rounded = 0
        for target in self.targets:
            terms = plan.terms.get(target.name)
            if target.column in COSTS and terms:
                found = amounts(rows.columns[terms[0].column], comma=comma)
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
                values[name] = _worded(values[name], lambda word: _WORDS.get(word.lower(), word))
        if values.get("currency") is not None:
            values["currency"] = _worded(values["currency"], currency_code)
        _refuse_without_cost(screen, values)
        _refuse_backwards(screen, values)
        named = values.get("line") is not None
        known = set(table(self.table).names)
        good = screen.keep({k: v for k, v in values.items() if k in known and k != "line"})
        digests = content_digests(good)
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

    def prepared(self, rows: Rows, plan: Plan, *, comma: bool) -> Rows:
        """Rows with moments as ISO 8601 writes them, and with ``comma`` quantities with a point."""
        columns = dict(rows.columns)
        for target in self.targets:
            for term in plan.terms.get(target.name, ()):
                if not is_text(columns[term.column].type):
                    continue
                if target.kind is Kind.MOMENT:
                    columns[term.column] = iso_moments(columns[term.column])
                elif target.kind is Kind.REAL and comma:
                    columns[term.column] = point_numbers(columns[term.column])
        return replace(rows, columns=columns)

    def settle(self, screen: Screen, values: dict[str, Any], source: str) -> None:
        """Fill ``provider`` and ``invoice``, which every line needs."""
        count = len(screen.rows)
        stem = source_stem(source)
        provider = filled(values.get("provider"), values.pop("issuer", None), count, "unknown")
        values["provider"] = provider
        account = filled(values.get("billing_account"), None, count, stem)
        starts = values.get("billing_start_us") or values.get("charge_start_us")
        made = account.values
        if starts is not None:
            months = pc.binary_join_element_wise(made, _months(starts), " ")
            made = pc.coalesce(months, made)
        none = np.zeros(count, bool)
        stated = Cells(made, none, none)
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


#: What is done with bills that are exported again, for the text of each connector.
DELIVERIES = (
    "Each file is a delivery of its bill. A line is known by its converted values, in whatever "
    "format, order of columns or spelling: told again it counts once, and lines of one file that "
    "say the same are all counted. A month that is exported again replaces what was stored of it: "
    "where a delivery names at least half of what an earlier one charged for in the time that it "
    "spans (same provider, account, billing month and kind of file; same resource, start, SKU and "
    "category; without a resource also same tags), the lines of the earlier one in that time count "
    "no more. Other deliveries, such as the parts of a month, add up. Lines that do not count stay "
    "stored. Ingest exports in the order in which they were made: the last one holds.\n"
    "Where another kind of file tells of the same account and time already, the lines of this one "
    "are held: they do not count, and the ledger says so. --same-month replace lets them count in "
    "its place, --same-month add beside it.\n"
)


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


def _worded(cells: Cells, say: Callable[[str], str]) -> Cells:
    """Each word as ``say`` writes it."""
    coded = cells.values.dictionary_encode()
    words = [None if w is None else say(w) for w in coded.dictionary.to_pylist()]
    return Cells(pa.array(words, pa.string()).take(coded.indices), cells.null, cells.bad)


def _months(cells: Cells) -> pa.Array:
    """``2026-03`` of each moment; null where there is none."""
    gone = cells.null | cells.bad
    months = np.where(gone, 0, cells.values).astype("datetime64[us]").astype("datetime64[M]")
    unique, places = np.unique(months, return_inverse=True)
    named = pa.array(np.datetime_as_string(unique, unit="M").tolist(), pa.string())
    return named.take(pa.array(places.ravel(), mask=gone))


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
