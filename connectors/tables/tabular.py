"""What the connectors of tables share: any table format in, screened columns out."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from steptax.app.errors import InputError
from steptax.connectors.base import Connector, LineFormat, Options, RawChunk
from steptax.connectors.sources import (
    HEAD_BYTES,
    Format,
    TextBlock,
    blocks,
    detect,
    head,
    is_packed,
    whole_lines,
)
from steptax.connectors.tables.columns import Plan, Target, lacking
from steptax.connectors.tables.csvrows import csv_header, cut_records, split_csv
from steptax.connectors.tables.jsonrows import json_header, split_json
from steptax.connectors.tables.rows import Header, Rows, batch_rows, column_names

#: Rows of a Parquet file that are handed on at a time.
BATCH_ROWS = 65_536


@dataclass(frozen=True)
class TableChunk:
    """Payload of a table's ``RawChunk``: whole lines of text, or a typed batch.

    ``beside`` is what was read beside the table, such as a file of sizes.
    """

    header: Header
    data: TextBlock | pa.RecordBatch
    beside: Any = None


class TabularConnector(Connector):
    """A connector of tables in Parquet, CSV or JSON Lines; the text ones also packed by gzip."""

    targets: ClassVar[tuple[Target, ...]]
    table: ClassVar[str]

    @abstractmethod
    def plan(self, header: Header, options: Options, where: str) -> Plan:
        """What each target is read from; InputError when something needed is not there."""

    def fetch(self, source: Path, options: Options) -> Iterator[RawChunk]:
        """The table in stretches of about 4 MiB of text, or 65,536 rows of Parquet."""
        header = read_header(source)
        beside = self.beside(options)
        if header.format is Format.PARQUET:
            plan = self.plan(header, options, str(source))
            first = 1
            for batch in _parquet_batches(source, sorted(plan.wanted), BATCH_ROWS):
                yield RawChunk(str(source), first, TableChunk(header, batch, beside))
                first += batch.num_rows
            return
        cut = (
            partial(cut_records, header=header)
            if header.format is Format.DELIMITED
            else whole_lines
        )
        for block in blocks(source, cut_at=cut):
            yield RawChunk(str(source), block.first_line, TableChunk(header, block, beside))

    def table_lines(self, source: Path, options: Options) -> LineFormat | None:
        """How a text table is read while it grows; None for one that is not text."""
        header = read_header(source)
        if header.format is Format.PARQUET or is_packed(source):
            return None
        self.plan(header, options, str(source))
        beside = self.beside(options)
        delimited = header.format is Format.DELIMITED
        return LineFormat(
            lambda block: RawChunk(
                str(source), block.first_line, TableChunk(header, block, beside)
            ),
            partial(cut_records, header=header) if delimited else whole_lines,
        )

    def beside(self, options: Options) -> Any:
        """What is read beside the table; nothing by default."""
        return None

    def first_rows(self, source: Path, options: Options) -> tuple[Header, Plan, Rows]:
        """Header, plan and the rows of the head of ``source``; InputError when there are none."""
        header = read_header(source)
        plan = self.plan(header, options, str(source))
        whole = True
        if header.format is Format.PARQUET:
            batches = _parquet_batches(source, sorted(plan.wanted), 4096)
            rows = next((batch_rows(batch, 1) for batch in batches if batch.num_rows), None)
        else:
            data = head(source)
            # What follows the last line end of a longer file may be cut.
            whole = len(data) < HEAD_BYTES - len(b"\xef\xbb\xbf")
            block = TextBlock(1, data if whole else data[: data.rfind(b"\n") + 1] or data)
            rows = split_rows(TableChunk(header, block), 1, plan)
        if rows is None or not (len(rows) or rows.bad):
            if not whole:
                raise InputError(
                    f"its first row goes on for more than {HEAD_BYTES:,} bytes",
                    where=str(source),
                    hint="check that it is a table with each row in a line of its own",
                )
            raise InputError(
                "has column names and no rows", where=str(source), hint="check that it is complete"
            )
        return header, plan, rows


def read_header(path: Path) -> Header:
    """Format and columns of a table file; InputError when it is none."""
    form = detect(path)
    where = str(path)
    if form is Format.PARQUET:
        with _parquet(path) as file:
            return Header(form, column_names(file.schema_arrow.names, where), samples=_peek(file))
    read = json_header if form is Format.JSON_LINES else csv_header
    return read(head(path), where)


def split_rows(chunk: TableChunk, first_row: int, plan: Plan) -> Rows:
    """The rows of a chunk, with the columns that ``plan`` wants."""
    if not isinstance(chunk.data, TextBlock):
        return batch_rows(chunk.data, first_row)
    split = split_json if chunk.header.format is Format.JSON_LINES else split_csv
    return split(chunk.data, chunk.header, plan.wanted)


def require(targets: tuple[Target, ...], plan: Plan, header: Header, where: str) -> None:
    """InputError that names every required target without a column."""
    missing = lacking(targets, plan)
    if missing:
        first = missing[0]
        raise InputError(
            f"no column for {', '.join(t.name for t in missing)}; "
            f"the file has {', '.join(header.columns)}",
            where=where,
            hint=f"say which one it is: --map {first.name}=COLUMN",
        )


def _parquet(path: Path) -> Any:
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(
            f"is a damaged or cut Parquet file: {str(error).splitlines()[0][:200]}",
            where=str(path),
            hint="copy or write it anew",
        ) from error


def _parquet_batches(path: Path, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
    """Batches of a Parquet file, one row group in memory at a time; InputError when damaged."""
    at = 0
    with _parquet(path) as file:
        batches = file.iter_batches(rows, columns=columns, use_threads=False)
        while True:
            try:
                batch = next(batches, None)
            except (pa.ArrowException, OSError, ValueError) as error:
                raise InputError(
                    f"is damaged: {str(error).splitlines()[0][:200]}",
                    where=f"{path}, after row {at}",
                    hint="copy or write it anew",
                ) from error
            if batch is None:
                return
            at += batch.num_rows
            yield batch


def _peek(file: Any) -> tuple[str | None, ...]:
    """The first value of each column as text; none where the first rows cannot be read."""
    try:
        batch = next(file.iter_batches(64, use_threads=False), None)
    except (pa.ArrowException, OSError, ValueError):
        batch = None
    if batch is None:
        return ()
    found = (next((v for v in c.to_pylist() if v is not None), None) for c in batch.columns)
    return tuple(None if value is None else str(value) for value in found)
