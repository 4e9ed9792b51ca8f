"""Storing what a connector read: everything of one input, or nothing."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from steptax.app.lake.commits import Commit
from steptax.app.lake.conflicts import Conflicts
from steptax.app.lake.duplicates import find_duplicates
from steptax.app.lake.kept import already_summed, dropped
from steptax.app.lake.lake import Lake, split_by_job, stamp
from steptax.app.lake.rollups import forget, roll_up
from steptax.app.lake.segments import (
    Segment,
    order_column,
    parse_name,
    part_name,
    write_parquet,
)
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


def fingerprint(paths: Sequence[Path], *facts: object) -> str:
    """Identity of an input: the content of its files and whatever changes how they are read."""
    digest = hashlib.sha256(orjson.dumps([str(fact) for fact in facts]))
    for path in paths:
        with path.open("rb") as handle:
            digest.update(hashlib.file_digest(handle, "sha256").digest())
    return digest.hexdigest()[:24]


class Ingest:
    """Collects batches into parts that become visible together, at ``finish``."""

    def __init__(self, lake: Lake, ingest_id: str, source: str, *, detail: dict[str, Any]) -> None:
        self.lake = lake
        self.id = ingest_id
        self.source = source
        self.detail = detail
        self._now_us = time.time_ns() // 1000
        self._held: dict[str, list[pa.Table]] = {}
        self._staged: dict[tuple[str, str | None], list[Path]] = {}
        self._parts = 0
        self._accepted: Counter[str] = Counter()
        self._rejected: Counter[str] = Counter()
        self._stored_before: Counter[str] = Counter()
        self._repeated: Counter[str] = Counter()
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

        ``refuse_later_run``: LaterRunError where the input is of a later run of a stored job;
        ``refuse_older_attempt``: also where its steps begin after a newer attempt than theirs;
        ``local_clock``: its moments are local times of a zone that nobody named.
        """
        for name in list(self._held):
            self._write(name)
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
        self._write_rejects()
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
                self.id,
                "ingest",
                self._now_us,
                tuple(adds),
                detail=self.detail
                | {
                    "source": self.source,
                    "accepted": result.accepted,
                    "rejected": result.rejected,
                    "repeated": result.repeated,
                    "first_rejects": list(result.first_rejects),
                    "job_ids": list(result.job_ids)[:1000],
                    "notes": list(result.notes),
                    "conflicting": result.conflicting,
                },
            )
        )
        return result

    def abandon(self) -> None:
        """Remove what was staged; nothing of this input was ever visible."""
        for (name, _), paths in self._staged.items():
            for path in paths:
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
            path = self.lake.folder(name, job) / part_name(self.id, self._parts, part)
            self._parts += 1
            write_parquet(path, spec, part)
            self._staged.setdefault((name, job), []).append(path)
            self._accepted[name] += part.num_rows
            if "job_id" in spec.names:
                self._jobs.update(pc.unique(part["job_id"]).to_pylist())

    def _leave_out_duplicates(self, spec: Table, job: str | None, paths: list[Path]) -> None:
        names = [path.name for path in paths]
        first, last = _span_of(spec, names)

        def known() -> list[Segment]:
            found = self.lake.segments(spec.name, job, first_step=first, last_step=last)
            return [
                s for s in self.lake.fetched(found) if s.is_parquet and s.path.name not in names
            ]

        try:
            duplicates = find_duplicates(spec, paths, [s.path for s in known()])
        except duckdb.Error:
            if not self.lake.set_damaged_aside(known()):
                raise
            duplicates = find_duplicates(spec, paths, [s.path for s in known()])
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
        for path in paths:
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
                new = path.with_name(part_name(self.id, self._parts, kept))
                self._parts += 1
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
        path = self.lake.folder("rejects") / part_name(self.id, self._parts, part)
        write_parquet(path, spec, part)
        self._staged["rejects", None] = [path]


def ingest(
    lake: Lake,
    batches: Iterable[Batch],
    *,
    ingest_id: str,
    source: str,
    detail: dict[str, Any] | None = None,
    refuse_later_run: bool = False,
    refuse_older_attempt: bool = False,
    local_clock: bool = False,
) -> IngestResult:
    """Store ``batches`` as one input, all or nothing; an input that is stored adds nothing.

    ``batches`` is not consumed when ``ingest_id`` is known already. Whatever it raises is raised
    on, and nothing of the input becomes visible. ``refuse_later_run``: LaterRunError where its
    steps were stored before with other values, and it is later than those;
    ``refuse_older_attempt``: also where they begin after a newer attempt than their own;
    ``local_clock``: its moments are local times of a zone that nobody named, so that the run may be
    the same one.
    """
    known = lake.commits.get(ingest_id)
    if known is not None:
        was = known.detail
        return IngestResult(
            ingest_id,
            str(was["source"]),
            True,
            dict.fromkeys(was["accepted"], 0),
            dict(was["rejected"]),
            dict(was["accepted"]),
            dict(was["repeated"]),
            tuple(was["first_rejects"]),
            tuple(was["job_ids"]),
            (*was["notes"], "this input was stored before; nothing was added"),
            dict(was.get("conflicting", {})),
        )
    work = Ingest(lake, ingest_id, source, detail=detail or {})
    try:
        for batch in batches:
            work.add(batch)
        return work.finish(
            refuse_later_run=refuse_later_run,
            refuse_older_attempt=refuse_older_attempt,
            local_clock=local_clock,
        )
    except BaseException:
        work.abandon()
        raise


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
