"""Running a named query on a lake with DuckDB, in process."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TypeVar

import duckdb
import pyarrow as pa

from steptax.app.errors import IntegrityError
from steptax.app.lake import Lake, Segment
from steptax.app.lake.look import look_again
from steptax.app.lake.rollups import (
    TOO_LARGE,
    added_up,
    forget_damaged,
    lacking,
    nothing,
    parts_of,
    raw,
    roll_up,
)
from steptax.app.queries.arrays import ROWS_AT_ONCE, Columns, gathered
from steptax.app.queries.asked import Asked
from steptax.app.queries.database import Database
from steptax.app.schema import Table, table
from steptax.app.schema.rollup import Rollup
from steptax.app.schema.rollups import LEVELS, ROLLUPS

#: What is made of the rows of an answer.
Answer = TypeVar("Answer")

#: Segments of a bucket that are fetched together to be summed up.
_TOGETHER = 16

_PARAMETER = re.compile(r"(?<!:):([a-z_]+)\b")
_DUCK_TYPES = {
    pa.string(): "VARCHAR",
    pa.int64(): "BIGINT",
    pa.int32(): "INTEGER",
    pa.float64(): "DOUBLE",
    pa.bool_(): "BOOLEAN",
    pa.decimal128(38, 12): "DECIMAL(38, 12)",
}


class DuckEngine:
    """Answers from the files of the lake; safe to share between threads."""

    def __init__(self, lake: Lake, *, threads: int | None = None) -> None:
        self.lake = lake
        self._database = Database(threads=threads)

    def run(
        self,
        name: str,
        *,
        job_id: str | None = None,
        first_step: int | None = None,
        last_step: int | None = None,
        jobs: Collection[str] | None = None,
        **parameters: object,
    ) -> pa.Table:
        """Run query ``name``: see ``Engine``."""
        asked = Asked.of(name, job_id, first_step, last_step, parameters, jobs)
        return self._answered(asked, lambda found: found.to_arrow_table())

    def arrays(
        self, name: str, *, job_id: str, first_step: int | None = None, last_step: int | None = None
    ) -> Columns:
        """Columns of the rows of query ``name``: see ``Engine``."""
        asked = Asked.of(name, job_id, first_step, last_step, {}, None)
        segments = (s for t in asked.query.tables for s in asked.segments(self.lake, t))
        most_rows = sum(segment.rows for segment in segments)

        def taken(found: duckdb.DuckDBPyRelation) -> Columns:
            reader = found.to_arrow_reader(ROWS_AT_ONCE)
            try:
                return gathered(reader.schema, reader, most_rows)
            except OSError as error:
                # Whatever ends a stream comes through Arrow as one, memory that is short as well.
                if str(error).startswith("IO Error"):
                    raise
                raise duckdb.Error(str(error)) from error

        return self._answered(asked, taken)

    def _answered(self, asked: Asked, taken: Callable[[duckdb.DuckDBPyRelation], Answer]) -> Answer:
        """What ``taken`` makes of the rows that are asked for."""

        def answer(*, older: bool) -> Answer:
            relations: dict[str, str] = {}
            fresh: dict[str, pa.Table] = {}
            read_again: set[str] = set()
            for t in asked.query.tables:
                segments = asked.segments(self.lake, t)
                if not table(t).latest_wins and all(s.is_parquet for s in segments):
                    read_again.add(t)
                relations[t] = self._seen(table(t), segments, older=older, named=fresh)
            for relation, level in asked.levels.items():
                rollup = LEVELS[level]
                segments = asked.rolled_segments(self.lake, level, here=False)
                if self.lake.seen(rollup.table) is not None:
                    # Stored sums are of all rows: those that may be seen are added up anew.
                    segments = self.lake.fetched(segments)
                    seen = self._seen(table(rollup.table), segments, older=older, named=fresh)
                    relations[relation] = f"({rollup.made_sql(level, seen)})"
                    continue
                kept = [part.path for part in asked.kept(self.lake, level)]
                stored, rows = self._stored(rollup, level, segments, kept, asked.span(relation))
                is_merged = relation == level
                relations[relation] = (
                    f"({rollup.merged_sql(level, stored)})" if is_merged else stored
                )
                if rows is not None:
                    fresh[f"_fresh_{level}"] = rows
            # Whatever a question names twice DuckDB would hold in memory; reading a few columns of
            # Parquet files twice takes less.
            again = {t: " NOT MATERIALIZED" if t in read_again else "" for t in relations}
            views = [f"{t} AS{again[t]} (SELECT * FROM {own})" for t, own in relations.items()]
            text = _PARAMETER.sub(r"$\1", _prepend(views, asked.query.text))
            with self._database.cursor() as cursor:
                for relation, rows in fresh.items():
                    cursor.register(relation, rows)
                return taken(cursor.sql(text, params=dict(asked.values)))

        def tried() -> Answer:
            try:
                return answer(older=False)
            except (duckdb.BinderException, duckdb.InvalidInputException):
                # A segment was written before a column was added to its table.
                return answer(older=True)

        try:
            return tried()
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            # A damaged file fails the whole question; without it the rest answers.
            is_file = isinstance(error, (duckdb.IOException, OSError))
            if not self._set_damaged_aside(asked) and not is_file:
                if isinstance(error, TOO_LARGE):
                    raise self._too_large(asked) from error
                raise
        look_again()  # one that was merged and removed since it was listed is in another
        try:
            return tried()
        except (duckdb.IOException, OSError) as error:
            raise IntegrityError(
                f"a file of the lake cannot be read: {str(error).splitlines()[0]}",
                where=self.lake.url or str(self.lake.root),
                hint="steptax doctor --deep says which are damaged, gone or not to be read",
            ) from error

    def _too_large(self, asked: Asked) -> IntegrityError:
        lake = self.lake.url or str(self.lake.root)
        job = asked.job_id
        return IntegrityError(
            "values that were stored add up to more than 64 bits hold",
            where=f"{lake}: {asked.query.name}" + (f" of job {job!r}" if job else ""),
            hint="a time in another unit than microseconds is the usual reason; rows as they are: "
            f"steptax query step_cells --job {job or 'JOB'}",
        )

    def _set_damaged_aside(self, asked: Asked) -> int:
        """Set aside what cannot be read of what is asked for; roll-ups are made again."""
        count = 0
        for name in asked.query.tables:
            count += self.lake.set_damaged_aside(asked.segments(self.lake, name, here=False))
        for level in {*asked.levels.values()}:
            rollup = LEVELS[level]
            segments = asked.rolled_segments(self.lake, level, here=False)
            kept = asked.kept(self.lake, level, here=False)
            count += forget_damaged(self.lake.root, rollup, level, segments)
            count += self.lake.set_damaged_aside([*segments, *kept])
        return count

    def roll_up(self) -> int:
        """Store the roll-ups that segments lack: see ``Engine``."""
        root, count = self.lake.root, 0
        for rollup in ROLLUPS:
            wanted = lacking(root, rollup, self.lake.segments(rollup.table))
            for begin in range(0, len(wanted), _TOGETHER):
                here = self._here(wanted[begin : begin + _TOGETHER])
                count += roll_up(root, rollup.table, [segment.path for segment in here])
        return count

    def _here(self, wanted: Sequence[Segment]) -> Sequence[Segment]:
        """Those of ``wanted`` that were not merged and removed since they were listed, as files."""
        try:
            return self.lake.fetched(wanted)
        except FileNotFoundError:
            if len(wanted) == 1:
                return []
            return [segment for one in wanted for segment in self._here([one])]

    def _seen(
        self, spec: Table, segments: Sequence[Segment], *, older: bool, named: dict[str, pa.Table]
    ) -> str:
        """The rows of a table that its reader may see; ``named`` gets what the SQL refers to."""
        relation = self._relation(spec, segments, older=older)
        seen = self.lake.seen(spec.name)
        if seen is None:
            return relation
        named.update(seen.relations)
        return f"(SELECT * FROM {relation} AS _rows WHERE {seen.condition})"

    def _stored(
        self,
        rollup: Rollup,
        level: str,
        segments: Sequence[Segment],
        kept: Sequence[Path] = (),
        span: int | None = None,
    ) -> tuple[str, pa.Table | None]:
        """A level as it is stored, as SQL, and the rows that this calls ``_fresh_<level>``.

        ``kept`` are parts whose segments are gone, of whatever version.
        """
        self.lake.fetched(raw(self.lake.root, rollup, level, segments))
        parts = parts_of(self.lake.root, rollup, level, segments)
        sources = []
        own = parts.stored if span is None else added_up(rollup, level, parts.stored, span)
        if own:
            sources.append(f"read_parquet({_listed(own)}, hive_partitioning = false)")
        if kept:
            files = f"{_listed(kept)}, hive_partitioning = false, union_by_name = true"
            sources.append(f"({rollup.parts_sql(f'read_parquet({files})')})")
        if parts.fresh is not None:
            sources.append(f"_fresh_{level}")
        if not sources:
            return f"(SELECT * FROM _fresh_{level})", nothing(rollup, level)
        names = ", ".join(rollup.columns)
        union = " UNION ALL ".join(f"SELECT {names} FROM {source}" for source in sources)
        return f"({union})", parts.fresh

    def _relation(self, spec: Table, segments: Sequence[Segment], *, older: bool) -> str:
        """A table as SQL; with ``older`` columns that a segment lacks are null, at some cost."""
        # Rows of one moment keep the order of their segments, whose names begin with their time.
        file = ", filename AS _file" if spec.latest_wins else ""
        names = ", ".join(map(_quoted, spec.names)) + file
        parts = []
        parquet = [s for s in segments if s.is_parquet]
        lines = [s for s in segments if not s.is_parquet]
        nothing = ", ".join(
            f"CAST(NULL AS {_DUCK_TYPES[f.type]}) AS {_quoted(f.name)}" for f in spec.arrow
        )
        if parquet:
            found = (
                f"read_parquet({_paths(parquet)}, filename = true, hive_partitioning = false"
                f"{', union_by_name = true' if older else ''})"
            )
            if older:
                found = f"(SELECT * FROM {found} UNION ALL BY NAME SELECT {nothing} WHERE false)"
            # Free where the types are those of the table; a text would be summed up as one.
            typed = ", ".join(
                f"CAST({_quoted(f.name)} AS {_DUCK_TYPES[f.type]}) AS {_quoted(f.name)}"
                for f in spec.arrow
            )
            parts.append(f"SELECT {typed}{file} FROM {found}")
        if lines:
            columns = ", ".join(f"{_quoted(f.name)}: '{_DUCK_TYPES[f.type]}'" for f in spec.arrow)
            parts.append(
                f"SELECT {names} FROM read_json({_paths(lines)}, filename = true, "
                f"format = 'newline_delimited', columns = {{{columns}}})"
            )
        if not parts:
            parts.append(f"SELECT {nothing}{', NULL AS _file' if file else ''} WHERE false")
        union = " UNION ALL ".join(parts)
        if not spec.latest_wins:
            return f"({union})"
        # Of each column the newest value that is not null: arg_max passes nulls over.
        age = "ROW(ingested_at_us, coalesce(source_row, 0), _file)"
        keys = ", ".join(map(_quoted, spec.key))
        held = dict.fromkeys(spec.names, f"arg_max({{}}, {age})")
        held |= dict.fromkeys(spec.earliest, "min({})") | dict.fromkeys(spec.latest, "max({})")
        columns = ", ".join(
            _quoted(c) if c in spec.key else f"{held[c].format(_quoted(c))} AS {_quoted(c)}"
            for c in spec.names
        )
        # Most keys have one row, which is taken as it is: that is six times as fast.
        return (
            f"(WITH _all AS ({union}), "
            f"_again AS (SELECT {keys} FROM _all GROUP BY {keys} HAVING count(*) > 1) "
            f"SELECT {', '.join(map(_quoted, spec.names))} FROM _all "
            f"ANTI JOIN _again USING ({keys}) "
            f"UNION ALL SELECT {columns} FROM _all SEMI JOIN _again USING ({keys}) GROUP BY {keys})"
        )


def _prepend(views: Sequence[str], text: str) -> str:
    """Put the tables before the query's own common table expressions."""
    if not views:
        return text
    body = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--"))
    body = body.strip()
    head = "WITH " + ",\n".join(views)
    if re.match(r"WITH\b", body):
        return f"{head},\n{body[4:].lstrip()}"
    return f"{head}\n{body}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _paths(segments: Sequence[Segment]) -> str:
    return _listed([segment.path for segment in segments])


def _listed(paths: Sequence[Path]) -> str:
    return "[" + ", ".join("'" + str(path).replace("'", "''") + "'" for path in paths) + "]"
