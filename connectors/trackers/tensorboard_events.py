"""Events of TensorBoard: the scalars in one record of an event file.

Messages: tensorflow/core/util/event.proto, framework/summary.proto, framework/tensor.proto. A
scalar is a ``simple_value`` (Megatron-LM, torch's SummaryWriter, tensorboardX) or a tensor of one
element (TensorFlow 2, JAX).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from steptax.connectors.trackers.wire import Wire, double, fields, signed, single, varint

_SCALARS = "scalars"
#: Of a tensor: dtype, the struct format of its elements, and the field that holds them one by one.
_TYPES: dict[int, tuple[str, int]] = {
    1: ("<f", 5),
    2: ("<d", 6),
    3: ("<i", 7),
    4: ("<B", 7),
    5: ("<h", 7),
    6: ("<b", 7),
    9: ("<q", 10),
    19: ("<e", 13),
    22: ("<I", 16),
    23: ("<Q", 17),
}
_BFLOAT16 = 14
_START = 1


@dataclass(frozen=True, slots=True)
class Event:
    """One record. ``scalars`` by tag; ``other`` values are no scalars (images, histograms)."""

    wall_s: float | None = None
    step: int = 0
    scalars: tuple[tuple[str, float], ...] = ()
    other: int = 0
    is_head: bool = False
    """The first record of a writer."""
    is_restart: bool = False
    """A writer says that it goes on from this step, and what it wrote beyond holds no more."""


def read_event(data: bytes) -> Event:
    """The event in ``data``; ValueError where it is damaged."""
    wall, step, head, restart, other = None, 0, False, False, 0
    scalars: list[tuple[str, float]] = []
    for number, kind, value, raw in fields(data):
        if number == 1 and kind is Wire.FIXED64:
            wall = double(raw)
        elif number == 2 and kind is Wire.VARINT:
            step = signed(value)
        elif number == 3 and kind is Wire.BYTES:
            head = True
        elif number == 5 and kind is Wire.BYTES:
            for inner, how, _, body in fields(raw):
                if inner == 1 and how is Wire.BYTES:
                    found = _value(body)
                    if found is None:
                        other += 1
                    else:
                        scalars.append(found)
        elif number == 7 and kind is Wire.BYTES:
            restart = any(n == 1 and k is Wire.VARINT and v == _START for n, k, v, _ in fields(raw))
    return Event(wall, step, tuple(scalars), other, head, restart)


def _value(data: bytes) -> tuple[str, float] | None:
    """Tag and number of a summary value; None where it is no scalar."""
    tag = plugin = ""
    number: float | None = None
    tensor: bytes | None = None
    for field, kind, _, raw in fields(data):
        if field == 1 and kind is Wire.BYTES:
            tag = raw.decode("utf-8", "replace")
        elif field == 2 and kind is Wire.FIXED32:
            number = single(raw)
        elif field == 8 and kind is Wire.BYTES:
            tensor = raw
        elif field == 9 and kind is Wire.BYTES:
            plugin = _plugin(raw)
    if number is None and tensor is not None and plugin in ("", _SCALARS):
        number = _element(tensor)
    return None if number is None or not tag else (tag, number)


def _plugin(metadata: bytes) -> str:
    for field, kind, _, raw in fields(metadata):
        if field == 1 and kind is Wire.BYTES:
            for inner, how, _, name in fields(raw):
                if inner == 1 and how is Wire.BYTES:
                    return name.decode("utf-8", "replace")
    return ""


def _element(tensor: bytes) -> float | None:
    """The element of a tensor of one; None for another size or type."""
    dtype, content = 0, b""
    held: dict[int, list[tuple[Wire, int, bytes]]] = {}
    for field, kind, value, raw in fields(tensor):
        if field == 1 and kind is Wire.VARINT:
            dtype = value
        elif field == 2 and kind is Wire.BYTES:
            if not _is_single(raw):
                return None
        elif field == 4 and kind is Wire.BYTES:
            content = raw
        else:
            held.setdefault(field, []).append((kind, value, raw))
    read: Callable[[bytes], float]
    if dtype == _BFLOAT16:
        read, size, place = _bfloat16, 2, 13
    elif dtype in _TYPES:
        form, place = _TYPES[dtype]
        read, size = _reader(form), struct.calcsize(form)
    else:
        return None
    if content:
        return read(content) if len(content) == size else None
    for kind, value, raw in held.get(place, ()):
        return _listed(dtype, read, kind, value, raw)
    return None


def _is_single(shape: bytes) -> bool:
    """Whether a shape has one element: every dimension is 1."""
    for field, kind, _, raw in fields(shape):
        if field == 2 and kind is Wire.BYTES:
            size = [signed(v) for n, k, v, _ in fields(raw) if n == 1 and k is Wire.VARINT]
            if size != [1]:
                return False
    return True


def _listed(
    dtype: int, read: Callable[[bytes], float], kind: Wire, value: int, raw: bytes
) -> float | None:
    """The first of the elements that are stored one by one, packed or not."""
    if kind in (Wire.FIXED32, Wire.FIXED64):
        return read(raw)
    if dtype in (1, 2):
        size = 4 if dtype == 1 else 8
        return read(raw[:size]) if kind is Wire.BYTES and len(raw) >= size else None
    if kind is Wire.BYTES:
        value, _ = varint(raw, 0)
    if dtype in (19, _BFLOAT16):  # the bits of the number, in an int32
        return read((value & 0xFFFF).to_bytes(2, "little"))
    return float(signed(value))


def _reader(form: str) -> Callable[[bytes], float]:
    def read(raw: bytes) -> float:
        return float(struct.unpack(form, raw)[0])

    return read


def _bfloat16(raw: bytes) -> float:
    return single(b"\0\0" + raw)
