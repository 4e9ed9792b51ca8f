"""The operations of a rank's device, from a profiler trace."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from steptax.app.compute.trace.breakdown import DeviceWork, Work

if TYPE_CHECKING:  # a job needs no reader of traces
    from steptax.connectors.kineto.timeline import Timeline


@dataclass(frozen=True, eq=False)
class RankWork:
    """The device of one rank; ``no_launches`` says why idle causes cannot be told.

    ``step_starts_ns`` are those of all steps of a file, also of empty ones that ``steps`` lacks.
    """

    rank: int | None
    source: str
    steps: tuple[int, ...]
    step_starts_ns: tuple[int, ...]
    device: DeviceWork
    no_launches: str | None
    notes: tuple[str, ...]


def work_of_file(path: Path) -> RankWork:
    """What the device did in the trace ``path``; InputError where it cannot be read."""
    from steptax.connectors.kineto.reading import read_timeline

    told = read_timeline(path)
    notes = list(told.notes)
    if not told.whole:
        notes.append("parts of the trace are lost or damaged: its times are lower bounds")
    if not len(told.steps.number):
        notes.append("no profiled steps (prof.step()) are annotated: all device work is shown")
    device = _device(told)
    world = told.header.world_size
    if len(device) and world != 1 and not (device.kind == Work.COMMUNICATION).any():
        many = "" if world is None else f" in a job of {world} ranks"
        notes.append(
            f"NO COMMUNICATION KERNEL was recognised{many}: if the ranks do communicate, it "
            "counts as computing"
        )
    return RankWork(
        told.rank,
        path.name,
        tuple(told.steps.number.tolist()),
        tuple(np.sort(told.found.start_ns).tolist()),
        device,
        None,
        tuple(notes),
    )


def _device(told: Timeline) -> DeviceWork:
    from steptax.connectors.kineto.fields import DEVICE, Kind

    events = told.events
    rows = np.flatnonzero(np.isin(events.kind, [int(k) for k in DEVICE]))
    kinds = np.full(max(Kind) + 1, int(Work.COPY))
    kinds[Kind.KERNEL], kinds[Kind.COMM] = int(Work.COMPUTE), int(Work.COMMUNICATION)
    place = told.steps.at(events.launch_ns[rows])
    number = np.append(told.steps.number, -1)
    streams, stream = np.unique(events.lane[rows], return_inverse=True)
    return DeviceWork(
        kind=kinds[events.kind[rows]],
        start_ns=events.start_ns[rows],
        end_ns=events.end_ns[rows],
        name=events.table.column("name")[rows],
        names=events.table.texts,
        stream=stream.astype(np.int64),
        streams=tuple(map(str, streams.tolist())),
        step=number[place],
        launch_ns=events.launch_ns[rows],
        launched=events.launched[rows],
    )
