"""Finding rows whose key is already stored, out of core."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

from steptax.app.schema import Table


@dataclass(frozen=True)
class Duplicate:
    """A staged row whose key was there before it.

    ``repeats`` names the row of the same input that it repeats; None when a row that was stored
    before has the key.
    """

    path: Path
    row_in_file: int
    source_row: int | None
    key: str
    repeats: str | None


def _relation(paths: Sequence[Path]) -> str:
    quoted = ", ".join("'" + str(p).replace("'", "''") + "'" for p in paths)
    options = "filename = true, file_row_number = true, hive_partitioning = false"
    return f"read_parquet([{quoted}], {options})"


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
        connection.execute(f"CREATE VIEW staged AS SELECT * FROM {_relation(staged)}")
        has_stored = bool(stored)
        if has_stored:
            connection.execute(f"CREATE VIEW stored AS SELECT * FROM {_relation(stored)}")
        connection.execute(
            f"CREATE TEMP TABLE inside AS "
            f"SELECT {keys} FROM staged GROUP BY {keys} HAVING count(*) > 1"
        )
        old = (
            f"SELECT DISTINCT {keys} FROM staged SEMI JOIN stored USING ({keys})"
            if has_stored
            else f"SELECT {keys} FROM staged WHERE false"
        )
        connection.execute(f"CREATE TEMP TABLE outside AS {old}")
        names = [k for k in spec.key if k != "job_id"] or ["job_id"]
        label = " || ', ' || ".join(f"'{k} ' || \"{k}\"" for k in names)
        order = "source_row NULLS LAST, filename, file_row_number"
        provenance = {"source", "source_row", "ingested_at_us"}
        values = [f'"{c}"' for c in spec.names if c not in provenance]
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
            UNION ALL
            SELECT filename, file_row_number, source_row, {label}, NULL
            FROM staged SEMI JOIN outside USING ({keys})
            LIMIT {limit}
            """
        ).fetchall()
    finally:
        connection.close()
    found: dict[tuple[str, int], Duplicate] = {}
    for filename, row_in_file, source_row, key, repeats in rows:
        found.setdefault(
            (filename, row_in_file),
            Duplicate(Path(filename), int(row_in_file), source_row, str(key), repeats),
        )
    return list(found.values())
