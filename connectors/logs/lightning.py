"""``lightning``: metrics.csv of Lightning's CSVLogger."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from steptax.app.errors import InputError
from steptax.app.schema import Batch, Reject
from steptax.connectors.base import Capabilities, Options, RawChunk
from steptax.connectors.logs.connector import LogConnector
from steptax.connectors.logs.lines import Line, micros, number
from steptax.connectors.logs.marks import (
    Again,
    Fault,
    Kind,
    LogBatch,
    Mark,
    no_time,
    printed,
    reject,
    value_of,
)
from steptax.connectors.sources import TextBlock, blocks, head, text_of
from steptax.connectors.tables.csvcells import csv_cells

_TIMES = {"step_time", "iter_time", "step_time_s", "step_time_ms", "iteration_time"}
_LOSSES = ("loss", "train_loss_step", "train/loss", "train_loss_epoch")


@dataclass(frozen=True)
class CsvChunk:
    """Payload: the names of the columns, and whole lines behind the first."""

    columns: tuple[str, ...]
    block: TextBlock


class LightningConnector(LogConnector):
    """Rows of metrics.csv: one per logged step, with empty cells for what was not logged."""

    kind = "lightning"
    version = 2
    title = "metrics.csv of Lightning's CSVLogger"
    family = "a metrics.csv"
    readers = ()
    dialects: ClassVar = {"lightning": "Lightning"}
    doc = (
        "CSV with a column 'step' and one column per metric, in any order; empty cells are values "
        "that were not logged in that row. Also packed by gzip.\n"
        "Every number is kept as printed. A column such as 'train_step_timing in s' or "
        "'step_time_s' gives the step time; without one there are no step rows, because the file "
        "has no clock. Steps count from 0 there. A step that goes back begins a new attempt."
    )

    def probe(self, source: Path, options: Options) -> Capabilities:
        """As for all logs; InputError when the first line has no column 'step'."""
        found = super().probe(source, options)
        self._columns(source)
        return found

    def fetch(self, source: Path, options: Options) -> Iterator[RawChunk]:
        """Whole lines behind the header."""
        for block in blocks(source):
            yield self.chunk(source, block)

    def chunk(self, source: Path, block: TextBlock) -> RawChunk:
        """Whole lines, and the names of their columns."""
        return RawChunk(str(source), block.first_line, CsvChunk(self._columns(source), block))

    def parse(self, raw: RawChunk, options: Options) -> list[Batch]:
        """A mark per row."""
        chunk: CsvChunk = raw.payload
        block = chunk.block
        marks: list[Mark] = []
        faults = [Reject("steps", b.reason, b.row, None, b.raw) for b in block.broken]
        blank = 0
        lines = block.data.removesuffix(b"\n").split(b"\n") if block.data else []
        for offset, data in enumerate(lines):
            at = block.first_line + offset
            text = data.decode("utf-8", "replace")
            if not text.strip():
                blank += 1
                continue
            if at == 1:
                continue
            line = Line(at, text, text_of(data))
            said = _row(line, chunk.columns)
            if isinstance(said, Fault):
                faults.append(reject(line, said))
            else:
                marks.append(said)
        return [LogBatch("steps", pa.table({}), tuple(faults), marks=tuple(marks), blank=blank)]

    def _columns(self, source: Path) -> tuple[str, ...]:
        first = head(source).split(b"\n", 1)[0].decode("utf-8", "replace").strip("\r")
        columns = tuple(name.strip() for name in csv_cells(first) or ())
        if "step" not in columns or len(set(columns)) < len(columns):
            raise InputError(
                f"its first line names no column 'step': {first[:100]!r}",
                where=str(source),
                hint="name a metrics.csv of Lightning's CSVLogger",
            )
        return columns


def _row(line: Line, columns: tuple[str, ...]) -> Mark | Fault:
    cells = csv_cells(line.text)
    if cells is None or len(cells) != len(columns):
        found = "a damaged line" if cells is None else f"{len(cells)}"
        return Fault(f"expected {len(columns)} fields, found {found}", None)
    named = dict(zip(columns, cells, strict=True))
    told = number(named["step"])
    if told is None or not 0 <= told < 2**53 or told != int(told):
        return Fault(f"expected a step number, found {named['step'][:40]!r}", "step")
    values = []
    for name, text in named.items():
        if name == "step" or not text.strip():
            continue
        if number(text) is None:
            return Fault(f"expected a number, found {text[:40]!r}", name)
        values.append(printed(name, text))
    got = tuple(values)
    time = next((v for v in got if v.name.lower() in _TIMES), None)
    duration = None
    if time is not None:
        in_ms = time.unit == "ms" or time.printed_as.endswith("_ms")
        duration = micros(time.value, 1000.0 if in_ms else 1e6)
        if duration is None and time.value == time.value:  # nan is a time that is not known
            return no_time(f"a time in column {time.printed_as!r}", got, time.printed_as)
    loss = next((v.value for n in _LOSSES for v in got if v.name.lower() == n), None)
    if loss is None:
        loss = value_of(got, "loss")
    return Mark(
        Kind.STEP,
        line,
        step=int(told),
        duration_us=duration,
        loss=loss if loss is not None and abs(loss) < float("inf") else None,
        printed=got,
        again=Again.MERGE,
        dialect="lightning",
    )
