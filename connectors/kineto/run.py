"""What one reading of a trace holds until the end of the file tells what it means."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from steptax.app.schema import Batch, Reject
from steptax.connectors.base import Options, Run
from steptax.connectors.kineto.parsing import Parsed
from steptax.connectors.kineto.reading import Reading
from steptax.connectors.kineto.rows import RankRows, rank_rows
from steptax.connectors.kineto.timeline import Events, Steps, device_lag_ns, exposed_share
from steptax.connectors.tables.facts import rows_of

#: Shares of a step that are worth saying: device behind the host, device idle.
_NOTABLE_LAG = 0.05
_NOTABLE_IDLE = 0.3
NO_STEPS = (
    "expected ProfilerStep#N annotations, found none: the operations of this trace belong to no "
    "step; call prof.step() after each step"
)


@dataclass(frozen=True)
class ParsedBatch(Batch):
    """Rejects of one stretch, and its events, which are made into rows at the end."""

    parsed: Parsed | None = None


class KinetoRun(Run):
    """Collects the events of all stretches, and makes the rows of the rank at the end."""

    def __init__(self, source: str, options: Options) -> None:
        self._options = options
        self._reading = Reading(
            source,
            job_id=options.job_id,
            rank=options.extra.get("rank"),
            world_size=options.world_size,
        )

    def take(self, batch: Batch) -> Iterator[Batch]:
        """Hold the events; rejects go on at once."""
        assert isinstance(batch, ParsedBatch)
        assert batch.parsed is not None
        self._reading.add(batch.parsed)
        if batch.rejects:
            yield Batch("ops", pa.table({}), batch.rejects)

    def close(self) -> Iterator[Batch]:
        """The rows; InputError as ``Reading.finish``."""
        told = self._reading.finish()
        events, steps, found, job_id = told.events, told.steps, told.found, told.job_id
        rank, notes, based = told.rank, list(told.notes), told.based
        assert rank is not None
        doubled = tuple(
            Reject("steps", "expected each step once, found it again", row, "name")
            for row in found.doubled.tolist()
        )
        if not len(steps.number):
            # Nothing says where a step begins: then no operation has a place.
            doubled += (Reject("ops", NO_STEPS, 1, "name"),)
            notes.append(NO_STEPS)
        key = {"job_id": job_id, "attempt": self._options.attempt, "rank": rank}
        made = rank_rows(events, steps, self._reading.header, key, whole=self._reading.whole)
        notes += self._said(made, events, steps, based)
        about = f"{job_id}, rank {rank}: "
        yield Batch("ops", made.ops, doubled, tuple(about + note for note in notes))
        yield Batch("steps", _clocked(made.steps, based))
        yield Batch("collectives", _clocked(made.collectives, based))
        yield Batch("jobs", rows_of("jobs", [self._job(job_id, rank)]))
        yield Batch("ranks", rows_of("ranks", [self._place(job_id, rank, events)]))

    def _job(self, job_id: str, rank: int) -> dict[str, Any]:
        sizes = {f"{p}_size": size for p, (_, size) in self._reading.header.places(rank).items()}
        return {
            "job_id": job_id,
            "name": job_id,
            "framework": "PyTorch",
            "gpu_model": self._options.gpu_model or self._reading.header.gpu_model,
            "world_size": self._reading.world_size,
            "time_basis": "wall",
        } | sizes

    def _place(self, job_id: str, rank: int, events: Events) -> dict[str, Any]:
        device = events.table.column("device")
        devices = np.unique(device[device >= 0]).tolist()
        coordinates = {p: at for p, (at, _) in self._reading.header.places(rank).items()}
        index = devices[0] if len(devices) == 1 else None
        return {"job_id": job_id, "rank": rank, "gpu_index": index} | coordinates

    def _said(self, made: RankRows, events: Events, steps: Steps, based: bool) -> list[str]:
        """What a person has to know of this trace."""
        said = [*self._reading.header.notes, *made.notes, *self._reading.damage()]
        if not self._reading.whole:
            said.append(
                "so much is missing that phases of steps are not told, and operations come "
                "without step boundaries"
            )
        if steps.stumps:
            numbers = ", ".join(map(str, steps.stumps))
            said.append(f"step {numbers} is empty, as profiling stopped at its beginning: left out")
        if made.outside:
            said.append(f"{made.outside} operations lie outside of the profiled steps: left out")
        if not len(steps.number):
            return said
        said += self._on_communication(made, events)
        if not based:
            said.append(
                "times count from an unknown moment (no baseTimeNanoseconds): ranks can be "
                "compared only by the ends of their collectives"
            )
        if events.on_device and self._reading.whole:
            idle = exposed_share(events, steps)
            if idle > _NOTABLE_IDLE:
                said.append(
                    f"the device is idle for {idle:.0%} of the profiled steps, taken whole, from "
                    "mark to mark (steptax profile takes the device's own window)"
                )
            lag, last = device_lag_ns(events, steps), int(steps.end_ns[-1] - steps.start_ns[-1])
            if lag > _NOTABLE_LAG * last:
                said.append(
                    f"the device ends the last step {lag / 1e6:.3g} ms after the host: phases "
                    "are what it did in the host's time of each step"
                )
        return said

    def _on_communication(self, made: RankRows, events: Events) -> list[str]:
        """Nothing matched is said loudly: an empty result must not look like a good one."""
        world = self._reading.world_size
        if not made.communications:
            if world == 1:
                return []
            many = "" if world is None else f" in a job of {world} ranks"
            if not events.on_device:
                return [
                    f"NO COMMUNICATION was found{many}: the profile has no device and no gloo, "
                    "only what the host launched, so nothing says who waits for whom"
                ]
            return [
                f"NO COMMUNICATION KERNEL was recognised among the device's{many}: if the ranks "
                "do communicate, it counts as computing or idle, and nobody can be told to wait; "
                "the names known are those of NCCL, RCCL and MSCCL kernels"
            ]
        if made.unlabelled:
            return [
                f"{made.unlabelled} of {made.communications} communications carry no process "
                "group: they are in ops and not in collectives"
            ]
        return []


def _clocked(rows: pa.Table, based: bool) -> pa.Table:
    """Without moments, where these are of no known clock."""
    moments = [c for c in ("start_us", "enqueued_us") if c in rows.column_names]
    return rows if based else rows.drop_columns(moments)
