"""Every named query, and the roll-ups, on Apache Spark with two executors: what DuckDB gives."""

from __future__ import annotations

import gc
import importlib.util
import math
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from steptax.app.errors import IntegrityError, UserError
from steptax.app.lake import Lake, ScopedLake
from steptax.app.lake.compact import compact
from steptax.app.lake.retain import retain
from steptax.app.lake.rollups import is_rolled, made, rollup_path
from steptax.app.queries import QUERIES, DuckEngine, spark_start
from steptax.app.queries.asked import Asked
from steptax.app.queries.spark import SparkEngine
from steptax.app.queries.spark_start import QUIET, spark_session
from steptax.app.schema import table
from steptax.app.schema.rollups import DAY_US, ROLLUPS
from steptax.benchmarks.product.scale_data import segments
from tests.engines.generated_lake import BEGIN_US, generated_lake
from tests.later_rollups import MORE, raise_version

MASTER = "local-cluster[2,1,1024]"
#: Hundreds of tiny jobs: most of their time would go into compiling what runs once.
SMALL = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.files.openCostInBytes": "0",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
#: What the parameters of queries are given; one that is not here fails the test of its query.
PARAMETERS: dict[str, Any] = {
    "first_step": 2,
    "last_step": 9,
    "first_us": BEGIN_US + DAY_US // 3,
    "last_us": BEGIN_US + DAY_US + DAY_US // 2,
    "since_us": BEGIN_US + DAY_US,
    "now_us": BEGIN_US + 2 * DAY_US,
    "is_live": True,
    "gpu_uuids": ["GPU-1", "GPU-2"],
    "first_job": "a",
    "last_job": "b",
    "limit_rows": 40,
    "printed_name": "loss",
    "step": 3,
    "step_block": 256,
    "window_steps": 256,
    "quantile_ratio": 0.95,
}


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    """A driver and two executors, each a process of its own, for the whole module."""
    if importlib.util.find_spec("pyspark") is None:
        pytest.skip("PySpark is not installed (pip install '.[spark]')")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("there is no Java")
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    started = spark_session(MASTER, {**QUIET, **SMALL})
    try:
        yield started
    finally:
        started.stop()


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return generated_lake(tmp_path_factory.mktemp("a [lake] {of} all") / "lake")


def copied(lake: Lake, tmp_path: Path) -> Lake:
    """The same lake, to change."""
    shutil.copytree(lake.root, tmp_path / "lake")
    return Lake(tmp_path / "lake")


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, float) or isinstance(b, float):
        if a is None or b is None:
            return a is b
        x, y = float(a), float(b)
        return (math.isnan(x) and math.isnan(y)) or math.isclose(x, y, rel_tol=1e-9, abs_tol=0)
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, int | Decimal) and isinstance(b, int | Decimal):
        return a == b
    return type(a) is type(b) and bool(a == b)


def _sorted(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """By what is exact first: floats may differ in their last digit."""
    return sorted(
        rows,
        key=lambda row: [
            "" if v is None else f"{v:.6e}" if isinstance(v, float) else f"'{v}" for v in row
        ],
    )


def assert_same(spark: pa.Table, duck: pa.Table, *, ordered: bool) -> None:
    assert spark.column_names == duck.column_names
    ours, theirs = (
        list(zip(*(column.to_pylist() for column in rows.columns), strict=True))
        for rows in (spark, duck)
    )
    assert len(ours) == len(theirs)
    if not ordered:
        ours, theirs = _sorted(ours), _sorted(theirs)
    for place, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        wrong = {
            name: (x, y)
            for name, x, y in zip(duck.column_names, a, b, strict=True)
            if not _equal(x, y)
        }
        assert not wrong, f"row {place}: (Spark, DuckDB) {wrong}\n{a}\n{b}"


def asked_with(name: str) -> dict[str, Any]:
    spec = QUERIES[name]
    assert {*spec.parameters} <= {*PARAMETERS, "job_id"}, "say here what it is asked with"
    given = {key: PARAMETERS[key] for key in spec.parameters if key != "job_id"}
    # What names no job is about one, where its tables are of jobs.
    if "job_id" in spec.parameters or "job_id" not in spec.text:
        given["job_id"] = "a"
    return given


@pytest.mark.slow
@pytest.mark.parametrize("name", QUERIES)
def test_spark_and_duckdb_agree_on_every_query(session: Any, lake: Lake, name: str) -> None:
    asked = asked_with(name)
    duck = DuckEngine(lake).run(name, **asked)
    spark = SparkEngine(lake, session).run(name, **asked)
    assert duck.num_rows > 0, "the generated lake has nothing for this query"
    ordered = re.search(r"\bORDER BY [^()]*$", QUERIES[name].text) is not None
    assert_same(spark, duck, ordered=ordered)


@pytest.mark.slow
def test_executors_store_the_roll_ups_that_are_missing(
    session: Any, lake: Lake, tmp_path: Path
) -> None:
    """Each file is the one that a rebuild on one machine gives, and readers use it."""
    lake = copied(lake, tmp_path)
    wanted = {
        rollup_path(lake.root, rollup, level, path): (rollup, level, path)
        for rollup in ROLLUPS
        for path in (s.path for s in lake.segments(rollup.table) if is_rolled(s))
        for level in rollup.levels
    }
    assert wanted
    for path in wanted:
        path.unlink()
    engine = SparkEngine(lake, session)
    assert engine.roll_up() == len({(rollup.name, s) for rollup, _, s in wanted.values()})
    for path, (rollup, level, segment) in wanted.items():
        assert pq.read_table(path, partitioning=None).equals(made(rollup, segment)[level])
    assert engine.roll_up() == 0


@pytest.mark.slow
def test_spark_sums_up_what_no_roll_up_covers(session: Any, lake: Lake, tmp_path: Path) -> None:
    """The declaration's own SQL on raw rows, beside what is stored: as DuckDB merges them."""
    lake = copied(lake, tmp_path)
    duck = DuckEngine(lake).run("device_day_rows", first_us=None, last_us=None)
    shutil.rmtree(lake.root / "rollups")
    spark = SparkEngine(lake, session).run("device_day_rows", first_us=None, last_us=None)
    assert not (lake.root / "rollups").exists()
    assert_same(spark, duck, ordered=True)


@pytest.mark.slow
def test_what_outlived_its_rows_is_told_by_both(
    session: Any, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = copied(lake, tmp_path)
    questions: dict[str, dict[str, Any]] = {
        "history_windows": {"job_id": "a", "step_block": 256, "window_steps": 256},
        "device_day_rows": {"first_us": None, "last_us": None},
    }
    before = {name: DuckEngine(lake).run(name, **asked) for name, asked in questions.items()}
    retain(lake, 2**62)
    assert lake.segments("steps") == lake.segments("device_samples") == []
    for name, asked in questions.items():
        duck = DuckEngine(lake).run(name, **asked)
        assert_same(duck, before[name], ordered=False)
        assert_same(SparkEngine(lake, session).run(name, **asked), duck, ordered=False)
    # Also by a later release, which cannot make it again.
    raise_version(monkeypatch, *ROLLUPS)
    for name, asked in questions.items():
        duck = DuckEngine(lake).run(name, **asked)
        held = [column for column in duck.column_names if column != MORE.name]
        assert_same(duck.select(held), before[name], ordered=False)
        assert_same(SparkEngine(lake, session).run(name, **asked), duck, ordered=False)


@pytest.mark.slow
def test_who_may_see_some_teams_sees_no_more_through_spark(
    session: Any, lake: Lake, tmp_path: Path
) -> None:
    lake = copied(lake, tmp_path)
    scoped = ScopedLake(lake.root, ["x"])
    for name in ("job_list", "device_day_rows", "bill_rejects", "fleet_places"):
        asked = {"first_us": None, "last_us": None} if name == "device_day_rows" else {}
        duck = DuckEngine(scoped).run(name, **asked)
        whole = DuckEngine(lake).run(name, **asked)
        assert duck.num_rows < whole.num_rows or name == "device_day_rows"
        assert_same(SparkEngine(scoped, session).run(name, **asked), duck, ordered=True)


@pytest.mark.slow
def test_a_segment_from_before_a_column_was_added(session: Any, lake: Lake, tmp_path: Path) -> None:
    lake = copied(lake, tmp_path)
    old = next(s for s in lake.segments("link_probes", "a") if s.is_parquet)
    pq.write_table(pq.read_table(old.path, partitioning=None).drop_columns(["bytes"]), old.path)
    duck = DuckEngine(lake).run("link_rows", job_id="a")
    assert duck["bytes"].null_count
    assert_same(SparkEngine(lake, session).run("link_rows", job_id="a"), duck, ordered=True)


@pytest.mark.parametrize("name", ["step_summary", "history_summary"])
def test_what_is_merged_and_removed_while_spark_works_is_asked_for_again(
    session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    lake = Lake(tmp_path / "lake", create=True)
    spec = {f.name: f.type for f in table("steps").arrow}
    for step in range(4):
        row = {"job_id": "a", "attempt": 0, "step": step, "rank": 0, "duration_us": 9}
        rows = {n: pa.array([value], spec[n]) for n, value in row.items()}
        lake.append("steps", pa.table(rows), source="t")
    planned, asked = SparkEngine.frame, []

    def frame(self: SparkEngine, about: Any) -> Any:
        found = planned(self, about)
        if not asked:
            assert compact(Lake(lake.root), minimum=2, grace_s=0).deleted_files == 4
        asked.append(about)
        return found

    monkeypatch.setattr(SparkEngine, "frame", frame)
    rows = SparkEngine(lake, session).run(name, job_id="a").to_pylist()
    assert ([row["step"] for row in rows], len(asked)) == ([0, 1, 2, 3], 2)


@pytest.mark.slow
def test_commands_give_the_same_by_both_engines(
    session: Any, lake: Lake, tmp_path: Path, steptax: Callable[..., Any]
) -> None:
    lake = copied(lake, tmp_path)
    by_spark = ("--engine", "spark", "--master", MASTER)
    shutil.rmtree(lake.root / "rollups")
    spark = steptax("rollup", *by_spark)
    assert spark.pop("summed_up") > 0
    duck = steptax("rollup")
    assert duck.pop("summed_up") == 0
    assert spark == duck
    asked = ("query", "step_rows", "--job", "a", "--set", "first_step=2", "--set", "last_step=5")
    assert steptax(*asked, *by_spark) == steptax(*asked)


def test_what_is_missing_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, steptax: Callable[..., Any]
) -> None:
    Lake(tmp_path / "lake", create=True)
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    error = steptax("rollup", "--engine", "spark", fails=2)
    assert (error["kind"], error["where"]) == ("UserError", "--engine spark")
    assert "in a checkout of Steptax: pip install '.[spark]'" in error["hint"]
    assert "--engine spark" in steptax("rollup", "--master", "local[2]", fails=2)["hint"]


#: What Java wrote for a master that is none, of Spark 4.3.
_ENDED = """WARNING: Using incubator modules: jdk.incubator.vector
Exception in thread "main" org.apache.spark.SparkException: Master must start with spark or local
\tat org.apache.spark.deploy.SparkSubmit.error(SparkSubmit.scala:1068)
"""


# PySpark leaves the pipe to its Java process open.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("home", "said"), [("there", "Master must start with spark or local"), ("nowhere", "no Java")]
)
def test_why_spark_cannot_start_is_said(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    home: str,
    said: str,
) -> None:
    """Its Java process ends in the same way for a wrong master as where there is no Java."""
    spark = pytest.importorskip("pyspark")
    if home == "there":
        java = tmp_path / home / "bin" / "java"
        java.parent.mkdir(parents=True)
        java.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{_ENDED}END\nexit 1\n")
        java.chmod(0o755)
    monkeypatch.delenv("STEPTAX_DEBUG", raising=False)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / home))
    for name in ("_gateway", "_jvm", "_active_spark_context"):
        monkeypatch.setattr(spark.SparkContext, name, None)
    with pytest.raises(UserError) as error:
        spark_session("foo://x")
    assert error.value.where == "foo://x"
    assert error.value.message == f"Spark cannot start: {said}" + " was found" * (home != "there")
    assert ("install Java" if home == "nowhere" else "master") in str(error.value.hint)
    assert capfd.readouterr().err == ""
    del error
    gc.collect()


def test_a_master_that_does_not_answer_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, steptax: Callable[..., Any]
) -> None:
    """Java, which takes a minute to find that out, is not started."""
    pytest.importorskip("pyspark")
    Lake(tmp_path / "lake", create=True)
    monkeypatch.setattr(spark_start, "_start_java", lambda _: pytest.fail("Java was started"))
    master = "spark://127.0.0.1:1,localhost:1"
    for command in (("rollup",), ("query", "job_list")):
        error = steptax(*command, "--engine", "spark", "--master", master, fails=2)
        assert (error["kind"], error["where"]) == ("UserError", master)
        assert (
            "no Spark master answers at 127.0.0.1:1: Connection refused; localhost:1"
            in (error["message"])
        )


_LOST = """An error occurred while calling o59.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed
\tat org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(DAGScheduler.scala:1)
Caused by: java.util.concurrent.ExecutionException: wrapped
\tat java.base/java.lang.Thread.run(Thread.java:840)
Caused by: java.net.ConnectException: Connection refused
\t... 20 more
"""
_WORKER = """An error occurred while calling z:PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Lost task 0.3 in stage 0.0:
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
ModuleNotFoundError: No module named 'steptax'

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handle(PythonRunner.scala:1)
"""
_STOPPED = "java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext."
_KILLED = (
    "ERROR StandaloneSchedulerBackend: Application has been killed. "
    "Reason: All masters are unresponsive! Giving up.\n"
    "26/11/30 ERROR SparkContext: Error initializing SparkContext.\n"
    "java.lang.NullPointerException: null\n"
)


@pytest.mark.parametrize(
    ("said", "log", "reason"),
    [
        (_LOST, "", "Connection refused"),
        (_WORKER, "", "ModuleNotFoundError: No module named 'steptax'"),
        (_STOPPED, _KILLED, "All masters are unresponsive! Giving up."),
        (
            "An error occurred while calling None.JavaSparkContext.\n"
            ": org.apache.spark.SparkException: Could not parse Master URL: 'local[x]'\n\tat X",
            "WARN NativeCodeLoader: Unable to load\n",
            "Could not parse Master URL: 'local[x]'",
        ),
        ("[JAVA_GATEWAY_EXITED] Java gateway process exited", "", "[JAVA_GATEWAY_EXITED]"),
    ],
)
def test_the_true_reason_is_found_among_stacks(said: str, log: str, reason: str) -> None:
    found = spark_start._reason(said, log)
    assert found.startswith(reason)
    assert "\n" not in found


@pytest.mark.slow
def test_an_error_of_executors_is_said_without_a_stack(
    session: Any, lake: Lake, tmp_path: Path
) -> None:
    lake = copied(lake, tmp_path)
    damaged = next(s for s in lake.segments("link_probes", "a") if s.is_parquet)
    damaged.path.write_bytes(b"PAR1 but no more")
    with pytest.raises(IntegrityError, match="Spark cannot answer: ") as error:
        SparkEngine(lake, session).run("link_rows", job_id="a")
    assert error.value.where == str(lake.root)
    assert len(error.value.message) < 400
    assert "\n" not in error.value.message


def test_queries_are_listed_and_wrong_ones_refused(
    tmp_path: Path, steptax: Callable[..., Any]
) -> None:
    Lake(tmp_path / "lake", create=True)
    listed = {q["name"]: q["parameters"] for q in steptax("query")["queries"]}
    assert listed["step_rows"] == ["first_step", "last_step"]
    assert steptax("query", "no_such", fails=2)["kind"] == "NotFoundError"
    wrong = steptax("query", "step_rows", "--set", "colour=red", fails=2)
    assert "first_step" in wrong["hint"]


@pytest.mark.slow
def test_of_a_long_job_spark_reads_what_adds_its_windows_up(session: Any, tmp_path: Path) -> None:
    """As many files as spans, not as segments; of the job that is asked about, and of no other."""
    lake = Lake(tmp_path / "lake", create=True)
    for job, steps in (("long", 8 * 128 + 3 * 128), ("other", 8 * 128 + 128)):
        for part in segments(128, steps):
            rows = part.set_column(0, "job_id", pa.array([job] * part.num_rows))
            lake.append("steps", rows, source="benchmark")
    asked: dict[str, Any] = {"job_id": "long", "step_block": 1024, "window_steps": 1024}
    engine = SparkEngine(lake, session)
    given = Asked.of("history_windows", "long", None, None, asked)
    found = engine.frame(given).inputFiles()
    names = [unquote(path).rpartition("/rollups/")[2] for path in found]
    assert all("job=long" in name for name in names)
    windows = sorted(n.rpartition("/")[2] for n in names if n.startswith("rank-windows"))
    # Eight segments in one span; the newest span grows still, and its three are read as they are.
    assert [name.partition("-")[0] for name in windows] == ["live", "live", "live", "span"]
    assert_same(
        engine.run("history_windows", **asked),
        DuckEngine(lake).run("history_windows", **asked),
        ordered=False,
    )
