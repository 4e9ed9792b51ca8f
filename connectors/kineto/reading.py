"""Reading a trace: what its stretches say put together, up to the timeline of the rank.

Needs nothing of Arrow, of the tables or of the contract: looking at a trace takes little memory.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from steptax.app.errors import InputError
from steptax.connectors.kineto.fields import DEVICE, Kind
from steptax.connectors.kineto.header import Header, job_in_name, rank_in_name
from steptax.connectors.kineto.parsing import Parsed, parse_stretch
from steptax.connectors.kineto.pieces import begins_events, stretches
from steptax.connectors.kineto.table import Gathered
from steptax.connectors.kineto.timeline import (
    Timeline,
    find_steps,
    make_events,
    since_1970,
    without_stumps,
)
from steptax.connectors.sources import HEAD_BYTES, head, refuse_no_text
from steptax.connectors.wording import said as counted

#: Events that are kept of one file, about 70 bytes each.
MOST_EVENTS = 30_000_000
_DEVICE_KINDS = [int(kind) for kind in DEVICE]
#: Share of damaged events up to which phases are told.
_MOST_LOST = 1e-3
_MARKS = (b'"traceEvents"', b'"schemaVersion"', b'"distributedInfo"', b'"deviceProperties"')


def read_timeline(source: Path) -> Timeline:
    """All that ``source`` tells of its rank, which may be unknown; InputError for no trace."""
    check_head(source)
    reading = Reading(str(source))
    for first_row, stretch in stretches(source):
        reading.add(parse_stretch(stretch, first_row))
    return reading.finish(nameless=True)


def check_head(source: Path) -> None:
    """InputError where the beginning of ``source`` shows that it is no trace."""
    data = head(source)
    if data.startswith(b"PAR1"):
        raise InputError("is Parquet", where=str(source), hint="ingest it as ops or steps")
    refuse_no_text(data, str(source), "traces are JSON in UTF-8")
    if begins_events(data) is None and not any(mark in data for mark in _MARKS):
        raise InputError(
            "is no trace of the PyTorch profiler: no traceEvents in its first "
            f"{HEAD_BYTES >> 10} KiB",
            where=str(source),
            hint="give the JSON that export_chrome_trace wrote",
        )


class Reading:
    """Holds the events of one file until its end tells what they mean.

    ``rank`` (text of a whole number), ``world_size`` and ``job_id`` are what a person says of the
    file; None where the file is to say it.
    """

    def __init__(
        self,
        source: str,
        *,
        job_id: str | None = None,
        rank: str | None = None,
        world_size: int | None = None,
    ) -> None:
        self.source = source
        self.header = Header()
        self.cut: str | None = None
        self.seen = self.repaired = self.rejected = 0
        self._job_id, self._asked, self._world_size = job_id, rank, world_size
        self._events = Gathered()
        self._on_device = False

    @property
    def whole(self) -> bool:
        """Whether so few events are lost that sums over the others hold."""
        return self.cut is None and self.rejected <= _MOST_LOST * self.seen

    @property
    def world_size(self) -> int | None:
        """Ranks of the job; None where nobody says."""
        return self._world_size or self.header.world_size

    def add(self, parsed: Parsed) -> None:
        """Hold the events of a stretch; InputError when they become too many."""
        self.header = self.header.merged(parsed.header)
        self.cut = parsed.cut or self.cut
        self.seen += parsed.seen
        self.repaired += parsed.repaired
        self.rejected += len(parsed.refused)
        table = parsed.events
        if not len(table):
            return
        if not self._on_device and np.isin(table.rows["kind"], _DEVICE_KINDS).any():
            # Once it is known that there is a device, the host's operations are of no use.
            self._on_device = True
            self._events.drop(Kind.HOST)
        self._events.add(table.only(table.rows["kind"] != Kind.HOST) if self._on_device else table)
        if self._events.count > MOST_EVENTS:
            raise InputError(
                f"has more than {MOST_EVENTS:,} events of use",
                where=self.source,
                hint="profile fewer steps: schedule(active=2)",
            )

    def finish(self, *, nameless: bool = False) -> Timeline:
        """What all of the file says; it is held no longer.

        InputError when there is no event of use, or nobody knows the rank; ``nameless`` takes a
        trace that does not say its rank, and notes what is damaged.
        """
        if not self._events.count:
            raise InputError(
                f"holds no step, kernel or communication among its {counted(self.seen, 'event')}"
                + (f": {self.cut}" if self.cut else ""),
                where=self.source,
                hint="profile with activities CPU and CUDA, and call prof.step() in each step",
            )
        rank, notes = (None, []) if nameless and not self._says_rank else self._rank()
        if nameless:
            notes = [*notes, *self.damage()]
        events, based = since_1970(make_events(self._events.all()), self.header.base_ns)
        found = find_steps(events)
        return Timeline(
            self._job_id or job_in_name(self.source),
            rank,
            self.header,
            events,
            without_stumps(found, events),
            found,
            based,
            self.whole,
            tuple(notes),
        )

    def damage(self) -> list[str]:
        """What of the file was broken, repaired or left out, with the number of its events."""
        said: list[str] = []
        if self.cut is not None:
            said.append(f"the trace breaks off ({self.cut}): {self.seen} whole events were read")
        if self.repaired:
            said.append(
                f"{self.repaired:,} of {counted(self.seen, 'event')} were no valid JSON (Infinity, "
                "control characters, backslashes) and were repaired"
            )
        if self.rejected:
            many = counted(self.rejected, "event was damaged and is", "events were damaged and are")
            said.append(f"{many} left out")
        return said

    @property
    def _says_rank(self) -> bool:
        """Whether anybody says which rank wrote the trace."""
        told = (self._asked, self.header.rank, rank_in_name(self.source))
        return any(rank is not None for rank in told)

    def _rank(self) -> tuple[int, list[str]]:
        """The rank, and what is to be said of it."""
        asked, own = self._asked, self.header.rank
        named = rank_in_name(self.source)
        if asked is not None:
            if not (asked.isascii() and asked.isdigit() and len(asked) < 10):
                raise InputError(
                    f"a rank is a whole number from 0, not {asked!r}",
                    where=f"--rank, {self.source}",
                    hint="leave it out where the trace or its name has it",
                )
            rank = int(asked)
            other = own not in (None, rank)
            notes = [f"--rank is used, although the trace says {own}"] if other else []
        elif own is not None:
            rank = own
            other = named not in (None, own)
            notes = [f"the file's name says rank {named}; the trace is believed"] if other else []
        elif named is not None:
            rank, notes = named, ["the trace does not say its rank: taken from the file's name"]
        else:
            raise InputError(
                "does not say which rank wrote it: no distributedInfo with a rank, and no rank in "
                "its name",
                where=self.source,
                hint="pass --rank N, or name the file rank-N.json",
            )
        world = self.world_size
        if rank > 2**31 - 1 or (world is not None and rank >= world):
            raise InputError(
                f"is of rank {rank}, but the job has {world} ranks",
                where=self.source,
                hint="is --world-size, --rank or the file another job's?",
            )
        return rank, notes
