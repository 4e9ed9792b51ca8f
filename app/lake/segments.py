"""Segment files: their names, how they are written, how their rows are read back."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.parquet as pq

from steptax.app.lake.files import whole_or_nothing
from steptax.app.schema import Table

ROW_GROUP_ROWS = 262_144
#: Visible once renamed: what a recorder or a collector appends.
_LIVE = re.compile(
    r"live-(?P<id>\d+)-(?P<first>\d+)-(?P<last>\d+)-(?P<rows>\d+)-[0-9a-f]{8}\.(parquet|jsonl)"
)
#: Visible once its commit names it: what an ingest or a compaction adds. The name of what an ingest
#: adds ends with its run: two runs of one input never write, or remove, a file of the other.
_PART = re.compile(
    r"part-(?P<id>[0-9a-f]+)-\d+-(?P<first>\d+)-(?P<last>\d+)-(?P<rows>\d+)(-[0-9a-f]{8})?\.parquet"
)


@dataclass(frozen=True)
class Segment:
    """One visible file of a table."""

    table: str
    job_id: str | None
    path: Path
    first: int
    last: int
    rows: int

    @property
    def is_parquet(self) -> bool:
        """False for the JSON Lines that a recorder without pyarrow writes."""
        return self.path.suffix == ".parquet"


@lru_cache(maxsize=1 << 17)
def job_folder(job_id: str) -> str:
    """Folder name of a job; any text is a valid job id."""
    return f"job={quote(job_id, safe='')}"


@lru_cache(maxsize=1 << 17)
def job_of_folder(name: str) -> str | None:
    """The job id of a folder name, or None when it is no job folder."""
    return unquote(name[4:]) if name.startswith("job=") else None


@dataclass(frozen=True)
class Name:
    """What a segment's file name says; ``commit_id`` is None for a live segment."""

    commit_id: str | None
    first: int
    last: int
    rows: int


def parse_name(name: str) -> Name | None:
    """Read a file name; None when it is no segment (a temporary, a stray file)."""
    match = _LIVE.fullmatch(name) or _PART.fullmatch(name)
    if match is None:
        return None
    commit_id = match["id"] if match.re is _PART else None
    return Name(commit_id, int(match["first"]), int(match["last"]), int(match["rows"]))


def newest_last(segments: Iterable[Segment]) -> int | None:
    """Last step of the segment that came last; of merged ones alone the largest. None of none.

    A job that went back to a checkpoint runs at a lower number than it has reached.
    """
    found = list(segments)
    live = max((s for s in found if s.path.name.startswith("live-")), key=_written, default=None)
    return max((s.last for s in found), default=None) if live is None else live.last


def _written(segment: Segment) -> str:
    return segment.path.name


def order_column(names: Sequence[str]) -> str | None:
    """The column whose range a segment's name tells: the step, or the moment of a sample."""
    return next((name for name in ("step", "ts_us") if name in names), None)


def range_of(rows: pa.Table) -> tuple[int, int]:
    """Smallest and largest step, or moment, of ``rows``; ``(0, 0)`` for tables without either."""
    column = order_column(rows.column_names)
    if column is None or rows.num_rows == 0:
        return 0, 0
    found = pc.min_max(rows[column])
    if not found["min"].is_valid:  # rows of no known step
        return 0, 0
    # Steps before zero do not occur in a name; a reader prunes by it, so widen instead.
    return max(0, found["min"].as_py()), max(0, found["max"].as_py())


def live_name(rows: pa.Table) -> str:
    """Name of a segment that is visible by its rename alone."""
    first, last = range_of(rows)
    now_us = time.time_ns() // 1000
    return f"live-{now_us:017d}-{first}-{last}-{rows.num_rows}-{uuid.uuid4().hex[:8]}.parquet"


def part_name(commit_id: str, part: int, rows: pa.Table, run: str = "") -> str:
    """Name of a segment that is visible once commit ``commit_id`` names it.

    ``run`` are eight hexadecimal digits of which run of the work it is.
    """
    first, last = range_of(rows)
    end = f"-{run}" if run else ""
    return f"part-{commit_id}-{part}-{first}-{last}-{rows.num_rows}{end}.parquet"


def sort_for_storage(table: Table, rows: pa.Table) -> pa.Table:
    """Rank-major inside a segment: one rank's rows lie together (10 bytes a row, 6x faster).

    Samples lie device by device, in the order of time, for the same reason.
    """
    if table.key[-1] == "ts_us":
        return _by_device(table, rows)
    keys = [k for k in ("job_id", "rank", "attempt", "step", "op_id", "seq") if k in table.names]
    if "rank" not in keys:
        return rows
    return rows.sort_by([(key, "ascending") for key in keys if key in rows.column_names])


def _by_device(table: Table, rows: pa.Table) -> pa.Table:
    """Sorted by key. Text is compared as numbers: a million rows take a tenth of a second."""
    columns = []
    for name in table.key:
        column = rows[name].combine_chunks()
        if pa.types.is_string(column.type):
            coded = column.dictionary_encode()
            place = pc.rank(coded.dictionary, sort_keys="ascending", tiebreaker="dense")
            column = place.take(coded.indices)
        columns.append(column.to_numpy(zero_copy_only=False))
    order = np.lexsort(columns[::-1])
    is_sorted = bool((order[1:] > order[:-1]).all())
    return rows if is_sorted else rows.take(pa.array(order))


def write_parquet(path: Path, table: Table, rows: pa.Table) -> None:
    """Write ``rows`` as one segment: zstd, integers delta-encoded, text by dictionary.

    Samples repeat few values (whole degrees, per cents): a dictionary takes a third of the room.
    """
    schema = table.arrow
    text = [f.name for f in schema if pa.types.is_string(f.type)]
    if table.key[-1] == "ts_us":
        text += [f.name for f in schema if pa.types.is_floating(f.type)]
    encodings = {f.name: "DELTA_BINARY_PACKED" for f in schema if pa.types.is_integer(f.type)}
    with whole_or_nothing(path) as temporary:
        pq.write_table(
            sort_for_storage(table, rows),
            temporary,
            compression="zstd",
            compression_level=1,
            use_dictionary=text,
            column_encoding=encodings,
            row_group_size=ROW_GROUP_ROWS,
            write_page_checksum=True,
        )


def conform(table: Table, rows: pa.Table) -> pa.Table:
    """``rows`` with exactly the columns and types of ``table``; absent columns become null."""
    columns = []
    for field in table.arrow:
        if field.name in rows.column_names:
            column = rows[field.name]
            columns.append(column if column.type == field.type else column.cast(field.type))
        else:
            columns.append(pa.nulls(rows.num_rows, field.type))
    return pa.table(columns, schema=table.arrow)


def read_segment(table: Table, segment: Segment) -> pa.Table:
    """All rows of one segment."""
    if segment.is_parquet:
        return conform(table, pq.read_table(segment.path, partitioning=None))
    options = pj.ParseOptions(explicit_schema=table.arrow, unexpected_field_behavior="ignore")
    return conform(table, pj.read_json(segment.path, parse_options=options))


def prune(segments: Iterable[Segment], first: int | None, last: int | None) -> Sequence[Segment]:
    """Segments that may hold a step in ``[first, last]``; None leaves a side open."""
    return [
        s
        for s in segments
        if (first is None or s.last >= first) and (last is None or s.first <= last)
    ]
