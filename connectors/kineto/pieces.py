"""Cutting the text of a trace between its events, without reading it as a whole.

An event is an object of the list ``traceEvents``, or of the list that old traces are. The text is
cut where one object ends and another begins with a key of an event, so that a damaged event does
not take its neighbours along, and no more than a block is ever held.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from steptax.app.errors import InputError
from steptax.connectors.sources import Feed, open_bytes

#: Bytes of events that are handed on at a time; their Python objects take about ten times as much.
BLOCK_BYTES = 1 << 19
#: What comes before the first event: some megabytes where thousands of ranks list their groups.
HEAD_LIMIT_BYTES = 64 << 20
#: No event is longer, call stacks included.
EVENT_BYTES = 8 << 20
#: Unpacked size that is read at all.
TRACE_BYTES = 16 << 30

_BETWEEN = re.compile(
    rb'\}\s*,\s*(?=\{\s*"(?:ph|name|cat|ts|pid|tid|dur|args|id|s|bp)"\s*:)', re.DOTALL
)
_LIST = re.compile(rb'"traceEvents"\s*:\s*\[')
_SHORTER = "profile fewer steps (schedule(active=2)) without with_stack and profile_memory"


class Part(Enum):
    """What a stretch of a trace is."""

    HEAD = "head"
    EVENTS = "events"
    LAST = "last"
    BROKEN = "broken"


@dataclass(frozen=True)
class Stretch:
    """Bytes of a trace. ``LAST`` is the last event and all that follows; of ``BROKEN``, which is
    what no event can be, only the beginning is kept. ``fault`` says how a packed file breaks off.
    """

    part: Part
    data: bytes
    fault: str | None = None


def between(data: bytes) -> list[bytes]:
    """The pieces of ``data`` that may each be an event, without the commas between them."""
    cuts = [(found.start() + 1, found.end()) for found in _BETWEEN.finditer(data)]
    begins = [0, *(end for _, end in cuts)]
    ends = [*(start for start, _ in cuts), len(data)]
    return [data[a:b] for a, b in zip(begins, ends, strict=True)]


def begins_events(head: bytes) -> int | None:
    """Where in the beginning of a file its events begin; None where that is not in it."""
    stripped = head.lstrip()
    if stripped[:1] == b"[":
        return len(head) - len(stripped) + 1
    found = _LIST.search(head)
    return found.end() if found else None


def stretches(path: Path) -> Iterator[tuple[int, Stretch]]:
    """The stretches of ``path``, each with the number of its first event, from 1.

    InputError when there is no list of events, or the file is larger than ``TRACE_BYTES``.
    """
    where = str(path)
    _refuse_large(path.stat().st_size, where)
    with open_bytes(path) as handle:
        feed = Feed(handle)
        data, start = b"", None
        while start is None:
            more = feed.read(BLOCK_BYTES)
            data += more
            start = begins_events(data)
            if start is None and (feed.ended or len(data) > HEAD_LIMIT_BYTES):
                raise InputError(
                    feed.fault or "has no list of events (traceEvents)",
                    where=where,
                    hint="give the file that the PyTorch profiler wrote (export_chrome_trace); "
                    "if it broke off before its first event, nothing of it can be read",
                )
        yield 1, Stretch(Part.HEAD, data[:start])
        data, number, total = data[start:].lstrip(), 1, len(data)
        while not feed.ended:
            more = feed.read(BLOCK_BYTES)
            total += len(more)
            _refuse_large(total, where)
            data += more
            cut = last_cut(data)
            if cut is not None:
                yield number, Stretch(Part.EVENTS, data[: cut[0]])
                number += count_events(data[: cut[0]])
                data = data[cut[1] :]
            elif len(data) > EVENT_BYTES:
                yield number, Stretch(Part.BROKEN, data[:500])
                number += 1
                data = data[-BLOCK_BYTES:]
        yield number, Stretch(Part.LAST, data, feed.fault)


def count_events(data: bytes) -> int:
    """How many pieces ``between`` would give of text that is not blank."""
    return 1 + len(_BETWEEN.findall(data))


def last_cut(data: bytes) -> tuple[int, int] | None:
    """End of the last whole event of ``data``, and where the next one begins."""
    reach = 1 << 14
    while True:
        # From near the end: searching all of a block for its last cut takes as long as parsing it.
        found = list(_BETWEEN.finditer(data, max(0, len(data) - reach)))
        if found:
            return found[-1].start() + 1, found[-1].end()
        if reach >= len(data):
            return None
        reach *= 8


def _refuse_large(size: int, where: str) -> None:
    if size > TRACE_BYTES:
        raise InputError(
            f"is larger than {TRACE_BYTES >> 30} GiB, the most that is read",
            where=where,
            hint=_SHORTER,
        )
