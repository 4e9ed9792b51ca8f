"""Running a named query on a lake with DuckDB, in process."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from steptax.app.lake import Lake, Segment
from steptax.app.lake.rollups import made, parts_of
from steptax.app.lake.segments import order_column
from steptax.app.queries.texts import query
from steptax.app.schema import Table, table
from steptax.app.schema.rollup import Rollup
from steptax.app.schema.rollups import LEVELS

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
    """One in-memory database; every call runs on a cursor of its own.

    A connection that threads share gives errors and wrong values, so nothing here ever queries the
    connection itself.
    """

    def __init__(self, lake: Lake, *, threads: int | None = None) -> None:
        self.lake = lake
        config: dict[str, Any] = {"autoinstall_known_extensions": False}
        if threads is not None:
            config["threads"] = threads
        self._connection = duckdb.connect(config=config)
        self._lock = threading.Lock()

    def run(
        self,
        name: str,
        *,
        job_id: str | None = None,
        first_step: int | None = None,
        last_step: int | None = None,
        **parameters: object,
    ) -> pa.Table:
        """Run query ``name``; by-job tables are read for ``job_id`` only, when it is given.

        ``first_step`` and ``last_step`` leave out segments that hold no such step, and the
        parameters ``first_us`` and ``last_us`` samples of other moments; a query that must filter
        exactly says so in its text.
        """
        spec = query(name)
        available: dict[str, object] = {
            "job_id": job_id,
            "first_step": first_step,
            "last_step": last_step,
            **parameters,
        }
        spans = {"step": (first_step, last_step)}
        spans["ts_us"] = parameters.get("first_us"), parameters.get("last_us")  # type: ignore[assignment]
        values = {key: available[key] for key in spec.parameters}

        def answer(*, older: bool) -> pa.Table:
            relations, fresh = {}, {}
            for t in spec.tables:
                own = table(t)
                span = spans.get(order_column(own.names) or "", (None, None))
                relations[t] = self._relation(own, job_id, *span, older=older)
            for level in spec.levels:
                rollup = LEVELS[level]
                relations[level], rows = self._merged(rollup, level, job_id, *spans[rollup.at])
                if rows is not None:
                    fresh[f"_fresh_{level}"] = rows
            views = [f"{t} AS (SELECT * FROM {own})" for t, own in relations.items()]
            text = _PARAMETER.sub(r"$\1", _prepend(views, spec.text))
            with self._lock:
                cursor = self._connection.cursor()
            try:
                for relation, rows in fresh.items():
                    cursor.register(relation, rows)
                return cursor.sql(text, params=values).to_arrow_table()
            finally:
                cursor.close()

        try:
            return answer(older=False)
        except (duckdb.BinderException, duckdb.InvalidInputException):
            # A segment was written before a column was added to its table.
            return answer(older=True)

    def _merged(
        self, rollup: Rollup, level: str, job_id: str | None, first: int | None, last: int | None
    ) -> tuple[str, pa.Table | None]:
        """A level of a roll-up as SQL, and the rows that it calls ``_fresh_<level>``.

        Buckets that hold ``first`` or ``last`` are whole.
        """
        width = rollup.levels[level]
        segments = self.lake.segments(
            rollup.table,
            job_id if table(rollup.table).by_job else None,
            first_step=None if first is None else first - first % width,
            last_step=None if last is None else last - last % width + width - 1,
        )
        parts = parts_of(self.lake.root, rollup, level, segments)
        sources = []
        if parts.stored:
            sources.append(f"read_parquet({_listed(parts.stored)}, hive_partitioning = false)")
        if parts.fresh is not None:
            sources.append(f"_fresh_{level}")
        if not sources:
            empty = made(rollup, table(rollup.table).arrow.empty_table(), [level])[level]
            return f"(SELECT * FROM _fresh_{level})", empty
        names = ", ".join(rollup.columns)
        union = " UNION ALL ".join(f"SELECT {names} FROM {source}" for source in sources)
        return f"({rollup.merged_sql(level, f'({union})')})", parts.fresh

    def _relation(
        self, spec: Table, job_id: str | None, first: int | None, last: int | None, *, older: bool
    ) -> str:
        """A table as SQL; with ``older`` columns that a segment lacks are null, at some cost."""
        segments = self.lake.segments(
            spec.name, job_id if spec.by_job else None, first_step=first, last_step=last
        )
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
            parts.append(f"SELECT {names} FROM {found}")
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
        return f"(SELECT {columns} FROM ({union}) GROUP BY {keys})"


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
