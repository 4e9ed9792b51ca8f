"""The wire format of protocol buffers, as much of it as reading needs.

See the encoding guide of Protocol Buffers. Fields come as they lie there: what a number means is
the business of whoever knows the message.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum


class Wire(IntEnum):
    """How a field is stored."""

    VARINT = 0
    FIXED64 = 1
    BYTES = 2
    FIXED32 = 5


Field = tuple[int, Wire, int, bytes]
"""Number, wire type, the value as an unsigned number (0 for bytes), the bytes as they lie there."""

_VARINT_BYTES = 10


def fields(data: bytes) -> Iterator[Field]:
    """The fields of one message, in order; ValueError where it is damaged."""
    at, end = 0, len(data)
    while at < end:
        key, at = varint(data, at)
        number, kind = key >> 3, key & 7
        if not 0 < number < 1 << 29:
            raise ValueError(f"there is no field {number}")
        if kind == Wire.VARINT:
            begin = at
            value, at = varint(data, at)
            yield number, Wire.VARINT, value, data[begin:at]
        elif kind == Wire.BYTES:
            length, at = varint(data, at)
            if length > end - at:
                raise ValueError(f"field {number} goes on beyond the end of its message")
            yield number, Wire.BYTES, 0, data[at : at + length]
            at += length
        elif kind in (Wire.FIXED64, Wire.FIXED32):
            length = 8 if kind == Wire.FIXED64 else 4
            if length > end - at:
                raise ValueError(f"field {number} goes on beyond the end of its message")
            raw = data[at : at + length]
            yield number, Wire(kind), int.from_bytes(raw, "little"), raw
            at += length
        else:
            raise ValueError(f"field {number} is stored in a way that is not used: {kind}")


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at ``at``, below 2**64, and where it ends; ValueError where it is cut."""
    value = shift = 0
    for place in range(at, min(len(data), at + _VARINT_BYTES)):
        byte = data[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, place + 1
        shift += 7
    raise ValueError("a number has no end")


def signed(value: int) -> int:
    """``value`` as an int64, as protocol buffers keep negative ones."""
    return value - (1 << 64) if value >= 1 << 63 else value


def double(raw: bytes) -> float:
    """Eight bytes as a number; ValueError for another length."""
    return float(_unpack("<d", raw))


def single(raw: bytes) -> float:
    """Four bytes as a number; ValueError for another length."""
    return float(_unpack("<f", raw))


def _unpack(form: str, raw: bytes) -> float:
    try:
        value: float = struct.unpack(form, raw)[0]
    except struct.error as error:
        raise ValueError(str(error)) from None
    return value
