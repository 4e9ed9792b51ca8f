"""Group commits: rows of many batches become segments, once, however often we are killed.

    <lake>/collect/lock         held by the one collector of the lake
    <lake>/collect/state.json   {"marks": {stream: [seq, day]}, "holes": {stream: [[first, last]]},
                                 "moves": [[temporary, final], ...]}

A commit writes the segments under temporary names and forces them to the disk, replaces the state
by one that names them and the batches that are in them, and then renames the segments. The replaced
state is the moment at which the batches count as stored: a collector that is killed before it has
stored nothing, and one that is killed after it finds in the state what is left to rename.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Sequence
from pathlib import Path

import orjson
import pyarrow as pa

from steptax.app.collect.intake import Intake
from steptax.app.collect.marks import Mark, read_marks, write_marks
from steptax.app.errors import IntegrityError, UserError
from steptax.app.lake import Lake
from steptax.app.lake.files import fsync_folder, write_whole
from steptax.app.lake.lake import stamp
from steptax.app.lake.segments import live_name, write_parquet
from steptax.app.schema import table

#: A stream that has sent nothing for so long has no batch left to repeat.
_FORGET_DAYS = 60
_DAY_S = 86_400


class CommitStore:
    """One per lake at a time: raises UserError while another process has it."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._folder = lake.root / "collect"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock = (self._folder / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise UserError(
                "another collector is at work on this lake",
                where=str(lake.root),
                hint="send to that one, or stop it first",
            ) from None
        self._state = self._folder / "state.json"
        self._marks: dict[str, Mark] = {}
        self._unfinished: list[tuple[str, str]] = []
        try:
            self._recover()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let another collector have the lake."""
        self._lock.close()

    def is_stored(self, stream: str, seq: int) -> bool:
        """True when this batch has been stored before."""
        return self._marks.get(stream, Mark()).holds(seq)

    def commit(self, intakes: Sequence[Intake]) -> int:
        """Store all of them, visible when this returns; returns how many rows were added.

        Batches that are stored already, or stand twice in ``intakes``, are stored once. Raises
        OSError when the disk does not take them. Whether they count as stored is open then: a
        repeat is stored once in either case.
        """
        self._finish()
        marks = dict(self._marks)
        today = int(time.time()) // _DAY_S
        rows: dict[tuple[str, str | None], list[pa.Table]] = {}
        for intake in intakes:
            mark = marks.get(intake.stream, Mark())
            if mark.holds(intake.seq):
                continue
            if intake.stream:
                marks[intake.stream] = mark.with_batch(intake.seq, today)
            for (name, job_id), parts in intake.rows.items():
                job = job_id if table(name).by_job else None
                rows.setdefault((name, job), []).extend(parts)
            if intake.rejects:
                rows.setdefault(("rejects", None), []).append(_reject_rows(intake))
        moves = self._stage_all(rows)
        fresh = {s: mark for s, mark in marks.items() if mark.day > today - _FORGET_DAYS}
        self._write_state(fresh, moves)
        self._marks = fresh
        self._unfinished = moves
        self._finish()
        return sum(part.num_rows for parts in rows.values() for part in parts)

    def _stage_all(
        self, rows: dict[tuple[str, str | None], list[pa.Table]]
    ) -> list[tuple[str, str]]:
        moves: list[tuple[str, str]] = []
        try:
            for (name, job), parts in rows.items():
                moves.append(self._stage(name, job, parts))
        except BaseException:
            for temporary, _ in moves:
                (self._lake.root / temporary).unlink(missing_ok=True)
            raise
        return moves

    def _stage(self, name: str, job: str | None, parts: list[pa.Table]) -> tuple[str, str]:
        """Force a segment to the disk under a name that no reader lists."""
        spec = table(name)
        merged = pa.concat_tables(parts)
        folder = self._lake.folder(name, job)
        final = folder / live_name(merged)
        temporary = final.with_name(f".{final.name}.collected")
        write_parquet(temporary, spec, merged)
        return self._lake.relative(temporary), self._lake.relative(final)

    def _write_state(self, marks: dict[str, Mark], moves: Sequence[tuple[str, str]]) -> None:
        write_whole(self._state, orjson.dumps({**write_marks(marks), "moves": moves}))

    def _finish(self) -> None:
        """Make what the state names visible; what is visible already stays."""
        folders: set[Path] = set()
        for temporary, final in self._unfinished:
            path = self._lake.root / final
            try:
                os.rename(self._lake.root / temporary, path)
            except FileNotFoundError:  # an earlier attempt came so far
                continue
            folders.add(path.parent)
        for folder in folders:
            fsync_folder(folder)
        self._unfinished = []

    def _recover(self) -> None:
        try:
            state = orjson.loads(self._state.read_bytes())
            self._marks = read_marks(state)
            self._unfinished = [(str(a), str(b)) for a, b in state["moves"]]
        except FileNotFoundError:
            pass
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            # Going on without it would store repeats twice.
            raise IntegrityError(
                f"the collector's state cannot be read: {error}",
                where=str(self._state),
                hint="restore it from a backup of the lake; without it repeats are stored twice",
            ) from None
        self._finish()
        # What a killed collector had staged and not committed: its senders will send it again.
        for path in self._lake.root.glob("tables/**/.*.collected"):
            path.unlink(missing_ok=True)


def _reject_rows(intake: Intake) -> pa.Table:
    rejects = intake.rejects
    spec = table("rejects")
    rows = pa.table(
        {
            "table": [r.table for r in rejects],
            "reason": [r.reason for r in rejects],
            "field": pa.array([r.field for r in rejects], pa.string()),
            "raw": pa.array([r.raw for r in rejects], pa.string()),
            "source_row": pa.array([r.row for r in rejects], pa.int64()),
        }
    )
    batch = f"/{intake.stream}-{intake.seq}" if intake.stream else ""
    source = f"collect:{intake.host}{batch}"
    return stamp(spec, rows, source, time.time_ns() // 1000)
