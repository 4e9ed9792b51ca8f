"""Roll-ups of segments: each big segment is summed up once, in a file beside the tables.

    rollups/<name>-<version>/<level>/<table>/[job=<job id>/]<segment>
    rollups/<name>-<version>/<level>/<table>/[job=<job id>/]span-<width>-<number>-<of what>.parquet

A segment never changes, so neither does its roll-up, and a roll-up counts exactly while its segment
is visible: no append, compaction or crash can set the two apart. Small segments have none; readers
sum them up, at most some thousands of rows each, until compaction has merged them.

A big job has a segment every minute or two, each with a row per rank. For readers of its whole
history those of one span of steps are added up in a file more, named by what it adds up.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from steptax.app.lake.files import fsync_file
from steptax.app.lake.quarantine import damage_of
from steptax.app.lake.segments import Segment, parse_name, read_segment
from steptax.app.schema import table
from steptax.app.schema.rollup import Rollup
from steptax.app.schema.rollups import ROLLUPS

#: A segment of so many rows gets a roll-up of its own.
ROLLED_ROWS = 16_384
#: Fewer parts in a span are read as they are.
FEW_PARTS = 4
#: Raised for values that add up to more than a sum holds.
TOO_LARGE = (duckdb.ConversionException, duckdb.OutOfRangeException)


@dataclass(frozen=True)
class Parts:
    """What a level is merged from: roll-ups that are stored, and fresh ones of small segments."""

    stored: tuple[Path, ...]
    fresh: pa.Table | None


def of_table(name: str) -> list[Rollup]:
    """Roll-ups of the table ``name``."""
    return [rollup for rollup in ROLLUPS if rollup.table == name]


def rollup_path(root: Path, rollup: Rollup, level: str, segment: Path) -> Path:
    """Where the roll-up of ``segment`` lies."""
    place = segment.relative_to(root / "tables")
    return root / "rollups" / f"{rollup.name}-{rollup.version}" / level / place


@contextlib.contextmanager
def _database() -> Iterator[duckdb.DuckDBPyConnection]:
    """A database in memory. To open one takes as long as to sum up 200,000 rows."""
    connection = duckdb.connect(config={"autoinstall_known_extensions": False})
    try:
        # In a process without a script of its own it would draw into the output.
        connection.execute("SET enable_progress_bar = false")
        yield connection
    finally:
        connection.close()


def made(rollup: Rollup, rows: pa.Table | Path, levels: Sequence[str] = ()) -> dict[str, pa.Table]:
    """``levels`` (none: every one) of ``rows``, of a table or of a segment's file."""
    with _database() as connection:
        return _made(connection, rollup, rows, levels)


def _made(
    connection: duckdb.DuckDBPyConnection,
    rollup: Rollup,
    rows: pa.Table | Path,
    levels: Sequence[str],
) -> dict[str, pa.Table]:
    if isinstance(rows, Path):
        path = str(rows).replace("'", "''")
        source = f"read_parquet('{path}', hive_partitioning = false)"
    else:
        connection.register("_rows", rows)
        source = "_rows"
    found: dict[str, pa.Table] = {}
    for level in levels or rollup.levels:
        sql = (rollup.merged_sql if found else rollup.made_sql)(level, source)
        found[level] = connection.sql(f"{sql} ORDER BY ALL").to_arrow_table()
        # What is coarser is made of what is finer.
        source = f"_{level}"
        connection.register(source, found[level])
    return found


def lacking(root: Path, rollup: Rollup, segments: Iterable[Segment]) -> list[Segment]:
    """Those of ``segments`` that are to have a roll-up and have none."""
    return [
        s
        for s in segments
        if is_rolled(s)
        and not all(rollup_path(root, rollup, v, s.path).exists() for v in rollup.levels)
    ]


def raw(root: Path, rollup: Rollup, level: str, segments: Iterable[Segment]) -> list[Segment]:
    """Those of ``segments`` whose rows ``parts_of`` reads: small ones, and what has no roll-up."""
    return [
        s
        for s in segments
        if not is_rolled(s) or not rollup_path(root, rollup, level, s.path).exists()
    ]


def is_rolled(segment: Segment) -> bool:
    """Whether a segment is big enough for a roll-up of its own."""
    return segment.is_parquet and segment.rows >= ROLLED_ROWS


def roll_up(root: Path, name: str, segments: Iterable[Path]) -> int:
    """Store the roll-ups that ``segments`` of table ``name`` lack; how many segments got one.

    Never raises for a disk that is full or cannot be written: rows are stored without their
    roll-up, which readers then make for themselves. Nor for values whose sum nothing holds: one job
    with such would stop what is done for all, as merging is. Who asks for it is told.
    """
    count = 0
    with contextlib.ExitStack() as opened:
        connection: duckdb.DuckDBPyConnection | None = None
        for rollup, segment in itertools.product(of_table(name), segments):
            paths = {level: rollup_path(root, rollup, level, segment) for level in rollup.levels}
            if all(path.exists() for path in paths.values()):
                continue
            # OSError also where it was merged and removed meanwhile.
            with contextlib.suppress(OSError, *TOO_LARGE):
                if pq.read_metadata(segment).num_rows < ROLLED_ROWS:
                    continue
                connection = connection or opened.enter_context(_database())
                for level, rows in _of_file(connection, rollup, segment).items():
                    write_rollup(paths[level], rows)
                count += 1
    return count


def parts_of(root: Path, rollup: Rollup, level: str, segments: Sequence[Segment]) -> Parts:
    """What ``level`` of ``segments`` is merged from; stores what big ones lack where it can."""
    big = [s for s in segments if is_rolled(s)]
    paths = {s.path: rollup_path(root, rollup, level, s.path) for s in big}
    for segment, path in paths.items():
        if not path.exists():
            roll_up(root, rollup.table, [segment])
    stored = {segment: path for segment, path in paths.items() if path.exists()}
    spec = table(rollup.table)
    # What could not be stored is summed up one by one: together it may be more than memory holds.
    fresh = []
    for path in (path for path in paths if path not in stored):
        with _database() as connection:
            fresh.append(_of_file(connection, rollup, path, [level])[level])
    small = [read_segment(spec, s) for s in segments if s.path not in paths]
    if small:
        fresh.append(made(rollup, pa.concat_tables(small), [level])[level])
    return Parts(tuple(stored.values()), pa.concat_tables(fresh) if fresh else None)


def added_up(rollup: Rollup, level: str, stored: Sequence[Path], width: int) -> list[Path]:
    """Parts of ``level``, those that lie in one span of ``width`` as one file that adds them up.

    It is named by the parts that it stands for, so it counts for just those: when another comes, or
    one goes, there is none of that name, and it is made anew. The newest span of a job grows still:
    its parts are read as they are.
    """
    found: list[Path] = []
    spans: dict[Path, dict[int, list[Path]]] = defaultdict(lambda: defaultdict(list))
    for path in stored:
        name = parse_name(path.name)
        if name is None or name.first // width != name.last // width:
            found.append(path)
        else:
            spans[path.parent][name.first // width].append(path)
    for folder, by_number in spans.items():
        for number, parts in by_number.items():
            if len(parts) < FEW_PARTS or number == max(by_number):
                found += parts
                continue
            digest = hashlib.sha256("\n".join(sorted(p.name for p in parts)).encode())
            path = folder / f"span-{width}-{number}-{digest.hexdigest()[:16]}.parquet"
            try:
                if not path.exists():
                    _add_up(rollup, level, parts, width, path)
                    for old in folder.glob(f"span-{width}-{number}-*.parquet"):
                        if old != path:
                            old.unlink(missing_ok=True)
                found.append(path)
            except OSError:  # a disk that is full or cannot be written
                found += parts
    return found


def _add_up(rollup: Rollup, level: str, parts: Sequence[Path], width: int, path: Path) -> None:
    listed = ", ".join("'" + str(part).replace("'", "''") + "'" for part in parts)
    with _database() as connection:
        source = f"read_parquet([{listed}], hive_partitioning = false)"
        sql = f"{rollup.merged_sql(level, source, width)} ORDER BY ALL"
        write_rollup(path, connection.sql(sql).to_arrow_table())


def forget(root: Path, name: str, segment: Path) -> None:
    """Remove the roll-ups of a segment that is gone, and what adds it up."""
    for rollup in of_table(name):
        for level in rollup.levels:
            path = rollup_path(root, rollup, level, segment)
            told = parse_name(segment.name)
            if rollup.spans and told is not None and path.exists():
                for width in rollup.spans:
                    for old in path.parent.glob(f"span-{width}-{told.first // width}-*.parquet"):
                        old.unlink(missing_ok=True)
            path.unlink(missing_ok=True)


def forget_damaged(root: Path, rollup: Rollup, level: str, segments: Iterable[Segment]) -> int:
    """Remove those roll-ups of ``segments`` that cannot be read; how many there were.

    Called when reading failed: it reads each of them whole. They are made again when asked for.
    """
    count = 0
    schema = nothing(rollup, level).schema
    segments = list(segments)
    folders = {rollup_path(root, rollup, level, s.path).parent for s in segments}
    for path in (p for folder in folders for p in folder.glob("span-*.parquet")):
        if damage_of(path, schema) is not None:
            path.unlink(missing_ok=True)
            count += 1
    for segment in segments:
        path = rollup_path(root, rollup, level, segment.path)
        if path.exists() and damage_of(path, schema) is not None:
            forget(root, rollup.table, segment.path)
            count += 1
    return count


def nothing(rollup: Rollup, level: str) -> pa.Table:
    """A level of no rows."""
    return made(rollup, table(rollup.table).arrow.empty_table(), [level])[level]


def _of_file(
    connection: duckdb.DuckDBPyConnection,
    rollup: Rollup,
    segment: Path,
    levels: Sequence[str] = (),
) -> dict[str, pa.Table]:
    try:
        return _made(connection, rollup, segment, levels)
    except duckdb.BinderException:  # written before a column was added to its table
        spec = table(rollup.table)
        whole = read_segment(spec, Segment(spec.name, None, segment, 0, 0, 0))
        return _made(connection, rollup, whole, levels)


def write_rollup(path: Path, rows: pa.Table) -> None:
    """Whole or not at all; several may make the same roll-up at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        encodings = {f.name: "DELTA_BINARY_PACKED" for f in rows.schema if f.type == pa.int64()}
        pq.write_table(
            rows,
            temporary,
            compression="zstd",
            compression_level=1,
            use_dictionary=[f.name for f in rows.schema if f.type == pa.string()],
            column_encoding=encodings,
        )
        fsync_file(temporary)
        temporary.rename(path)
    finally:
        temporary.unlink(missing_ok=True)
