"""The parts of one input on their way into a lake, and the commit that makes them visible."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from steptax.app.lake.commits import Commit, Overtaken
from steptax.app.lake.conflicts import Conflicts
from steptax.app.lake.duplicates import find_duplicates
from steptax.app.lake.kept import already_summed, dropped
from steptax.app.lake.lake import Lake, split_by_job, stamp
from steptax.app.lake.look import look_again
from steptax.app.lake.rollups import forget, roll_up
from steptax.app.lake.segments import (
    Segment,
    order_column,
    parse_name,
    part_name,
    write_parquet,
)
from steptax.app.lake.standing import AGAIN, LEFT_OUT, Known, lies_in
from steptax.app.schema import Batch, Reject, Table, table

#: Rows held in memory before a part is written.
PART_ROWS = 1_000_000
#: Rejects kept with their text; beyond that they are counted.
KEPT_REJECTS = 100_000
SHOWN_REJECTS = 10
RAW_CHARACTERS = 500


@dataclass(frozen=True)
class IngestResult:
    """What one input gave.

    ``already`` means that this very input was stored before and nothing was added;
    ``stored_before`` counts rows of a new input whose key the lake had (a log that has grown, say),
    ``conflicting`` those of them that say something else than the stored row;
    ``repeated`` counts those of the rejects whose key stood in the input before.
    """

    ingest_id: str
    source: str
    already: bool
    accepted: dict[str, int]
    rejected: dict[str, int]
    stored_before: dict[str, int]
    repeated: dict[str, int]
    first_rejects: tuple[dict[str, Any], ...]
    job_ids: tuple[str, ...]
    notes: tuple[str, ...] = field(default=())
    conflicting: dict[str, int] = field(default_factory=dict)


class Ingest:
    """Collects batches into parts that become visible together, at ``finish``.

    Its parts have names that no other run has, so two runs of one input, of which the one that
    comes second adds nothing, never touch each other's. ``before`` is what the lake knows of the
    input: where rows of it are gone, they are stored as of when they were first.
    """

    def __init__(
        self, lake: Lake, ingest_id: str, source: str, *, detail: dict[str, Any], before: Known
    ) -> None:
        self.lake = lake
        self.id = ingest_id
        self.source = source
        self.detail = detail
        self.before = before
        self._commit_id = before.next_id
        self._run = uuid.uuid4().hex[:8]
        now_us = time.time_ns() // 1000
        # What is known since must stay the newer one.
        self._now_us = before.commits[0].created_us if before.commits else now_us
        if before.commits:
            self.detail |= {AGAIN: {"of": ingest_id, "places": before.lost, "at_us": now_us}}
        self._held: dict[str, list[pa.Table]] = {}
        self._staged: dict[tuple[str, str | None], list[Path]] = {}
        self._parts = 0
        self._accepted: Counter[str] = Counter()
        self._rejected: Counter[str] = Counter()
        self._stored_before: Counter[str] = Counter()
        self._repeated: Counter[str] = Counter()
        self._left_out: set[str] = set()
        self._conflicts = Conflicts(source, lake.commits)
        self._rejects: list[Reject] = []
        self._notes: dict[str, None] = {}
        self._jobs: set[str] = set()

    def add(self, batch: Batch) -> None:
        """Take rows and rejects; writes a part when enough rows are held."""
        for note in batch.notes:
            self._notes.setdefault(note)
        for reject in batch.rejects:
            self._reject(reject)
        if batch.rows.num_rows:
            held = self._held.setdefault(batch.table, [])
            held.append(stamp(table(batch.table), batch.rows, self.source, self._now_us))
            if sum(part.num_rows for part in held) >= PART_ROWS:
                self._write(batch.table)

    def finish(
        self,
        *,
        refuse_later_run: bool = False,
        refuse_older_attempt: bool = False,
        local_clock: bool = False,
    ) -> IngestResult:
        """Leave out what is stored already, then make the rest visible in one rename.

        Overtaken where another run has committed this input meanwhile.
        ``refuse_later_run``: LaterRunError where the input is of a later run of a stored job;
        ``refuse_older_attempt``: also where its steps begin after a newer attempt than theirs;
        ``local_clock``: its moments are local times of a zone that nobody named.
        """
        for name in list(self._held):
            self._write(name)
        with self.lake.commits.storing(self.lake.root, [self.id, *self._staged]):
            if self.lake.commits.get(self._commit_id) is not None:
                raise Overtaken(self._commit_id)
            look_again()
            return self._store(refuse_later_run, refuse_older_attempt, local_clock)

    def _store(
        self, refuse_later_run: bool, refuse_older_attempt: bool, local_clock: bool
    ) -> IngestResult:
        for (name, job), paths in list(self._staged.items()):
            if not table(name).latest_wins:
                self._leave_out_duplicates(table(name), job, paths)
        if refuse_later_run:
            self._conflicts.refuse_later_run(local_clock=local_clock)
        if refuse_older_attempt:
            for (name, job), paths in self._staged.items():
                if name == "steps" and job is not None:
                    others = self.lake.fetched(self.lake.segments(name, job))
                    stored = [s.path for s in others if s.is_parquet and s.path not in paths]
                    self._conflicts.refuse_older_attempt(job, paths, stored)
        self._notes = dict.fromkeys([*self._conflicts.notes(), *self._notes])
        if not self.before.commits or any(lies_in("rejects", name) for name in self.before.lost):
            self._write_rejects()
        if self.before.commits:
            found = sum(self._accepted.values())
            self._notes.setdefault(
                f"this input was stored before and {len(self.before.lost):,} of its segments are "
                f"gone from the lake: {found:,} rows are stored again"
            )
        for (name, _), paths in self._staged.items():
            roll_up(self.lake.root, name, paths)
        adds = [self.lake.relative(p) for paths in self._staged.values() for p in paths]
        result = IngestResult(
            self.id,
            self.source,
            False,
            dict(self._accepted),
            dict(self._rejected),
            dict(self._stored_before),
            dict(self._repeated),
            tuple(_reject_json(r) for r in self._rejects[:SHOWN_REJECTS]),
            tuple(sorted(self._jobs)),
            tuple(self._notes),
            self._conflicts.counts,
        )
        self.lake.commit(
            Commit(
                self._commit_id,
                "ingest",
                self._now_us,
                tuple(adds),
                detail=self.detail
                | {
                    "source": self.source,
                    # Rows that are stored again were counted when they were first.
                    "accepted": dict.fromkeys(result.accepted, 0)
                    if self.before.commits
                    else result.accepted,
                    "rejected": {} if self.before.commits else result.rejected,
                    "repeated": result.repeated,
                    "first_rejects": list(result.first_rejects),
                    "job_ids": list(result.job_ids)[:1000],
                    "notes": list(result.notes),
                    "conflicting": result.conflicting,
                    LEFT_OUT: sorted(self._left_out),
                },
            )
        )
        return result

    def abandon(self) -> None:
        """Remove what this run staged, unless a commit names it after all.

        What breaks off after its commit is stored. Where nobody can tell, it stays, and is not read
        as long as no commit names it.
        """
        try:
            commit = self.lake.commits.get(self._commit_id)
        except Exception:  # every store has its own
            return
        named = frozenset() if commit is None else commit.added
        for (name, _), paths in self._staged.items():
            for path in paths:
                if self.lake.relative(path) in named:
                    continue
                path.unlink(missing_ok=True)
                forget(self.lake.root, name, path)

    def _reject(self, reject: Reject) -> None:
        self._rejected[reject.table] += 1
        if len(self._rejects) < KEPT_REJECTS:
            self._rejects.append(reject)

    def _write(self, name: str) -> None:
        spec = table(name)
        rows = pa.concat_tables(self._held.pop(name))
        for job, part in split_by_job(spec, rows):
            path = self._staged_as(name, job, part)
            write_parquet(path, spec, part)
            self._accepted[name] += part.num_rows
            if "job_id" in spec.names:
                self._jobs.update(pc.unique(part["job_id"]).to_pylist())

    def _staged_as(self, name: str, job: str | None, part: pa.Table) -> Path:
        """Where the next part goes; noted before it is written, so that it is cleared away."""
        entry = part_name(self._commit_id, self._parts, part, self._run)
        path = self.lake.folder(name, job) / entry
        self._parts += 1
        self._staged.setdefault((name, job), []).append(path)
        return path

    def _leave_out_duplicates(self, spec: Table, job: str | None, paths: list[Path]) -> None:
        names = [path.name for path in paths]
        first, last = _span_of(spec, names)

        def stored() -> list[Segment]:
            found = self.lake.segments(spec.name, job, first_step=first, last_step=last)
            return [
                s for s in self.lake.fetched(found) if s.is_parquet and s.path.name not in names
            ]

        try:
            duplicates = find_duplicates(spec, paths, [s.path for s in stored()])
        except duckdb.Error:
            if not self.lake.set_damaged_aside(stored()):
                raise
            duplicates = find_duplicates(spec, paths, [s.path for s in stored()])
        summed = already_summed(self.lake, spec, job, paths)
        if summed:
            of_old = dropped(self.lake, spec.name, job)
            told = f": {of_old.sentence}" if of_old is not None else ""
            self._notes.setdefault(
                f"{len(summed):,} rows of {spec.name} were left out, for sums that outlived their "
                f"rows have them already{told}"
            )
            duplicates = [*duplicates, *summed]
        if not duplicates:
            return
        self._conflicts.add(spec.name, job, duplicates)
        drop: dict[Path, set[int]] = {}
        for duplicate in duplicates:
            drop.setdefault(duplicate.path, set()).add(duplicate.row_in_file)
            if duplicate.repeats is None:
                self._left_out.add(self.lake.relative(duplicate.path.parent))
                self._stored_before[spec.name] += 1
                continue
            self._repeated[spec.name] += 1
            self._reject(
                Reject(
                    spec.name,
                    f"expected one row per {', '.join(spec.key)}; {duplicate.key} repeats "
                    f"{duplicate.repeats}; the first was kept",
                    row=duplicate.source_row,
                )
            )
        kept_paths = []
        for path in list(paths):
            gone = drop.get(path)
            if not gone:
                kept_paths.append(path)
                continue
            rows = pq.read_table(path, partitioning=None)
            mask = pa.array([i not in gone for i in range(rows.num_rows)])
            kept = rows.filter(mask)
            self._accepted[spec.name] -= len(gone)
            path.unlink()
            if kept.num_rows:
                new = self._staged_as(spec.name, job, kept)
                write_parquet(new, spec, kept)
                kept_paths.append(new)
        self._staged[spec.name, job] = kept_paths

    def _write_rejects(self) -> None:
        if not self._rejects:
            return
        rows = pa.table(
            {
                "table": [r.table for r in self._rejects],
                "reason": [r.reason for r in self._rejects],
                "field": pa.array([r.field for r in self._rejects], pa.string()),
                "raw": pa.array(
                    [r.raw[:RAW_CHARACTERS] if r.raw else None for r in self._rejects], pa.string()
                ),
                "source_row": pa.array([r.row for r in self._rejects], pa.int64()),
            }
        )
        spec = table("rejects")
        part = stamp(spec, rows, self.source, self._now_us)
        write_parquet(self._staged_as("rejects", None, part), spec, part)


def _span_of(spec: Table, names: Sequence[str]) -> tuple[int | None, int | None]:
    """Range of steps or moments that the segments ``names`` hold; open where no key tells it.

    Only rows within it can have a key of theirs.
    """
    found = [parsed for name in names if (parsed := parse_name(name)) is not None]
    if not found or order_column(spec.key) is None:
        return None, None
    return min(one.first for one in found), max(one.last for one in found)


def _reject_json(reject: Reject) -> dict[str, Any]:
    return {
        "table": reject.table,
        "row": reject.row,
        "field": reject.field,
        "reason": reject.reason,
        "raw": reject.raw[:RAW_CHARACTERS] if reject.raw else None,
    }
