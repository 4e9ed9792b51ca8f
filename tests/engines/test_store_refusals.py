"""A bucket that is gone, forbidden, elsewhere or out of reach says so; it never reads as empty.

And what goes into it goes several at once, the record that names it last.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from streamlit.testing.v1 import AppTest

from steptax.app.doctor import examine
from steptax.app.errors import DeliveryError, SteptaxError, UserError
from steptax.app.lake import lake_at, one_look
from steptax.app.lake.bucket import AT_ONCE, AT_ONCE_BYTES, Bucket
from steptax.app.lake.bucket_lake import BucketLake
from steptax.app.lake.compact import compact
from steptax.app.lake.health import lake_state
from steptax.app.lake.ingest import ingest
from steptax.app.lake.store_errors import explained
from steptax.app.queries import DuckEngine
from steptax.app.schema import Batch
from steptax.app.settings import Settings
from steptax.benchmarks.product.store_server import StoreServer
from tests.page_run import open_page

BUCKET = "steptax-refused"
URL = f"s3://{BUCKET}/a/lake"
#: What a store answers, as Amazon S3 documents it, and what is to be said of it and advised.
REFUSALS = {
    "forbidden": ((403, "AccessDenied", "Access Denied"), "forbidden", "s3:ListBucket"),
    "expired": ((400, "ExpiredToken", "The provided token has expired."), "expired", "renew"),
    "unknown": (
        (403, "InvalidAccessKeyId", "The Access Key Id does not exist in our records."),
        "does not know the credentials",
        "AWS_ACCESS_KEY_ID",
    ),
    "unsigned": (
        (403, "SignatureDoesNotMatch", "The signature does not match."),
        "does not know the credentials",
        "AWS_SECRET_ACCESS_KEY",
    ),
    "elsewhere": (
        (301, "PermanentRedirect", "The bucket must be addressed using the specified endpoint."),
        "another region than us-east-1",
        "AWS_DEFAULT_REGION",
    ),
    "misplaced": (
        (400, "AuthorizationHeaderMalformed", "the region 'us-east-1' is wrong"),
        "another region than us-east-1",
        "AWS_DEFAULT_REGION",
    ),
    "clock": (
        (403, "RequestTimeTooSkewed", "The difference between the times is too large."),
        "clock of this machine",
        "timedatectl",
    ),
    "strange": ((405, "MethodNotAllowed", "Not against this."), "MethodNotAllowed", "speaks S3"),
}


@pytest.fixture(scope="module")
def server() -> Iterator[StoreServer]:
    for module in ("moto", "s3fs", "flask"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed (pip install '.[dev]')")
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    with StoreServer() as running:
        yield running
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture(autouse=True)
def store(
    server: StoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[StoreServer]:
    """The server with an empty bucket, credentials, an empty cache, and nothing counted."""
    import s3fs

    for name, value in {
        "AWS_ENDPOINT_URL": server.url,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_MAX_ATTEMPTS": "1",
        "STEPTAX_CACHE": str(tmp_path / "cache"),
        "STEPTAX_LAKE": URL,
        "NO_PROXY": "127.0.0.1",
    }.items():
        monkeypatch.setenv(name, value)
    server.forget()
    files = s3fs.S3FileSystem(use_listings_cache=False)
    if files.exists(BUCKET):
        files.rm(BUCKET, recursive=True)
    files.mkdir(BUCKET)
    server.forget()
    yield server
    server.forget()


@contextlib.contextmanager
def another_client() -> Iterator[None]:
    """One that reads the environment as it is now."""
    import s3fs

    held = dict(s3fs.S3FileSystem._cache)
    s3fs.S3FileSystem.clear_instance_cache()
    try:
        yield
    finally:
        s3fs.S3FileSystem._cache = held


def remove_bucket() -> None:
    import s3fs

    s3fs.S3FileSystem(use_listings_cache=False).rm(BUCKET, recursive=True)


def steps(first: int, count: int, *, ranks: int = 4, job: str = "j") -> pa.Table:
    rows = [
        {"job_id": job, "attempt": 0, "step": s, "rank": r, "duration_us": 1000 + 10 * r + s}
        for s in range(first, first + count)
        for r in range(ranks)
    ]
    return pa.Table.from_pylist(rows)


def table_file(tmp_path: Path) -> Path:
    path = tmp_path / "steps.csv"
    lines = ["step,rank,duration_us", *(f"{s},{r},{1000 + r}" for s in range(9) for r in range(4))]
    path.write_text("\n".join(lines))
    return path


#: Each way to ask a store.
_ASKED: dict[str, Callable[[Bucket, Path], object]] = {
    "list": lambda bucket, _: bucket.names("tables"),
    "folders": lambda bucket, _: bucket.folders("tables"),
    "read": lambda bucket, _: bucket.read(["LAKE.json"]),
    "write": lambda bucket, _: bucket.write("x", b"1"),
    "create": lambda bucket, _: bucket.create("y", b"1"),
    "put": lambda bucket, file: bucket.put({"z": file}),
    "put some": lambda bucket, file: bucket.put({f"z{k}": file for k in range(3)}),
    "fetch": lambda bucket, file: bucket.fetch({"x": file.with_name("copy")}),
    "delete": lambda bucket, _: bucket.delete(["x"]),
}


@pytest.mark.parametrize("asked", _ASKED)
def test_a_bucket_that_is_gone_is_said_whatever_is_asked_of_it(asked: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("a")
    with pytest.raises(UserError) as found:
        _ASKED[asked](Bucket("s3://steptax-never/lake"), file)
    assert "no bucket steptax-never" in found.value.message
    assert "expected one that holds the lake" in found.value.message
    assert "aws s3 mb s3://steptax-never" in str(found.value.hint)


@pytest.mark.parametrize("kind", REFUSALS)
def test_what_a_store_refuses_is_said_whatever_is_asked_of_it(
    kind: str, store: StoreServer, tmp_path: Path
) -> None:
    answer, said, advised = REFUSALS[kind]
    file = tmp_path / "file"
    file.write_text("a")
    with another_client():  # which remembers the region that it was sent to
        bucket = Bucket(URL)
        store.before = lambda *_: answer
        for name, ask in _ASKED.items():
            with pytest.raises(UserError) as found:
                ask(bucket, file)
            assert said in found.value.message, name
            assert advised in str(found.value.hint), name
            assert found.value.where == URL
            assert kind == "clock" or BUCKET in found.value.message, name


def test_a_busy_store_is_not_the_fault_of_who_asks() -> None:
    error = OSError(16, "Please reduce your request rate.")
    error.__cause__ = _answered("SlowDown", "Please reduce your request rate.")
    found = explained(error, URL)
    assert isinstance(found, DeliveryError)
    assert "try again" in str(found.hint)


def test_two_that_create_one_object_at_once_are_told_who_was_first(
    store: StoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store may answer 409 to both: neither is at fault, and whoever asks again is told."""
    conflict = (409, "ConditionalRequestConflict", "A conflicting operation is in progress.")
    monkeypatch.setattr("steptax.app.lake.bucket.AGAIN_S", 0.0)
    bucket = Bucket(URL)
    for expected in (True, False):
        asked = iter([conflict, conflict])
        store.before = lambda *_, asked=asked: next(asked, None)
        assert bucket.create("commits/x", b"1") is expected
    store.before = lambda *_: conflict
    with pytest.raises(DeliveryError, match="busy"):
        bucket.create("commits/y", b"1")


def test_nobody_is_sent_to_amazon_for_another_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    error = OSError("no route to host")
    assert "at Amazon S3" in str(explained(error, URL))
    said = explained(error, "gs://bucket/lake")
    assert isinstance(said, UserError)
    assert "no route" in said.message
    assert not any(word in str(said) for word in ("Amazon", "AWS", "s3"))


def _answered(code: str, message: str) -> Exception:
    exceptions = importlib.import_module("botocore.exceptions")
    said: Exception = exceptions.ClientError(
        {"Error": {"Code": code, "Message": message}}, "PutObject"
    )
    return said


def test_faults_of_ours_and_of_this_machine_are_no_refusals(tmp_path: Path) -> None:
    for error in (
        TypeError("ours"),
        ValueError("ours"),
        FileNotFoundError("an object"),
        FileExistsError("an object"),
        OSError(28, "No space left on device"),
        PermissionError(13, "Permission denied", str(tmp_path)),
    ):
        assert explained(error, URL) is None
    with pytest.raises(FileNotFoundError):
        Bucket(URL).put({"x": tmp_path / "none"})


def test_an_open_lake_whose_bucket_goes_is_not_empty() -> None:
    lake = lake_at(URL, create=True)
    lake.append("steps", steps(0, 3), source="recorder")
    open_one = BucketLake(URL, fresh_s=0)
    asked: dict[str, Any] = {"job_id": "j", "first_step": 0, "last_step": 9}
    assert DuckEngine(open_one).run("step_rows", **asked).num_rows == 12
    remove_bucket()
    ways: list[Callable[[], object]] = [
        open_one.row_counts,
        open_one.live_job_ids,
        lambda: open_one.job_ids("steps"),
        lambda: open_one.version("steps", "j"),
        lambda: open_one.heartbeats("j"),
        lambda: DuckEngine(open_one).run("step_rows", **asked),
        lambda: compact(open_one),
        lambda: open_one.append("steps", steps(3, 1), source="recorder"),
        lambda: BucketLake(URL, create=True),
    ]
    for ask in ways:
        with one_look(), pytest.raises(UserError, match=f"no bucket {BUCKET}"):
            ask()


@pytest.mark.parametrize(
    "kind",
    ["forbidden", "expired", "elsewhere", "gone", "unreachable", "no address", "no credentials"],
)
def test_commands_say_what_is_wrong_with_the_store(
    kind: str,
    store: StoreServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    steptax: Callable[..., Any],
) -> None:
    """Code 2, the place, and what to do: not a fault of Steptax, and nothing is stored."""
    steptax("ingest", "steps", table_file(tmp_path), "--job", "j", "--lake", URL)
    said, advised = {
        "gone": ("no bucket", "aws s3 mb"),
        "unreachable": ("cannot be reached", "AWS_ENDPOINT_URL"),
        "no address": ("cannot be reached", "AWS_ENDPOINT_URL"),
        "no credentials": ("no credentials", "AWS_PROFILE"),
    }.get(kind) or REFUSALS[kind][1:]
    if kind == "gone":
        remove_bucket()
    elif kind in ("unreachable", "no address"):
        address = {"unreachable": "http://127.0.0.1:9", "no address": "not an address"}[kind]
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
    elif kind == "no credentials":
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.setenv("AWS_PROFILE", "nobody")
    else:
        store.before = lambda *_: REFUSALS[kind][0]
    with another_client():
        _refused_commands(tmp_path, steptax, said, advised)


def _refused_commands(tmp_path: Path, steptax: Callable[..., Any], said: str, advised: str) -> None:
    for command in (
        ("ingest", "steps", table_file(tmp_path), "--job", "k"),
        ("compact",),
        ("jobs",),
    ):
        error = steptax(*command, "--lake", URL, fails=2)
        assert error["where"] == URL, command
        assert said in error["message"], command
        assert advised in error["hint"], command
        assert "fault of Steptax" not in error["hint"], command
    (one,) = [f for f in examine(Settings(lake=Path(URL))) if f.check == "lake"]
    assert (one.state.value, said in one.text) == ("fail", True)


def test_who_watches_over_the_server_is_told() -> None:
    """A bucket is no folder: that nothing lies at its path says nothing of it."""
    assert lake_state(Path(URL)) == "empty"
    lake_at(URL, create=True)
    assert lake_state(Path(URL)) == "ok"
    remove_bucket()
    assert lake_state(Path(URL)) == "UserError"


def _page_text(at: AppTest) -> str:
    assert not at.exception
    return "\n".join(
        str(getattr(e, "value", ""))
        for kind in ("error", "markdown", "caption")
        for e in at.get(kind)
    )


@pytest.mark.slow
def test_pages_say_it_instead_of_showing_nothing() -> None:
    lake_at(URL, create=True).append("steps", steps(0, 30), source="recorder")
    at = open_page()
    assert "no bucket" not in _page_text(at)
    at.switch_page("../pages/job.py").run()
    assert "no bucket" not in _page_text(at)
    remove_bucket()
    threading.Event().wait(1.1)  # a list is shown for as long as a second
    for page in ("executive", "fleet", "job", "compare", "health"):
        at.switch_page(f"../pages/{page}.py").run()
        text = _page_text(at).replace("\\", "")
        assert f"there is no bucket {BUCKET}" in text, page
        assert "aws s3 mb" in text, page


# -- what goes into a store ----------------------------------------------------------------------


def _parts(lake: BucketLake, count: int, ingest_id: str = "a" * 24) -> None:
    """Store an input of ``count`` jobs: a part of each, and the record."""
    rows = pa.concat_tables([steps(0, 2, job=f"j{k}") for k in range(count)])
    ingest(lake, [Batch("steps", rows)], ingest_id=ingest_id, source="file")


def test_parts_go_at_once_and_the_record_after_them(store: StoreServer) -> None:
    """Each part waits until as many as may be are on their way: one at a time would never end."""
    lake = BucketLake(URL, create=True)
    together = threading.Barrier(AT_ONCE)

    def wait(kind: str, path: str) -> None:
        if kind == "PUT" and "/tables/" in path:
            together.wait(timeout=300)

    store.forget()
    store.before = wait
    _parts(lake, 2 * AT_ONCE)
    assert store.most_at_once("PUT") == AT_ONCE
    puts = [(edge, path) for edge, kind, path in store.events if kind == "PUT"]
    assert len(puts) == 2 * (2 * AT_ONCE + 1)
    (begun, at), (ended, same) = puts[-2:]
    assert (begun, ended, at) == ("begin", "end", same)
    assert "/commits/" in at
    assert BucketLake(URL, fresh_s=0).row_counts()["steps"] == 2 * AT_ONCE * 8


def test_no_more_goes_at_once_than_memory_is_meant_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bucket = Bucket(URL)
    now, most, alone, lock = [0], [0], [], threading.Lock()
    sizes = [AT_ONCE_BYTES // 4, 10, AT_ONCE_BYTES * 2, *[AT_ONCE_BYTES // 3] * 6, 1]
    files = {}
    for k, size in enumerate(sizes):
        files[f"o{k}"] = tmp_path / f"o{k}"
        with files[f"o{k}"].open("wb") as handle:
            handle.truncate(size)

    def put(path: str, name: str) -> None:
        size = Path(path).stat().st_size
        with lock:
            now[0] += size
            most[0] = max(most[0], now[0] if size <= AT_ONCE_BYTES else 0)
            if size > AT_ONCE_BYTES:
                alone.append(now[0] == size)
        threading.Event().wait(0.01)
        with lock:
            now[0] -= size

    monkeypatch.setattr(bucket._files, "put_file", put)
    bucket.put(files)
    assert alone == [True]
    assert AT_ONCE_BYTES // 3 < most[0] <= AT_ONCE_BYTES


@pytest.mark.parametrize("through", [0, 5])
def test_an_ingest_that_ends_among_its_parts_loses_and_doubles_nothing(
    through: int, store: StoreServer
) -> None:
    """Some parts are there and no record; the same input is stored whole by the next one."""
    lake = BucketLake(URL, create=True)
    count = AT_ONCE + 3
    seen: Counter[str] = Counter()
    lock = threading.Lock()

    def stop(kind: str, path: str) -> tuple[int, str, str] | None:
        with lock:
            if kind == "PUT" and "/tables/" in path:
                seen["parts"] += 1
                return (403, "AccessDenied", "Denied") if seen["parts"] > through else None
            seen["records"] += kind == "PUT" and "/commits/" in path
        return None

    store.before = stop
    with pytest.raises(SteptaxError, match="forbidden"):
        _parts(lake, count)
    assert seen["records"] == 0
    # None is begun after the first that failed, but those that were on their way with it.
    assert seen["parts"] <= min(through + AT_ONCE + 1, count)
    store.forget()
    reader = BucketLake(URL, fresh_s=0)
    assert reader.row_counts()["steps"] == 0
    _parts(lake, count)
    _parts(BucketLake(URL, fresh_s=0), count)  # once more: it is stored already
    with one_look():
        assert reader.row_counts()["steps"] == count * 8


def test_a_record_is_read_by_one_request(store: StoreServer) -> None:
    """Not by two, the first of which asks for its size: each is paid, and it says no reason."""
    lake = BucketLake(URL, create=True)
    _parts(lake, 1)
    store.forget()
    found = lake.bucket.read([f"commits/{'a' * 24}.json", "commits/none.json"])
    assert len(found) == 1
    assert store.counts == {"GET": 2}


def test_requests_are_named_as_they_are_billed(store: StoreServer) -> None:
    bucket = Bucket(URL)
    bucket.write("x/a", b"1")
    assert store.counts == {"PUT": 1}
    assert bucket.names("x") == ["a"]
    assert store.counts == {"PUT": 1, "LIST": 1}
    bucket.delete(["x/a"])
    assert store.counts == {"PUT": 1, "LIST": 1, "DELETE": 1}
