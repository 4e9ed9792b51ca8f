"""What a report holds, whatever file it becomes. The numbers are those of the view models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from steptax.app.charts.tables import Column, Table
from steptax.app.charts.waterfall import WaterfallBar
from steptax.app.compute.measure import Measure
from steptax.app.format import (
    UNKNOWN,
    format_count,
    format_exact,
    format_interval,
    format_moment,
    format_share,
    format_value,
)

#: Units of what is added up, and so told with all digits.
_EXACT = ("USD", "GPU-hours")


@dataclass(frozen=True)
class Number:
    """One headline number."""

    title: str
    metric_id: str
    measure: Measure
    note: str = ""
    comparison: str | None = None
    """What it is compared with, or a share of."""
    details: tuple[str, ...] = ()
    """What stands under it."""
    is_lead: bool = False
    """Whether it stands first and large in a brief."""
    is_printed: bool = True

    @property
    def text(self) -> str:
        """The value in a readable size, or ``unknown``."""
        return format_value(self.measure.value, self.measure.unit)

    @property
    def exact(self) -> str:
        """Money to the cent, hours with all digits; empty where ``text`` has them already."""
        if self.measure.value is None or not self.measure.unit.startswith(_EXACT):
            return ""
        full = format_exact(self.measure.value, self.measure.unit)
        return "" if full == self.text else full

    @property
    def basis(self) -> str:
        """Interval and evidence, or why there is no value."""
        if self.measure.value is None:
            return self.measure.reason or ""
        level = self.measure.level
        parts = (format_interval(self.measure), None if level is None else level.label)
        return " · ".join(part for part in parts if part)


@dataclass(frozen=True)
class Section:
    """A titled part: bars, text, and a table of which ``columns`` and ``rows`` are printed.

    Files of data hold the whole table, also of sections that are not printed.
    """

    key: str
    title: str
    table: Table | None = None
    text: tuple[str, ...] = ()
    bars: tuple[WaterfallBar, ...] = ()
    columns: tuple[str, ...] = ()
    """Keys of the columns that are printed; all without any."""
    rows: int | None = None
    """Rows that are printed; None: all."""
    total: tuple[Any, ...] | None = None
    """A last row in the order of the table's columns, printed apart."""
    scale: float | None = None
    """Where the axis of the bars ends; None: at the size of the first one."""
    is_half: bool = False
    """Whether it stands beside another one."""
    is_printed: bool = True
    table_is_printed: bool = True

    def head(self) -> list[Column]:
        """The printed columns."""
        if self.table is None or not self.table_is_printed:
            return []
        return [c for c in self.table.columns if not self.columns or c.key in self.columns]

    def body(self) -> list[list[str]]:
        """The printed rows, as text."""
        return [] if self.table is None else [self._row(r) for r in self.table.rows[: self.rows]]

    def foot(self) -> list[str]:
        """The printed row of totals; empty without one."""
        return [] if self.total is None else self._row(self.total)

    def left_out(self) -> int:
        """Rows that are in the table and not printed."""
        rows = 0 if self.table is None else len(self.table.rows)
        return 0 if self.rows is None else max(0, rows - self.rows)

    def _row(self, row: Sequence[Any]) -> list[str]:
        assert self.table is not None
        printed = {column.key for column in self.head()}
        return [
            cell_text(value, column)
            for value, column in zip(row, self.table.columns, strict=True)
            if column.key in printed
        ]


@dataclass(frozen=True)
class Link:
    """The page that shows the same, with its choices."""

    url: str
    is_whole: bool
    """False: only the path, since nobody said where the pages are served."""
    note: str = ""
    """What the page cannot show."""


@dataclass(frozen=True)
class Report:
    """A report before it is a file."""

    kind: str
    title: str
    period: str
    sentence: str
    numbers: tuple[Number, ...]
    sections: tuple[Section, ...]
    basis: tuple[str, ...]
    """What the numbers rest on: coverage, price, zone."""
    notes: tuple[str, ...]
    link: Link
    made_at_us: int
    version: str
    first: tuple[str, ...] = ()
    """What to do first, and why: its title and lines; empty where nothing is known."""
    is_brief: bool = False
    """Whether it must fit one page: names are clipped, and notes beyond some are counted."""


def cell_text(value: Any, column: Column) -> str:
    """One cell for people, with all digits; what is not known says so."""
    if column.kind == "text":
        return "" if value is None else str(value)
    if value is None:
        return UNKNOWN
    if column.kind == "time":
        return format_moment(int(value))
    if column.kind == "ratio":
        return format_share(float(value))
    if column.kind == "count":
        return format_count(int(value))
    if column.kind == "usd":
        return format_exact(float(value), "USD")
    if isinstance(value, Decimal):
        return f"{value:,.2f}"
    if column.kind == "time_span":
        return f"{float(value):,.2f}"
    return format_exact(float(value), "")
