"""A lake: one folder that any number of collectors append to and any number of readers read.

    LAKE.json                                    format version: 2 once its log was folded, before 1
    tables/<table>/job=<job id>/<segment>        tables that are partitioned by job
    tables/<table>/<segment>                     the others
    rollups/<name>-<version>/...                 sums of big segments (see ``rollups``)
    quarantine/...                               damaged files (see ``quarantine``)
    commits/<id>.json                            ingests and compactions (see ``commits``)
    commits/fold-<number>.json                   what old ones of them come to (see ``folded``)
    live/job=<job id>/rank-000003.json           heartbeats, replaced in place
    live/job=<job id>/beats-<sender>.json        those of many ranks that came over a network
    locks/<number>.lock                          held while an import becomes visible

Who reads and who appends neither locks nor waits: a segment is visible whole or not at all. Of two
imports of the same job one waits while the other looks for rows that are stored and adds the rest.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from steptax.app.errors import InputError, NotFoundError, UserError
from steptax.app.lake.bucket import url_of
from steptax.app.lake.commits import Commit, CommitLog
from steptax.app.lake.files import write_whole
from steptax.app.lake.heartbeats import read_beats
from steptax.app.lake.listing import Listing
from steptax.app.lake.look import look_again, looked_up
from steptax.app.lake.quarantine import SetAside, damaged, move_aside, moved_aside
from steptax.app.lake.rollups import roll_up
from steptax.app.lake.segments import (
    Segment,
    conform,
    job_folder,
    job_of_folder,
    live_name,
    order_column,
    prune,
    read_segment,
    write_parquet,
)
from steptax.app.schema import TABLES, Table, table

FORMAT = 1
#: Of a lake whose log was folded: versions that know no folds would not see what was merged.
FOLDED_FORMAT = 2
_NO_END = 2**63 - 1


@lru_cache(maxsize=1 << 15)
def _path(text: str) -> Path:
    """Of each of the thousands of segments that every version of a table asks for."""
    return Path(text)


@dataclass(frozen=True)
class Seen:
    """Which rows of a table count: SQL about ``_rows``, and the relations that it names."""

    condition: str
    relations: Mapping[str, pa.Table]


class Lake:
    """Handle on a lake. Cheap to make; safe to share between threads for reading."""

    #: Where its segments lie when that is not a folder (see ``BucketLake``).
    url: str | None = None

    def __init__(self, root: Path | str, *, create: bool = False) -> None:
        self.root = Path(root)
        if url := url_of(root):
            raise UserError(
                "what was asked needs a lake in a folder",
                where=url,
                hint="see docs/object-storage.md",
            )
        self.commits: CommitLog = CommitLog(self.root / "commits")
        self._listing = Listing()
        self._passed_over: dict[Path, SetAside] = {}
        self._written_again: set[str] = set()
        marker = self.root / "LAKE.json"
        if marker.exists():
            found = _format_of(marker)
            if found not in (FORMAT, FOLDED_FORMAT):
                raise InputError(
                    f"lake format {found} where {FORMAT} or {FOLDED_FORMAT} was expected",
                    where=str(marker),
                    hint="use the version of Steptax that wrote it, or a newer one",
                )
        elif create:
            write_whole(marker, orjson.dumps({"format": FORMAT}))
        elif not (self.root / "tables").is_dir():
            raise NotFoundError(
                "there is no lake here",
                where=str(self.root),
                hint="name one with --lake, or make one: steptax demo, steptax ingest",
            )

    # -- reading -----------------------------------------------------------------------------

    @property
    def scope(self) -> str:
        """Whose rows are seen, as part of a key; empty for all (see ``ScopedLake``)."""
        return ""

    def sees_job(self, job_id: str | None) -> bool:
        """Whether what is said of a job may be shown."""
        return True

    def seen(self, name: str) -> Seen | None:
        """Which rows of a table count; None for all that its segments hold."""
        return None

    def ingests(self) -> list[Commit]:
        """Imports, oldest first."""
        found = [c for c in self.commits.all().values() if c.kind == "ingest"]
        return sorted(found, key=lambda c: c.created_us)

    def folder(self, name: str, job_id: str | None = None) -> Path:
        """Folder of a table, or of one job in it."""
        base = self.root / "tables" / table(name).name
        return base if job_id is None else base / job_folder(job_id)

    def job_ids(self, name: str) -> list[str]:
        """Jobs that have a folder in the by-job table ``name``, sorted."""
        known, key = looked_up(), ("jobs", self, name)
        if key not in known:
            known[key] = self._listing.jobs(str(self.folder(name)))
        return list(known[key])

    def segments(
        self,
        name: str,
        job_id: str | None = None,
        *,
        first_step: int | None = None,
        last_step: int | None = None,
    ) -> list[Segment]:
        """Visible segments, oldest name first. Without ``job_id``: those of every job.

        ``first_step`` and ``last_step`` leave out those without a step between; of a table of
        samples, which has no steps, they are moments in microseconds.
        """
        known, key = looked_up(), (self, name, job_id)
        if key not in known:
            known[key] = self._segments(name, job_id)
        return list(prune(known[key], first_step, last_step))

    def _segments(self, name: str, job_id: str | None) -> list[Segment]:
        commits, removed = self.commits.state()
        spec = table(name)
        by_time = order_column(spec.names) == "ts_us"
        jobs: Sequence[str | None] = (
            [None] if not spec.by_job else [job_id] if job_id is not None else self.job_ids(name)
        )
        found: list[Segment] = []
        base = self.folder(name)
        prefix = self.relative(base)
        for job in jobs:
            own = "" if job is None else f"/{job_folder(job)}"
            for entry, parsed in self._listing.segments(f"{base}{own}"):
                place = f"{prefix}{own}/{entry}"
                if parsed.commit_id is not None:
                    # A killed ingest may have left a part that its next run did not make again.
                    commit = commits.get(parsed.commit_id)
                    if commit is None or place not in commit.added:
                        continue
                if place in removed:
                    if parsed.commit_id is None and removed.get(place) is None:
                        self._written_again.add(place)
                    continue
                last = parsed.last
                if by_time and not last:  # its name is of before names told moments
                    last = _NO_END
                path = _path(f"{base}{own}/{entry}")
                if self._passed_over and path in self._passed_over:
                    continue
                found.append(Segment(name, job, path, parsed.first, last, parsed.rows))
        return found

    def version(self, name: str, job_id: str | None = None) -> str:
        """Changes exactly when the visible rows may have changed: the key of every cache."""
        known, key = looked_up(), ("version", self, name, job_id)
        if key not in known:
            names = (segment.path.name.encode() + b"\n" for segment in self.segments(name, job_id))
            known[key] = hashlib.sha256(b"".join(names)).hexdigest()[:16]
        version: str = known[key]
        return version

    def read(self, name: str, job_id: str | None = None) -> pa.Table:
        """All rows of a small table; of a ``latest_wins`` table what is newest for each key."""
        spec = table(name)
        try:
            found = self.fetched(self.segments(name, job_id))
            parts = [read_segment(spec, segment) for segment in found]
        except (pa.ArrowException, OSError):
            if not self.set_damaged_aside(self.segments(name, job_id)):
                raise
            found = self.fetched(self.segments(name, job_id))
            parts = [read_segment(spec, segment) for segment in found]
        rows = pa.concat_tables(parts) if parts else spec.arrow.empty_table()
        return newest_of_each_key(spec, rows) if spec.latest_wins else rows

    def set_damaged_aside(self, segments: Iterable[Segment]) -> int:
        """Set those of ``segments`` aside that cannot be read; how many there were.

        Called when reading failed: it reads each of them whole.
        """
        found = damaged(self.root, segments)
        for path, reason in found.items():
            aside = move_aside(self.root, path, reason)
            if not aside.is_moved:
                self._passed_over[path] = aside
        look_again()
        return len(found)

    def set_aside(self) -> list[SetAside]:
        """Damaged files of which no row is read: those in the quarantine, and commit records."""
        return [
            *moved_aside(self.root),
            *self._passed_over.values(),
            *(
                SetAside(f"commits/{name}", reason, 0, is_moved=False)
                for name, reason in self.commits.damaged.items()
            ),
        ]

    def live_job_ids(self) -> list[str]:
        """Jobs whose recorders have given a sign of life, sorted."""
        folder = self.root / "live"
        if not folder.is_dir():
            return []
        found = (job_of_folder(entry.name) for entry in folder.iterdir())
        return sorted(job for job in found if job is not None)

    def heartbeats(self, job_id: str) -> list[dict[str, Any]]:
        """What each rank's recorder last said of itself, by rank; empty when nothing is live."""
        return self._beats(job_id)[0]

    def strange_heartbeats(self) -> dict[str, str]:
        """What is wrong with files of heartbeats that have another shape, by place."""
        return {
            f"live/{job_folder(job_id)}/{name}": fault
            for job_id in self.live_job_ids()
            for name, fault in self._beats(job_id)[1].items()
        }

    def _beats(self, job_id: str) -> tuple[list[dict[str, Any]], Mapping[str, str]]:
        """Heartbeats of a job by rank, and what is wrong with others by file name."""
        return read_beats(self.root / "live" / job_folder(job_id))

    # -- writing -----------------------------------------------------------------------------

    def append(self, name: str, rows: pa.Table, *, source: str) -> list[Path]:
        """Append rows, visible at once. Returns the segments written (one per job)."""
        spec = table(name)
        rows = stamp(spec, rows, source, time.time_ns() // 1000)
        written = []
        for job, part in split_by_job(spec, rows):
            path = self.folder(name, job) / live_name(part)
            write_parquet(path, spec, part)
            written.append(path)
        look_again()
        roll_up(self.root, name, written)
        return written

    def written_again(self) -> list[str]:
        """Live segments that were listed since this was asked, and that only a fold says are spent.

        They are not seen. A sender that did not hear of its success may have written them again.
        """
        found, self._written_again = self._written_again, set()
        return sorted(found)

    def mark_folded(self) -> None:
        """Have versions that know no folds refuse this lake; before each fold of its log."""
        marker, body = self.root / "LAKE.json", orjson.dumps({"format": FOLDED_FORMAT})
        # Looked at each time: a backup that was begun before the first fold brings the other back.
        if not marker.exists() or marker.read_bytes() != body:
            write_whole(marker, body)

    def is_there(self, path: Path) -> bool:
        """Whether a file that a commit names can be read."""
        return path not in self._passed_over and path.exists()

    def holding(self, names: Iterable[str]) -> set[str]:
        """Those of the files that commits name that are there and can be read."""
        by_folder: dict[str, set[str]] = {}
        for name in names:
            folder, _, entry = name.rpartition("/")
            by_folder.setdefault(folder, set()).add(entry)
        there = {
            f"{folder}/{entry}"
            for folder, entries in by_folder.items()
            for entry in entries & self._entries_of(folder)
        }
        if self._passed_over:
            there -= {self.relative(path) for path in self._passed_over}
        return there

    def parts(self) -> Iterator[tuple[Path, str]]:
        """What imports and compactions wrote, visible or not, and the id of the commit of each."""
        for name, spec in TABLES.items():
            for job in self.job_ids(name) if spec.by_job else [None]:
                folder = self.folder(name, job)
                for entry, parsed in self._listing.segments(str(folder)):
                    if parsed.commit_id is not None:
                        yield folder / entry, parsed.commit_id

    def _entries_of(self, folder: str) -> set[str]:
        """Names in a folder of the lake; none where it is not there."""
        try:
            return {*os.listdir(self.root / folder)}
        except (FileNotFoundError, NotADirectoryError):
            return set()

    def fetched(self, segments: Iterable[Segment]) -> Sequence[Segment]:
        """``segments``, whose files can be opened now (see ``BucketLake``)."""
        return list(segments)

    def footers(self, segments: Iterable[Segment]) -> dict[Path, pq.FileMetaData]:
        """What the ends of Parquet segments say of them; those that cannot be read are left out."""
        found = {}
        for path in (s.path for s in segments if s.is_parquet):
            with contextlib.suppress(pa.ArrowException, OSError):
                found[path] = pq.read_metadata(path)
        return found

    def sizes_bytes(self, segments: Iterable[Segment]) -> dict[Path, int]:
        """How large segments are, by path; those that are gone are left out."""
        found = {}
        for path in (segment.path for segment in segments):
            with contextlib.suppress(FileNotFoundError):
                found[path] = path.stat().st_size
        return found

    def discard(self, names: Iterable[str]) -> list[str]:
        """Remove replaced segments, named as commits name them; those that were still there."""
        gone = []
        for name in names:
            path = self.root / name
            if path.exists():
                path.unlink()
                gone.append(name)
        return gone

    def commit(self, commit: Commit) -> None:
        """Make an ingest or a compaction visible."""
        self.commits.write(commit)
        look_again()

    def relative(self, path: Path) -> str:
        """``path`` as commits name it."""
        return path.relative_to(self.root).as_posix()

    def row_counts(self) -> dict[str, int]:
        """Visible rows per table, from the segments' names alone."""
        return {name: sum(s.rows for s in self.segments(name)) for name in TABLES}


def _format_of(marker: Path) -> int:
    """The format that a lake says it has; InputError where it says none."""
    try:
        found = orjson.loads(marker.read_bytes())["format"]
    except (ValueError, KeyError, TypeError):
        found = None
    if type(found) is not int:
        is_folded = any((marker.parent / "commits").glob("fold-*.json"))
        right = FOLDED_FORMAT if is_folded else FORMAT
        raise InputError(
            "does not say which format the lake has",
            where=str(marker),
            hint=f'put it back from a backup, or write {{"format": {right}}} into it',
        )
    return found


def stamp(spec: Table, rows: pa.Table, source: str, now_us: int) -> pa.Table:
    """Add provenance and bring to the schema of ``spec``."""
    count = rows.num_rows
    for name, value in (
        ("source", pa.scalar(source, pa.string())),
        ("ingested_at_us", pa.scalar(now_us, pa.int64())),
    ):
        column = pa.repeat(value, count)
        index = rows.column_names.index(name) if name in rows.column_names else -1
        rows = (
            rows.append_column(name, column) if index < 0 else rows.set_column(index, name, column)
        )
    return conform(spec, rows)


def split_by_job(spec: Table, rows: pa.Table) -> list[tuple[str | None, pa.Table]]:
    """``rows`` per job for a by-job table, else as they are."""
    if rows.num_rows == 0:
        return []
    if not spec.by_job:
        return [(None, rows)]
    jobs = pc.unique(rows["job_id"]).to_pylist()
    if len(jobs) == 1:
        return [(jobs[0], rows)]
    return [(job, rows.filter(pc.equal(rows["job_id"], job))) for job in jobs]


def newest_of_each_key(spec: Table, rows: pa.Table) -> pa.Table:
    """One row per key: of each column the value that was ingested last and is not null.

    A later source that does not know a job's team leaves what an earlier one said of it.
    """
    if rows.num_rows == 0:
        return rows
    # Rows of one moment keep the order of their segments, whose names begin with their time.
    read = pa.array(range(rows.num_rows), pa.int64())
    ages = [("ingested_at_us", "ascending"), ("source_row", "ascending"), ("_read", "ascending")]
    ordered = rows.append_column("_read", read).sort_by(ages)
    others = [name for name in spec.names if name not in spec.key]
    known = pc.ScalarAggregateOptions(skip_nulls=True)
    # "last" goes by the order of the rows, which threads would not keep.
    how = dict.fromkeys(others, "last")
    how |= dict.fromkeys(spec.earliest, "min") | dict.fromkeys(spec.latest, "max")
    newest = ordered.group_by(list(spec.key), use_threads=False).aggregate(
        [(name, how[name], known) for name in others]
    )
    columns = {
        name: newest[name if name in spec.key else f"{name}_{how[name]}"] for name in spec.names
    }
    return conform(spec, pa.table(columns))
