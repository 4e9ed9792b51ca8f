"""Merging small segments, and clearing away what no reader can still want."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from steptax.app.lake.commits import Commit, Overtaken
from steptax.app.lake.fold import FOLD_AGE_S, fold_log
from steptax.app.lake.lake import Lake
from steptax.app.lake.rollups import forget, roll_up
from steptax.app.lake.segments import (
    Segment,
    order_column,
    part_name,
    read_segment,
    write_parquet,
)
from steptax.app.lake.standing import lost
from steptax.app.schema import TABLES, Table, table

#: Segments below this are merged; measured: 2,000 files of 4k rows read 2-16 times slower.
SMALL_ROWS = 131_072
TARGET_ROWS = 1_048_576
#: A replaced file stays this long for readers that listed it before it was replaced.
GRACE_S = 300.0
#: A temporary file that nobody wrote to for so long has no writer any more.
UNFINISHED_S = 86_400.0


@dataclass(frozen=True)
class CompactResult:
    """What a pass did. ``busy`` means that another compactor was at work and nothing was done."""

    merged_segments: int = 0
    new_segments: int = 0
    deleted_files: int = 0
    folded_records: int = 0
    busy: bool = False


def compact(
    lake: Lake, *, minimum: int = 8, grace_s: float = GRACE_S, fold_age_s: float = FOLD_AGE_S
) -> CompactResult:
    """Merge where a job (or an unpartitioned table) has ``minimum`` or more small segments.

    Rows are neither changed nor dropped. Readers and writers go on meanwhile. Records of merges
    that are older than ``fold_age_s`` are folded when there are many (see ``fold``).
    """
    with lake.commits.compacting(lake.root) as alone:
        if not alone:
            return CompactResult(busy=True)
        merged = new = 0
        for name, spec in TABLES.items():
            for job in lake.job_ids(name) if spec.by_job else [None]:
                for group in plan(lake.segments(name, job), spec, minimum=minimum):
                    try:
                        _merge(lake, group, job)
                    except Overtaken:
                        return CompactResult(merged, new, busy=True)
                    except (pa.ArrowException, OSError):
                        if not lake.set_damaged_aside(group):
                            raise
                        continue  # what is whole of it is merged by the next pass
                    merged += len(group)
                    new += 1
        deleted = sweep(lake, grace_s)
        try:
            folded = fold_log(lake, grace_s=grace_s, age_s=fold_age_s)
        except Overtaken:
            return CompactResult(merged, new, deleted, busy=True)
        return CompactResult(merged, new, deleted, folded.records)


def plan(segments: Sequence[Segment], spec: Table, *, minimum: int) -> Iterator[list[Segment]]:
    """What to merge of a job's segments: small ones, and those that are neither small nor full.

    So a row is written some times, however long the job runs, and beside the full segments no more
    than twice ``minimum`` are left.
    """
    small = [s for s in segments if s.rows < SMALL_ROWS]
    middling = [s for s in segments if SMALL_ROWS <= s.rows < TARGET_ROWS]
    # Neighbours in time, so that a question about a day opens few of them.
    middling.sort(key=lambda segment: (segment.first, segment.path.name))
    if order_column(spec.names) == "ts_us":
        small.sort(key=lambda segment: (segment.first, segment.path.name))
    for tier in (small, middling):
        if len(tier) >= minimum:
            yield from _groups(tier)


def _groups(small: list[Segment]) -> Iterator[list[Segment]]:
    group: list[Segment] = []
    rows = 0
    for segment in small:
        group.append(segment)
        rows += segment.rows
        if rows >= TARGET_ROWS:
            yield group
            group, rows = [], 0
    if len(group) > 1:
        yield group


def _merge(lake: Lake, group: list[Segment], job: str | None) -> None:
    spec = table(group[0].table)
    rows = pa.concat_tables([read_segment(spec, segment) for segment in lake.fetched(group)])
    removes = tuple(lake.relative(segment.path) for segment in group)
    commit_id = hashlib.sha256("\n".join(removes).encode()).hexdigest()[:24]
    path = lake.folder(spec.name, job) / part_name(commit_id, 0, rows)
    write_parquet(path, spec, rows)
    roll_up(lake.root, spec.name, [path])
    lake.commit(
        Commit(
            commit_id, "compact", time.time_ns() // 1000, (lake.relative(path),), removes=removes
        )
    )


def sweep(lake: Lake, grace_s: float) -> int:
    """Delete files that a commit of ``grace_s`` ago or more replaced; how many there were.

    Not where what it put in their place is gone: they are the last that has those rows.
    """
    before_us = time.time_ns() // 1000 - int(grace_s * 1e6)
    deleted = _sweep_unfinished(lake, max(grace_s, UNFINISHED_S))
    commits, replaced = lake.commits.state()
    due = [c for c in commits.values() if c.removes and c.created_us <= before_us]
    if back := _back(lake):
        deleted += _removed(lake, back)
    still = lake.holding(name for commit in due for name in commit.removes)
    if not still:
        return deleted
    due = [commit for commit in due if not still.isdisjoint(commit.removes)]
    whole = lake.holding(name for commit in due for name in commit.adds)
    names = (
        name
        for commit in due
        if all(added in whole or added in replaced for added in commit.adds)
        for name in commit.removes
        if name in still
    )
    return deleted + _removed(lake, names)


def _removed(lake: Lake, names: Iterable[str]) -> int:
    """Delete replaced segments and their roll-ups; how many there were."""
    gone = lake.discard(names)
    for name in gone:
        forget(lake.root, _table_of(name), lake.root / name)
    return len(gone)


def _back(lake: Lake) -> list[str]:
    """Replaced segments that are there although the record of their merge was folded.

    A sender wrote them again, or they are of a backup. Not where a merged segment of their folder
    is gone: they may be the last that has its rows.
    """
    commits, folded = lake.commits.all(), lake.commits.folded
    if not folded.number:
        return []
    unnamed = [
        lake.relative(path)
        for path, commit_id in (lake.parts() if lake.url is None else ())
        if commit_id not in commits
    ]
    found = sorted({*lake.written_again(), *folded.spent(unnamed)})
    folders = {name.rpartition("/")[0] for name in found}
    whole = {folder for folder in folders if not lost(lake, folder)}
    return [name for name in found if name.rpartition("/")[0] in whole]


def _table_of(name: str) -> str:
    """The table of a segment as commits name it: ``tables/<table>/...``."""
    return name.split("/", 2)[1]


def _sweep_unfinished(lake: Lake, older_than_s: float) -> int:
    """Remove temporary files of writers that were killed while they wrote, and parts of imports
    that were killed before their commit and done again.
    """
    before_s = time.time() - older_than_s
    deleted = 0
    commits = lake.commits.all()
    left = [
        path
        for path, commit_id in (lake.parts() if lake.url is None else ())
        if commit_id in commits and lake.relative(path) not in commits[commit_id].added
    ]
    for path in [*lake.root.rglob(".*.tmp"), *left]:
        with contextlib.suppress(FileNotFoundError):  # its writer just finished
            if path.stat().st_mtime < before_s:
                path.unlink()
                deleted += 1
    for path in left:
        if not path.exists():
            forget(lake.root, _table_of(lake.relative(path)), path)
    return deleted
