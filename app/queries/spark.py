"""Running a named query, and building roll-ups, on Apache Spark: for what outgrows one machine.

Spark reads the very segments and roll-ups that DuckDB reads, and is given the same text. Rows come
back as Arrow, never through pandas.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import sys
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from steptax.app.errors import UserError, install_hint
from steptax.app.lake import Lake, Segment
from steptax.app.lake.rollups import added_up, is_rolled, lacking, roll_up, rollup_path
from steptax.app.queries.arrays import Columns, arrays_of
from steptax.app.queries.asked import Asked
from steptax.app.schema import Table, table
from steptax.app.schema.rollups import LEVELS, ROLLUPS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TYPES = {
    pa.string(): "STRING",
    pa.int64(): "BIGINT",
    pa.int32(): "INT",
    pa.float64(): "DOUBLE",
    pa.bool_(): "BOOLEAN",
    pa.decimal128(38, 12): "DECIMAL(38, 12)",
}
#: What the texts rely on, whatever an installation's own Spark is set to.
_DIALECT = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.ansi.doubleQuotedIdentifiers": "true",
    "spark.sql.caseSensitive": "true",
}
#: Said once at the start, where the installation's own configuration says nothing else.
QUIET = {"spark.ui.showConsoleProgress": "false", "spark.ui.enabled": "false"}


def spark_session(master: str | None = None, settings: Mapping[str, str] = QUIET) -> SparkSession:
    """The session of this process, started on ``master`` (none: as Spark is configured).

    UserError says what is missing where Spark cannot start.
    """
    # It warns of pandas 3 now and again; rows go through Arrow, not through pandas.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    try:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError:
        raise UserError(
            "PySpark is not installed", where="--engine spark", hint=install_hint("spark")
        ) from None
    if (master or "local").startswith("local"):
        # Workers of this machine are this very Python, with what is installed beside it.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("steptax")
    if master is not None:
        builder = builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
    except (PySparkException, Py4JError) as error:
        is_java = _has_java()
        raise UserError(
            "Spark cannot start: " + (_reason(error) if is_java else "no Java was found"),
            where=master or "--engine spark",
            hint="is that master there? --master spark://host:7077, yarn, local[4]"
            if is_java
            else "install Java 17 or newer (JAVA_HOME)",
        ) from error
    # Java that outlives this process looks for it in vain, and says so at length.
    atexit.register(session.stop)
    return session


def _has_java() -> bool:
    """Whether there is a Java where Spark looks for one."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which(os.path.join(home, "bin", "java") if home else "java") is not None


class SparkEngine:
    """Runs named queries on a Spark session; safe to share between threads.

    Each call has a session of its own inside the one application, so that the names of tables in
    one question are not those of another.
    """

    def __init__(self, lake: Lake, session: SparkSession) -> None:
        self.lake = lake
        self._session = session
        # It would print every error as JSON, with its stack, before we can say it in words.
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)

    def arrays(
        self, name: str, *, job_id: str, first_step: int | None = None, last_step: int | None = None
    ) -> Columns:
        """Columns of the rows of query ``name``: see ``Engine``."""
        return arrays_of(self.run(name, job_id=job_id, first_step=first_step, last_step=last_step))

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
        return self.frame(Asked.of(name, job_id, first_step, last_step, parameters, jobs)).toArrow()

    def frame(self, asked: Asked) -> DataFrame:
        """What is asked, not yet run: it names the files that it will read (``inputFiles``)."""
        session = self._session.newSession()
        for setting, value in _DIALECT.items():
            session.conf.set(setting, value)
        for t in asked.query.tables:
            self._table(
                session, table(t), asked.segments(self.lake, t, here=False)
            ).createOrReplaceTempView(t)
        for relation, level in asked.levels.items():
            segments = asked.rolled_segments(self.lake, level, here=False)
            kept = asked.kept(self.lake, level, here=False)
            stored = self._level(session, level, segments, kept, asked.span(relation))
            if relation == level:
                stored.createOrReplaceTempView(f"_parts_of_{level}")
                stored = session.sql(LEVELS[level].merged_sql(level, f"_parts_of_{level}"))
            stored.createOrReplaceTempView(relation)
        values = {key: _plain(value) for key, value in asked.values.items()}
        return session.sql(asked.query.text, args=values)

    def roll_up(self) -> int:
        """Store the roll-ups that segments lack: see ``Engine``.

        An executor sums up a segment by the code that an append runs, so that the same file comes
        out: nothing is shuffled, and no two executors work on one. They need this package. Of a
        lake in an object store none are stored: Spark sums raw rows up when it is asked.
        """
        root = self.lake.root
        if self.lake.url is not None:
            return 0
        # A task makes every roll-up that its segment lacks, so a segment is in one alone.
        wanted = list(
            dict.fromkeys(
                (rollup.table, path)
                for rollup in ROLLUPS
                for path in lacking(root, rollup, self.lake.segments(rollup.table))
            )
        )
        if not wanted:
            return 0
        context = self._session.sparkContext
        tasks = context.parallelize(wanted, len(wanted))
        return int(tasks.map(lambda task: roll_up(root, task[0], [task[1]])).sum())

    # -- relations ---------------------------------------------------------------------------

    def _table(self, session: SparkSession, spec: Table, segments: Sequence[Segment]) -> DataFrame:
        """The rows of a table that its reader may see."""
        schema = ", ".join(f"`{f.name}` {_TYPES[f.type]}" for f in spec.arrow)
        names = [f"`{name}`" for name in spec.names]
        if spec.latest_wins:
            # Rows of one moment keep the order of their segments, whose names begin with their
            # time.
            names.append("_metadata.file_name AS _file")
        parts = []
        # A column that a segment was written without is null.
        reader = session.read.schema(schema)
        if parquet := self._paths([s for s in segments if s.is_parquet]):
            parts.append(reader.parquet(*parquet).selectExpr(*names))
        if lines := self._paths([s for s in segments if not s.is_parquet]):
            found = reader.option("mode", "FAILFAST").json(lines)
            parts.append(found.selectExpr(*names))
        if not parts:
            # Not a frame of no rows made here: that would start Python on the executors.
            nothing = [f"CAST(NULL AS {_TYPES[f.type]}) AS `{f.name}`" for f in spec.arrow]
            file = ["CAST(NULL AS STRING) AS _file"] if spec.latest_wins else []
            parts.append(session.sql(f"SELECT {', '.join([*nothing, *file])} WHERE false"))
        rows = parts[0] if len(parts) == 1 else parts[0].unionAll(parts[1])
        rows.createOrReplaceTempView("_stored")
        if spec.latest_wins:
            rows = session.sql(_newest_sql(spec))
        seen = self.lake.seen(spec.name)
        if seen is None:
            return rows
        rows.createOrReplaceTempView("_rows")
        for relation, held in seen.relations.items():
            session.createDataFrame(held).createOrReplaceTempView(relation)
        return session.sql(f"SELECT * FROM _rows WHERE {seen.condition}")

    def _paths(self, segments: Sequence[Segment]) -> list[str]:
        return spark_names(self.lake, [segment.path for segment in segments])

    def _level(
        self,
        session: SparkSession,
        level: str,
        segments: Sequence[Segment],
        kept: Sequence[Segment],
        span: int | None,
    ) -> DataFrame:
        """A level as it is stored, and what Spark sums up of all other segments, unmerged.

        What is stored sums up all rows; a reader who may see some of them gets sums of those.
        ``kept`` are parts whose segments are gone. Parts of one ``span`` of steps are read as the
        file that adds them up, so that of a long job not a row per rank and segment is read.
        """
        rollup = LEVELS[level]
        spec = table(rollup.table)
        stored: dict[Path, Path] = {}
        if self.lake.seen(rollup.table) is None and self.lake.url is None:
            paths = {
                s.path: rollup_path(self.lake.root, rollup, level, s.path)
                for s in segments
                if is_rolled(s)
            }
            stored = {segment: path for segment, path in paths.items() if path.exists()}
        rest = [s for s in segments if s.path not in stored]
        self._table(session, spec, rest).createOrReplaceTempView(f"_raw_{level}")
        fresh = session.sql(rollup.made_sql(level, f"_raw_{level}"))
        # Of dropped rows nobody knows any longer which may be seen.
        gone = [] if self.lake.seen(rollup.table) is not None else [part.path for part in kept]
        if not stored and not gone:
            return fresh
        whole: Sequence[Path] = list(stored.values())
        if span is not None:
            whole = added_up(rollup, level, whole, span)
        files = session.read.parquet(*spark_names(self.lake, [*gone, *whole]))
        return files.select(*rollup.columns).unionAll(fresh)


def _newest_sql(spec: Table) -> str:
    """Of each column the newest value that is not null, as ``DuckEngine`` has it."""
    age = "(ingested_at_us, coalesce(source_row, 0), _file)"
    held = dict.fromkeys(spec.names, f"max_by({{0}}, {age}) FILTER (WHERE {{0}} IS NOT NULL)")
    held |= dict.fromkeys(spec.earliest, "min({0})") | dict.fromkeys(spec.latest, "max({0})")
    columns = ", ".join(
        f"`{name}`" if name in spec.key else f"{held[name].format(f'`{name}`')} AS `{name}`"
        for name in spec.names
    )
    keys = ", ".join(f"`{name}`" for name in spec.key)
    return f"SELECT {columns} FROM _stored GROUP BY {keys}"


def spark_names(lake: Lake, paths: Iterable[Path]) -> list[str]:
    """Files of a lake as Spark names them, wildcards escaped.

    One in a folder is no path of a cluster's own file system, and one in an object store is read
    there, not from the copy of this machine.
    """
    base = None if lake.url is None else f"{lake.url}/"
    whole = (base + lake.relative(p) if base else f"file:{os.path.abspath(p)}" for p in paths)
    return [re.sub(r"([\\\[\]{}*?])", r"\\\1", name) for name in whole]


def _reason(error: Exception) -> str:
    """What Spark says, in one line: of a Java exception its message, without its stack."""
    if "JAVA_GATEWAY_EXITED" in str(error):
        return "its Java process ended at once, for the reason that is printed above"
    lines = [line.strip(" :") for line in str(error).split("\n") if line.strip()]
    return next((line for line in lines if "Exception" in line), lines[0] if lines else "unknown")


def _plain(value: Any) -> Any:
    """A number of numpy's as Python's own."""
    return value.item() if hasattr(value, "item") else value
