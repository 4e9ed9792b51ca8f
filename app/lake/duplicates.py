"""Finding rows whose key is already stored, out of core."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from steptax.app.schema import Table


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A staged row whose key was there before it.

    ``repeats`` names the row of the same input that it repeats; None when a row that was stored
    before has the key. Then ``differs`` says in which value the two contradict each other, None
    where they do not: what one of them does not know is no contradiction.
    """

    path: Path
    row_in_file: int
    source_row: int | None
    key: str
    repeats: str | None
    differs: str | None = None
    stored_source: str | None = None
    moment_us: int | None = None
    """When the staged row happened, where its table tells that beside the key."""
    stored_moment_us: int | None = None
    attempt: int | None = None
    step: int | None = None


#: How a value is written, and when, may differ from source to source of the same fact.
_WRITING = {"printed_metrics": {"text", "printed_as", "at_us", "interval_steps"}}
_PROVENANCE = {"source", "source_row", "ingested_at_us"}
_MOMENTS = ("start_us", "at_us")


def _relation(paths: Sequence[Path]) -> str:
    quoted = ", ".join("'" + str(p).replace("'", "''") + "'" for p in paths)
    options = "filename = true, file_row_number = true, hive_partitioning = false"
    return f"read_parquet([{quoted}], {options}, union_by_name = true)"


def find_duplicates(
    spec: Table, staged: Sequence[Path], stored: Sequence[Path], *, limit: int = 5_000_000
) -> list[Duplicate]:
    """Staged rows to leave out: repeats inside ``staged``, and rows that ``stored`` has already.

    Of equal keys inside the staged files the row that stands first in its source is kept.
    ``limit`` bounds the answer; a file with more repeats than that is not a table of this kind.
    """
    if not staged:
        return []
    keys = ", ".join(f'"{k}"' for k in spec.key)
    connection = duckdb.connect()
    try:
        connection.execute("SET preserve_insertion_order = false")
        # In a process without a script of its own it would draw into the output.
        connection.execute("SET enable_progress_bar = false")
        connection.execute(f"CREATE VIEW staged AS SELECT * FROM {_relation(staged)}")
        has_stored = bool(stored)
        if has_stored:
            connection.execute(f"CREATE VIEW stored AS SELECT * FROM {_relation(stored)}")
        connection.execute(
            f"CREATE TEMP TABLE inside AS "
            f"SELECT {keys} FROM staged GROUP BY {keys} HAVING count(*) > 1"
        )
        names = [k for k in spec.key if k != "job_id"] or ["job_id"]
        label = " || ', ' || ".join(f"'{k} ' || \"{k}\"" for k in names)
        order = "source_row NULLS LAST, filename, file_row_number"
        values = [f'"{c}"' for c in spec.names if c not in _PROVENANCE]
        same = f"hash({', '.join(values)})"
        rows = connection.execute(
            f"""
            WITH repeated AS (
                SELECT filename, file_row_number, source_row, {label} AS label,
                       row_number() OVER w AS place,
                       first_value(source_row) OVER w AS first_row,
                       {same} = first_value({same}) OVER w AS equal
                FROM staged SEMI JOIN inside USING ({keys})
                WINDOW w AS (PARTITION BY {keys} ORDER BY {order})
            )
            SELECT filename, file_row_number, source_row, label,
                   CASE WHEN first_row IS NULL THEN 'an earlier row of the same input'
                        ELSE 'row ' || first_row || ' of the same input' END
                   || CASE WHEN equal THEN ', with the same values' ELSE ', with other values' END
            FROM repeated WHERE place > 1
            LIMIT {limit}
            """
        ).fetchall()
        known = _stored_before(connection, spec, names, limit) if has_stored else []
    finally:
        connection.close()
    # A path per file, not per row: there may be a million.
    path_of = {str(path): path for path in staged}
    found: dict[tuple[str, int], Duplicate] = {}
    for filename, row_in_file, source_row, key, repeats in rows:
        found.setdefault(
            (filename, row_in_file),
            Duplicate(path_of[filename], int(row_in_file), source_row, str(key), repeats),
        )
    for filename, row_in_file, source_row, key, *more in known:
        found.setdefault(
            (filename, row_in_file),
            Duplicate(path_of[filename], int(row_in_file), source_row, str(key), None, *more),
        )
    return list(found.values())


def _stored_before(
    connection: duckdb.DuckDBPyConnection, spec: Table, names: Sequence[str], limit: int
) -> list[tuple[Any, ...]]:
    """Staged rows whose key is stored, with what differs: fields of `Duplicate` but ``repeats``.

    Of two stored rows with one key, which two writers at once can leave, the one that agrees with
    the staged row holds.
    """
    there = {row[0] for row in connection.execute("DESCRIBE stored").fetchall()}
    skipped = {*spec.key, *_PROVENANCE, *_WRITING.get(spec.name, ())}
    values = [c for c in spec.names if c not in skipped and c in there]
    label = " || ', ' || ".join(f"'{k} ' || s.\"{k}\"" for k in names)
    differing = " ".join(
        f"""WHEN s."{c}" <> t."{c}" THEN '{c} ' || CAST(s."{c}" AS VARCHAR) || ' here, '
            || CAST(t."{c}" AS VARCHAR) || ' there'"""
        for c in values
    )
    differs = f"CASE {differing} ELSE NULL END" if values else "NULL"
    moment = next((c for c in _MOMENTS if c in there and c not in spec.key), None)
    moments = ("NULL", "NULL") if moment is None else (f's."{moment}"', f't."{moment}"')
    where = [f's."{c}"' if c in spec.key else "NULL" for c in ("attempt", "step")]
    columns = f"""
        s.filename AS file, s.file_row_number AS place, s.source_row AS line, {label} AS label,
        {differs} AS differs, t.source AS stored_source, {moments[0]} AS moment,
        {moments[1]} AS stored_moment, {where[0]} AS attempt, {where[1]} AS step
    """
    on = " AND ".join(f's."{k}" = t."{k}"' for k in spec.key)
    return connection.execute(
        f"""
        SELECT * FROM (SELECT {columns} FROM staged s JOIN stored t ON {on})
        QUALIFY row_number() OVER (
            PARTITION BY file, place ORDER BY differs NULLS FIRST, stored_source
        ) = 1
        LIMIT {limit}
        """
    ).fetchall()


def newest_attempts(
    staged: Sequence[Path], stored: Sequence[Path]
) -> tuple[int, int, int, int] | None:
    """Newest attempt of steps and the moment that decides, of ``staged`` and of ``stored``.

    The moments, in microseconds, are the first start of the staged and the last of the stored
    steps; None where one of the two has no step with a moment.
    """
    if not staged or not stored:
        return None
    connection = duckdb.connect()
    try:
        new, old = (
            connection.execute(
                f"SELECT max(attempt), {which}(start_us) FROM {_relation(paths)} "
                "WHERE start_us IS NOT NULL"
            ).fetchone()
            for paths, which in ((staged, "min"), (stored, "max"))
        )
    finally:
        connection.close()
    if new is None or old is None or None in (*new, *old):
        return None
    return int(new[0]), int(new[1]), int(old[0]), int(old[1])
