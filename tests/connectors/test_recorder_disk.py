"""Disks that are full, gone or slow; processes that are killed while they write."""

from __future__ import annotations

import errno
import json
import logging
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from steptax.app.lake.lake import Lake
from steptax.app.lake.segments import parse_name
from steptax.connectors.recorder import StepRecorder
from steptax.connectors.recorder import segments as recorder_segments
from steptax.connectors.recorder.outbox import SEGMENT_ROWS, Outbox
from tests.patience import until

ROOT = Path(__file__).resolve().parents[2]


class Disk:
    """Refuses to open files for writing below a folder while it is full."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)
        self.is_full = False
        self.refused = 0
        self._open = os.open

    def open(self, path: Any, flags: int, *arguments: Any, **keywords: Any) -> int:
        if self.is_full and flags & os.O_CREAT and str(path).startswith(self.folder):
            self.refused += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return self._open(path, flags, *arguments, **keywords)

    def until_refused_again(self) -> None:
        """Wait for the next attempt to write."""
        seen = self.refused
        until(lambda: self.refused > seen)


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    found = Disk(tmp_path)
    monkeypatch.setattr(os, "open", found.open)
    return found


def train(rec: StepRecorder, steps: range) -> None:
    for step in steps:
        with rec.step(step), rec.phase("compute"):
            pass


def test_a_full_disk_costs_rows_and_counts_them(
    tmp_path: Path, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    disk.is_full = True
    with (
        caplog.at_level(logging.WARNING, "steptax.recorder"),
        StepRecorder(tmp_path, "j", 1, 2, flush_s=0.01, queue_limit=10) as rec,
    ):
        for step in range(100):
            train(rec, range(step, step + 1))
            if step % 20 == 0:
                disk.until_refused_again()
    assert rec.stats["rows_written"] == 0
    assert rec.stats["rows_dropped"] == 100 + 1  # the steps, and the row of this rank
    assert rec.stats["rows_waiting"] == 0
    assert "No space left" in rec.stats["last_error"]
    assert [r.getMessage().split(":")[0] for r in caplog.records] == ["writing records"]
    assert list(tmp_path.rglob("live-*")) == []
    assert list(tmp_path.rglob("*.tmp")) == []


def test_it_goes_on_when_the_disk_is_back_and_loses_nothing_that_had_room(
    tmp_path: Path, disk: Disk
) -> None:
    with StepRecorder(tmp_path, "j", 0, 1, flush_s=0.01) as rec:
        train(rec, range(50))
        disk.is_full = True
        train(rec, range(50, 150))
        until(lambda: disk.refused > 3)
        disk.is_full = False
        train(rec, range(150, 200))
    assert rec.stats["rows_dropped"] == 0
    rows = Lake(tmp_path).read("steps", "j")
    assert sorted(rows["step"].to_pylist()) == list(range(200))


def test_the_oldest_rows_go_first(tmp_path: Path, disk: Disk) -> None:
    disk.is_full = True
    with StepRecorder(tmp_path, "j", 0, 1, flush_s=60, queue_limit=8) as rec:
        train(rec, range(100))
        disk.is_full = False
    assert sorted(Lake(tmp_path).read("steps", "j")["step"].to_pylist()) == list(range(92, 100))
    assert rec.stats["rows_dropped"] == 92


def test_a_folder_that_cannot_be_made_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with StepRecorder(tmp_path / "file", "j", 0, 1) as rec:
        train(rec, range(5))
    assert rec.stats["rows_dropped"] == 5 + 6
    assert rec.stats["state"] == "closed"


def test_a_failure_to_force_the_folder_to_the_disk_does_not_write_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(folder: str) -> None:
        raise OSError(errno.EIO, "folder")

    monkeypatch.setattr(recorder_segments, "_sync_folder", fail)
    with StepRecorder(tmp_path, "j", 0, 1, flush_s=0.01) as rec:
        train(rec, range(20))
        until(lambda: rec.stats["rows_waiting"] == 0)
    assert rec.stats["errors"] == 0
    assert sorted(Lake(tmp_path).read("steps", "j")["step"].to_pylist()) == list(range(20))


def test_a_disk_that_does_not_answer_does_not_keep_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answer: list[bool] = []
    sync = os.fsync

    def hang(handle: int) -> None:
        until(lambda: bool(answer))
        sync(handle)

    monkeypatch.setattr(os, "fsync", hang)
    monkeypatch.setattr("steptax.connectors.recorder.session.DISK_WAIT_S", 0.05)
    rec = StepRecorder(tmp_path, "j", 0, 1, flush_s=0.01)
    with caplog.at_level(logging.WARNING, "steptax.recorder"), rec:
        train(rec, range(3))
    assert "does not answer" in caplog.text
    answer.append(True)
    until(lambda: len(list(tmp_path.rglob("jobs/live-*"))) > 0)
    until(lambda: rec.stats["rows_waiting"] == 0)


def test_writing_is_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write

    def half(handle: int, data: Any) -> int:
        if len(data) > 1_000:
            return write(handle, data[:1_000])
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(OSError, match="full"):
        recorder_segments.write_whole(str(tmp_path / "t"), "live", b"x" * 1_500)
    monkeypatch.undo()
    assert list((tmp_path / "t").iterdir()) == []


def test_a_segment_is_on_the_disk_before_it_is_visible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, bool]] = []
    sync, rename = os.fsync, os.rename
    final = tmp_path / "t" / "live"

    def note_sync(handle: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(handle).st_mode)
        calls.append(("sync folder" if is_folder else "sync file", final.exists()))
        sync(handle)

    def note_rename(old: str, new: str) -> None:
        calls.append(("rename", final.exists()))
        rename(old, new)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "rename", note_rename)
    recorder_segments.write_whole(str(tmp_path / "t"), "live", b"rows")
    assert calls == [("sync file", False), ("rename", False), ("sync folder", True)]
    assert final.read_bytes() == b"rows"


WRITER = """
import sys, time
from steptax.connectors.recorder import StepRecorder
lake, encoding = sys.argv[1:]
rec = StepRecorder(lake, "killed", 0, 1, flush_s=0.001, queue_limit=10**7, encoding=encoding)
rec.start()
step = 0
while True:
    with rec.step(step):
        with rec.phase("compute"):
            pass
    step += 1
    if step % 50 == 0:
        time.sleep(0.001)
"""


@pytest.mark.parametrize("encoding", ["parquet", "jsonl"])
def test_a_kill_leaves_no_torn_segment(encoding: str, tmp_path: Path) -> None:
    for attempt in range(3):
        lake = tmp_path / str(attempt)
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(lake), encoding],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        )
        folder = lake / "tables" / "steps" / "job=killed"

        def some(folder: Path = folder, least: int = 4 + 3 * attempt) -> bool:
            return folder.is_dir() and len(list(folder.glob("live-*"))) >= least

        try:
            until(some)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        rows = 0
        for path in folder.glob("live-*"):
            parsed = parse_name(path.name)
            assert parsed is not None
            if encoding == "parquet":
                found = pq.read_table(path, partitioning=None)["step"].to_pylist()
            else:
                found = [json.loads(line)["step"] for line in path.read_text().splitlines()]
            assert (parsed.first, parsed.last, parsed.rows) == (min(found), max(found), len(found))
            rows += len(found)
        read = Lake(lake).read("steps", "killed")["step"].to_pylist()
        assert sorted(read) == list(range(rows))


# -- the outbox alone ---------------------------------------------------------------------------


class Sink:
    """Takes segments, or raises what it was told to."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.sizes: list[int] = []
        self.error: Exception | None = None

    def __call__(self, rows: Sequence[int]) -> None:
        if self.error is not None:
            raise self.error
        self.rows += rows
        self.sizes.append(len(rows))


@pytest.fixture
def sink() -> Sink:
    return Sink()


def test_an_outbox_counts_every_row_once(sink: Sink) -> None:
    box: Outbox[int] = Outbox(5)
    for row in range(8):
        box.put(row)
    assert (box.waiting, box.dropped) == (5, 3)
    sink.error = OSError("full")
    with pytest.raises(OSError, match="full"):
        box.flush(sink)
    for row in range(8, 11):
        box.put(row)
    sink.error = None
    box.flush(sink)
    assert sink.rows == [6, 7, 8, 9, 10]
    assert (box.written, box.dropped, box.waiting) == (5, 6, 0)


def test_what_can_never_be_written_is_not_tried_for_ever(sink: Sink) -> None:
    box: Outbox[int] = Outbox(5)
    box.put(1)
    sink.error = ValueError("no such type")
    with pytest.raises(ValueError, match="no such type"):
        box.flush(sink)
    sink.error = None
    box.put(2)
    box.flush(sink)
    assert (sink.rows, box.dropped) == ([2], 1)


def test_a_segment_has_a_bounded_number_of_rows(sink: Sink) -> None:
    box: Outbox[int] = Outbox(3 * SEGMENT_ROWS)
    for row in range(2 * SEGMENT_ROWS + 1):
        box.put(row)
    box.flush(sink)
    assert sink.sizes == [SEGMENT_ROWS, SEGMENT_ROWS, 1]


def test_an_outbox_asks_to_be_emptied_when_half_full() -> None:
    calls: list[int] = []
    box: Outbox[int] = Outbox(10, lambda: calls.append(1))
    for row in range(10):
        box.put(row)
    assert len(calls) == 1


def test_giving_up_counts_what_waits(sink: Sink) -> None:
    box: Outbox[int] = Outbox(10)
    for row in range(4):
        box.put(row)
    box.give_up()
    box.flush(sink)
    assert (sink.rows, box.dropped, box.waiting) == ([], 4, 0)
