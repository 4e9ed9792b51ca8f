"""Events of a trace as columns: what is kept of each, and why some are not accepted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from steptax.connectors.kineto import names, repair
from steptax.connectors.kineto.bulk import bulk
from steptax.connectors.kineto.fields import (
    CATEGORIES,
    DEVICE,
    NAME_CHARACTERS,
    NO_NUMBER,
    Kind,
    annotation,
    lane,
    nanoseconds,
    operator,
)
from steptax.connectors.kineto.table import Bools, EventTable, Rows, Texts, rows_of

#: Of a text that was not accepted as much as a person is shown.
_SHOWN_BYTES = 500


@dataclass(frozen=True)
class Refused:
    """An event, number ``row`` of its file, that was not accepted; ``raw`` is its text."""

    row: int
    reason: str
    raw: bytes
    field: str | None = None


@dataclass
class Columns:
    """Events of one stretch, and what was wrong with others."""

    rows: list[tuple[int, ...]] = field(default_factory=list)
    bulks: list[Rows] = field(default_factory=list)
    texts: Texts = field(default_factory=Texts)
    refused: list[Refused] = field(default_factory=list)
    seen: int = 0
    repaired: int = 0

    def table(self) -> EventTable:
        """The events, without host operations that lie inside of others."""
        rows = np.concatenate([*self.bulks, rows_of(self.rows)])
        return EventTable(rows[outermost(rows)], tuple(self.texts.known))

    def take_all(self, values: list[Any], first_row: int) -> None:
        """As ``take`` each of ``values``, the first of which is event ``first_row`` of its file."""
        found = bulk(values, first_row, self.texts)
        self.seen += len(values) - len(found.left)
        self.bulks.append(found.rows)
        for place in found.left:
            self.take(values[place], first_row + place)

    def take(self, value: Any, row: int) -> None:
        """Keep one event if it is of use; a reject if it should be one and is not."""
        self.seen += 1
        if not isinstance(value, dict):
            reason = "expected an event, found " + type(value).__name__
            self.refuse(row, reason, json.dumps(value).encode())
            return
        if value.get("ph") != "X":
            return
        what = _kind(value)
        if what is None:
            return
        kind, op, number = what
        start, duration = nanoseconds(value.get("ts")), nanoseconds(value.get("dur"))
        for name, found in (("ts", start), ("dur", duration)):
            if found is None or (name == "dur" and found < 0):
                shown = str(value.get(name))[:40]
                raw = json.dumps(value).encode()
                self.refuse(row, f"expected a time in us, found {shown}", raw, field=name)
                return
        args = _args(value)
        comm = kind in (Kind.COMM, Kind.HOST_COMM)
        text = "" if kind is Kind.LAUNCH else str(value.get("name", ""))[:NAME_CHARACTERS]
        device = _small(args.get("device")) if kind in DEVICE else None
        size = names.message_bytes(op, args) if comm and op else None
        code = self.texts.code
        assert start is not None  # Said above, of both.
        assert duration is not None
        self.rows.append(
            (
                *(start, duration, _lane(value, args, kind)),
                NO_NUMBER if number is None else number,
                -1 if size is None else size,
                row,
                -1 if device is None else device,
                *(code(text), code(op)),
                code(names.group_label(args) if comm else None),
                code(_dtype(args) if comm else None),
                int(kind),
            )
        )

    def refuse(self, row: int, reason: str, raw: bytes, field: str | None = None) -> None:
        """Account for an event that was not accepted."""
        self.refused.append(Refused(row, reason, raw[:_SHOWN_BYTES], field))


def read_events(pieces: list[bytes], first_row: int, columns: Columns) -> None:
    """Take the events in ``pieces``, the first of which is event ``first_row`` of its file.

    A piece that is no event by itself may be the beginning of one whose arguments look like the
    gap between two events: then the next pieces complete it.
    """
    at = 0
    while at < len(pieces):
        piece, used = pieces[at], 1
        found = repair.one(piece)
        while found is None and (led := repair.first(piece)) and led[1].lstrip().startswith(","):
            # The next event's beginning is damaged, so that it was not seen to begin.
            columns.repaired += led[2]
            columns.take(led[0], first_row + at)
            piece = led[1].lstrip()[1:].lstrip().encode()
            found = repair.one(piece)
        if found is None and piece.count(b"{") != piece.count(b"}"):
            for more in range(2, min(8, len(pieces) - at) + 1):
                joined = b",".join([piece, *pieces[at + 1 : at + more]])
                if joined.count(b"{") == joined.count(b"}"):
                    found = repair.one(joined)
                    used = more if found else 1
                    break
        if found is None:
            columns.refuse(first_row + at, "expected an event in JSON, found damaged text", piece)
        else:
            columns.repaired += found[1]
            columns.take(found[0], first_row + at)
        at += used


def outermost(rows: Rows) -> Bools:
    """[N] false for host operations and regions that lie inside of another of their thread."""
    keep = np.ones(len(rows), bool)
    for which in (Kind.HOST, Kind.REGION):
        at = np.flatnonzero(rows["kind"] == which)
        if len(at) < 2:
            continue
        start, duration, lane = (rows[c][at] for c in ("start_ns", "duration_ns", "lane"))
        for one in np.unique(lane):
            mine = at[lane == one]
            begin = start[lane == one]
            end = begin + duration[lane == one]
            order = np.lexsort((-end, begin))
            reach = np.maximum.accumulate(end[order])
            inside = np.append(False, end[order][1:] <= reach[:-1])
            keep[mine[order[inside]]] = False
    return keep


def _kind(value: Mapping[str, Any]) -> tuple[Kind, str | None, int | None] | None:
    """Kind, communication and number of an event; None for what is of no use."""
    category = CATEGORIES.get(str(value.get("cat")).lower())
    if category is None:
        return None
    name = str(value.get("name", ""))
    if category == "operator":
        return operator(name)
    if category == "runtime":
        number = _correlation(value)
        return None if number is None else (Kind.LAUNCH, None, number)
    if category == "kernel":
        args = _args(value)
        if names.is_communication(name) or isinstance(args.get("Collective name"), str):
            return Kind.COMM, names.operation(name, args), _correlation(value)
        return Kind.KERNEL, None, _correlation(value)
    if category == "memcpy":
        plain = (str(_args(value).get("kind", "")) + name).lower().replace(" ", "")
        kind = Kind.H2D if "htod" in plain or "host->device" in plain else Kind.COPY
        return kind, None, _correlation(value)
    if category == "memset":
        return Kind.MEMSET, None, _correlation(value)
    return annotation(name, _args(value))


def _args(value: Mapping[str, Any]) -> Mapping[str, Any]:
    args = value.get("args")
    return args if isinstance(args, dict) else {}


def _correlation(value: Mapping[str, Any]) -> int | None:
    number = _args(value).get("correlation")
    return number if type(number) is int and abs(number) < 2**62 else None


def _lane(value: Mapping[str, Any], args: Mapping[str, Any], kind: Kind) -> int:
    """Stream of device work, thread of the host's."""
    return lane(args.get("stream", value.get("tid")) if kind in DEVICE else value.get("tid"))


def _small(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 2**31 else None


def _dtype(args: Mapping[str, Any]) -> str | None:
    dtype = args.get("dtype")
    if not isinstance(dtype, str):
        types = args.get("Input type")
        dtype = types[0] if isinstance(types, list) and types else None
    return dtype.lower() if isinstance(dtype, str) and dtype else None
