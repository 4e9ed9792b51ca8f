"""Several runs at one input, or at the same rows, at the same moment: every row once."""

from __future__ import annotations

import multiprocessing as mp
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.synchronize import Barrier
from pathlib import Path
from threading import Barrier as ThreadBarrier
from threading import Event
from typing import Any

import pytest

from steptax.app.ingest import ingest_file
from steptax.app.lake import Lake, files, staging
from steptax.app.lake.commits import CommitLog
from steptax.app.lake.compact import UNFINISHED_S, compact
from steptax.app.lake.files import write_whole
from steptax.app.lake.ingest import IngestResult, ingest
from steptax.app.schema import Batch
from steptax.connectors.base import Options
from tests.app.test_bill_deliveries import line, total, write
from tests.app.test_lake import steps

ROUNDS = 8
ROWS = 400


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake", create=True)


def once(lake: Lake, job: str) -> int:
    """Rows of a job, each of which must be there once."""
    rows = lake.read("steps", job)
    assert rows.group_by(["attempt", "step", "rank"]).aggregate([]).num_rows == rows.num_rows
    return int(rows.num_rows)


def _race(root: str, start: Barrier, overlap: bool, told: mp.Queue[Any]) -> None:
    """Stores inputs at the same moment as another process: the same, or others of the same rows."""
    me = mp.current_process().name
    for number in range(ROUNDS):
        job = f"j{number}"
        batch = Batch("steps", steps(job, 0, ROWS // 4))
        start.wait()
        try:
            input_id = f"{number:08x}{me if overlap else 'ab'}"
            told.put((number, ingest(Lake(root), [batch], ingest_id=input_id, source="s"), ""))
        except Exception as error:
            told.put((number, None, repr(error)))


@pytest.mark.parametrize("overlap", [False, True])
def test_two_processes_store_the_same_rows_once(lake: Lake, overlap: bool) -> None:
    context = mp.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    start, told = context.Barrier(2), context.Queue()
    args = (str(lake.root), start, overlap, told)
    processes = [context.Process(target=_race, args=args, name=name) for name in ("0a", "0b")]
    for process in processes:
        process.start()
    found = [told.get(timeout=120) for _ in range(2 * ROUNDS)]
    for process in processes:
        process.join(timeout=60)
    assert [error for _, _, error in found if error] == []
    for number in range(ROUNDS):
        results: list[IngestResult] = [result for n, result, _ in found if n == number]
        # One has them all, and the other says that they are stored.
        assert sorted(r.accepted["steps"] for r in results) == [0, ROWS]
        assert sorted(r.stored_before.get("steps", 0) for r in results) == [0, ROWS]
        assert {r.already for r in results} == ({False} if overlap else {False, True})
        assert once(lake, f"j{number}") == ROWS
    again = ingest(
        lake, [Batch("steps", steps("j0", 0, ROWS // 4))], ingest_id="00000000ab", source="s"
    )
    assert again.accepted.get("steps", 0) == 0
    assert once(lake, "j0") == ROWS


def test_who_breaks_off_leaves_what_the_other_has_stored(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One commits while the other still reads, and is then interrupted."""
    monkeypatch.setattr(staging, "PART_ROWS", 10)

    def batches() -> Iterator[Batch]:
        yield Batch("steps", steps("j", 0, 10))

    def interrupted() -> Iterator[Batch]:
        yield from batches()
        assert ingest(lake, batches(), ingest_id="ab", source="a").accepted == {"steps": 40}
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ingest(Lake(lake.root), interrupted(), ingest_id="ab", source="b")
    assert once(lake, "j") == 40
    assert len(list(lake.root.rglob("part-*"))) == 1
    assert ingest(lake, batches(), ingest_id="ab", source="a").already


def test_what_breaks_off_after_its_commit_is_stored(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = files.fsync_folder

    def failing(folder: Path) -> None:
        if folder.name == "commits":
            raise OSError(5, "Input/output error")
        real(folder)

    monkeypatch.setattr(files, "fsync_folder", failing)
    with pytest.raises(OSError, match="Input/output"):
        ingest(lake, [Batch("steps", steps("j", 0, 10))], ingest_id="ab", source="a")
    monkeypatch.undo()
    assert once(lake, "j") == 40
    assert ingest(lake, [Batch("steps", steps("j", 0, 10))], ingest_id="ab", source="a").already


def test_two_write_the_same_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    with files.whole_or_nothing(path) as first:
        write_whole(path, b"second")
        first.write_bytes(b"first")
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]


def test_an_input_of_another_job_does_not_wait(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Storing is one after the other for the rows of one job, and not for those of all."""
    inside, go = Event(), Event()
    real = CommitLog.write

    def slow(log: CommitLog, commit: Any) -> None:
        if commit.id == "aa":
            inside.set()
            assert go.wait(30)
        real(log, commit)

    monkeypatch.setattr(CommitLog, "write", slow)
    with ThreadPoolExecutor(2) as pool:

        def store(name: str, job: str) -> Any:
            batch = Batch("steps", steps(job, 0, 10))
            return pool.submit(ingest, Lake(lake.root), [batch], ingest_id=name, source="s")

        first = store("aa", "one")
        assert inside.wait(30)
        assert store("bb", "two").result(30).accepted == {"steps": 40}
        same = store("cc", "one")
        time.sleep(0.1)
        assert not same.done()
        go.set()
        assert first.result(30).accepted == {"steps": 40}
        assert same.result(30).stored_before == {"steps": 40}


def test_two_deliveries_of_a_bill_at_once_count_once(tmp_path: Path) -> None:
    paths = [
        write(tmp_path / "old.csv", [line(hour, "10") for hour in range(8)]),
        write(tmp_path / "new.csv", [line(hour, "7") for hour in range(8)]),
    ]
    for number in range(3):
        root = tmp_path / f"{number}"
        Lake(root / "lake", create=True)
        start = ThreadBarrier(2)

        def deliver(path: Path, root: Path = root, start: ThreadBarrier = start) -> IngestResult:
            start.wait()
            return ingest_file(Lake(root / "lake"), "focus", path, Options())

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(deliver, paths))
        # Whichever came last holds, and never both.
        assert total(root) in (80, 56)


def test_parts_of_a_killed_run_go_once_the_input_is_stored(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def killed(*_: Any) -> None:
        raise Killed

    batches = [Batch("steps", steps("j", 0, 10))]
    with monkeypatch.context() as patch:
        patch.setattr(CommitLog, "write", killed)
        patch.setattr(staging.Ingest, "abandon", lambda _: None)
        with pytest.raises(Killed):
            ingest(lake, batches, ingest_id="ab", source="s")
    (left,) = lake.root.rglob("part-*")
    assert ingest(lake, batches, ingest_id="ab", source="s").accepted == {"steps": 40}
    assert compact(lake).deleted_files == 0  # it may be at work yet
    os.utime(left, (0, time.time() - UNFINISHED_S - 60))
    assert compact(lake).deleted_files == 1
    assert not left.exists()
    assert once(lake, "j") == 40
