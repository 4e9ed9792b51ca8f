"""Retention: raw rows that are older than an age go, their roll-ups stay.

A segment goes as a whole, once its newest row is old enough. Per table and job:

1. the roll-ups of what goes are written to ``kept/``; nobody reads them yet;
2. one commit adds them and removes the segments: from then on readers see those, not these;
3. the files of the segments are deleted after a grace time, by this or by any later pass.

Killed before 2, everything is as it was, and the next pass begins anew; killed after it, a later
pass (or a compaction) deletes the files. A job's rows are dropped together or not at all.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from steptax.app.lake.commits import RETAIN, Commit, Overtaken
from steptax.app.lake.compact import GRACE_S, sweep
from steptax.app.lake.kept import FOLDER, place_of
from steptax.app.lake.lake import Lake
from steptax.app.lake.rollups import (
    TOO_LARGE,
    Parts,
    forget_damaged,
    of_table,
    parts_of,
    raw,
    write_rollup,
)
from steptax.app.lake.segments import Segment, order_column, read_segment
from steptax.app.schema import table
from steptax.app.schema.rollup import Rollup
from steptax.app.schema.rollups import ROLLUPS

#: Tables of which something remains when their rows are gone.
TABLES_KEPT = tuple(dict.fromkeys(rollup.table for rollup in ROLLUPS))
#: Segments that one part sums up: so much is in memory at once, however much goes.
_TOGETHER = 64
DAY_US = 86_400_000_000


@dataclass(frozen=True)
class Going:
    """What goes of a table, or of one job in it."""

    table: str
    job_id: str | None
    segments: tuple[Segment, ...]
    bytes: int
    newest_us: int
    """Moment of the newest row."""

    @property
    def rows(self) -> int:
        """Rows that go."""
        return sum(segment.rows for segment in self.segments)


@dataclass(frozen=True)
class Retained:
    """What a pass did. ``busy``: another one, or a compactor, was at work.

    ``stayed`` was due and could not go: what nothing can sum up would be gone for good.
    """

    dropped: tuple[Going, ...] = ()
    deleted_files: int = 0
    busy: bool = False
    stayed: tuple[Going, ...] = ()


def due(
    lake: Lake, before_us: int, *, tables: Iterable[str] = TABLES_KEPT, job_id: str | None = None
) -> tuple[Going, ...]:
    """Segments whose newest row is of before ``before_us``, by table and job. Changes nothing.

    Of a lake in a bucket the ends of segments are read, and those whole alone whose end does not
    tell.
    """
    found = []
    for name in tables:
        spec = table(name)
        jobs = [job_id] if job_id is not None else lake.job_ids(name)
        for job in jobs if spec.by_job else [None] if job_id is None else []:
            old = {
                segment: at_us
                for segment, at_us in _newest(lake, lake.segments(name, job))
                if at_us < before_us
            }
            if old:
                size = sum(lake.sizes_bytes(old).values())
                found.append(Going(name, job, tuple(old), size, max(old.values())))
    return tuple(found)


def retain(
    lake: Lake,
    before_us: int,
    *,
    tables: Iterable[str] = TABLES_KEPT,
    job_id: str | None = None,
    grace_s: float = GRACE_S,
) -> Retained:
    """Drop what is ``due``; its roll-ups stay. Readers and writers go on meanwhile."""
    with lake.commits.compacting(lake.root) as alone:
        if not alone:
            return Retained(busy=True)
        done: list[Going] = []
        stayed: list[Going] = []
        for going in due(lake, before_us, tables=tables, job_id=job_id):
            try:
                done += _dropped(lake, going, before_us)
            except Overtaken:
                return Retained(tuple(done), busy=True, stayed=tuple(stayed))
            except TOO_LARGE:
                stayed.append(going)
        _clear_unseen(lake)
        return Retained(tuple(done), sweep(lake, grace_s), stayed=tuple(stayed))


def _dropped(lake: Lake, going: Going, before_us: int) -> list[Going]:
    """Drop what is going, without what turns out to be damaged: that is set aside."""
    try:
        _drop(lake, going, before_us)
        return [going]
    except (duckdb.Error, pa.ArrowException, OSError):
        if not lake.set_damaged_aside(going.segments):
            raise
    rest = due(lake, before_us, tables=[going.table], job_id=going.job_id)
    for one in rest:
        _drop(lake, one, before_us)
    return list(rest)


def _drop(lake: Lake, going: Going, before_us: int) -> None:
    removes = tuple(lake.relative(segment.path) for segment in going.segments)
    commit_id = hashlib.sha256("\n".join((RETAIN, *removes)).encode()).hexdigest()[:24]
    adds = []
    for number, begin in enumerate(range(0, len(going.segments), _TOGETHER)):
        group = going.segments[begin : begin + _TOGETHER]
        first, last = min(s.first for s in group), max(s.last for s in group)
        rows = sum(s.rows for s in group)
        entry = f"part-{commit_id}-{number}-{first}-{last}-{rows}.parquet"
        for rollup in of_table(going.table):
            for level in rollup.levels:
                place = f"{place_of(rollup, level, going.job_id)}/{entry}"
                write_rollup(lake.root / place, _summed(lake, rollup, level, group))
                adds.append(place)
    detail: dict[str, Any] = {
        "table": going.table,
        "job_id": going.job_id,
        "before_us": before_us,
        "rows": going.rows,
        "bytes": going.bytes,
        "first": min(s.first for s in going.segments),
        "last": max(s.last for s in going.segments),
    }
    now_us = time.time_ns() // 1000
    lake.commit(Commit(commit_id, RETAIN, now_us, tuple(adds), removes, detail))


def _summed(lake: Lake, rollup: Rollup, level: str, group: Sequence[Segment]) -> pa.Table:
    lake.fetched(raw(lake.root, rollup, level, group))
    try:
        return _merged(rollup, level, parts_of(lake.root, rollup, level, group))
    except duckdb.Error:
        # A roll-up is damaged: its segment is still there, and sums it up once more.
        if not forget_damaged(lake.root, rollup, level, group):
            raise
        lake.fetched(raw(lake.root, rollup, level, group))
        return _merged(rollup, level, parts_of(lake.root, rollup, level, group))


def _merged(rollup: Rollup, level: str, parts: Parts) -> pa.Table:
    names = ", ".join(rollup.columns)
    connection = duckdb.connect(config={"autoinstall_known_extensions": False})
    try:
        connection.execute("SET enable_progress_bar = false")
        sources = []
        if parts.stored:
            listed = ", ".join("'" + str(p).replace("'", "''") + "'" for p in parts.stored)
            sources.append(f"SELECT {names} FROM read_parquet([{listed}], hive_partitioning=false)")
        if parts.fresh is not None:
            connection.register("_fresh", parts.fresh)
            sources.append(f"SELECT {names} FROM _fresh")
        sql = rollup.merged_sql(level, f"({' UNION ALL '.join(sources)})")
        return connection.sql(f"{sql} ORDER BY ALL").to_arrow_table()
    finally:
        connection.close()


def _newest(lake: Lake, segments: Sequence[Segment]) -> Iterator[tuple[Segment, int]]:
    """Moment of the newest row of each; without what is damaged: who asks for it sets it aside."""
    for begin in range(0, len(segments), _TOGETHER):
        group = segments[begin : begin + _TOGETHER]
        footers = lake.footers(s for s in group if _named_us(s) is None)
        for segment in group:
            footer = footers.get(segment.path)
            if footer is None and segment.is_parquet and _named_us(segment) is None:
                continue
            with contextlib.suppress(pa.ArrowException, OSError):
                yield segment, _newest_us(lake, segment, footer)


def _named_us(segment: Segment) -> int | None:
    """Moment of the newest row, where the name of a segment tells it."""
    by_time = order_column(table(segment.table).names) == "ts_us"
    return segment.last if by_time and segment.last < 2**62 else None


def _newest_us(lake: Lake, segment: Segment, footer: pq.FileMetaData | None) -> int:
    """Moment of the newest row; of rows that tell none, when they were stored."""
    named_us = _named_us(segment)
    if named_us is not None:
        return named_us
    spec = table(segment.table)
    told = [name for name in ("ts_us", "start_us") if name in spec.names]
    newest = 0
    for name in (*told, "ingested_at_us"):
        found, is_whole = _greatest(lake, segment, name, footer)
        newest = max(newest, found)
        if is_whole and found:
            break
    return newest


def _greatest(
    lake: Lake, segment: Segment, name: str, footer: pq.FileMetaData | None
) -> tuple[int, bool]:
    """Greatest value of a column, and whether every row has one; from the footer where it tells."""
    if footer is not None:
        index = footer.schema.names.index(name) if name in footer.schema.names else -1
        groups = [footer.row_group(k).column(index) for k in range(footer.num_row_groups)]
        told = [g.statistics for g in groups] if index >= 0 else []
        if told and all(s is not None and s.has_null_count for s in told):
            known = [s.max for s in told if s.has_min_max]
            return max(known, default=0), all(s.null_count == 0 for s in told)
        if index < 0:
            return 0, False
    lake.fetched([segment])
    column = read_segment(table(segment.table), segment)[name]
    return pc.max(column).as_py() or 0, column.null_count == 0


def _clear_unseen(lake: Lake) -> None:
    """Remove parts of passes that were killed before their commit, on this machine.

    None while a record cannot be read: it may be the one that names them, and nothing else has what
    they sum up.
    """
    folder = lake.root / FOLDER
    if lake.url is not None or not folder.is_dir():
        return
    commits = lake.commits.all().values()
    if lake.commits.damaged:
        return
    seen = {name for c in commits if c.kind == RETAIN for name in c.adds}
    unseen: Sequence[Path] = [
        path for path in folder.rglob("*.parquet") if lake.relative(path) not in seen
    ]
    for path in unseen:
        path.unlink(missing_ok=True)
