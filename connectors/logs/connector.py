"""What the connectors of training logs share: any log in, marks of its lines out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from steptax.app.errors import InputError
from steptax.app.schema import Batch, Reject
from steptax.connectors.base import Capabilities, Connector, LineFormat, Options, RawChunk, Run
from steptax.connectors.logs.lines import Line, lines_of
from steptax.connectors.logs.marks import Fault, LogBatch, Mark, Reader, reject
from steptax.connectors.logs.run import LogRun
from steptax.connectors.schedulers.sacct import TIMEZONE, zone_of
from steptax.connectors.sources import (
    BadLine,
    TextBlock,
    blocks,
    head,
    is_packed,
    refuse_no_text,
    whole_lines,
)

_NOTHING = pa.table({})
_UNKNOWN_CHARACTERS = 120
_SEES = "step time of the job as its log prints it, loss, printed rates, restarts, checkpoints"
_CANNOT = (
    "the ranks one by one: who is slow cannot be told from a log of the job; per-rank step times "
    "or phases would tell"
)


class LogConnector(Connector):
    """A family of logs. ``readers`` are asked in turn what a line says; the first answer holds."""

    readers: ClassVar[tuple[Reader, ...]]
    dialects: ClassVar[Mapping[str, str]]
    """Name of each dialect, for ``--dialect``, and the framework that it is of."""
    family: ClassVar[str]
    """What a line of such a log is, in words: 'a Megatron log'."""
    asynchronous: ClassVar[bool] = False
    """Whether a step can be printed before it is done."""
    level: ClassVar[int] = 0
    sees: ClassVar[str] = _SEES
    cannot_see: ClassVar[str] = _CANNOT
    tables: ClassVar[tuple[str, ...]] = (
        "steps",
        "printed_metrics",
        "events",
        "reported_scores",
        "jobs",
        "ranks",
    )

    def probe(self, source: Path, options: Options) -> Capabilities:
        """Level 0; InputError when the head of the file is whole and none of it is such a log."""
        self.check_dialect(options)
        zone_of(options)
        data = head(source)
        refuse_no_text(data, str(source), "name a log in UTF-8 text")
        return Capabilities(self.tables, self.level, self.sees, self.cannot_see)

    def fetch(self, source: Path, options: Options) -> Iterator[RawChunk]:
        """The log in stretches of whole lines."""
        for block in blocks(source):
            yield self.chunk(source, block)

    def has_local_clock(self, options: Options) -> bool:
        """Logs print the local time of their nodes."""
        return TIMEZONE not in options.extra

    def lines(self, source: Path, options: Options) -> LineFormat | None:
        """Each line is read by itself."""
        self.probe(source, options)
        if is_packed(source):
            return None
        return LineFormat(partial(self.chunk, source), whole_lines)

    def chunk(self, source: Path, block: TextBlock) -> RawChunk:
        """Whole lines as ``parse`` takes them."""
        return RawChunk(str(source), block.first_line, block)

    def parse(self, raw: RawChunk, options: Options) -> list[Batch]:
        """The marks of one stretch, and its damaged lines."""
        block: TextBlock = raw.payload
        marks: list[Mark] = []
        faults: list[Reject] = [_broken(line) for line in block.broken]
        unknown: list[tuple[int, str]] = []
        count = 0
        blank = sum(1 for line in block.data.splitlines() if not line or line.isspace())
        for line in lines_of(block, zone_of(options)):
            if not line.text or line.text.isspace():
                blank += 1  # nothing but a prefix
                continue
            said = self.read_line(line)
            if isinstance(said, Fault):
                faults.append(reject(line, said))
            elif said is not None:
                marks.append(said)
            else:
                count += 1
                if len(unknown) < 3:
                    unknown.append((line.number, line.text.strip()[:_UNKNOWN_CHARACTERS]))
        return [
            LogBatch(
                "steps",
                _NOTHING,
                tuple(faults),
                marks=tuple(marks),
                blank=blank,
                unknown=tuple(unknown),
                unknown_count=count,
            )
        ]

    def read_line(self, line: Line) -> Mark | Fault | None:
        """What ``line`` says, by the first reader that knows it."""
        for reader in self.readers:
            said = reader(line)
            if said is not None:
                return said
        return None

    def begin(self, source: Path, options: Options) -> Run:
        """Put the lines together."""
        return LogRun(
            source,
            options,
            name=self.family,
            frameworks=self.dialects,
            asynchronous=self.asynchronous,
        )

    def check_dialect(self, options: Options) -> None:
        """InputError when ``--dialect`` names one that is not read."""
        named = options.extra.get("dialect")
        if named is not None and named not in self.dialects:
            raise InputError(
                f"{self.kind} has no dialect {named!r}",
                where="--dialect",
                hint=f"use one of {', '.join(self.dialects)}, or leave it out: it is detected",
            )


def _broken(line: BadLine) -> Reject:
    return Reject("steps", line.reason, line.row, None, line.raw)
