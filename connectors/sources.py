"""Opening a file that may be anything: what it is, and its bytes in blocks of whole records."""

from __future__ import annotations

import gzip
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np
import numpy.typing as npt

from steptax.app.errors import InputError

#: Bytes of text that are read, parsed and handed on at a time: what bounds the memory.
BLOCK_BYTES = 4 << 20
#: Bytes that decide what a file is, and that a probe looks at.
HEAD_BYTES = 256 << 10
#: A longer line is no record of any source we read.
LINE_BYTES = 1 << 20
#: So far the end of such a line is looked for.
SKIPPED_BYTES = 256 << 20
_GZIP = b"\x1f\x8b"
_OTHER_MAGIC = (
    (b"PK\x03\x04", "a ZIP archive", "unpack it first"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd", "unpack it first: zstd -d FILE"),
    (b"BZh", "compressed with bzip2", "unpack it first: bunzip2 FILE"),
    (b"\xfd7zXZ", "compressed with xz", "unpack it first: unxz FILE"),
    (b"\x89HDF", "an HDF5 file", "export it as Parquet or CSV"),
    (b"ARROW1", "an Arrow IPC file", "export it as Parquet or CSV"),
    (b"SQLite format 3", "a SQLite database", "export the table as CSV"),
    (b"\x80\x04", "a Python pickle", "pickles are code and are not loaded; export it as Parquet"),
    (b"\xff\xfe", "UTF-16 text", "convert it: iconv -f UTF-16 -t UTF-8 FILE"),
    (b"\xfe\xff", "UTF-16 text", "convert it: iconv -f UTF-16 -t UTF-8 FILE"),
)
_BOM = b"\xef\xbb\xbf"


class Format(Enum):
    """How a table is written down."""

    PARQUET = "Parquet"
    DELIMITED = "CSV"
    JSON_LINES = "JSON Lines"


class ByteReader(Protocol):
    """Anything with a ``read`` of bytes."""

    def read(self, size: int, /) -> bytes:
        """At most ``size`` bytes; none at the end."""


@dataclass(frozen=True)
class BadLine:
    """A line that is no record: ``reason`` says why, ``raw`` is its beginning."""

    row: int
    reason: str
    raw: str


@dataclass(frozen=True)
class TextBlock:
    """Whole lines of a text: ``first_line`` counts from 1; ``broken`` lines are not in ``data``."""

    first_line: int
    data: bytes
    broken: tuple[BadLine, ...] = ()


def check_file(path: Path) -> None:
    """InputError unless ``path`` is a readable, regular file with something in it."""
    where = str(path)
    try:
        found = path.stat()
    except FileNotFoundError:
        raise InputError("there is no such file", where=where, hint="check the path") from None
    except (OSError, ValueError) as error:
        raise InputError(
            f"cannot be opened: {error}", where=where, hint="check the path and its permissions"
        ) from error
    if stat.S_ISDIR(found.st_mode):
        raise InputError("is a folder", where=where, hint=f"name the files in it: {where}/*")
    if not stat.S_ISREG(found.st_mode):
        raise InputError("is no regular file", where=where, hint="save it to a file first")
    if found.st_size == 0:
        raise InputError(
            "is empty where a record was expected",
            where=where,
            hint="check that its writer has finished",
        )


@contextmanager
def open_bytes(path: Path) -> Iterator[ByteReader]:
    """The content of ``path``, unpacked if it is gzip; InputError when it cannot be opened."""
    check_file(path)
    try:
        raw = path.open("rb")
    except OSError as error:
        raise InputError(
            f"cannot be opened: {error.strerror}",
            where=str(path),
            hint="check its permissions",
        ) from error
    with raw:
        packed = raw.read(2) == _GZIP
        raw.seek(0)
        if not packed:
            yield raw
            return
        with gzip.GzipFile(fileobj=raw) as unpacked:
            yield unpacked


def is_packed(path: Path) -> bool:
    """Whether ``path`` is packed by gzip."""
    check_file(path)
    with path.open("rb") as handle:
        return begins_packed(handle)


def begins_packed(handle: BinaryIO) -> bool:
    """Whether a file, open at its beginning, is packed by gzip; an empty one is not."""
    found = handle.read(len(_GZIP)) == _GZIP
    handle.seek(0)
    return found


def head(path: Path) -> bytes:
    """The first ``HEAD_BYTES`` of the unpacked content; InputError when there is none."""
    with open_bytes(path) as handle:
        feed = Feed(handle)
        data = feed.read(HEAD_BYTES)
    if not data:
        raise InputError(
            feed.fault or "is empty where a record was expected",
            where=str(path),
            hint="copy or write it anew",
        )
    return data.removeprefix(_BOM)


def detect(path: Path) -> Format:
    """What ``path`` holds, by its content and not by its name; InputError names other formats."""
    data = head(path)
    where = str(path)
    if data.startswith(b"PAR1"):
        return Format.PARQUET
    refuse_no_text(data, where, "Parquet, CSV or JSON Lines in UTF-8 are read")
    start = data.lstrip()[:1]
    if start == b"[":
        raise InputError(
            "is a JSON array",
            where=where,
            hint="write JSON Lines, one object per line: jq -c '.[]' FILE",
        )
    return Format.JSON_LINES if start == b"{" else Format.DELIMITED


def refuse_no_text(data: bytes, where: str, hint: str) -> None:
    """InputError where the head of a file, ``data``, shows that it is no plain text."""
    for magic, what, cure in _OTHER_MAGIC:
        if data.startswith(magic):
            raise InputError(f"is {what}", where=where, hint=cure)
    if data.count(0) > len(data) // 4:
        raise InputError(
            "is no text: it is full of zero bytes (UTF-16 or binary)", where=where, hint=hint
        )


def whole_lines(_data: bytes, cut: int) -> int:
    """The cut of formats in which each line is a record."""
    return cut


def blocks(
    path: Path,
    *,
    cut_at: Callable[[bytes, int], int] = whole_lines,
    size: int = BLOCK_BYTES,
) -> Iterator[TextBlock]:
    """The text of ``path`` in blocks of whole lines, of about ``size`` bytes each.

    ``cut_at(data, cut)`` may move the end of a block from the line end at ``cut`` to an earlier
    one, where a record goes on over line ends. A line longer than ``LINE_BYTES``, and
    the place where a packed file breaks off, come as ``broken`` lines.
    """
    with open_bytes(path) as handle:
        feed = Feed(handle)
        carry, line = feed.read(len(_BOM)).removeprefix(_BOM), 1
        while True:
            data = carry + feed.read(size)
            if not feed.ended:
                cut = cut_at(data, data.rfind(b"\n") + 1)
            else:
                # Where a packed file breaks off, its last line is only the beginning of one.
                cut = data.rfind(b"\n") + 1 if feed.fault else len(data)
            if cut:
                yield TextBlock(line, data[:cut])
                line += data.count(b"\n", 0, cut)
            carry = data[cut:]
            if feed.ended:
                break
            if len(carry) > LINE_BYTES:
                reason = f"expected a line of at most {LINE_BYTES} bytes, found a longer one"
                yield TextBlock(line, b"", (BadLine(line, reason, text_of(carry)),))
                carry = feed.skip_line(size)
                line += 1
        if feed.fault:
            yield TextBlock(line, b"", (BadLine(line, feed.fault, text_of(carry)),))


def text_of(raw: bytes) -> str:
    """``raw`` as a person may see it: at most 500 characters, undecodable bytes escaped."""
    return raw[:500].decode("utf-8", "backslashreplace").rstrip("\r\n")[:500]


def line_ends(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """Positions of the line ends in ``data``, which must end with one."""
    return np.flatnonzero(data == ord("\n"))


def count_per_line(
    data: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64], byte: str
) -> npt.NDArray[np.int64]:
    """How often ``byte`` occurs in each line; ``ends`` as ``line_ends`` gives them."""
    return np.diff(np.searchsorted(np.flatnonzero(data == ord(byte)), ends), prepend=0)


class Feed:
    """Bytes of an open file, up to its end or to where a packed file is damaged."""

    def __init__(self, handle: ByteReader) -> None:
        self._handle = handle
        self.ended = False
        self.fault: str | None = None

    def read(self, size: int) -> bytes:
        """``size`` bytes, or fewer at the end."""
        parts: list[bytes] = []
        left = size
        try:
            while left > 0 and not self.ended:
                part = self._handle.read(min(left, 1 << 18))
                self.ended = not part
                parts.append(part)
                left -= len(part)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            self.ended = True
            self.fault = f"the compressed file breaks off or is damaged here: {error}"
        return b"".join(parts)

    def skip_line(self, size: int) -> bytes:
        """Read on to the next line end and give what was read beyond it.

        What goes on for much longer than any line is no text, and is not read to its end.
        """
        left = SKIPPED_BYTES
        while not self.ended:
            data = self.read(size)
            _, found, rest = data.partition(b"\n")
            if found:
                return rest
            left -= len(data)
            if left <= 0:
                self.ended = True
                self.fault = f"it is no text: no line end within {SKIPPED_BYTES:,} bytes"
        return b""
