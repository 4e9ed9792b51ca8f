"""Offline runs of Weights & Biases: records in the blocks of a LevelDB log.

Blocks of 32 KiB; a record lies in one piece or in a first, middle and last piece, each behind a
checksum (CRC-32 over type and data), a length and a type. In front of the first is ``:W&B``, a
magic number and a version. See wandb/sdk/internal/datastore.py, wandb/proto/wandb_internal.proto.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from steptax.connectors.sources import BadLine, Feed, open_bytes, text_of
from steptax.connectors.trackers.wire import Wire, fields, signed

MAGIC = b":W&B"
HEADER = b":W&B\xe1\xbe\x00"
_BLOCK = 32 << 10
_HEAD = struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
#: Records handed on at a time.
_STRETCH = 20_000
#: A longer record is no history: 64 MiB.
_RECORD_BYTES = 64 << 20
_MICRO = 1_000_000


@dataclass(frozen=True)
class WandbRecords:
    """Whole records by number from 1, and places where there was none."""

    data: tuple[tuple[int, bytes], ...]
    broken: tuple[BadLine, ...] = ()


@dataclass(frozen=True)
class History:
    """One row of a run's history: texts (JSON) by key."""

    values: tuple[tuple[str, str], ...]
    step: int | None


@dataclass(frozen=True)
class RunFacts:
    """What a record says of the run itself."""

    facts: dict[str, Any] = field(default_factory=dict)
    run_id: str | None = None


def read_wandb(path: Path) -> Iterator[WandbRecords]:
    """The records of ``path`` in stretches. One that is not finished at the end is left out."""
    with open_bytes(path) as handle:
        feed = Feed(handle)
        done: list[tuple[int, bytes]] = []
        broken: list[BadLine] = []
        pieces: list[bytes] = []
        number, begin = 1, len(HEADER)
        while not feed.ended:
            block = feed.read(_BLOCK)
            at, begin = begin, 0
            while len(block) - at >= _HEAD.size:
                told, length, kind = _HEAD.unpack_from(block, at)
                data = block[at + _HEAD.size : at + _HEAD.size + length]
                if not kind and not length and not told:
                    break  # padding
                cut = len(data) < length
                if cut and len(block) < _BLOCK:
                    break  # its writer is still at work
                found = zlib.crc32(data, zlib.crc32(bytes([kind])))
                fault = None
                if cut:
                    fault = "expected a piece that ends inside its block, found one that does not"
                elif found != told:
                    fault = f"expected data of checksum {told:#010x}, found {found:#010x}"
                elif kind in (_FULL, _FIRST) and pieces:
                    fault = "expected the rest of the record before, found a new one"
                elif kind in (_MIDDLE, _LAST) and not pieces:
                    fault = "expected the beginning of a record, found a later piece"
                elif kind not in (_FULL, _FIRST, _MIDDLE, _LAST):
                    fault = f"expected a piece of type 1 to 4, found {kind}"
                if fault is not None:
                    broken.append(BadLine(number, fault, text_of(data)))
                    number, pieces = number + 1, []
                    if cut or found != told:
                        break  # where the next one begins is known at the next block only
                at += _HEAD.size + length
                if fault is not None and kind not in (_FULL, _FIRST):
                    continue
                pieces.append(data)
                if sum(map(len, pieces)) > _RECORD_BYTES:
                    broken.append(BadLine(number, "expected a shorter record", text_of(pieces[0])))
                    number, pieces = number + 1, []
                elif kind in (_FULL, _LAST):
                    done.append((number, b"".join(pieces)))
                    number, pieces = number + 1, []
            if feed.ended and feed.fault:
                broken.append(BadLine(number, feed.fault, text_of(block)))
            if len(done) >= _STRETCH or (feed.ended and (done or broken)):
                yield WandbRecords(tuple(done), tuple(broken))
                done, broken = [], []


def read_record(data: bytes) -> History | RunFacts | None:
    """History or facts of the run; None for another record. ValueError where it is damaged."""
    for number, kind, _, raw in fields(data):
        if kind is not Wire.BYTES:
            continue
        if number == 2:
            return _history(raw)
        if number == 17:
            return _run(raw)
        if number == 18:
            return _exit(raw)
    return None


def _history(data: bytes) -> History:
    values: list[tuple[str, str]] = []
    step = None
    for number, kind, _, raw in fields(data):
        if number == 1 and kind is Wire.BYTES:
            found = _item(raw)
            if found is not None:
                values.append(found)
        elif number == 2 and kind is Wire.BYTES:
            step = next((signed(v) for n, k, v, _ in fields(raw) if n == 1 and k is Wire.VARINT), 0)
    return History(tuple(values), step)


def _item(data: bytes) -> tuple[str, str] | None:
    key, nested, text = "", [], ""
    for number, kind, _, raw in fields(data):
        if kind is not Wire.BYTES:
            continue
        if number == 1:
            key = raw.decode("utf-8", "replace")
        elif number == 2:
            nested.append(raw.decode("utf-8", "replace"))
        elif number == 16:
            text = raw.decode("utf-8", "replace")
    name = key or ".".join(nested)
    return (name, text) if name else None


def _run(data: bytes) -> RunFacts:
    facts: dict[str, Any] = {}
    run_id = None
    names = {3: "project", 8: "name"}
    for number, kind, _, raw in fields(data):
        if kind is not Wire.BYTES:
            continue
        if number == 1:
            run_id = raw.decode("utf-8", "replace") or None
        elif number in names:
            facts[names[number]] = raw.decode("utf-8", "replace") or None
        elif number == 17:
            parts = {n: signed(v) for n, k, v, _ in fields(raw) if k is Wire.VARINT}
            start_us = parts.get(1, 0) * _MICRO + parts.get(2, 0) // 1000
            facts["start_us"] = start_us if 0 < start_us < 2**53 else None
    return RunFacts(facts, run_id)


def _exit(data: bytes) -> RunFacts:
    code = next((signed(v) for n, k, v, _ in fields(data) if n == 1 and k is Wire.VARINT), 0)
    return RunFacts({"state": "completed" if code == 0 else "failed"})


def number_of(text: str) -> float | None:
    """The number that a JSON text is; ``"NaN"``, ``"Infinity"`` are numbers here; else None."""
    try:
        return float_of(orjson.loads(text))
    except orjson.JSONDecodeError:
        return float_of(text.strip())  # Python's json writes NaN without quotes


def float_of(value: object) -> float | None:
    """``value`` as a number; None for anything that is none, booleans among it."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:
            return None
    named = {"nan": "nan", "infinity": "inf", "-infinity": "-inf", "inf": "inf", "-inf": "-inf"}
    return (
        float(named[value.lower()]) if isinstance(value, str) and value.lower() in named else None
    )
