"""A report as data: one CSV with every cell, or a workbook with a sheet per table."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from steptax.app.charts.tables import Column, Table, csv_cell, table
from steptax.app.errors import UserError, install_hint
from steptax.app.metrics import METRICS
from steptax.app.report.models import Report, Section

#: What Excel takes in one cell, and in the name of a sheet.
_CELL_CHARACTERS, _SHEET_CHARACTERS = 32_767, 31
_NOT_IN_SHEET_NAMES = re.compile(r"[\[\]:*?/\\]")
_XLSX_FORMATS = {
    "usd": "$#,##0.00;-$#,##0.00",
    "count": "#,##0",
    "ratio": "0.0 %",
    "number": "#,##0.00####",
    "time_span": "#,##0.00",
}
CSV_COLUMNS = ("table", "row", "field", "value", "unit")


def tables_of(report: Report) -> list[Section]:
    """All that ``report`` holds as tables: about it, its numbers, its sections."""
    about = [
        ("title", report.title),
        ("period", report.period),
        ("sentence", report.sentence),
        *(("basis", line) for line in report.basis),
        *(
            (section.key, line)
            for section in report.sections
            if section.is_printed
            for line in section.text
        ),
        ("page", report.link.url),
        ("made", datetime.fromtimestamp(report.made_at_us / 1e6, UTC).isoformat()),
        ("version", report.version),
        *(("note", note) for note in report.notes),
    ]
    text = (Column("what", "what", "text", width_px=110), Column("text", "text", "text"))
    return [
        Section("about", "About", table(text, about)),
        Section("numbers", "Numbers", _numbers(report)),
        *(s for s in report.sections if s.table is not None and s.table.rows),
    ]


def _numbers(report: Report) -> Table:
    columns = (
        Column("metric_id", "metric", "text"),
        Column("title", "title", "text"),
        Column("value", "value", "number"),
        Column("unit", "unit", "text"),
        Column("low", "from", "number"),
        Column("high", "to", "number"),
        Column("level", "evidence", "text"),
        Column("unknown", "why it is not known", "text"),
        Column("formula", "formula", "text"),
        Column("note", "note", "text"),
    )
    rows = [
        (
            number.metric_id,
            number.title,
            number.measure.value,
            number.measure.unit,
            number.measure.low,
            number.measure.high,
            "" if number.measure.level is None else number.measure.level.label,
            number.measure.reason or "",
            METRICS[number.metric_id].formula if number.metric_id in METRICS else "",
            "; ".join(filter(None, (number.note, *number.measure.warnings))),
        )
        for number in report.numbers
    ]
    return table(columns, rows)


def as_csv(report: Report) -> str:
    """One line per cell: table, row, field, value. A value that is not known is empty.

    Text that a spreadsheet would run as a formula is led by an apostrophe.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for section in tables_of(report):
        assert section.table is not None
        for row, column, value in _cells(section.table):
            writer.writerow(
                [section.key, row, column.key, csv_cell(value, column.kind), _unit(column)]
            )
    return out.getvalue()


def _cells(made: Table) -> Iterator[tuple[int, Column, Any]]:
    for number, row in enumerate(made.rows, 1):
        for column, value in zip(made.columns, row, strict=True):
            yield number, column, value


def _unit(column: Column) -> str:
    return {"usd": "USD", "ratio": "ratio", "time": "UTC"}.get(column.kind, "")


def as_xlsx(report: Report) -> bytes:
    """A workbook: text is text, also where it begins like a formula; numbers are numbers.

    UserError where the library that writes it is not installed.
    """
    try:
        import xlsxwriter
    except ImportError:
        raise UserError(
            "writing a workbook needs xlsxwriter, which is not installed",
            where="--format xlsx",
            hint=f"{install_hint('reports')}; or use --format csv",
        ) from None
    out = io.BytesIO()
    book = xlsxwriter.Workbook(
        out,
        {"in_memory": True, "strings_to_formulas": False, "strings_to_urls": False},
    )
    book.set_properties({"title": report.title, "comments": report.link.url})
    formats = {kind: book.add_format({"num_format": f}) for kind, f in _XLSX_FORMATS.items()}
    head = book.add_format({"bold": True, "text_wrap": True, "valign": "top"})
    for section in tables_of(report):
        assert section.table is not None
        sheet = book.add_worksheet(_NOT_IN_SHEET_NAMES.sub(" ", section.title)[:_SHEET_CHARACTERS])
        sheet.freeze_panes(1, 0)
        for place, column in enumerate(section.table.columns):
            sheet.write_string(0, place, column.title, head)
            sheet.set_column(place, place, _width(column, section.table.rows, place))
        for number, column, value in _cells(section.table):
            _write(sheet, number, section.table.columns.index(column), value, column, formats)
    book.close()
    return out.getvalue()


def _write(
    sheet: Any, row: int, place: int, value: Any, column: Column, formats: dict[str, Any]
) -> None:
    if value is None:
        return
    if column.kind == "text":
        sheet.write_string(row, place, str(value)[:_CELL_CHARACTERS])
    elif column.kind == "time":
        # With its zone, which a date of a workbook cannot have.
        sheet.write_string(row, place, csv_cell(value, "time"))
    else:
        sheet.write_number(row, place, float(value), formats[column.kind])


def _width(column: Column, rows: Sequence[Sequence[Any]], place: int) -> int:
    """Characters: as wide as the content, within reason."""
    longest = max((len(str(row[place])) for row in rows[:200]), default=0)
    return min(60, max(10, longest + 2, len(column.title) // 2 + 2))
