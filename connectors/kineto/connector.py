"""The connector of PyTorch profiler traces."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from steptax.app.errors import InputError
from steptax.app.schema import Batch
from steptax.connectors.base import Capabilities, Connector, Options, RawChunk, Run
from steptax.connectors.kineto import repair
from steptax.connectors.kineto.events import Columns, read_events
from steptax.connectors.kineto.header import Header, read_header
from steptax.connectors.kineto.pieces import (
    Part,
    Stretch,
    begins_events,
    between,
    count_events,
    last_cut,
    stretches,
)
from steptax.connectors.kineto.run import KinetoRun, Parsed
from steptax.connectors.kineto.timeline import Timeline
from steptax.connectors.sources import HEAD_BYTES, head, refuse_no_text

_MARKS = (b'"traceEvents"', b'"schemaVersion"', b'"distributedInfo"', b'"deviceProperties"')


#: Where the list of events ends, behind an event that cannot be read: at the end of the file, or
#: before a key that Kineto writes there. Lists inside of events are followed by other keys.
_LIST_END = re.compile(
    rb"(?<=\})\s*\]\s*\}?\s*$|"
    rb'\]\s*,\s*"(?:traceName|displayTimeUnit|baseTimeNanoseconds|distributedInfo|INFO|'
    rb'deviceProperties|schemaVersion|trace_id|host_name|record_shapes|with_\w+|profile_\w+)"\s*:'
)


class KinetoConnector(Connector):
    """Rows of ``ops``, ``steps`` and ``collectives`` of the rank that wrote a trace."""

    kind = "kineto"
    version = 1
    title = "PyTorch profiler (Kineto) traces, one JSON file per rank, also .gz"
    in_folder = ("*.json", "*.json.gz")
    folder_is_job = True
    doc = (
        "What torch.profiler's export_chrome_trace or tensorboard_trace_handler wrote, one file "
        "per rank, plain or packed by gzip, of CUDA, ROCm or CPU runs. Give all files of a job "
        "with --job ID, or their folder, whose name is the job's; each may be gigabytes, as no "
        "file is ever held as a whole. Times are in "
        "microseconds as Kineto writes them, after baseTimeNanoseconds where that is there.\n"
        "Rank: distributedInfo, else the file's name (rank3..., rank-3...), else --rank. "
        "Steps: ProfilerStep#N, which prof.step() makes. Communication: kernels of NCCL "
        "(ncclKernel_*, ncclDevKernel_*), RCCL and MSCCL; gloo on CPU. The operations of a "
        "process group are numbered in each step, so that ranks match however long each was "
        "profiled; group is purpose:name/size.\n"
        "steps: compute_us = any kernel runs; comm_us = communication while no kernel runs; "
        "h2d_us, input_us, other_us (copies) while none of these; the rest, the device waited "
        "for launches. User and host names are not taken. Damaged events are repaired or rejected "
        "one by one; a trace that breaks off gives its whole events, without phases."
    )

    def probe(self, source: Path, options: Options) -> Capabilities:
        """Level 3; InputError when the head is no trace."""
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
        return Capabilities(
            ("ops", "steps", "collectives", "jobs", "ranks"),
            3,
            "every kernel, copy and communication of the profiled steps of one rank",
            "steps that were not profiled, ranks whose file is not given, and, without a device in "
            "the profile, what the device did",
        )

    def fetch(self, source: Path, options: Options) -> Iterator[RawChunk]:
        """The file in stretches of about half a MiB of whole events."""
        for number, stretch in stretches(source):
            yield RawChunk(str(source), number, stretch)

    def parse(self, raw: RawChunk, options: Options) -> list[Batch]:
        """The events of one stretch, reduced to the columns that are of use."""
        stretch: Stretch = raw.payload
        columns = Columns()
        header, cut = Header(), None
        if stretch.part is Part.HEAD:
            header = read_header(stretch.data)
        elif stretch.part is Part.BROKEN:
            columns.refuse(raw.first_row, "expected the end of an event, found none", stretch.data)
        elif stretch.part is Part.EVENTS:
            _read_whole(stretch.data, raw.first_row, columns)
        else:
            header, cut = _read_last(stretch, raw.first_row, columns)
        return [
            Parsed(
                "ops",
                columns.table(),
                tuple(columns.rejects),
                header=header,
                cut=cut,
                seen=columns.seen,
                repaired=columns.repaired,
            )
        ]

    def timeline(self, source: Path, options: Options) -> Timeline:
        """The events of ``source`` themselves; its rank may be unknown. InputError as ``read``."""
        self.probe(source, options)
        run = KinetoRun(str(source), options)
        for raw in self.fetch(source, options):
            for batch in self.parse(raw, options):
                for _ in run.take(batch):
                    pass  # Rejects: the timeline's notes count them.
        return run.finish(nameless=True)

    def begin(self, source: Path, options: Options) -> Run:
        """Hold the events until the end of the file tells what they mean."""
        return KinetoRun(str(source), options)


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
