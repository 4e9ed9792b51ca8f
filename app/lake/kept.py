"""What retention left of rows that it dropped: their roll-ups, which now are data of their own.

    kept/<name>-<version>/<level>/<table>/[job=<job id>/]<part>

A part sums up segments that are gone. It counts exactly while the commit that dropped them is there
(see ``retain``), so nothing is counted twice and nothing is lost in between. The number of rows in
its name is that of the rows it stands for. ``rollups/`` can be made again from rows; this cannot:
it stays at the version of the definition that it was made with, and is read whatever that is today.
A column that the definition did not have then is null.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import duckdb

from steptax.app.lake.commits import RETAIN, Commit
from steptax.app.lake.duplicates import Duplicate
from steptax.app.lake.lake import Lake
from steptax.app.lake.segments import Segment, job_folder, parse_name, prune
from steptax.app.schema import Table
from steptax.app.schema.rollup import Rollup
from steptax.app.schema.rollups import ROLLUPS

FOLDER = "kept"


@dataclass(frozen=True)
class Dropped:
    """Raw rows that are gone, of a table or of one job in it. Ends of ranges are included."""

    table: str
    job_id: str | None
    rows: int
    first: int
    last: int
    """Range of steps, or of moments in microseconds."""
    newest_us: int
    """When the last of them was dropped."""

    @property
    def sentence(self) -> str:
        """What a page says of it."""
        on = f"{datetime.fromtimestamp(self.newest_us / 1e6, UTC):%Y-%m-%d}"
        if self.table == "steps":
            which = f"of steps {self.first:,} to {self.last:,} "
        else:
            begin, end = (datetime.fromtimestamp(t / 1e6, UTC) for t in (self.first, self.last))
            which = f"from {begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC "
        return f"{self.rows:,} raw rows {which}were dropped on {on}; their roll-ups remain"


def place_of(rollup: Rollup, level: str, job_id: str | None) -> str:
    """Folder of the parts of a level that are made now, relative to the lake."""
    return f"{FOLDER}/{rollup.name}-{rollup.version}/{_within(rollup, level, job_id)}"


def _within(rollup: Rollup, level: str, job_id: str | None) -> str:
    base = f"{level}/{rollup.table}"
    return base if job_id is None else f"{base}/{job_folder(job_id)}"


def kept_parts(
    lake: Lake,
    rollup: Rollup,
    level: str,
    job_id: str | None = None,
    *,
    first: int | None = None,
    last: int | None = None,
) -> Sequence[Segment]:
    """Parts of ``level`` that stand for dropped rows, of one job or of all that may be seen.

    Of whatever version: not all need have every column of today (see ``Rollup.parts_sql``).
    """
    found = []
    versions = re.compile(rf"^{FOLDER}/{re.escape(rollup.name)}-[0-9]+/")
    for commit in _commits(lake, rollup.table, job_id):
        own = commit.detail["job_id"]
        folder = _within(rollup, level, own)
        for name in commit.adds:
            place, _, entry = name.rpartition("/")
            if versions.sub("", place, count=1) != folder:
                continue
            parsed = parse_name(entry)
            path = lake.root / name
            if parsed is None or not lake.is_there(path):
                continue
            found.append(Segment(rollup.table, own, path, parsed.first, parsed.last, parsed.rows))
    return prune(found, first, last)


def dropped(lake: Lake, name: str, job_id: str | None = None) -> Dropped | None:
    """Raw rows of a table that retention dropped, of one job or of all; None for none."""
    told = list(_commits(lake, name, job_id))
    if not told:
        return None
    return Dropped(
        name,
        job_id,
        sum(commit.detail["rows"] for commit in told),
        min(commit.detail["first"] for commit in told),
        max(commit.detail["last"] for commit in told),
        max(commit.created_us for commit in told),
    )


def already_summed(
    lake: Lake, spec: Table, job_id: str | None, staged: Sequence[Path]
) -> list[Duplicate]:
    """Rows of ``staged`` whose step, or minute, is in a roll-up that outlived its rows.

    Stored once more, they would count twice: nothing tells any longer whether they were among them.
    """
    found: dict[tuple[str, int], Duplicate] = {}
    for rollup in (r for r in ROLLUPS if r.table == spec.name and {*r.keys} <= {*spec.key}):
        level, width = next(iter(rollup.levels.items()))
        parts = lake.fetched(kept_parts(lake, rollup, level, job_id))
        if not parts or "rank" in rollup.keys:
            continue
        kept, new = (
            ", ".join("'" + str(p).replace("'", "''") + "'" for p in paths)
            for paths in ([s.path for s in parts], staged)
        )
        on = " AND ".join(f's."{key}" = k."{key}"' for key in rollup.keys)
        sql = f"""
            SELECT s.filename, s.file_row_number, s.source_row, s."{rollup.at}"
            FROM read_parquet([{new}], filename = true, file_row_number = true,
                hive_partitioning = false, union_by_name = true) s
            SEMI JOIN read_parquet([{kept}], hive_partitioning = false, union_by_name = true) k
            ON {on} AND s."{rollup.at}" - s."{rollup.at}" % {width} = k."{rollup.bucket}"
        """
        connection = duckdb.connect(config={"autoinstall_known_extensions": False})
        try:
            for file, row, source_row, at in connection.execute(sql).fetchall():
                one = Duplicate(Path(file), int(row), source_row, f"{rollup.at} {at}", None)
                found[file, int(row)] = one
        finally:
            connection.close()
    return list(found.values())


def _commits(lake: Lake, name: str, job_id: str | None) -> Iterator[Commit]:
    for commit in lake.commits.all().values():
        if commit.kind != RETAIN or commit.detail["table"] != name:
            continue
        own = commit.detail["job_id"]
        if job_id is not None and own != job_id:
            continue
        if own is None or lake.sees_job(own):
            yield commit
