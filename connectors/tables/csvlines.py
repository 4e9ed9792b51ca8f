"""Where the lines of a CSV block begin and end, and which of them belong together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from steptax.connectors.sources import count_per_line, line_ends
from steptax.connectors.tables.rows import Header

#: A quoted value may go over line ends, but no further than this, or one stray quote would
#: swallow the rest of the file.
RECORD_LINES = 100
RECORD_BYTES = 64 << 10


@dataclass(frozen=True)
class Lines:
    """Where the lines of a block begin and end, and what is in each."""

    data: bytes
    array: npt.NDArray[np.uint8]
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    quotes: npt.NDArray[np.int64]
    delimiters: npt.NDArray[np.int64]
    """Those that are not between quotes; of a line with an odd number of quotes, all."""
    blank: npt.NDArray[np.bool_]
    bare_cr: npt.NDArray[np.bool_]
    decodes: npt.NDArray[np.bool_]
    plain: npt.NDArray[np.bool_]
    """Certainly a record of its own: right number of fields, nothing quoted."""

    @classmethod
    def of(cls, data: bytes, header: Header) -> Lines:
        """The lines of ``data``, judged by the columns of ``header``."""
        if data and not data.endswith(b"\n"):
            data += b"\n"
        array = np.frombuffer(data, np.uint8)
        ends = line_ends(array)
        starts = np.concatenate([np.zeros(1, np.int64), ends[:-1] + 1])[: len(ends)]
        quotes = count_per_line(array, ends, '"') if b'"' in data else np.zeros_like(ends)
        delimiters = _delimiters(array, ends, quotes, header.delimiter)
        length = ends - starts
        bare_cr = np.zeros(len(ends), bool)
        if b"\r" in data:
            closing = (length > 0) & (array[ends - 1] == ord("\r"))
            bare_cr = count_per_line(array, ends, "\r") > closing
            length = length - closing
        blank = length == 0
        plain = (delimiters == len(header.columns) - 1) & (quotes == 0) & ~blank
        decodes = _decodable(data, array, starts, ends)
        return cls(data, array, starts, ends, quotes, delimiters, blank, bare_cr, decodes, plain)

    def bytes_of(self, first: int, last: int) -> bytes:
        """Lines ``first`` to ``last`` with their line ends, but for the last."""
        return self.data[int(self.starts[first]) : int(self.ends[last])]


def _decodable(
    data: bytes,
    array: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
) -> npt.NDArray[np.bool_]:
    good = np.ones(len(ends), bool)
    if data.isascii() or decodes_whole(data):
        return good
    for i in np.flatnonzero(np.maximum.reduceat(array, starts) >= 128):
        good[i] = decodes_whole(data[int(starts[i]) : int(ends[i])])
    return good


def decodes_whole(data: bytes) -> bool:
    """Whether ``data`` is UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def quote_pairs(odd: list[int], lines: Lines) -> dict[int, int]:
    """Which line closes the quoted value that a line leaves open, among ``odd`` lines.

    A value that would swallow a line which is a plain record by itself is not believed: then the
    quote is a fault of its own line alone.
    """
    pairs: dict[int, int] = {}
    at = 0
    while at + 1 < len(odd):
        first, last = odd[at], odd[at + 1]
        near = last - first <= RECORD_LINES
        short = lines.ends[last] - lines.starts[first] <= RECORD_BYTES
        if near and short and not lines.plain[first + 1 : last].any():
            pairs[first] = last
            at += 1
        at += 1
    return pairs


def _delimiters(
    array: npt.NDArray[np.uint8],
    ends: npt.NDArray[np.int64],
    quotes: npt.NDArray[np.int64],
    delimiter: str,
) -> npt.NDArray[np.int64]:
    """Delimiters of each line that are not between quotes."""
    places = np.flatnonzero(array == ord(delimiter))
    if not quotes.any():
        return np.diff(np.searchsorted(places, ends), prepend=0)
    before = np.searchsorted(np.flatnonzero(array == ord('"')), places)
    line = np.searchsorted(ends, places)
    opened = before - (np.cumsum(quotes) - quotes)[line]
    inside = (opened % 2 == 1) & (quotes[line] % 2 == 0)
    return np.bincount(line[~inside], minlength=len(ends)).astype(np.int64)
