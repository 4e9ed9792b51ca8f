"""Tables whose columns keep one type, with their total apart, and their CSV.

A total is not a row among rows: it would turn numbers into text in a column that mixes both, and
would be sorted into the middle.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal

import pyarrow as pa

from steptax.app.format import (
    UNKNOWN,
    format_count,
    format_exact,
    format_share,
    format_usd,
    format_value,
)
from steptax.app.printable import no_formula

Kind = Literal["text", "count", "number", "ratio", "usd", "time_span", "time"]

_ARROW: dict[Kind, Callable[[], Any]] = {
    "text": pa.string,
    "count": pa.int64,
    "number": pa.float64,
    "ratio": pa.float64,
    "usd": pa.float64,
    "time_span": pa.float64,
    "time": lambda: pa.timestamp("us", tz="UTC"),
}
_FORMATS: dict[Kind, str] = {
    "count": "localized",
    "number": "%.4g",
    "ratio": "%.1f %%",
    "time_span": "%.2f",
}
#: Units of what is counted in whole ones.
_COUNTED = frozenset({"jobs", "devices", "hosts", "runs"})
#: Shares below it would be written as 0.0 %.
_SMALL_SHARE = 0.0005
#: From here on four digits of a number, or three of a sum, leave out what it is checked by.
_LARGE, _LARGE_SUM = 1_000.0, 100.0
_UNKNOWN_LABELS = {"", "n/a", "na", "nan", "none", "null", UNKNOWN}


@dataclass(frozen=True)
class Column:
    """One column: ``key`` in the CSV, ``title`` on the page."""

    key: str
    title: str
    kind: Kind
    help: str | None = None
    width_px: int | None = None
    """None: as the content wants it."""


@dataclass(frozen=True)
class Table:
    """Rows in the order of ``columns``; None is a value that is not known."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    total: tuple[str, ...] = ()
    """The total in words, one entry per summed column; shown under the rows."""
    note: str | None = None

    def arrow(self, limit: int | None = None) -> Any:
        """The first ``limit`` rows as an Arrow table, one type per column; shares in percent."""
        rows = self.rows if limit is None else self.rows[:limit]
        arrays = {
            column.key: pa.array(
                [_typed(row[i], column.kind) for row in rows], type=_ARROW[column.kind]()
            )
            for i, column in enumerate(self.columns)
        }
        return pa.table(arrays)

    def shown(self, limit: int) -> Any:
        """As ``arrow``; where no format of a column suits all its numbers, with the text of each.

        A page sorts by the value and shows the text: ``<0.1 %``, where digits would say 0.0 %.
        """
        texts = {
            column.key: text
            for column in self.columns
            if (text := self._text_of(column)) is not None
        }
        rows = self.arrow(limit)
        if not texts:
            return rows
        import pandas as pd

        frame = rows.to_pandas(types_mapper=pd.ArrowDtype)
        return frame.style.format({key: _or_nothing(text) for key, text in texts.items()})

    def _text_of(self, column: Column) -> Callable[[Any], str] | None:
        """How each number of ``column`` is written, where one format is not right for all of them.

        Shares and amounts that are too small for the usual digits, and large numbers: all have
        as many decimals, two or none.
        """
        if column.kind not in ("ratio", "usd", "number"):
            return None
        place = self.columns.index(column)
        known = [abs(row[place]) for row in self.rows if row[place]]
        if column.kind == "ratio" and any(value < _SMALL_SHARE for value in known):
            return lambda percent: format_share(float(percent) / 100.0)
        if column.kind == "usd" and known and max(known) < 1:
            return lambda usd: format_usd(float(usd))
        if column.kind == "number" and known and max(known) >= _LARGE:
            decimals = 0 if all(float(value).is_integer() for value in known) else 2
            return lambda value: f"{float(value):,.{decimals}f}"
        return None

    def number_format(self, column: Column) -> str | None:
        """How a page writes the numbers of ``column``; None where ``shown`` has their texts."""
        if self._text_of(column) is not None:
            return None
        return "dollar" if column.kind == "usd" else _FORMATS[column.kind]

    def csv(self) -> str:
        """All rows; a value that is not known is an empty field. No total: a program would add it.

        Text that a spreadsheet would run as a formula is led by an apostrophe.
        """
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([column.key for column in self.columns])
        for row in self.rows:
            writer.writerow(
                [
                    csv_cell(value, column.kind)
                    for value, column in zip(row, self.columns, strict=True)
                ]
            )
        return out.getvalue()


def _or_nothing(write: Callable[[Any], str]) -> Callable[[Any], str]:
    """As ``write``; empty for what is not known."""
    import pandas as pd

    return lambda value: "" if pd.isna(value) else write(value)


def table(
    columns: Sequence[Column],
    rows: Iterable[Sequence[Any]],
    *,
    sum_of: Mapping[str, str] | None = None,
    note: str | None = None,
) -> Table:
    """A table; ``sum_of`` maps the key of a column to the unit in which its total is written.

    A total over rows of which some are unknown says how many it leaves out.
    """
    kept = tuple(tuple(row) for row in rows)
    places = {column.key: i for i, column in enumerate(columns)}
    totals = []
    for key, unit in (sum_of or {}).items():
        values = [row[places[key]] for row in kept]
        known = [float(value) for value in values if value is not None]
        if not known:
            continue
        text = total_text(sum(known), unit)
        missing = len(values) - len(known)
        totals.append(f"{text} (without {missing} unknown)" if missing else text)
    return Table(tuple(columns), kept, tuple(totals), note)


def total_text(value: float, unit: str) -> str:
    """A sum as it stands under a table: with all digits where three would leave cents out.

    What is counted has no tenths: ``58 jobs``.
    """
    if unit in _COUNTED:
        return f"{value:,.0f} {unit.removesuffix('s') if round(value) == 1 else unit}"
    return format_exact(value, unit) if abs(value) >= _LARGE_SUM else format_value(value, unit)


def pivot(
    records: Iterable[Mapping[str, Any]],
    *,
    index: str,
    columns: str,
    value: str,
    unit: str,
    index_title: str,
) -> Table:
    """Sums of ``value`` by ``index`` (down) and ``columns`` (across), naturally sorted.

    Labels are text: ``1, 2, 12, unknown``. A pair without records is None, not zero. The last
    column is the sum of the row; the total of the table is kept apart.
    """
    sums: dict[tuple[str, str], float] = {}
    for record in records:
        key = (label_of(record[index]), label_of(record[columns]))
        sums[key] = sums.get(key, 0.0) + float(record[value])
    down = sorted({row for row, _ in sums}, key=natural_key)
    across = sorted({column for _, column in sums}, key=natural_key)
    shape = [
        Column(index, index_title, "text"),
        *(Column(name, name, "number") for name in across),
        Column("total", "total", "number"),
    ]
    rows = []
    for name in down:
        cells = [sums.get((name, column)) for column in across]
        rows.append([name, *cells, sum(cell for cell in cells if cell is not None)])
    return table(shape, rows, sum_of={"total": unit})


def records_table(records: Sequence[Mapping[str, Any]]) -> Table:
    """A table of records whose fields are not known beforehand; a field keeps one type.

    Numbers stay numbers where every known value is one; anything else is text.
    """
    keys = list(dict.fromkeys(key for record in records for key in record))
    columns = [_column_of(key, [record.get(key) for record in records]) for key in keys]
    rows = [
        [_as_kind(record.get(column.key), column.kind) for column in columns] for record in records
    ]
    return table(columns, rows)


def label_of(value: object) -> str:
    """A label for grouping; the many ways to write nothing are one."""
    text = "" if value is None else str(value).strip()
    return UNKNOWN if text.lower() in _UNKNOWN_LABELS else text


def natural_key(text: str) -> tuple[bool, list[tuple[int, int, str]]]:
    """Sorts 2 before 12, and unknown last."""
    parts = re.findall(r"\d+|\D+", text)
    return text == UNKNOWN, [
        (0, int(part), "") if part.isdecimal() else (1, 0, part.lower()) for part in parts
    ]


def count_text(table: Table) -> str:
    """``12 rows``, for the line of totals."""
    rows = len(table.rows)
    return f"{format_count(rows)} {'row' if rows == 1 else 'rows'}"


def _typed(value: Any, kind: Kind) -> Any:
    if value is None:
        return None
    if kind == "text":
        return str(value)
    if kind == "ratio":
        return 100.0 * float(value)
    return int(value) if kind in {"count", "time"} else float(value)


def csv_cell(value: Any, kind: Kind) -> Any:
    """``value`` as a file of data holds it; no text that a spreadsheet would run as a formula."""
    if value is None:
        return ""
    if kind == "time":
        return datetime.fromtimestamp(int(value) / 1e6, UTC).isoformat(timespec="microseconds")
    if kind == "text":
        return no_formula(str(value))
    return value


def _column_of(key: str, values: Sequence[Any]) -> Column:
    known = [value for value in values if value is not None]
    title = key.replace("_", " ")
    if key.endswith("_us") and known and all(_is_number(value) for value in known):
        is_moment = all(value > 1e14 for value in known)
        return Column(key, title.removesuffix(" us"), "time") if is_moment else _numeric(key, known)
    return (
        _numeric(key, known)
        if known and all(_is_number(v) for v in known)
        else Column(key, title, "text")
    )


def _numeric(key: str, known: Sequence[Any]) -> Column:
    kind: Kind = "count" if all(isinstance(value, int) for value in known) else "number"
    return Column(key, key.replace("_", " "), kind)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)


def _as_kind(value: Any, kind: Kind) -> Any:
    if value is None or kind != "text":
        return value
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple, set)) else str(value)
