"""Lines of a bill that comes again held against those that are stored, outside of Python's memory.

Both sides lie in a scratch database of DuckDB, which puts on disk what does not fit; of each line
only its key, its place in time and two digests are kept there.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from steptax.app.queries import bill_match_sql as sql

#: What the scratch database may hold in memory.
_MEMORY = "384MB"


@dataclass(frozen=True)
class Matched:
    """Rows of ``charge_states``, and what is to be said; counts by the source that they are of.

    ``added`` counts lines that still count beside the delivery; ``held`` and ``yielded`` are lines
    of two kinds of file that tell of the same: (source of the other kind, month, lines).
    """

    states: pa.Table
    again: tuple[tuple[str, int], ...]
    replaced: tuple[tuple[str, int], ...]
    added: tuple[tuple[str, int], ...]
    held: tuple[tuple[str, str, int], ...]
    yielded: tuple[tuple[str, str, int], ...]
    beside: tuple[tuple[str, str, int], ...]
    joined: int


class BillMatch:
    """A scratch database of the lines of one delivery and of the stored ones that it may change.

    ``content`` and ``subject`` are the columns of ``charges`` that a digest is taken of;
    ``months`` are the (provider in lower case, month) of which anything is stored: of others
    nothing is kept. ``halves``: the kind comes as two exports of a month, billed and amortised.
    """

    def __init__(
        self,
        source: str,
        *,
        content: Sequence[str],
        subject: Sequence[str],
        months: Sequence[tuple[str, str]],
        halves: bool,
    ) -> None:
        self._source, self._content, self._subject = source, content, subject
        self._halves = halves
        self._folder = Path(tempfile.mkdtemp(prefix="steptax-bill-"))
        self._db = duckdb.connect(
            config={
                "autoinstall_known_extensions": False,
                "memory_limit": _MEMORY,
                "temp_directory": str(self._folder),
            }
        )
        self._run("SET enable_progress_bar = false")
        self._run("SET preserve_insertion_order = false")
        self._run("CREATE TABLE stored_months(p VARCHAR, month VARCHAR)")
        if months:
            names = {"p": [p for p, _ in months], "month": [m for _, m in months]}
            self._register("_months", pa.table(names))
            self._run("INSERT INTO stored_months SELECT p, month FROM _months")
        columns = (
            "provider VARCHAR, invoice VARCHAR, line VARCHAR, billing_account VARCHAR, "
            "month VARCHAR, start_us BIGINT, content UHUGEINT, subject UHUGEINT, "
            "amortised BOOLEAN, acct VARCHAR, named BOOLEAN"
        )
        self._run(f"CREATE TABLE new_lines({columns})")
        self._run(
            f"CREATE TABLE stored({columns}, file VARCHAR, counts BOOLEAN, delivery VARCHAR, "
            "delivered_us BIGINT, part VARCHAR)"
        )

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _at: TracebackType | None,
    ) -> None:
        """Remove the scratch database."""
        self._db.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def add_new(self, rows: pa.Table) -> None:
        """Keep lines of the delivery, as far as anything is stored of their month."""
        stem = sql.STEM.format(file=f"'{_quoted(self._source)}'")
        line = self._line("_rows", rows.column_names, "stored_months", f"{stem} AS stem")
        self._register("_rows", rows)
        self._run(f"INSERT INTO new_lines SELECT {sql.FACTS} FROM ({line})")
        self._db.unregister("_rows")

    @property
    def is_empty(self) -> bool:
        """Whether nothing is stored that the delivery may change."""
        return not self._all("SELECT 1 FROM new_lines LIMIT 1")

    def add_stored(self, segments: Sequence[Path], states: pa.Table) -> None:
        """Keep the lines of ``segments`` in the months of the delivery, and whether each counts."""
        # One by one: segments of before a column was added lack it.
        parts = [(f"read_parquet('{_quoted(str(p))}')", pq.read_schema(p).names) for p in segments]
        self._register("_states", states)
        self._run("CREATE TEMP TABLE states AS SELECT * FROM _states")
        self._run(
            "CREATE TEMP TABLE months AS SELECT DISTINCT lower(provider) AS p, month FROM new_lines"
        )
        stem = sql.STEM.format(file="source")
        for relation, columns in parts:
            more = f"{stem} AS stem, source AS file, ingested_at_us"
            line = self._line(relation, columns, "months", more)
            self._run(
                f"INSERT INTO stored SELECT {', '.join('l.' + c for c in sql.FACTS.split(', '))}, "
                "l.file, coalesce(s.counts, true), CASE WHEN s.counts "
                "THEN coalesce(nullif(s.told_by, ''), s.source) ELSE l.file END, "
                "CASE WHEN s.counts THEN s.ingested_at_us ELSE l.ingested_at_us END, s.part "
                f"FROM ({line}) AS l LEFT JOIN states AS s USING ({sql.KEY})"
            )

    def matched(self, same_month: str) -> Matched:
        """Which stored lines the delivery tells again or replaces, and what counts.

        ``same_month`` says what is done where another kind of file tells of the same time of a
        bill: ``hold`` the new lines, ``replace`` the stored ones, ``add`` both.
        """
        kind = _quoted(self._source.partition(":")[0])
        # Billed and amortised exports of one month are no deliveries of each other.
        half = "amortised" if self._halves else "false"
        self._run(
            f"CREATE TEMP VIEW own AS SELECT *, {half} AS half, {sql.SCOPE} AS scope FROM new_lines"
        )
        self._run(
            f"CREATE TEMP VIEW same AS SELECT *, {half} AS half, {sql.SCOPE} AS scope, "
            f"rowid AS place FROM stored WHERE starts_with(file, '{kind}:')"
        )
        self._run(
            f"CREATE TEMP TABLE others AS SELECT lower(provider) AS p, month, acct, file, "
            "min(start_us) AS first_us, max(start_us) AS last_us FROM stored "
            f"WHERE counts AND contains(file, ':') AND NOT starts_with(file, '{kind}:') "
            "GROUP BY ALL"
        )
        for statement in sql.STEPS:
            self._run(statement)
        held_sql, yielded_sql, shared_sql = sql.NONE, sql.NONE, sql.NONE
        if same_month == "hold":
            held_sql = sql.HELD.format(kind=kind)
        elif same_month == "replace":
            yielded_sql, shared_sql = sql.YIELDED.format(kind=kind), sql.SHARED.format(kind=kind)
        self._run(f"CREATE TEMP TABLE held AS {held_sql}")
        self._run(f"CREATE TEMP TABLE yielded AS {yielded_sql}")
        self._run(f"CREATE TEMP TABLE shared AS {shared_sql}")
        self._run(f"CREATE TEMP TABLE joined AS {sql.JOINED if self._halves else sql.NO_PARTS}")
        self._register("_source", pa.table({"source": [self._source]}))
        return Matched(
            states=self._db.sql(sql.STATES).to_arrow_table(),
            again=self._all("SELECT file, count(*) FROM again GROUP BY file ORDER BY file"),
            replaced=self._all("SELECT file, count(*) FROM gone GROUP BY file ORDER BY file"),
            added=self._all(
                "SELECT delivery, sum(n) FROM added GROUP BY delivery ORDER BY delivery"
            ),
            held=self._all("SELECT held_for, month, count(*) FROM held GROUP BY ALL ORDER BY ALL"),
            yielded=self._all(
                "SELECT file, month, count(*) FROM yielded GROUP BY ALL ORDER BY ALL"
            ),
            beside=self._all(sql.BESIDE) if same_month != "replace" else (),
            joined=self._all("SELECT count(*) FROM joined")[0][0],
        )

    def _line(self, relation: str, columns: Sequence[str], months: str, more: str) -> str:
        """SQL of the lines of ``relation`` in ``months``; of others no digest is made."""
        known = set(columns)

        def own(name: str) -> str:
            return f'"{name}"' if name in known else "NULL"

        def digest(names: Sequence[str]) -> str:
            return ", ".join(f"coalesce(CAST({own(n)} AS VARCHAR), chr(1))" for n in names)

        return sql.LINE.format(
            account=f"CAST({own('billing_account')} AS VARCHAR)",
            billing_start=f"CAST({own('billing_start_us')} AS BIGINT)",
            charge_start=f"CAST({own('charge_start_us')} AS BIGINT)",
            billed=own("billed_cost"),
            content=digest(self._content),
            subject=digest(self._subject),
            resource=own("resource_id"),
            tags=digest(["tags"]),
            relation=relation,
            months=months,
            more=more,
        )

    def _register(self, name: str, rows: pa.Table) -> None:
        self._db.register(name, rows)

    def _run(self, statement: str) -> None:
        self._db.execute(statement)

    def _all(self, statement: str) -> tuple[Any, ...]:
        return tuple(self._db.execute(statement).fetchall())


def _quoted(text: str) -> str:
    return text.replace("'", "''")
