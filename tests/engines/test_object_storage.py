"""A lake in an object store, against an S3 server: nothing is lost and nothing doubled."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from steptax.app.doctor import examine
from steptax.app.errors import NotFoundError, UserError
from steptax.app.lake import Lake, lake_at
from steptax.app.lake.bucket import Bucket, url_of
from steptax.app.lake.bucket_lake import BucketLake
from steptax.app.lake.compact import compact
from steptax.app.lake.ingest import IngestResult, ingest
from steptax.app.lake.retain import retain
from steptax.app.queries import DuckEngine
from steptax.app.queries.spark import object_names
from steptax.app.schema import Batch
from steptax.app.settings import Settings

URL = "s3://steptax-test/a/lake"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """An S3 server on the loopback interface; its URL."""
    for module in ("moto", "s3fs", "flask"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed (pip install '.[dev]')")
    from moto.server import ThreadedMotoServer

    running = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    yield f"http://{host}:{port}"
    running.stop()


@pytest.fixture(autouse=True)
def bucket(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty bucket, credentials, and an empty cache."""
    import s3fs

    for name, value in {
        "AWS_ENDPOINT_URL": server,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "STEPTAX_CACHE": str(tmp_path / "cache"),
        "NO_PROXY": "127.0.0.1",
    }.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    files = s3fs.S3FileSystem(use_listings_cache=False)
    if files.exists("steptax-test"):
        files.rm("steptax-test", recursive=True)
    files.mkdir("steptax-test")
    yield
    s3fs.S3FileSystem.clear_instance_cache()


def steps(first: int, count: int, *, ranks: int = 4, job: str = "j") -> pa.Table:
    rows = [
        {"job_id": job, "attempt": 0, "step": s, "rank": r, "duration_us": 1000 + 10 * r + s}
        for s in range(first, first + count)
        for r in range(ranks)
    ]
    return pa.Table.from_pylist(rows)


def opened(**options: Any) -> BucketLake:
    """Another machine's handle: it sees what is there now."""
    return BucketLake(URL, fresh_s=0, **options)


def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> BucketLake:
    """A machine that has no copies yet."""
    monkeypatch.setenv("STEPTAX_CACHE", str(tmp_path / name))
    return opened()


def stored(lake: Lake, job: str = "j") -> Counter[tuple[int, int]]:
    """How often each step and rank is there, as queries see it."""
    asked = {"job_id": job, "first_step": 0, "last_step": 10_000}
    rows = DuckEngine(lake).run("step_rows", **asked)  # type: ignore[arg-type]
    return Counter(zip(rows["step"].to_pylist(), rows["rank"].to_pylist(), strict=True))


def once(first: int, count: int, ranks: int = 4) -> Counter[tuple[int, int]]:
    return Counter((s, r) for s in range(first, first + count) for r in range(ranks))


def test_a_url_is_told_from_a_path() -> None:
    assert url_of("s3://b/lake/") == url_of(Path("s3://b/lake")) == "s3://b/lake"
    assert url_of("memory://lake") == "memory://lake"
    for path in ("lake", "/data/s3", "C:\\lake", "./s3:/x", "a:b"):
        assert url_of(path) is None


def test_append_list_read_and_compact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotFoundError):
        opened()
    lake = lake_at(URL, create=True)
    assert isinstance(lake, BucketLake)
    for k in range(12):
        lake.append("steps", steps(k, 1), source="recorder")
    assert stored(lake) == once(0, 12)
    assert (lake.job_ids("steps"), lake.row_counts()["steps"]) == (["j"], 48)
    other = elsewhere(monkeypatch, tmp_path, "other")
    assert stored(other) == once(0, 12)
    version = other.version("steps", "j")
    done = compact(lake, grace_s=0)
    assert (done.merged_segments, done.new_segments, done.deleted_files) == (12, 1, 12)
    assert other.version("steps", "j") != version
    assert stored(other) == stored(opened()) == once(0, 12)
    folder = other.relative(other.segments("steps", "j")[0].path).rpartition("/")[0]
    assert len(other.bucket.names(folder)) == 1
    lake.append("steps", steps(12, 1), source="recorder")
    assert stored(other) == once(0, 13)


def test_retention_leaves_sums_in_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = opened(create=True)
    for k in range(3):
        lake.append("steps", steps(4 * k, 4), source="recorder")
    asked: dict[str, Any] = {"job_id": "j"}
    before = DuckEngine(lake).run("history_steps", **asked)
    gone = lake.segments("steps", "j")
    # Rows without a moment are as old as their storing.
    assert [one.rows for one in retain(lake, 2**62, grace_s=0).dropped] == [48]
    other = elsewhere(monkeypatch, tmp_path, "other")
    assert other.segments("steps", "j") == []
    assert not other.bucket.names(lake.relative(gone[0].path).rpartition("/")[0])
    assert DuckEngine(other).run("history_steps", **asked).equals(before)


def test_only_what_is_asked_for_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = opened(create=True)
    for k in range(5):
        lake.append("steps", steps(10 * k, 10), source="recorder")
    lake.append("steps", steps(0, 3, job="other"), source="recorder")
    other = elsewhere(monkeypatch, tmp_path, "other")
    assert other.row_counts()["steps"] == 4 * 53
    assert not list(other.root.rglob("*.parquet"))
    asked = {"job_id": "j", "first_step": 12, "last_step": 18}
    assert DuckEngine(other).run("step_rows", **asked).num_rows == 28  # type: ignore[arg-type]
    assert [p.name.split("-")[2:4] for p in other.root.rglob("*.parquet")] == [["10", "19"]]


def _stored_input(lake: Lake, first: int, count: int) -> IngestResult:
    batches = [Batch("steps", steps(first, count))]
    return ingest(lake, batches, ingest_id=f"{first:08x}{count:016x}", source="file")


def test_an_input_is_stored_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = opened(create=True)
    assert _stored_input(lake, 0, 8).accepted == {"steps": 32}
    other = elsewhere(monkeypatch, tmp_path, "other")
    assert _stored_input(other, 0, 8).already
    grown = _stored_input(other, 4, 8)
    assert (grown.accepted, grown.stored_before) == ({"steps": 16}, {"steps": 16})
    assert stored(lake) == once(0, 12)


class _Killed(BaseException):
    """The process ends here: nothing after it runs."""


def _killed_after(lake: BucketLake, calls: int) -> None:
    """Let ``calls`` writes to the store through; the next one does not come to pass."""
    left = [calls]

    def stopping(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            if not left[0]:
                raise _Killed
            left[0] -= 1
            return real(*arguments)

        return call

    for name in ("put", "write", "create", "delete"):
        setattr(lake.bucket, name, stopping(getattr(lake.bucket, name)))


@pytest.mark.parametrize("calls", range(5))
def test_a_compactor_killed_between_any_two_writes(
    calls: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Put, commit, put, commit, delete: of two jobs, then the sweep."""
    lake = opened(create=True)
    for k in range(3):
        lake.append("steps", pa.concat_tables([steps(k, 1), steps(k, 1, job="i")]), source="r")
    victim = opened()
    _killed_after(victim, calls)
    with pytest.raises(_Killed):
        compact(victim, minimum=2, grace_s=0)
    for reader in (lake, opened(), elsewhere(monkeypatch, tmp_path, "fresh")):
        assert stored(reader) == stored(reader, "i") == once(0, 3)
    compact(opened(), minimum=2, grace_s=0)
    last = elsewhere(monkeypatch, tmp_path, "last")
    assert stored(last) == stored(last, "i") == once(0, 3)
    assert len(last.segments("steps")) == 2


@pytest.mark.parametrize("calls", range(2))
def test_an_ingest_killed_between_any_two_writes(
    calls: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its parts, then its record. What is left of it is not there, also when others came since."""
    lake = opened(create=True)
    victim = opened()
    _killed_after(victim, calls)
    with pytest.raises(_Killed):
        _stored_input(victim, 0, 6)
    assert lake.row_counts()["steps"] == 0
    assert _stored_input(lake, 0, 3).accepted == {"steps": 12}
    assert _stored_input(opened(), 0, 6).accepted == {"steps": 12}
    assert stored(elsewhere(monkeypatch, tmp_path, "fresh")) == once(0, 6)


def test_of_two_compactors_at_once_one_is_overtaken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = opened(create=True)
    for k in range(4):
        lake.append("steps", steps(k, 1), source="recorder")
    first, second = opened(), elsewhere(monkeypatch, tmp_path, "second")
    create = first.bucket.create

    def late(name: str, data: bytes) -> bool:
        second.append("steps", steps(4, 1), source="recorder")
        assert compact(second, minimum=2).merged_segments == 5
        return create(name, data)

    monkeypatch.setattr(first.bucket, "create", late)
    done = compact(first, minimum=2)
    assert (done.busy, done.merged_segments) == (True, 0)
    assert stored(first) == stored(elsewhere(monkeypatch, tmp_path, "third")) == once(0, 5)


def test_of_two_machines_that_store_one_input_at_once_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second commits while the first is about to: the store takes the record once."""
    first = opened(create=True)
    second = elsewhere(monkeypatch, tmp_path, "second")
    create = first.bucket.create

    def late(name: str, data: bytes) -> bool:
        assert _stored_input(second, 0, 6).accepted == {"steps": 24}
        return create(name, data)

    monkeypatch.setattr(first.bucket, "create", late)
    assert _stored_input(first, 0, 6).already
    for reader in (first, second, elsewhere(monkeypatch, tmp_path, "third")):
        assert stored(reader) == once(0, 6)


def test_an_object_that_is_gone_is_named_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = opened(create=True)
    for k in range(3):
        _stored_input(lake, 2 * k, 2)
    assert compact(lake, minimum=2, grace_s=0).new_segments == 1
    (merged,) = lake.segments("steps", "j")
    lake.bucket.delete([lake.relative(merged.path)])
    found = examine(Settings(lake=Path(URL)))
    (one,) = [f for f in found if f.check == "lake" and f.state == "fail"]
    assert merged.path.name in one.text
    assert "24 rows are missing" in one.text
    other = elsewhere(monkeypatch, tmp_path, "other")
    for k in range(3):
        assert _stored_input(other, 2 * k, 2).accepted == {"steps": 8}
    for k in range(3):
        assert _stored_input(lake, 2 * k, 2).already
    assert stored(other) == stored(opened()) == once(0, 6)
    assert not any(f.state == "fail" for f in examine(Settings(lake=Path(URL))))


_WRITER = """
import sys
sys.path[:0] = {path!r}
from tests.engines.test_object_storage import opened, steps
lake = opened()
for k in range({first}, {first} + 400):
    lake.append("steps", steps(k, 1), source="recorder")
    print(k, flush=True)
"""
_COMPACTOR = """
import sys
sys.path[:0] = {path!r}
from steptax.app.lake.compact import compact
from tests.engines.test_object_storage import opened
lake = opened()
print("on", flush=True)
while True:
    compact(lake, minimum=2, grace_s=0)
"""


@pytest.mark.slow
def test_writers_and_compactors_that_are_killed_lose_and_double_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real processes, ended by SIGKILL in the midst of it, three times; grace 0, the worst case."""
    opened(create=True)
    path = [str(Path(__file__).parents[2])]
    acknowledged, begun = 0, 0
    expected: Counter[tuple[int, int]] = Counter()
    for turn in range(3):
        writer, compactor = (
            subprocess.Popen(
                [sys.executable, "-c", text.format(path=path, first=turn * 1000)],
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "STEPTAX_CACHE": str(tmp_path / f"{turn}{name}")},
            )
            for name, text in (("w", _WRITER), ("c", _COMPACTOR))
        )
        assert writer.stdout is not None
        assert compactor.stdout is not None
        try:
            compactor.stdout.readline()
            newest = -1
            for _ in range(25):
                newest = int(writer.stdout.readline())
            compactor.send_signal(signal.SIGKILL)
            newest = int(writer.stdout.readline())
            writer.send_signal(signal.SIGKILL)
            rest = writer.stdout.read().split("\n")[:-1]
            newest = int(rest[-1]) if rest else newest
        finally:
            for process in (writer, compactor):
                process.kill()
                process.wait()
                assert process.stdout is not None
                process.stdout.close()
        acknowledged += newest - turn * 1000 + 1
        begun += 1
        expected += once(turn * 1000, newest - turn * 1000 + 1)
    reader = elsewhere(monkeypatch, tmp_path, "reader")
    found = stored(reader)
    assert set(found.values()) == {1}
    assert not expected - found
    # At most one step more of each writer: its object was put, and it died before saying so.
    assert 0 <= len(found) // 4 - acknowledged <= begun
    compact(reader, minimum=2, grace_s=0)
    assert stored(reader) == found
    assert any(name.startswith("compact-") for name in reader.bucket.names("commits"))


def test_a_damaged_copy_is_fetched_again() -> None:
    lake = opened(create=True)
    lake.append("steps", steps(0, 2), source="recorder")
    copy = lake.segments("steps", "j")[0].path
    copy.write_bytes(copy.read_bytes()[:-50])
    assert stored(lake) == once(0, 2)


def test_recorders_of_training_jobs_write_the_same_lake() -> None:
    """What a recorder puts by its own code is read, and its sign of life."""
    from steptax.connectors.recorder import StepRecorder

    lake = opened(create=True)
    with StepRecorder(URL, "j", 0, 1, spool=Path(os.environ["STEPTAX_CACHE"]) / "spool") as rec:
        for step in range(3):
            with rec.step(step), rec.phase("compute"):
                pass
    assert rec.stats["state"] == "closed", rec.stats
    assert stored(lake) == once(0, 3, ranks=1)
    assert [beat["rank"] for beat in lake.heartbeats("j")] == [0]
    assert lake.live_job_ids() == ["j"]


def test_commands_on_a_bucket(tmp_path: Path, steptax: Callable[..., Any]) -> None:
    table = tmp_path / "steps.csv"
    lines = ["step,rank,duration_us", *(f"{s},{r},{1000 + r}" for s in range(9) for r in range(4))]
    table.write_text("\n".join(lines))
    lake = ("--lake", URL)
    assert steptax("ingest", "steps", table, "--job", "j", *lake)["tables"]
    assert [job["job_id"] for job in steptax("jobs", *lake)] == ["j"]
    assert steptax("job", "j", *lake)["card"]
    assert steptax("compact", *lake)["busy"] is False
    assert steptax("collect", *lake, fails=2)["where"] == URL


def test_what_needs_a_folder_says_so() -> None:
    with pytest.raises(UserError, match="folder"):
        Lake(URL)
    with pytest.raises(UserError, match="not installed"):
        Bucket("nosuch+scheme://bucket/lake")


def test_a_store_that_cannot_be_read_says_so(
    monkeypatch: pytest.MonkeyPatch, steptax: Callable[..., Any]
) -> None:
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    error = steptax("jobs", "--lake", URL, fails=2)
    assert (error["kind"], error["where"]) == ("UserError", URL)
    assert "AWS_ENDPOINT_URL" in error["hint"]


def test_spark_reads_the_objects_and_not_the_copies() -> None:
    lake = opened(create=True)
    (path,) = lake.append("steps", steps(0, 1), source="recorder")
    (name,) = object_names(lake, [path])
    assert name == f"s3a{URL[2:]}/tables/steps/job=j/{path.name}"
