"""What one reading of a trace holds until the end of the file tells what it means."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from steptax.app.errors import InputError
from steptax.app.schema import Batch, Reject
from steptax.connectors.base import Options, Run
from steptax.connectors.kineto.arrays import to_arrow, to_numpy
from steptax.connectors.kineto.fields import DEVICE, Kind
from steptax.connectors.kineto.header import Header, job_in_name, rank_in_name
from steptax.connectors.kineto.rows import RankRows, rank_rows
from steptax.connectors.kineto.timeline import (
    Events,
    Steps,
    Timeline,
    device_lag_ns,
    exposed_share,
    find_steps,
    make_events,
    since_1970,
    without_stumps,
)
from steptax.connectors.tables.facts import rows_of

#: Events that are kept of one file, about 60 bytes each.
MOST_EVENTS = 30_000_000
#: Shares of a step that are worth saying: device behind the host, device idle.
_NOTABLE_LAG = 0.05
_NOTABLE_IDLE = 0.3
_DEVICE_KINDS = [int(kind) for kind in DEVICE]
#: Stretches whose events are made one table.
_MERGE = 64
#: Share of damaged events up to which phases are told.
_MOST_LOST = 1e-3
NO_STEPS = (
    "expected ProfilerStep#N annotations, found none: the operations of this trace belong to no "
    "step; call prof.step() after each step"
)


@dataclass(frozen=True)
class Parsed(Batch):
    """Events of one stretch, and what it says of the process; made into rows at the end.

    ``cut`` says why there may be events that are not in the file.
    """

    header: Header = field(default_factory=Header)
    cut: str | None = None
    seen: int = 0
    repaired: int = 0


class KinetoRun(Run):
    """Collects the columns of all stretches, and makes the rows of the rank at the end."""

    def __init__(self, source: str, options: Options) -> None:
        self._source, self._options = source, options
        self._tables: list[pa.Table] = []
        self._header = Header()
        self._cut: str | None = None
        self._on_device = False
        self._seen = self._repaired = self._rejected = self._held = 0
        self._merged = 0

    def take(self, batch: Batch) -> Iterator[Batch]:
        """Hold the events; rejects go on at once."""
        assert isinstance(batch, Parsed)
        self._header = self._header.merged(batch.header)
        self._cut = batch.cut or self._cut
        self._seen += batch.seen
        self._repaired += batch.repaired
        self._rejected += len(batch.rejects)
        self._held += batch.rows.num_rows
        if self._held > MOST_EVENTS:
            raise InputError(
                f"has more than {MOST_EVENTS:,} events of use",
                where=self._source,
                hint="profile fewer steps: schedule(active=2)",
            )
        if batch.rows.num_rows:
            rows = self._of_use(batch.rows)
            self._tables.append(rows)
            if len(self._tables) - self._merged >= _MERGE:
                # Each stretch has its own list of names, most of them those of the one before.
                self._tables[self._merged :] = [_one(self._tables[self._merged :])]
                self._merged += 1
        if batch.rejects:
            yield Batch("ops", pa.table({}), batch.rejects)

    def finish(self, *, nameless: bool = False) -> Timeline:
        """What all of the file says, which is held until here.

        InputError when there is no event of use, or nobody knows the rank; ``nameless`` takes a
        trace that does not say its rank.
        """
        if not self._tables:
            raise InputError(
                f"holds no step, kernel or communication among its {self._seen} events"
                + (f": {self._cut}" if self._cut else ""),
                where=self._source,
                hint="profile with activities CPU and CUDA, and call prof.step() in each step",
            )
        rank, notes = (None, []) if nameless and not self._says_rank else self._rank()
        if nameless:
            notes = [*notes, *self._damage()]
        events, based = since_1970(make_events(_one(self._tables)), self._header.base_ns)
        self._tables.clear()
        found = find_steps(events)
        return Timeline(
            self._options.job_id or job_in_name(self._source),
            rank,
            self._header,
            events,
            without_stumps(found, events),
            found,
            based,
            self._whole,
            tuple(notes),
        )

    def close(self) -> Iterator[Batch]:
        """The rows; InputError as ``finish``."""
        told = self.finish()
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
        made = rank_rows(events, steps, self._header, key, whole=self._whole)
        notes += self._said(made, events, steps, based)
        about = f"{job_id}, rank {rank}: "
        yield Batch("ops", made.ops, doubled, tuple(about + note for note in notes))
        yield Batch("steps", _clocked(made.steps, based))
        yield Batch("collectives", _clocked(made.collectives, based))
        yield Batch("jobs", rows_of("jobs", [self._job(job_id, rank)]))
        yield Batch("ranks", rows_of("ranks", [self._place(job_id, rank, events)]))

    def _of_use(self, rows: pa.Table) -> pa.Table:
        """Without the host's operations, once it is known that there is a device."""
        if not self._on_device and np.isin(to_numpy(rows["kind"]), _DEVICE_KINDS).any():
            self._on_device = True
            self._tables = [_without_host(held) for held in self._tables]
        return _without_host(rows) if self._on_device else rows

    @property
    def _says_rank(self) -> bool:
        """Whether anybody says which rank wrote the trace."""
        told = (self._options.extra.get("rank"), self._header.rank, rank_in_name(self._source))
        return any(rank is not None for rank in told)

    def _rank(self) -> tuple[int, list[str]]:
        """The rank, and what is to be said of it."""
        asked, own = self._options.extra.get("rank"), self._header.rank
        named = rank_in_name(self._source)
        if asked is not None:
            if not (asked.isascii() and asked.isdigit() and len(asked) < 10):
                raise InputError(
                    f"a rank is a whole number from 0, not {asked!r}",
                    where=f"--rank, {self._source}",
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
                where=self._source,
                hint="pass --rank N, or name the file rank-N.json",
            )
        world = self._world()
        if rank > 2**31 - 1 or (world is not None and rank >= world):
            raise InputError(
                f"is of rank {rank}, but the job has {world} ranks",
                where=self._source,
                hint="is --world-size, --rank or the file another job's?",
            )
        return rank, notes

    @property
    def _whole(self) -> bool:
        """Whether so few events are lost that sums over the others hold."""
        return self._cut is None and self._rejected <= _MOST_LOST * self._seen

    def _world(self) -> int | None:
        return self._options.world_size or self._header.world_size

    def _job(self, job_id: str, rank: int) -> dict[str, Any]:
        sizes = {f"{p}_size": size for p, (_, size) in self._header.places(rank).items()}
        return {
            "job_id": job_id,
            "name": job_id,
            "framework": "PyTorch",
            "gpu_model": self._options.gpu_model or self._header.gpu_model,
            "world_size": self._world(),
            "time_basis": "wall",
        } | sizes

    def _place(self, job_id: str, rank: int, events: Events) -> dict[str, Any]:
        devices = pc.unique(events.table["device"].drop_null()).to_pylist()
        coordinates = {p: at for p, (at, _) in self._header.places(rank).items()}
        index = devices[0] if len(devices) == 1 else None
        return {"job_id": job_id, "rank": rank, "gpu_index": index} | coordinates

    def _damage(self) -> list[str]:
        """What of the file was broken, repaired or left out, with the number of its events."""
        said: list[str] = []
        if self._cut is not None:
            said.append(f"the trace breaks off ({self._cut}): {self._seen} whole events were read")
        if self._repaired:
            said.append(
                f"{self._repaired} of {self._seen} events were no valid JSON (Infinity, control "
                "characters, backslashes) and were repaired"
            )
        if self._rejected:
            said.append(f"{self._rejected} events were damaged and are left out")
        return said

    def _said(self, made: RankRows, events: Events, steps: Steps, based: bool) -> list[str]:
        """What a person has to know of this trace."""
        said = [*self._header.notes, *made.notes, *self._damage()]
        if not self._whole:
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
        if events.on_device and self._whole:
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
        world = self._world()
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


def _one(tables: list[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


def _without_host(rows: pa.Table) -> pa.Table:
    return rows.filter(to_arrow(to_numpy(rows["kind"]) != Kind.HOST))


def _clocked(rows: pa.Table, based: bool) -> pa.Table:
    """Without moments, where these are of no known clock."""
    moments = [c for c in ("start_us", "enqueued_us") if c in rows.column_names]
    return rows if based else rows.drop_columns(moments)
