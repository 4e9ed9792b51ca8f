"""A lake in an object store on Spark: by copies of this machine, or by a cluster's executors."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from steptax.app.errors import UserError
from steptax.app.lake import Lake
from steptax.app.lake.bucket_lake import BucketLake
from steptax.app.lake.rollups import is_rolled
from steptax.app.queries import DuckEngine
from steptax.app.queries.spark import SparkEngine
from steptax.app.queries.spark_start import QUIET, spark_session
from steptax.benchmarks.product.scale_data import segments
from tests.engines.generated_lake import generated_lake
from tests.engines.test_object_storage import server
from tests.engines.test_spark import MASTER, SMALL, asked_with, assert_same

__all__ = ["server"]

BUCKET = "steptax-spark"
URL = f"s3://{BUCKET}/a/lake"
#: A job whose segments get roll-ups.
LONG = {"job_id": "long", "step_block": 256, "window_steps": 256}
#: Of raw rows, of a level merged, of parts of a level, and of the newest of each job.
ASKED: dict[str, dict[str, Any]] = {
    "step_rows": {"job_id": "long", "first_step": 100, "last_step": 200},
    "history_windows": LONG,
    **{name: asked_with(name) for name in ("device_day_rows", "job_list")},
}
#: Hadoop's own file system that gives a folder under the name of a store.
MOUNTED = "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme"


@pytest.fixture(scope="module")
def environment(server: str) -> Iterator[dict[str, str]]:
    """An empty bucket on the server: what its clients are told."""
    import s3fs

    told = {
        "AWS_ENDPOINT_URL": server,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "NO_PROXY": "127.0.0.1",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in told.items():
            patch.setenv(name, value)
        s3fs.S3FileSystem.clear_instance_cache()
        s3fs.S3FileSystem(use_listings_cache=False).mkdir(BUCKET)
        yield told
        s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture(scope="module")
def session(environment: dict[str, str]) -> Iterator[Any]:
    """Two executors in processes of their own, with the credentials; no S3 in their Java."""
    if importlib.util.find_spec("pyspark") is None:
        pytest.skip("PySpark is not installed (pip install '.[spark]')")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("there is no Java")
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    told = {f"spark.executorEnv.{name}": value for name, value in environment.items()}
    started = spark_session(MASTER, {**QUIET, **SMALL, **told})
    try:
        yield started
    finally:
        started.stop()


@pytest.fixture(scope="module")
def folder(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lake as a folder; what is in it is in the bucket, but for what can be made again."""
    import s3fs

    lake = generated_lake(tmp_path_factory.mktemp("lake") / "lake")
    for part in segments(128, 3 * 128):
        rows = part.set_column(0, "job_id", pa.array(["long"] * part.num_rows))
        lake.append("steps", rows, source="benchmark")
    root = lake.root
    files = s3fs.S3FileSystem(use_listings_cache=False)
    for path in sorted(p for p in root.rglob("*") if p.is_file()):
        place = path.relative_to(root).as_posix()
        if not place.startswith("rollups/"):
            files.put_file(str(path), f"{URL}/{place}")
    return root


def machine(monkeypatch: pytest.MonkeyPatch, cache: Path) -> BucketLake:
    """The lake as it is opened on a machine without copies."""
    monkeypatch.setenv("STEPTAX_CACHE", str(cache))
    return BucketLake(URL)


def files_of(root: Path) -> dict[str, Path]:
    return {p.relative_to(root).as_posix(): p for p in root.rglob("*.parquet")}


@pytest.fixture
def mounted(session: Any, folder: Path) -> Iterator[None]:
    """Java of driver and executors has a file system for s3a:// of this bucket."""
    hadoop = session.sparkContext._jsc.hadoopConfiguration()
    settings = {
        "fs.s3a.impl": MOUNTED,
        "fs.s3a.impl.disable.cache": "true",
        f"fs.viewfs.mounttable.{BUCKET}.link./a/lake": f"file://{folder}",
    }
    before = {name: hadoop.get(name) for name in settings}
    for name, value in settings.items():
        hadoop.set(name, value)
    yield
    for name, value in before.items():
        if value is None:
            hadoop.unset(name)
        else:
            hadoop.set(name, value)


@pytest.mark.slow
def test_roll_ups_of_a_bucket_are_those_that_duckdb_makes(
    session: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors fetch segments and sum them up; file by file they give what DuckDB's engine does.

    So they do on a cluster, whose Java needs no S3 for it.
    """
    duck = machine(monkeypatch, tmp_path / "duck")
    made = DuckEngine(duck).roll_up()
    spark = machine(monkeypatch, tmp_path / "spark")
    assert sum(is_rolled(s) for s in spark.segments("steps", "long")) == 3
    engine = SparkEngine(spark, session, is_here=False)
    assert engine.roll_up() == made > 0
    theirs, ours = files_of(duck.root / "rollups"), files_of(spark.root / "rollups")
    assert {*ours} == {*theirs}
    for place, path in ours.items():
        tables = (pq.read_table(p, partitioning=None) for p in (path, theirs[place]))
        assert next(tables).equals(next(tables)), place
    assert engine.roll_up() == 0
    assert not files_of(spark.root / "tables")  # the copies of a backlog would fill the disk


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rolled_up"),
    [*((name, False) for name in ASKED), ("history_windows", True), ("device_day_rows", True)],
)
def test_spark_of_this_machine_reads_its_copies(
    session: Any,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    rolled_up: bool,
) -> None:
    lake = machine(monkeypatch, tmp_path / "cache")
    engine = SparkEngine(lake, session)
    if rolled_up:
        assert engine.roll_up()
    found = engine.run(name, **ASKED[name])
    expected = DuckEngine(Lake(folder)).run(name, **ASKED[name])
    assert expected.num_rows
    assert_same(found, expected, ordered=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["step_rows", "history_windows", "job_list"])
def test_a_cluster_reads_the_objects_and_no_copies(
    session: Any,
    mounted: None,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    lake = machine(monkeypatch, tmp_path / "cache")
    found = SparkEngine(lake, session, is_here=False).run(name, **ASKED[name])
    assert not files_of(lake.root)
    expected = DuckEngine(Lake(folder)).run(name, **ASKED[name])
    assert_same(found, expected, ordered=False)


@pytest.mark.slow
def test_a_cluster_whose_java_has_no_s3_says_what_to_add(
    session: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As PySpark is installed: neither hadoop-aws nor the SDK that it needs is in it."""
    lake = machine(monkeypatch, tmp_path / "cache")
    engine = SparkEngine(lake, session, is_here=False)
    with pytest.raises(UserError, match="hadoop-aws is not on its class path") as error:
        engine.run("step_rows", **ASKED["step_rows"])
    version = session.sparkContext._jvm.org.apache.hadoop.util.VersionInfo.getVersion()
    assert error.value.where == URL
    assert f"spark.jars.packages org.apache.hadoop:hadoop-aws:{version}" in str(error.value.hint)
    assert "docs/spark.md" in str(error.value.hint)
    assert not files_of(lake.root)


@pytest.mark.slow
def test_commands_give_the_same_of_a_bucket_by_both_engines(
    session: Any,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    steptax: Callable[..., Any],
) -> None:
    by_spark = ("--engine", "spark", "--master", MASTER)
    monkeypatch.setenv("STEPTAX_CACHE", str(tmp_path / "spark"))
    spark = steptax("rollup", "--lake", URL, *by_spark)
    monkeypatch.setenv("STEPTAX_CACHE", str(tmp_path / "duck"))
    assert steptax("rollup", "--lake", URL) == spark
    assert spark["summed_up"] > 0
    asked = ("query", "step_rows", "--job", "a", "--set", "first_step=2", "--set", "last_step=5")
    assert steptax(*asked, "--lake", URL, *by_spark) == steptax(*asked, "--lake", URL)
