"""Recording straight into a store that fsspec reaches."""

from __future__ import annotations

import builtins
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from steptax.app.lake import Lake
from steptax.connectors.recorder import StepRecorder
from steptax.connectors.recorder.batch import Header, Piece, encode_batch
from steptax.connectors.recorder.over_fsspec import FsspecTransport
from steptax.connectors.recorder.segments import encode_json_lines, segment_name

STREAM = "a" * 32


@pytest.fixture
def store() -> Iterator[Any]:
    """The memory of this process, as an object store."""
    files = fsspec.filesystem("memory")
    yield files
    files.store.clear()
    files.pseudo_dirs[:] = [""]


def lake_of(files: Any, root: str, folder: Path) -> Lake:
    """The lake of a store, copied to a folder."""
    for path in files.find(root):
        target = folder / os.path.relpath(path, root)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(files.cat_file(path))
    return Lake(folder)


def batch(rank_steps: dict[int, range], seq: int = 1) -> bytes:
    pieces: list[Piece] = []
    bodies: list[bytes] = []
    for rank, steps in rank_steps.items():
        n = len(steps)
        same = {"job_id": "a/b", "attempt": 0, "rank": rank, "source": "recorder"}
        columns: dict[str, list[Any]] = {name: [value] * n for name, value in same.items()}
        columns |= {"step": list(steps), "duration_us": [10] * n, "ingested_at_us": [1] * n}
        data = encode_json_lines("steps", columns, n)
        name, first, last = segment_name("steps", columns, n, 1, "jsonl")
        pieces.append(Piece("steps", "a/b", rank, 0, name, n, first, last, len(data)))
        bodies.append(data)
    return encode_batch(Header(STREAM, seq, "h", 5, tuple(pieces)), bodies)


def keys(lake: Lake) -> list[tuple[int, int]]:
    rows = lake.read("steps", "a/b")
    return sorted(zip(rows["rank"].to_pylist(), rows["step"].to_pylist(), strict=True))


@pytest.mark.parametrize("scheme", ["memory", "local"])
@pytest.mark.parametrize("has_pyarrow", [True, False])
def test_a_batch_is_one_object_a_table_however_often_it_is_sent(
    scheme: str, has_pyarrow: bool, store: Any, tmp_path: Path
) -> None:
    url = "memory://bucket/lake" if scheme == "memory" else f"local://{tmp_path}/store"
    transport = FsspecTransport(url)
    if not has_pyarrow:
        transport._encoder = None
    data = batch({0: range(3), 1: range(2, 5)})
    for is_first in (True, False, True):
        assert transport.send(data, is_first=is_first).kind == "done"
    assert transport.send(batch({0: range(3, 6)}, seq=2), is_first=True).kind == "done"
    root = "/bucket/lake" if scheme == "memory" else f"{tmp_path}/store"
    files = store if scheme == "memory" else fsspec.filesystem("local")
    assert not [path for path in files.find(root) if path.endswith(".tmp")]
    lake = lake_of(files, root, tmp_path / "copy")
    segments = lake.segments("steps", "a/b")
    assert {s.path.suffix for s in segments} == {".parquet" if has_pyarrow else ".jsonl"}
    assert [(s.first, s.last, s.rows) for s in segments] == [(0, 4, 6), (3, 5, 3)]
    assert keys(lake) == [(0, n) for n in range(6)] + [(1, 2), (1, 3), (1, 4)]


def test_a_next_sender_with_another_encoding_doubles_nothing(store: Any, tmp_path: Path) -> None:
    first, second = FsspecTransport("memory://lake"), FsspecTransport("memory://lake")
    second._encoder = None
    data = batch({0: range(3)})
    assert first.send(data, is_first=True).kind == "done"  # and its answer was lost
    assert second.send(data, is_first=False).kind == "done"
    assert len(keys(lake_of(store, "/lake", tmp_path))) == 3


def test_a_store_that_fails_is_tried_again(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    transport = FsspecTransport("memory://lake")

    def fail(*arguments: Any, **keywords: Any) -> None:
        raise RuntimeError("SlowDown: please reduce your request rate")

    with monkeypatch.context() as patch:
        patch.setattr(type(store), "pipe_file", fail)
        answer = transport.send(batch({0: range(3)}), is_first=True)
        assert (answer.kind, "SlowDown" in str(answer.reason)) == ("retry", True)
        assert transport.send_beats("s", [{"job_id": "j", "rank": 0}]).kind == "retry"
    assert transport.send(b"nonsense", is_first=True).kind == "refused"


def test_a_rank_that_is_done_stays_among_the_heartbeats(store: Any, tmp_path: Path) -> None:
    transport = FsspecTransport("memory://lake")
    for rank, ts_us in ((0, 1), (1, 2), (1, 3)):
        beat = {"job_id": "j", "rank": rank, "ts_us": ts_us, "state": "running"}
        assert transport.send_beats("s", [beat]).kind == "done"
    # Sent by the next one, after that died.
    assert FsspecTransport("memory://lake").send_beats("t", [{**beat, "ts_us": 4}]).kind == "done"
    (tmp_path / "tables").mkdir()
    beats = lake_of(store, "/lake", tmp_path).heartbeats("j")
    assert [(b["rank"], b["ts_us"]) for b in beats] == [(0, 1), (1, 4)]


def test_ranks_of_a_node_record_into_a_store(store: Any, tmp_path: Path) -> None:
    def train(rank: int) -> None:
        with StepRecorder(
            "memory://bucket/lake", "a/b", rank, 3, flush_s=0.02, spool=tmp_path / "spool"
        ) as rec:
            for step in range(20):
                with rec.step(step), rec.phase("compute"):
                    time.sleep(0.001)
        assert rec.stats["rows_dropped"] == rec.stats["errors"] == 0, rec.stats
        assert rec.stats["encoding"] == "jsonl"

    threads = [threading.Thread(target=train, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lake = lake_of(store, "/bucket/lake", tmp_path / "copy")
    assert keys(lake) == [(rank, step) for rank in range(3) for step in range(20)]
    assert [job["state"] for job in lake.read("jobs").to_pylist()] == ["completed"]
    assert sorted(beat["rank"] for beat in lake.heartbeats("a/b")) == [0, 1, 2]
    assert {beat["state"] for beat in lake.heartbeats("a/b")} == {"closed"}
    # Far fewer objects than segments that the ranks wrote.
    assert len(lake.segments("steps", "a/b")) < 10


def blocked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for known in [module for module in sys.modules if module.split(".")[0] == name]:
        monkeypatch.delitem(sys.modules, known)
    real: Callable[..., Any] = builtins.__import__

    def refuse(wanted: str, *arguments: Any, **keywords: Any) -> Any:
        if wanted.split(".")[0] == name:
            raise ImportError(f"{name} is blocked")
        return real(wanted, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", refuse)


def test_without_fsspec_it_says_what_is_missing_and_keeps_the_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("steptax.connectors.recorder.spoolsink.PATIENCE_S", 0.1)
    with monkeypatch.context() as patch:
        blocked("fsspec", patch)
        rec = StepRecorder("s3://bucket/lake", "j", 0, 1, spool=tmp_path / "spool")
        with rec, rec.step(0):
            pass
    assert rec.stats["state"] == "closed"
    assert "fsspec is not installed, which s3:// needs" in rec.stats["last_error"]
    assert "pip install s3fs" in caplog.text
    assert rec.stats["rows_dropped"] == 0
    assert list((tmp_path / "spool").rglob("batches/*.gz"))


def test_an_attempt_that_cannot_see_the_first_leaves_the_start_of_the_job_open(
    store: Any, tmp_path: Path
) -> None:
    for attempt in (0, 1):
        spool = tmp_path / f"node-{attempt}"
        rec = StepRecorder("memory://lake", "j", 0, 1, attempt=attempt, spool=spool)
        with rec, rec.step(attempt):
            pass
    lake = lake_of(store, "/lake", tmp_path / "copy")
    lines = [line for s in lake.segments("jobs") for line in s.path.read_text().splitlines()]
    starts = [json.loads(line)["start_us"] for line in lines]
    assert [start is None for start in starts].count(True) == 2
    [job] = lake.read("jobs").to_pylist()
    assert job["start_us"] == min(start for start in starts if start is not None)
