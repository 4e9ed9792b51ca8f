"""Flags of commands that read a source: ``ingest`` and ``watch``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

JobFlag = Annotated[str | None, typer.Option("--job", help="job id; else the file's name")]
MapFlag = Annotated[
    list[str] | None,
    typer.Option("--map", metavar="OURS=THEIRS", help="column mapping; sums as a+b-c; repeatable"),
]
TimeUnitFlag = Annotated[str | None, typer.Option("--time-unit", help="ns, us, ms, s or relative")]
MetaFlag = Annotated[Path | None, typer.Option("--meta", help="sizes of the job, YAML")]
AttemptFlag = Annotated[int, typer.Option("--attempt", min=0, help="attempt of the job")]
WorldSizeFlag = Annotated[
    int | None, typer.Option("--world-size", min=1, help="ranks, where the file has fewer")
]
GpuModelFlag = Annotated[str | None, typer.Option("--gpu-model", help="device of the job")]
DialectFlag = Annotated[
    str | None, typer.Option("--dialect", help="dialect of a log; else it is detected")
]
LossTagFlag = Annotated[
    str | None,
    typer.Option("--loss-tag", metavar="TAG", help="training loss of a tracker; else detected"),
]
HostFlag = Annotated[
    str | None,
    typer.Option("--host", help="node of device samples; else its own name, the file's"),
]
