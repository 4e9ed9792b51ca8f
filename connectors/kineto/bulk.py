"""The ordinary events of a stretch, turned into columns together.

Most of a trace is host operations, launches and kernels as Kineto writes them. What an event of
these is to us follows from its category and name, of which a stretch holds few different ones, and
its numbers are taken as arrays. What is any other, or holds anything unusual, is left to
``Columns.take``, which says what is wrong with it: one event at a time takes ten times as long.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt

from steptax.connectors.kineto import names
from steptax.connectors.kineto.fields import (
    CATEGORIES,
    EVENT,
    FAR_US,
    NAME_CHARACTERS,
    NO_NUMBER,
    Kind,
    annotation,
    copy_kind,
    lane,
    operator,
)
from steptax.connectors.kineto.table import Rows, Texts

#: Of an event: it is of no use, or it has to be looked at by itself.
_USELESS, _ODD = -1, -2
_UNSEEN = -3
_DEVICE_KINDS = [int(k) for k in (Kind.KERNEL, Kind.H2D, Kind.COPY, Kind.MEMSET)]
_WHOLE = {int}
_WHOLE_OR_NONE = {int, type(None)}
_NUMBERS = ({int}, {float}, {int, float})
_FAR = 2**62


@dataclass
class Ordinary:
    """The events of one stretch that ``bulk`` took, and where those are that it left."""

    rows: Rows
    left: list[int]


@dataclass
class _Entries:
    """What events of a category and name are: kind, step, name; by number."""

    number: dict[tuple[str, str], int] = field(default_factory=dict)
    kind: list[int] = field(default_factory=list)
    step: list[int | None] = field(default_factory=list)
    text: list[str] = field(default_factory=list)

    def add(self, category: object, name: object) -> int:
        """The number of a pair that was not seen before."""
        if not isinstance(category, str) or not isinstance(name, str):
            return _ODD
        what = _kind(category, name)
        if isinstance(what, int):
            self.number[category, name] = what
            return what
        kind, step = what
        self.number[category, name] = len(self.kind)
        self.kind.append(int(kind))
        self.step.append(step)
        self.text.append("" if kind is Kind.LAUNCH else name[:NAME_CHARACTERS])
        return len(self.kind) - 1


def bulk(values: list[Any], first_row: int, texts: Texts) -> Ordinary:
    """Take the ordinary ones of ``values``, events whose first is number ``first_row``.

    Their names get numbers in ``texts``.
    """
    entries, kept, which, at, left = _Entries(), [], [], [], []
    seen = entries.number.get
    for place, value in enumerate(values):
        try:
            if value["ph"] != "X":
                continue
            entry = seen((value["cat"], value["name"]), _UNSEEN)
            if entry == _UNSEEN:
                entry = entries.add(value["cat"], value["name"])
        except (KeyError, TypeError):
            entry = _ODD
        if entry >= 0:
            kept.append(value)
            which.append(entry)
            at.append(place)
        elif entry == _ODD:
            left.append(place)
    if not kept:
        return Ordinary(np.zeros(0, EVENT), left)
    found = None
    kind = np.array(entries.kind)[which]
    if np.isin(kind, _DEVICE_KINDS).any():
        # Where a device works, its work is looked at, and not the host's.
        wanted = (kind != Kind.HOST).tolist()
        events, numbers, places = (list(compress(c, wanted)) for c in (kept, which, at))
        found = _columns(events, numbers, places, entries, first_row, texts)
        if found is not None and not np.isin(found[0]["kind"], _DEVICE_KINDS).any():
            found = None  # What looked like a device's cannot be read.
    found = found or _columns(kept, which, at, entries, first_row, texts)
    if found is None:
        return Ordinary(np.zeros(0, EVENT), sorted(left + at))
    rows, unusual = found
    return Ordinary(rows, sorted(left + unusual) if unusual else left)


def _kind(category: str, name: str) -> tuple[Kind, int | None] | int:
    """Kind and step of an event, as far as its arguments have no say in that."""
    plain = CATEGORIES.get(category.lower())
    if plain is None:
        return _USELESS
    if plain == "runtime":
        return Kind.LAUNCH, None
    if plain == "kernel":
        return _ODD if names.is_communication(name) else (Kind.KERNEL, None)
    if plain == "memcpy":
        kind = copy_kind(name)
        return _ODD if kind is None else (kind, None)
    if plain == "memset":
        return Kind.MEMSET, None
    kind, _, step = operator(name) if plain == "operator" else annotation(name, {})
    return _ODD if kind is Kind.HOST_COMM else (kind, step)


def _columns(
    kept: list[dict[str, Any]],
    entry: list[int],
    places: list[int],
    entries: _Entries,
    first_row: int,
    texts: Texts,
) -> tuple[Rows, list[int]] | None:
    """The columns of ``kept`` and the places of those not in them; None where types are mixed."""
    which, at = np.array(entry), np.array(places)
    start, usual = _nanoseconds([e.get("ts") for e in kept])
    duration, sound = _nanoseconds([e.get("dur") for e in kept])
    kind = np.array(entries.kind)[which]
    if start is None or duration is None:
        return None
    usual &= sound & (duration >= 0)
    lanes = _lanes([e.get("tid") for e in kept])
    number, device = np.full(len(kept), NO_NUMBER), np.full(len(kept), -1, np.int32)
    step = np.array([-1 if s is None else s for s in entries.step])[which]
    number[step >= 0] = step[step >= 0]
    argued = np.flatnonzero(np.isin(kind, [*_DEVICE_KINDS, int(Kind.LAUNCH)]))
    if len(argued):
        on_device = kind[argued] != Kind.LAUNCH
        args = [a if type(a := kept[i].get("args")) is dict else {} for i in argued.tolist()]
        told = _whole([a.get("correlation") for a in args])
        work = argued[on_device]
        args = [a for a, device_work in zip(args, on_device.tolist(), strict=True) if device_work]
        tids = lanes[work].tolist()
        streams = [a.get("stream", tid) for a, tid in zip(args, tids, strict=True)]
        devices = _whole([a.get("device") for a in args])
        if told is None or devices is None:
            return None
        number[argued] = np.where(told[1], told[0], NO_NUMBER)
        index, placed = devices
        device[work] = np.where(placed & (index >= 0) & (index < 2**31), index, -1)
        lanes[work] = _lanes(streams)
        usual[work] &= np.array(["Collective name" not in a for a in args], bool)
        # A call that launched nothing is of no use.
        usual_call = usual & ((kind != Kind.LAUNCH) | (number != NO_NUMBER))
        usual, useless = usual_call, usual & ~usual_call
    else:
        useless = np.zeros(len(kept), bool)
    rows = np.zeros(np.count_nonzero(usual), EVENT)
    codes = np.array([texts.code(text) for text in entries.text], np.int32)
    for name, column in (
        *(("kind", kind), ("start_ns", start), ("duration_ns", duration), ("lane", lanes)),
        *(("number", number), ("device", device), ("row", at + first_row), ("name", codes[which])),
    ):
        rows[name] = column[usual]
    for name in ("bytes", "op", "group", "dtype"):
        rows[name] = -1
    return rows, at[~usual & ~useless].tolist()


def _nanoseconds(
    values: list[Any],
) -> tuple[npt.NDArray[np.int64] | None, npt.NDArray[np.bool_]]:
    """Whole nanoseconds of microseconds, and which of them can be; None where not all are numbers.

    As ``fields.nanoseconds`` does it.
    """
    if set(map(type, values)) not in _NUMBERS:
        return None, np.zeros(0, bool)
    try:
        us = np.array(values, np.float64)
    except OverflowError:
        return None, np.zeros(0, bool)
    fine = np.abs(us) <= FAR_US
    us = np.where(fine, us, 0.0)
    floor = np.floor(us)
    return (floor.astype(np.int64) * 1000 + np.rint((us - floor) * 1000).astype(np.int64)), fine


def _whole(values: list[Any]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]] | None:
    """Whole numbers and which are there; None where something else is among them."""
    if not set(map(type, values)) <= _WHOLE_OR_NONE:
        return None
    there = np.array([v is not None for v in values], bool)
    try:
        out = np.array([v or 0 for v in values], np.int64)
    except OverflowError:
        return None
    return (out, there) if (np.abs(out) < _FAR).all() else None


def _lanes(values: list[Any]) -> npt.NDArray[np.int64]:
    """Threads or streams as ``fields.lane`` gives them."""
    if set(map(type, values)) <= _WHOLE:
        try:
            out = np.array(values, np.int64)
        except OverflowError:
            out = np.full(1, _FAR)
        if (np.abs(out) < _FAR).all():
            return out
    return np.array([lane(v) for v in values], np.int64)
