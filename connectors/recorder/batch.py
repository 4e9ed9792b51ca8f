"""A batch: the segments of a node's ranks as one body, with an identity that a retry keeps.

gzip of: one line of JSON (the header), then the bytes of the segments, one after the other.

    {"format": 1, "stream": "<32 hex>", "seq": 7, "host": ..., "created_us": ...,
     "pieces": [{"table", "job_id", "rank", "attempt", "name", "rows", "first", "last", "size"}]}

``stream`` is drawn anew by each sender that takes over, ``seq`` counts up in it from 1 on and
batches of a stream are sent in that order. So the receiver needs to remember one number a stream,
and those below it that never came, to know every batch that it has stored.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from steptax.connectors.recorder.columns import TABLES
from steptax.connectors.recorder.values import INT32_MAX, INT64_MAX

FORMAT = 1
#: Bytes of segments that one batch gathers; a single larger segment is a batch of its own.
PACK_BYTES = 4 * 2**20
_STREAM = re.compile(r"[0-9a-f]{32}")
_NAME = re.compile(r"live-\d{17}-\d+-\d+-\d+-[0-9a-f]{8}\.(parquet|jsonl)")
_HEADER_BYTES = 4 * 2**20


class Piece(NamedTuple):
    """One segment: which rows it holds, and its size in bytes. ``first``, ``last``: its steps."""

    table: str
    job_id: str
    rank: int
    attempt: int
    name: str
    rows: int
    first: int
    last: int
    size: int


class Header(NamedTuple):
    """What a batch says of itself."""

    stream: str
    seq: int
    host: str
    created_us: int
    pieces: tuple[Piece, ...]

    @property
    def rows(self) -> int:
        """Rows of all tables."""
        return sum(piece.rows for piece in self.pieces)


def encode_batch(header: Header, bodies: Sequence[bytes]) -> bytes:
    """The body of a request; the same input gives the same bytes."""
    head = {
        "format": FORMAT,
        **header._asdict(),
        "pieces": [piece._asdict() for piece in header.pieces],
    }
    deflate = zlib.compressobj(1, zlib.DEFLATED, 31)
    parts = [deflate.compress(json.dumps(head).encode() + b"\n")]
    parts += [deflate.compress(body) for body in bodies]
    return b"".join([*parts, deflate.flush()])


def inflate(data: bytes, limit: int) -> bytes:
    """What ``data`` holds if it is gzip, else ``data``; ValueError beyond ``limit`` bytes."""
    if data[:2] != b"\x1f\x8b":
        plain = data
    else:
        stream = zlib.decompressobj(31)
        try:
            plain = stream.decompress(data, limit + 1)
        except zlib.error as error:
            raise ValueError(f"expected gzip: {error}") from None
        if len(plain) <= limit and (not stream.eof or stream.unused_data):
            raise ValueError("expected one whole gzip stream, found a part of one or more than one")
    if len(plain) > limit:
        raise ValueError(f"more than {limit:,} bytes when unpacked")
    return plain


def read_header(data: bytes) -> Header:
    """The header of a batch, without unpacking the rest; raises ValueError."""
    stream = zlib.decompressobj(31)
    try:
        line, newline, _ = stream.decompress(data, _HEADER_BYTES).partition(b"\n")
    except zlib.error as error:
        raise ValueError(f"expected gzip: {error}") from None
    if not newline:
        raise ValueError("expected a header line")
    return _header(line)


def decode_batch(plain: bytes) -> tuple[Header, list[tuple[Piece, bytes]]]:
    """Header and segments of an unpacked batch; ValueError says what is wrong and where."""
    end = plain.find(b"\n", 0, _HEADER_BYTES)
    if end < 0:
        raise ValueError("expected a header line")
    header = _header(plain[:end])
    found: list[tuple[Piece, bytes]] = []
    at = end + 1
    for piece in header.pieces:
        found.append((piece, plain[at : at + piece.size]))
        at += piece.size
    if at != len(plain):
        raise ValueError(f"expected {at:,} bytes by the header, found {len(plain):,}")
    return header, found


def _header(line: bytes) -> Header:
    try:
        head = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("header: expected one line of JSON") from None
    if not isinstance(head, dict):
        raise ValueError("header: expected an object")
    if head.get("format") != FORMAT:
        raise ValueError(f"header: expected format {FORMAT}, found {str(head.get('format'))[:20]}")
    stream = head.get("stream")
    if not isinstance(stream, str) or _STREAM.fullmatch(stream) is None:
        raise ValueError("header, stream: expected 32 hexadecimal digits")
    pieces = head.get("pieces")
    if not isinstance(pieces, list) or not pieces:
        raise ValueError("header, pieces: expected at least one")
    return Header(
        stream,
        _whole(head, "seq", "header", least=1),
        str(head.get("host"))[:255],
        _whole(head, "created_us", "header"),
        tuple(_piece(piece, f"piece {place}") for place, piece in enumerate(pieces)),
    )


def _piece(given: Any, where: str) -> Piece:
    if not isinstance(given, dict):
        raise ValueError(f"{where}: expected an object")
    table, job_id, name = given.get("table"), given.get("job_id"), given.get("name")
    if not isinstance(table, str) or table not in TABLES:
        raise ValueError(f"{where}, table: expected one of {', '.join(TABLES)}")
    if not isinstance(job_id, str) or not job_id or "\0" in job_id:
        raise ValueError(f"{where}, job_id: expected text")
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise ValueError(f"{where}, name: expected the name of a live segment")
    return Piece(
        table,
        job_id,
        _whole(given, "rank", where, INT32_MAX),
        _whole(given, "attempt", where, INT32_MAX),
        name,
        *(_whole(given, field, where) for field in ("rows", "first", "last", "size")),
    )


def _whole(
    given: dict[str, Any], field: str, where: str, most: int = INT64_MAX, least: int = 0
) -> int:
    value = given.get(field)
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{where}, {field}: expected a whole number in {least}..{most}")
    return value


def names_of(pieces: Iterable[Piece]) -> set[tuple[str, str, str]]:
    """What identifies each segment in a spool: its job, table and name."""
    return {(piece.job_id, piece.table, piece.name) for piece in pieces}
