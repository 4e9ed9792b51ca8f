"""The connector of PyTorch profiler traces."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from steptax.app.schema import Batch, Reject
from steptax.connectors.base import Capabilities, Connector, Options, RawChunk, Run
from steptax.connectors.kineto.parsing import parse_stretch
from steptax.connectors.kineto.pieces import stretches
from steptax.connectors.kineto.reading import check_head
from steptax.connectors.kineto.run import KinetoRun, ParsedBatch
from steptax.connectors.sources import text_of


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
        check_head(source)
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
        """The events of one stretch, reduced to what is of use."""
        found = parse_stretch(raw.payload, raw.first_row)
        rejects = tuple(
            Reject("ops", r.reason, r.row, r.field, text_of(r.raw)) for r in found.refused
        )
        return [ParsedBatch("ops", pa.table({}), rejects, parsed=found)]

    def begin(self, source: Path, options: Options) -> Run:
        """Hold the events until the end of the file tells what they mean."""
        return KinetoRun(str(source), options)
