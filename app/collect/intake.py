"""From the body of a request to rows that the lake takes, and rejects that say why not."""

from __future__ import annotations

import io
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.parquet as pq

from steptax.app.collect.explain import explain_lines
from steptax.app.lake.segments import conform, job_folder
from steptax.app.moments import LAST_US
from steptax.app.schema import Reject, Table, table
from steptax.connectors.recorder.batch import Piece, decode_batch, inflate

#: Of a body as it comes, and unpacked. A sender's batch is a tenth of it.
BODY_BYTES = 16 * 2**20
UNPACKED_BYTES = 64 * 2**20
#: Rows of one segment, and bytes of its columns once read: a small Parquet file can hold much.
_PIECE_ROWS = 1_000_000
_RAW_CHARACTERS = 500
_NAME_BYTES = 255
_NOT_NEGATIVE = ("rank", "step", "attempt", "duration_us", "start_us")
_TIMES = ("duration_us", "start_us", "end_us", "ts_us")


@dataclass
class Intake:
    """A batch that could be read. ``refused`` are the places of pieces that could not, and why."""

    stream: str
    seq: int
    host: str
    size_bytes: int
    rows: dict[tuple[str, str], list[pa.Table]] = field(default_factory=dict)
    rejects: list[Reject] = field(default_factory=list)
    refused: list[tuple[int, str]] = field(default_factory=list)

    @property
    def count(self) -> int:
        """Rows that were accepted."""
        return sum(part.num_rows for parts in self.rows.values() for part in parts)

    def add(self, key: tuple[str, str], rows: pa.Table) -> None:
        """Accept rows of a table and job."""
        self.rows.setdefault(key, []).append(rows)


class _RefusedError(ValueError):
    """Why a piece is not taken, and the column concerned."""

    def __init__(self, reason: str, column: str | None = None) -> None:
        super().__init__(reason)
        self.column = column


def read_batch(body: bytes) -> Intake:
    """Unpack and validate. Raises ValueError when the batch as a whole cannot be read.

    A segment that does not hold what its table wants is left out as a whole: a recorder writes no
    such rows, so whatever wrote it cannot be trusted with the others of it either.
    """
    plain = inflate(body, UNPACKED_BYTES)
    header, parts = decode_batch(plain)
    intake = Intake(header.stream, header.seq, header.host, len(plain))
    groups: dict[tuple[str, str], list[tuple[int, Piece, bytes]]] = {}
    for place, (piece, data) in enumerate(parts):
        groups.setdefault((piece.table, piece.job_id), []).append((place, piece, data))
    for key, found in groups.items():
        spec = table(key[0])
        # Most batches are right: all JSON Lines of a table at once, and one by one where not.
        lines = [item for item in found if item[1].name.endswith(".jsonl")]
        others = [item for item in found if item not in lines]
        if len(lines) > 1:
            try:
                joined = b"".join(_whole_lines(data) for _, _, data in lines)
                rows = sum(piece.rows for _, piece, _ in lines)
                intake.add(key, _checked(spec, key[1], rows, _read_lines(spec, joined)))
            except _RefusedError:
                others = found
        else:
            others = found
        for place, piece, data in others:
            try:
                is_lines = piece.name.endswith(".jsonl")
                read = (
                    _read_lines(spec, _whole_lines(data)) if is_lines else _read_parquet(spec, data)
                )
                intake.add(key, _checked(spec, key[1], piece.rows, read))
            except _RefusedError as refusal:
                intake.refused.append((place, str(refusal)))
                intake.rejects.append(
                    Reject(
                        spec.name,
                        f"segment {piece.name} of rank {piece.rank}: {refusal}",
                        row=place + 1,
                        field=refusal.column,
                        raw=data[:_RAW_CHARACTERS].decode("utf-8", "replace"),
                    )
                )
    return intake


def _whole_lines(data: bytes) -> bytes:
    if not data.endswith(b"\n"):
        raise _RefusedError("expected every line to end")
    return data


def _read_lines(spec: Table, data: bytes) -> pa.Table:
    options = pj.ParseOptions(explicit_schema=spec.arrow, unexpected_field_behavior="error")
    # One block: a row that were cut in two by a block's end would be an error.
    reading = pj.ReadOptions(use_threads=False, block_size=max(len(data), 1))
    try:
        return pj.read_json(io.BytesIO(data), parse_options=options, read_options=reading)
    except (pa.ArrowException, ValueError) as error:
        reason, column = explain_lines(spec, data) or (str(error)[:300], None)
        raise _RefusedError(reason, column) from None


def _read_parquet(spec: Table, data: bytes) -> pa.Table:
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
        size = sum(group.total_byte_size for group in groups)
        # Dictionaries and delta encoding unpack to more than they say; rows bound that.
        if file.metadata.num_rows > _PIECE_ROWS or size > UNPACKED_BYTES:
            raise _RefusedError(
                f"expected at most {_PIECE_ROWS:,} rows and {UNPACKED_BYTES:,} bytes"
            )
        unknown = set(file.schema_arrow.names) - set(spec.names)
        if unknown:
            raise _RefusedError(f"there is no column {min(unknown)!r}", min(unknown))
        return file.read(use_threads=False)
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, _RefusedError):
            raise
        raise _RefusedError(f"expected Parquet: {error}"[:300]) from None


def _checked(spec: Table, job_id: str, rows: int, found: pa.Table) -> pa.Table:
    if found.num_rows != rows:
        raise _RefusedError(f"expected {rows:,} rows by the name, found {found.num_rows:,}")
    if len(job_folder(job_id).encode()) > _NAME_BYTES:
        raise _RefusedError("the job id is too long for the name of a folder", "job_id")
    try:
        conformed = conform(spec, found)
    except (pa.ArrowException, ValueError) as error:
        raise _RefusedError(str(error)[:300]) from None
    for column in spec.columns:
        values = conformed[column.name]
        if not column.nullable and values.null_count:
            raise _RefusedError(f"{column.name}: expected a value in each row", column.name)
        if column.name in _NOT_NEGATIVE and (pc.min(values).as_py() or 0) < 0:
            raise _RefusedError(f"{column.name}: expected no negative value", column.name)
        if column.name in _TIMES and (pc.max(values).as_py() or 0) >= LAST_US:
            raise _RefusedError(
                f"{column.name}: expected a time before the year 10000", column.name
            )
    if not pc.all(pc.equal(conformed["job_id"], job_id)).as_py():
        raise _RefusedError(f"job_id: expected {job_id!r} in each row", "job_id")
    return conformed
