"""Lines of CSV as columns of text: no type is guessed, and a bad line costs only itself."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pacsv

from steptax.app.errors import InputError
from steptax.connectors.sources import (
    HEAD_BYTES,
    BadLine,
    Format,
    TextBlock,
    count_per_line,
    line_ends,
    text_of,
)
from steptax.connectors.tables.csvlines import (
    RECORD_BYTES,
    RECORD_LINES,
    Lines,
    decodes_whole,
    quote_pairs,
)
from steptax.connectors.tables.rows import Header, Rows, column_names, looks_like_number

_DELIMITERS = ",\t;|"
_SAMPLE_LINES = 50


def csv_header(data: bytes, where: str) -> Header:
    """Header of a CSV file that begins with ``data``; InputError when it has none."""
    first = 1
    rest = data
    line, ended, rest = rest.partition(b"\n")
    while ended and not line.strip():
        first += 1
        line, ended, rest = rest.partition(b"\n")
    if not ended and len(data) >= HEAD_BYTES:
        raise InputError(
            f"has no line end in its first {HEAD_BYTES} bytes",
            where=where,
            hint="Parquet, CSV or JSON Lines in UTF-8 are read",
        )
    text = _header_text(line.rstrip(b"\r"), f"{where}, line {first}")
    found = [(_fields(text, delimiter) or [], delimiter) for delimiter in _DELIMITERS]
    names, delimiter = max(found, key=lambda pair: len(pair[0]))
    if not names:
        raise InputError(
            "the column names cannot be read",
            where=f"{where}, line {first}",
            hint="put the column names on the first line, quotes closed",
        )
    if all(looks_like_number(name) for name in names):
        raise InputError(
            f"the first line holds numbers, not column names: {text[:80]!r}",
            where=f"{where}, line {first}",
            hint="put the column names on the first line",
        )
    columns = column_names(names, f"{where}, line {first}")
    return Header(
        Format.DELIMITED, columns, delimiter, first + 1, _samples(rest, len(columns), delimiter)
    )


def cut_records(data: bytes, cut: int, header: Header) -> int:
    """``cut``, or the start of the record whose quoted value goes on after it."""
    if data.find(b'"', 0, cut) < 0:
        return cut
    array = np.frombuffer(data, np.uint8, cut)
    if not (count_per_line(array, line_ends(array), '"') % 2).any():
        return cut  # every quote is closed on its line: nothing else need be known
    lines = Lines.of(data[:cut], header)
    odd = np.flatnonzero(lines.quotes % 2)
    if not len(odd):
        return cut
    last = int(odd[-1])
    start = int(lines.starts[last])
    closed = last in quote_pairs(odd.tolist(), lines).values()
    too_far = len(lines.ends) - last > RECORD_LINES or cut - start > RECORD_BYTES
    return cut if closed or too_far or lines.plain[last + 1 :].any() else start


def split_csv(block: TextBlock, header: Header, wanted: Collection[str]) -> Rows:
    """The records of ``block`` as text columns; of ``header``'s columns only ``wanted`` ones."""
    chosen = [i for i, name in enumerate(header.columns) if name in wanted]
    lines = Lines.of(block.data, header)
    data_from = max(0, header.first_row - block.first_line)
    idle = lines.blank.copy()
    idle[:data_from] = True
    usable = lines.decodes & ~idle & ~lines.bare_cr & (lines.delimiters == len(header.columns) - 1)
    table: list[pa.Array] | None = None
    fast = usable
    # The fewer lines are left to the fast parser, the surer it is to take each for one record.
    for sure in (lines.quotes % 2 == 0, lines.quotes == 0, np.zeros_like(usable)):
        fast = usable & sure
        table = _parse_fast(lines, fast, header, chosen)
        if table is not None:
            break
    assert table is not None  # no lines parse to no rows
    slow, bad = _parse_slow(lines, np.flatnonzero(~fast & ~idle), header, block.first_line)
    first = np.flatnonzero(fast)
    last = first
    if slow:
        first = np.concatenate([first, [i for i, _, _ in slow]])
        last = np.concatenate([last, [j for _, j, _ in slow]])
        order = np.argsort(first, kind="stable")
        first, last = first[order], last[order]
        table = [
            pa.concat_arrays([column, pa.array([f[i] for _, _, f in slow], pa.string())]).take(
                pa.array(order)
            )
            for column, i in zip(table, chosen, strict=True)
        ]
    data = block.data

    def raw(row: int) -> str:
        return text_of(data[int(lines.starts[first[row]]) : int(lines.ends[last[row]])])

    return Rows(
        {header.columns[i]: column for i, column in zip(chosen, table, strict=True)},
        (block.first_line + first).astype(np.int64),
        raw,
        (*bad, *block.broken),
    )


def _parse_fast(
    lines: Lines, chosen_lines: npt.NDArray[np.bool_], header: Header, chosen: list[int]
) -> list[pa.Array] | None:
    """Columns of the lines that are each one record; None when they are not after all."""
    count = int(chosen_lines.sum())
    if not count:
        return [pa.array([], pa.string()) for _ in chosen]
    data = lines.data
    if count < len(chosen_lines):
        keep = np.repeat(chosen_lines, lines.ends - lines.starts + 1)
        data = lines.array[keep].tobytes()
    names = [str(i) for i in range(len(header.columns))]
    wanted = [str(i) for i in chosen]
    try:
        table = pacsv.read_csv(
            pa.py_buffer(data),
            pacsv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
            pacsv.ParseOptions(delimiter=header.delimiter),
            pacsv.ConvertOptions(
                check_utf8=False,  # each line was decoded already
                column_types=dict.fromkeys(wanted, pa.string()),
                include_columns=wanted,
                strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid:
        return None
    if table.num_rows != count:
        return None
    return [table.column(name).combine_chunks() for name in wanted]


def _parse_slow(
    lines: Lines, indices: npt.NDArray[np.int64], header: Header, first_line: int
) -> tuple[list[tuple[int, int, list[str]]], list[BadLine]]:
    """Records ``(first line, last line, fields)`` and bad lines among lines that need care."""
    good: list[tuple[int, int, list[str]]] = []
    bad: list[BadLine] = []
    if not len(indices):
        return good, bad
    pairs = quote_pairs([int(i) for i in indices if lines.quotes[i] % 2], lines)
    done = -1
    for i in map(int, indices):
        if i <= done:
            continue
        last = pairs.get(i, i)
        raw = lines.bytes_of(i, last)
        fields = _fields(raw.decode(), header.delimiter) if decodes_whole(raw) else None
        if fields is not None and len(fields) == len(header.columns):
            good.append((i, last, fields))
            done = last
        elif raw.strip():
            own = lines.bytes_of(i, i)
            bad.append(BadLine(first_line + i, _why_bad(own, header), text_of(own)))
    return good, bad


def _why_bad(raw: bytes, header: Header) -> str:
    if not decodes_whole(raw):
        return "expected UTF-8 text, found other bytes"
    fields = _fields(raw.decode(), header.delimiter)
    if fields is None:
        return "expected fields with closed quotes, found a stray quote or line end"
    return f"expected {len(header.columns)} fields, found {len(fields)}"


def _fields(text: str, delimiter: str) -> list[str] | None:
    """The fields of one record, or None when ``text`` is not exactly one."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        records = list(reader)
    except csv.Error:
        return None
    return records[0] if len(records) == 1 else None


def _header_text(line: bytes, where: str) -> str:
    try:
        text = line.decode()
    except UnicodeDecodeError:
        raise InputError(
            "the first line is not UTF-8 text",
            where=where,
            hint="Parquet, CSV or JSON Lines are read; convert other text with iconv -t UTF-8",
        ) from None
    if any(ord(c) < 32 and c != "\t" for c in text):
        raise InputError(
            "the first line holds control characters: is it text?",
            where=where,
            hint="Parquet, CSV or JSON Lines in UTF-8 with \\n or \\r\\n line ends are read",
        )
    return text


def _samples(data: bytes, n_fields: int, delimiter: str) -> tuple[str | None, ...]:
    """The first value of each column that is not empty, among the first lines of ``data``."""
    records: Sequence[list[str]] = [
        fields
        for line in data.split(b"\n", _SAMPLE_LINES)[:_SAMPLE_LINES]
        if decodes_whole(line)
        and (fields := _fields(line.decode().rstrip("\r"), delimiter)) is not None
        and len(fields) == n_fields
    ]
    return tuple(next((r[i] for r in records if r[i].strip()), None) for i in range(n_fields))
