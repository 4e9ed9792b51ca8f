"""Running a named query, and building roll-ups, on Apache Spark: for what outgrows one machine.

Spark reads the very segments and roll-ups that DuckDB reads, and is given the same text. Rows come
back as Arrow, never through pandas. Of a lake in an object store a Spark of this machine reads the
copies that DuckDB reads; the executors of a cluster read the store itself.
"""

from __future__ import annotations

import logging
import os
import re
import tempfile
from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from steptax.app.lake import Lake, Segment
from steptax.app.lake.bucket import Bucket
from steptax.app.lake.files import write_whole
from steptax.app.lake.look import look_again
from steptax.app.lake.rollups import added_up, is_rolled, lacking, roll_up, rollup_path
from steptax.app.queries.arrays import Columns, arrays_of
from steptax.app.queries.asked import Asked
from steptax.app.queries.spark_start import is_of_a_gone_file, said_by_spark
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

#: Segments of a bucket whose roll-ups are on their way here at once.
_TOGETHER = 256


class SparkEngine:
    """Runs named queries on a Spark session; safe to share between threads.

    Each call has a session of its own inside the one application, so that the names of tables in
    one question are not those of another.
    """

    def __init__(self, lake: Lake, session: SparkSession, *, is_here: bool | None = None) -> None:
        """``is_here``: whether executors open files of this machine; None: as the master says."""
        self.lake = lake
        self._session = session
        if is_here is None:
            is_here = lake.url is None or session.sparkContext.master.startswith("local")
        self._is_here = is_here
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
        asked = Asked.of(name, job_id, first_step, last_step, parameters, jobs)
        with self._said():
            try:
                return self.frame(asked).toArrow()
            except Exception as error:
                if not is_of_a_gone_file(error):
                    raise
            look_again()  # one that was merged and removed since it was listed is in another
            return self.frame(asked).toArrow()

    def _said(self) -> AbstractContextManager[None]:
        java = self._session.sparkContext._jvm
        hadoop = "VERSION" if java is None else java.org.apache.hadoop.util.VersionInfo.getVersion()
        return said_by_spark(self.lake.url or str(self.lake.root), str(hadoop))

    def frame(self, asked: Asked) -> DataFrame:
        """What is asked, not yet run: it names the files that it will read (``inputFiles``)."""
        session = self._session.newSession()
        for setting, value in _DIALECT.items():
            session.conf.set(setting, value)
        for t in asked.query.tables:
            segments = asked.segments(self.lake, t, here=self._is_here)
            self._table(session, table(t), segments).createOrReplaceTempView(t)
        for relation, level in asked.levels.items():
            segments = asked.rolled_segments(self.lake, level, here=False)
            kept = asked.kept(self.lake, level, here=self._is_here)
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
        lake in an object store they fetch the segments for as long as that takes, and what they
        make is stored beside the copies of this machine, as all roll-ups of such a lake are.
        """
        root = self.lake.root
        # A task makes every roll-up that its segment lacks, so a segment is in one alone.
        wanted = list(
            dict.fromkeys(
                (rollup.table, segment.path)
                for rollup in ROLLUPS
                for segment in lacking(root, rollup, self.lake.segments(rollup.table))
            )
        )
        if not wanted:
            return 0
        with self._said():
            if self.lake.url is not None:
                return self._roll_up_objects(self.lake.url, wanted)
            tasks = self._session.sparkContext.parallelize(wanted, len(wanted))
            return int(tasks.map(lambda task: roll_up(root, task[0], [task[1]])).sum())

    def _roll_up_objects(self, url: str, wanted: Sequence[tuple[str, Path]]) -> int:
        """Store the roll-ups of segments of a bucket; for how many segments one was made."""
        count = 0
        for begin in range(0, len(wanted), _TOGETHER):
            part = [(name, self.lake.relative(p)) for name, p in wanted[begin : begin + _TOGETHER]]
            tasks = self._session.sparkContext.parallelize(part, len(part))
            for made, files in tasks.map(partial(_rolled_up, url)).collect():
                for place, body in files.items():
                    write_whole(self.lake.root / place, body)
                count += made
        return count

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
        return self._names(segment.path for segment in segments)

    def _names(self, paths: Iterable[Path]) -> list[str]:
        return spark_names(paths) if self._is_here else object_names(self.lake, paths)

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
        if self.lake.seen(rollup.table) is None and self._is_here:
            paths = {
                s.path: rollup_path(self.lake.root, rollup, level, s.path)
                for s in segments
                if is_rolled(s)
            }
            stored = {segment: path for segment, path in paths.items() if path.exists()}
        rest: Sequence[Segment] = [s for s in segments if s.path not in stored]
        if self._is_here:
            rest = self.lake.fetched(rest)
        self._table(session, spec, rest).createOrReplaceTempView(f"_raw_{level}")
        fresh = session.sql(rollup.made_sql(level, f"_raw_{level}"))
        # Of dropped rows nobody knows any longer which may be seen.
        gone = [] if self.lake.seen(rollup.table) is not None else [part.path for part in kept]
        if not stored and not gone:
            return fresh
        whole: Sequence[Path] = list(stored.values())
        if span is not None:
            whole = added_up(rollup, level, whole, span)
        found = fresh
        if whole:
            files = session.read.parquet(*self._names(whole))
            found = files.select(*rollup.columns).unionAll(found)
        if gone:
            # Of whatever version: they cannot be made again.
            reader = session.read.option("mergeSchema", "true")
            files = reader.parquet(*self._names(gone))
            lacks = {t.name: t.type for t in rollup.totals if t.name not in files.columns}
            columns = [
                f"CAST(NULL AS {lacks[name]}) AS {name}" if name in lacks else name
                for name in rollup.columns
            ]
            found = files.selectExpr(*columns).unionAll(found)
        return found


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


def spark_names(paths: Iterable[Path]) -> list[str]:
    """Files of this machine, or in one folder of all, as Spark names them, wildcards escaped.

    One in a folder is no path of a cluster's own file system.
    """
    return [_escaped(f"file:{os.path.abspath(path)}") for path in paths]


def object_names(lake: Lake, paths: Iterable[Path]) -> list[str]:
    """Objects of a lake's store, by where their copies would be, as Spark names them.

    Hadoop has S3 under the name of its own client, S3A.
    """
    base = re.sub(r"^s3://", "s3a://", str(lake.url))
    return [_escaped(f"{base}/{lake.relative(path)}") for path in paths]


def _escaped(name: str) -> str:
    return re.sub(r"([\\\[\]{}*?])", r"\\\1", name)


def _rolled_up(url: str, task: tuple[str, str]) -> tuple[int, dict[str, bytes]]:
    """Runs on an executor: how many roll-ups of a segment were made, and their files by place."""
    name, place = task
    with tempfile.TemporaryDirectory(prefix="steptax-") as folder:
        root = Path(folder)
        try:
            Bucket(url).fetch({place: root / place})
        except FileNotFoundError:  # merged and removed since it was listed
            return 0, {}
        made = roll_up(root, name, [root / place])
        found = (root / "rollups").rglob("*.parquet")
        return made, {path.relative_to(root).as_posix(): path.read_bytes() for path in found}


def _plain(value: Any) -> Any:
    """A number of numpy's as Python's own."""
    return value.item() if hasattr(value, "item") else value
