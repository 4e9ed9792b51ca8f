"""From a stretch of a trace's text to its events."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from steptax.connectors.kineto import repair
from steptax.connectors.kineto.events import Columns, Refused, read_events
from steptax.connectors.kineto.header import Header, read_header
from steptax.connectors.kineto.pieces import Part, Stretch, between, count_events, last_cut
from steptax.connectors.kineto.table import EventTable

#: Where the list of events ends, behind an event that cannot be read: at the end of the file, or
#: before a key that Kineto writes there. Lists inside of events are followed by other keys.
_LIST_END = re.compile(
    rb"(?<=\})\s*\]\s*\}?\s*$|"
    rb'\]\s*,\s*"(?:traceName|displayTimeUnit|baseTimeNanoseconds|distributedInfo|INFO|'
    rb'deviceProperties|schemaVersion|trace_id|host_name|record_shapes|with_\w+|profile_\w+)"\s*:'
)


@dataclass(frozen=True)
class Parsed:
    """What one stretch says of its events, and of the process.

    ``cut`` says why there may be events that are not in the file.
    """

    events: EventTable
    refused: tuple[Refused, ...]
    seen: int
    repaired: int
    header: Header = field(default_factory=Header)
    cut: str | None = None


def parse_stretch(stretch: Stretch, first_row: int) -> Parsed:
    """The events of ``stretch``, whose first is number ``first_row``, as far as they are of use."""
    columns = Columns()
    header, cut = Header(), None
    if stretch.part is Part.HEAD:
        header = read_header(stretch.data)
    elif stretch.part is Part.BROKEN:
        columns.refuse(first_row, "expected the end of an event, found none", stretch.data)
    elif stretch.part is Part.EVENTS:
        _read_whole(stretch.data, first_row, columns)
    else:
        header, cut = _read_last(stretch, first_row, columns)
    return Parsed(
        columns.table(), tuple(columns.refused), columns.seen, columns.repaired, header, cut
    )


def _read_whole(data: bytes, first_row: int, columns: Columns) -> None:
    """Events between commas, all at once where that works."""
    with _without_collector():
        events = repair.whole(data)
        if events is not None:
            columns.take_all(events, first_row)
            return
    read_events(between(data), first_row, columns)


@contextmanager
def _without_collector() -> Iterator[None]:
    """No search for cycles among events as they are made: they hold none, and go soon."""
    runs = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if runs:
            gc.enable()


def _read_last(stretch: Stretch, first_row: int, columns: Columns) -> tuple[Header, str | None]:
    """The last events, the keys after them, and why there may be more events that are not here."""
    data, row = stretch.data, first_row
    at = last_cut(data)
    if at is not None:
        _read_whole(data[: at[0]], row, columns)
        row += count_events(data[: at[0]])
        data = data[at[1] :]
    rest = data.strip()
    while rest[:1] not in (b"", b"]"):
        found = repair.first(rest)
        if found is None:
            end = _LIST_END.search(rest)
            reason = "in JSON, found damaged text" if end else "to its end, found the file's"
            columns.refuse(row, f"expected an event {reason}", rest[: end.start()] if end else rest)
            rest = rest[end.start() :].strip() if end else b""
            break
        columns.take(found[0], row)
        columns.repaired += found[2]
        # A comma here comes before an event whose beginning is damaged.
        rest = found[1].encode().strip().removeprefix(b",").strip()
    if rest[:1] == b"]":
        return read_header(rest[1:]), None
    return Header(), stretch.fault or "the file ends inside its list of events"
