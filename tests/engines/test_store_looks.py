"""A command that reads looks at a bucket once; what it writes itself, or what goes, it sees."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from steptax.app import one_shot
from steptax.app.cli import COMMANDS, READERS
from steptax.app.lake.bucket_lake import BucketLake
from steptax.app.lake.compact import compact
from steptax.app.lake.ingest import ingest
from steptax.app.one_shot import held_look, is_held
from steptax.app.schema import Batch
from steptax.benchmarks.product.store_server import StoreServer
from tests.engines.test_object_storage import once, steps, stored
from tests.engines.test_store_refusals import URL, server, store

__all__ = ["server", "store"]


@pytest.fixture(autouse=True)
def lists_are_old_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine on which a command takes long."""
    defaults = BucketLake.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "fresh_s", 0.0)


@contextmanager
def another_process() -> Iterator[None]:
    """Whose writing tells this one nothing."""
    held = [*one_shot._since_s]
    yield
    one_shot._since_s[:] = held


def listed(store: StoreServer) -> Counter[str]:
    """How often each folder was listed."""
    return Counter(path for edge, kind, path in store.events if (edge, kind) == ("begin", "LIST"))


@pytest.mark.parametrize(
    ("words", "most"),
    [
        (("jobs",), 1),
        (("job", "b"), 1),
        (("rollup",), 1),
        (("query", "job_list"), 1),
        # It opens the lake for each of its looks, and compares what is there with what is named.
        (("doctor",), 4),
    ],
)
def test_a_command_lists_each_folder_once(
    store: StoreServer, steptax: Callable[..., Any], words: tuple[str, ...], most: int
) -> None:
    lake = BucketLake(URL, create=True)
    for job in ("a", "b", "c"):
        batch = Batch("steps", steps(0, 8, job=job))
        ingest(lake, [batch], ingest_id=f"{job}" * 24, source="t")
    steptax("rollup", "--lake", URL)
    store.forget()
    steptax(*words, "--lake", URL)
    assert max(listed(store).values()) <= most
    # The log, the tables, that of the jobs, and a folder for each of three jobs.
    assert store.counts["LIST"] <= 8 * most


def test_within_a_look_what_is_written_is_seen(store: StoreServer) -> None:
    lake = BucketLake(URL, create=True)
    with held_look():
        assert lake.job_ids("steps") == []
        assert lake.segments("steps") == []
        lake.append("steps", steps(0, 2), source="t")
        assert lake.job_ids("steps") == ["j"]
        assert stored(lake) == once(0, 2)
        ingest(lake, [Batch("steps", steps(0, 2, job="k"))], ingest_id="a" * 24, source="t")
        assert lake.job_ids("steps") == ["j", "k"]
        lake.append("steps", steps(2, 2), source="t")
        assert stored(lake) == once(0, 4)
        assert stored(lake, "k") == once(0, 2)
        compact(lake, minimum=2, grace_s=0)
        assert len(lake.segments("steps", "j")) == 1
        assert stored(lake) == once(0, 4)


def test_within_a_look_what_others_write_is_not_there_yet(store: StoreServer) -> None:
    lake = BucketLake(URL, create=True)
    with held_look():
        lake.append("steps", steps(0, 2), source="t")
        assert stored(lake) == once(0, 2)
        with another_process():
            BucketLake(URL).append("steps", steps(2, 2), source="t")
        assert stored(lake) == once(0, 2)
        store.forget()
        assert lake.version("steps", "j")
        assert store.counts["LIST"] == 0
    assert stored(lake) == once(0, 4)


def test_what_another_merged_and_removed_meanwhile_is_read_as_it_is_now(
    store: StoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = BucketLake(URL, create=True)
    for k in range(4):
        lake.append("steps", steps(k, 1), source="t")
    monkeypatch.setenv("STEPTAX_CACHE", str(tmp_path / "elsewhere"))
    reader = BucketLake(URL)
    with held_look():
        assert len(reader.segments("steps", "j")) == 4
        with another_process():
            assert compact(lake, minimum=2, grace_s=0).deleted_files == 4
        assert len(reader.segments("steps", "j")) == 4
        assert stored(reader) == once(0, 4)
        assert len(reader.segments("steps", "j")) == 1


def test_a_look_ends_before_what_is_merged_is_deleted(
    store: StoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = BucketLake(URL, create=True)
    with held_look():
        lake.append("steps", steps(0, 2), source="t")
        assert stored(lake) == once(0, 2)
        with another_process():
            BucketLake(URL).append("steps", steps(2, 2, job="k"), source="t")
        assert lake.job_ids("steps") == ["j"]
        now_s = time.monotonic()
        monkeypatch.setattr(one_shot.time, "monotonic", lambda: now_s + one_shot.HELD_S + 1)
        assert lake.job_ids("steps") == ["j", "k"]
    assert not is_held()


def test_who_writes_or_stays_looks_at_what_is_there(steptax: Callable[..., Any]) -> None:
    every = {name for names in COMMANDS.values() for name in names}
    assert every > READERS
    stay = {"serve", "demo", "watch", "collect", "forward", "alerts"}
    write = {"ingest", "compact", "retain", "bench", "prices", "budget"}
    assert not READERS & (stay | write)
