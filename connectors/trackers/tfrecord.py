"""TFRecord framing: length, its checksum, data, its checksum; both CRC-32C, masked.

See tensorflow/core/lib/io/record_writer.h. A length whose checksum is wrong tells nothing, so the
next record is looked for by a length whose checksum is right.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from steptax.connectors.sources import BadLine, Feed, open_bytes, text_of
from steptax.connectors.trackers.crc32c import crc32c, masked, masked_many, masked_rows

_HEAD = struct.Struct("<QI")
_CRC = struct.Struct("<I")
#: Bytes read at a time.
_STRETCH = 4 << 20
#: A longer record is no summary: 256 MiB.
RECORD_BYTES = 256 << 20


@dataclass(frozen=True)
class Records:
    """Whole records of a stretch, not checked: number of the first from 1, data, checksums.

    ``numbers`` are those of the records; ``broken`` are places where there was none.
    """

    first: int
    numbers: tuple[int, ...]
    data: tuple[bytes, ...]
    checksums: tuple[int, ...]
    broken: tuple[BadLine, ...] = ()

    def sound(self) -> tuple[list[tuple[int, bytes]], list[BadLine]]:
        """Records whose data fits its checksum, by number, and the others."""
        found = masked_many(self.data)
        good, bad = [], list(self.broken)
        for number, data, told, is_so in zip(
            self.numbers, self.data, self.checksums, found, strict=True
        ):
            if told == is_so:
                good.append((number, data))
            else:
                reason = f"expected data of checksum {told:#010x}, found {is_so:#010x}"
                bad.append(BadLine(number, reason, text_of(data)))
        return good, bad


def starts_like_records(data: bytes) -> bool:
    """Whether ``data`` begins with a length and the checksum that fits it."""
    if len(data) < _HEAD.size:
        return False
    _, told = _HEAD.unpack_from(data)
    return bool(told == masked(crc32c(data[:8])))


def read_records(path: Path, *, stretch: int = _STRETCH) -> Iterator[Records]:
    """The records of ``path`` in stretches. An unfinished record at the end is left out.

    InputError where the file cannot be opened.
    """
    with open_bytes(path) as handle:
        feed = Feed(handle)
        buffer, number, lost = b"", 1, 0
        while not feed.ended:
            buffer += feed.read(stretch)
            numbers, data, checksums, broken = [], [], [], []
            first, at = number, 0
            while len(buffer) - at >= _HEAD.size:
                length, told = _HEAD.unpack_from(buffer, at)
                if length > RECORD_BYTES or told != masked(crc32c(buffer[at : at + 8])):
                    found = _next_head(buffer, at + 1)
                    if not lost:
                        reason = (
                            "expected the length of a record, found one whose checksum is wrong; "
                            "what lies up to the next good one is not read"
                        )
                        broken.append(BadLine(number, reason, text_of(buffer[at : at + 64])))
                        number += 1
                    lost = 1
                    if found is None:
                        at = max(at, len(buffer) - _HEAD.size + 1)
                        break
                    at = found
                    continue
                lost = 0
                end = at + _HEAD.size + length + _CRC.size
                if end > len(buffer):
                    break
                data.append(buffer[at + _HEAD.size : end - _CRC.size])
                checksums.append(_CRC.unpack_from(buffer, end - _CRC.size)[0])
                numbers.append(number)
                number += 1
                at = end
            buffer = buffer[at:]
            if feed.ended and feed.fault:
                broken.append(BadLine(number, feed.fault, text_of(buffer)))
            if data or broken:
                yield Records(first, tuple(numbers), tuple(data), tuple(checksums), tuple(broken))


def _next_head(buffer: bytes, at: int) -> int | None:
    """Place of the next length in ``buffer`` whose checksum is right and that can be."""
    step = 1 << 16
    for begin in range(at, len(buffer) - _HEAD.size + 1, step):
        part = np.frombuffer(buffer[begin : begin + step + _HEAD.size - 1], np.uint8)
        heads = np.lib.stride_tricks.sliding_window_view(part, _HEAD.size)
        told = np.ascontiguousarray(heads[:, 8:]).view("<u4")[:, 0]
        right = (masked_rows(heads[:, :8]) == told) & (heads[:, 4:8] == 0).all(axis=1)
        places = np.flatnonzero(right)
        if len(places):
            return begin + int(places[0])
    return None
