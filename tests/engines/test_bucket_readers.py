"""Who reads a lake in an object store: from no copies, several at once, and no more than needed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from steptax.app.cli import main
from steptax.app.commands.options import lake_words
from steptax.app.commands.serving import environment_of
from steptax.app.errors import NotFoundError
from steptax.app.lake import bucket_lake, lake_at, one_look
from steptax.app.lake.bucket_lake import BucketLake
from steptax.app.lake.compact import compact
from steptax.app.lake.retain import due, retain
from steptax.app.lake.rollups import ROLLED_ROWS, made, of_table, rollup_path
from steptax.app.queries import DuckEngine
from steptax.app.settings import Settings
from steptax.app.views.workspace import open_workspace
from steptax.app.watch_slurm import _told_by
from tests.engines.test_object_storage import (
    URL,
    bucket,
    elsewhere,
    once,
    opened,
    server,
    steps,
    stored,
)

__all__ = ["bucket", "server"]

RANKS, BIG = 256, ROLLED_ROWS // 256
START_US, STEP_US = 1_600_000_000_000_000, 1_000_000


def timed(first: int, count: int, *, ranks: int = 4) -> pa.Table:
    """Steps that tell when they began."""
    rows = steps(first, count, ranks=ranks)
    starts = [START_US + STEP_US * step for step in rows["step"].to_pylist()]
    return rows.append_column("start_us", pa.array(starts, pa.int64()))


def big_lake() -> BucketLake:
    """Two segments that are to have roll-ups, and a small one."""
    lake = opened(create=True)
    for k in range(2):
        lake.append("steps", timed(BIG * k, BIG, ranks=RANKS), source="recorder")
    lake.append("steps", timed(2 * BIG, 1, ranks=RANKS), source="recorder")
    return lake


class Asked:
    """What a handle asked of its store: objects whole, and bytes of their ends."""

    def __init__(self, lake: BucketLake, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fetched: list[str] = []
        self.ranges: list[str] = []
        self.range_bytes = 0
        fetch, read_ranges = lake.bucket.fetch, lake.bucket.read_ranges

        def whole(files: Mapping[str, Path]) -> None:
            self.fetched += files
            fetch(files)

        def ends(ranges: Mapping[str, tuple[int, int]]) -> dict[str, bytes]:
            found = read_ranges(ranges)
            self.ranges += ranges
            self.range_bytes += sum(map(len, found.values()))
            return found

        monkeypatch.setattr(lake.bucket, "fetch", whole)
        monkeypatch.setattr(lake.bucket, "read_ranges", ends)


def test_a_machine_without_copies_makes_the_roll_ups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = big_lake()
    asked: dict[str, Any] = {"job_id": "j"}
    expected = DuckEngine(lake).run("history_steps", **asked)
    other = elsewhere(monkeypatch, tmp_path, "other")
    assert DuckEngine(other).roll_up() == 2 * len(of_table("steps"))
    assert DuckEngine(other).roll_up() == 0
    for segment in (s for s in other.segments("steps") if s.rows >= ROLLED_ROWS):
        for rollup in of_table("steps"):
            for level, rows in made(rollup, segment.path).items():
                path = rollup_path(other.root, rollup, level, segment.path)
                assert pq.read_table(path, partitioning=None).equals(rows)
    assert DuckEngine(other).run("history_steps", **asked).equals(expected)


def test_what_has_a_roll_up_is_not_copied_to_answer_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = big_lake()
    asked: dict[str, Any] = {"job_id": "j"}
    expected = DuckEngine(lake).run("history_steps", **asked)
    other = elsewhere(monkeypatch, tmp_path, "other")
    DuckEngine(other).roll_up()
    for copy in (other.root / "tables").rglob("*.parquet"):
        copy.unlink()
    seen = Asked(other, monkeypatch)
    assert DuckEngine(other).run("history_steps", **asked).equals(expected)
    assert [name.rpartition("-")[0].rpartition("-")[2] for name in seen.fetched] == [str(RANKS)]


def test_the_command_sums_up_what_another_machine_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steptax: Callable[..., Any]
) -> None:
    big_lake()
    monkeypatch.setenv("STEPTAX_CACHE", str(tmp_path / "other"))
    assert steptax("rollup", "--lake", URL)["summed_up"] > 0
    assert steptax("rollup", "--lake", URL)["summed_up"] == 0


def test_what_was_merged_and_removed_since_it_was_listed_needs_no_roll_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = big_lake()
    other = elsewhere(monkeypatch, tmp_path, "other")
    with one_look():
        listed = other.segments("steps")
        lake.bucket.delete([other.relative(listed[0].path)])
        assert DuckEngine(other).roll_up() == len(of_table("steps"))


def test_a_question_asks_again_where_its_segments_were_merged_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = opened(create=True)
    for k in range(3):
        lake.append("steps", steps(k, 1), source="recorder")
    other = elsewhere(monkeypatch, tmp_path, "other")
    with one_look():
        assert len(other.segments("steps", "j")) == 3
        with ThreadPoolExecutor(1) as elsewhere_at_work:  # which looks for itself
            elsewhere_at_work.submit(compact, lake, minimum=2, grace_s=0).result()
        assert stored(other) == once(0, 3)


def test_what_is_damaged_in_the_store_fails_no_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = opened(create=True)
    lake.append("steps", steps(0, 2), source="recorder")
    place = f"{lake.relative(lake.folder('steps', 'j'))}/live-1-9-9-4-00000000.parquet"
    lake.bucket.write(place, b"torn" * 9)
    other = elsewhere(monkeypatch, tmp_path, "other")
    assert stored(other) == once(0, 2)
    assert [one.place for one in other.set_aside()] == [place]


def test_watch_knows_jobs_that_another_machine_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = opened(create=True)
    lake.append("jobs", pa.table({"job_id": ["j"], "state": ["running"]}), source="slurm")
    other = elsewhere(monkeypatch, tmp_path, "other")
    assert [*_told_by(other, "slurm", 0)] == ["j"]


@pytest.fixture
def live() -> BucketLake:
    """A lake of two ranks that run."""
    lake = opened(create=True)
    for rank in range(2):
        beat = {"rank": rank, "ts_us": START_US, "state": "running"}
        lake.bucket.write(f"live/job=j/rank-{rank:06d}.json", orjson.dumps(beat))
    return lake


def test_heartbeats_are_read_by_many_at_once(live: BucketLake) -> None:
    """Sessions of a server, and other processes of its machine: all have the same copies."""
    readers = 4
    together = Barrier(readers)

    def look(lake: BucketLake) -> list[list[int]]:
        together.wait()
        return [[beat["rank"] for beat in lake.heartbeats("j")] for _ in range(25)]

    with ThreadPoolExecutor(readers) as pool:
        found = [*pool.map(look, [opened() for _ in range(readers)])]
    assert found == [[[0, 1]] * 25] * readers


def test_heartbeats_are_those_of_the_store_and_of_no_file_beside_it(live: BucketLake) -> None:
    """What others keep in the folder of copies is neither read nor removed."""
    theirs = live.root / "live" / "job=j" / "rank-000007.json"
    theirs.parent.mkdir(parents=True)
    theirs.write_bytes(orjson.dumps({"rank": 7, "ts_us": START_US, "state": "running"}))
    live.bucket.write("live/job=j/rank-000001.json", b"{")
    live.bucket.write("live/job=j/notes.json", b"{}")
    assert [beat["rank"] for beat in live.heartbeats("j")] == [0]
    assert [*live.strange_heartbeats()] == ["live/job=j/rank-000001.json"]
    assert [path.name for path in theirs.parent.iterdir()] == [theirs.name]


def test_a_dry_run_of_retention_reads_the_ends_of_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = big_lake()
    before_us = START_US + STEP_US * BIG
    (expected,) = due(lake, before_us)  # from the copies of who wrote them
    assert expected.rows == ROLLED_ROWS
    assert expected.newest_us == before_us - STEP_US
    for length in (bucket_lake.FOOTER_BYTES, 64):  # longer footers are read by what their end says
        monkeypatch.setattr(bucket_lake, "FOOTER_BYTES", length)
        other = elsewhere(monkeypatch, tmp_path, f"other{length}")
        seen = Asked(other, monkeypatch)
        (found,) = due(other, before_us)
        assert (found.rows, found.bytes, found.newest_us) == (
            expected.rows,
            expected.bytes,
            expected.newest_us,
        )
        assert not seen.fetched
        assert {*seen.ranges} == {lake.relative(s.path) for s in lake.segments("steps")}
        assert len(seen.ranges) == (3 if length > 64 else 6)
        assert 0 < seen.range_bytes < 3 * bucket_lake.FOOTER_BYTES + 3 * 16 * 2**10
        assert not list(other.root.rglob("*.parquet"))


def test_names_of_samples_tell_how_old_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = opened(create=True)
    for k in range(3):
        row = {"host": "n1", "gpu_uuid": "g", "ts_us": START_US + k, "util_ratio": 0.5}
        lake.append("device_samples", pa.Table.from_pylist([row]), source="nvml")
    other = elsewhere(monkeypatch, tmp_path, "other")
    seen = Asked(other, monkeypatch)
    (found,) = due(other, START_US + 2)
    assert (found.rows, found.newest_us) == (2, START_US + 1)
    assert found.bytes == sum(s.path.stat().st_size for s in lake.segments("device_samples")[:2])
    assert not seen.fetched
    assert not seen.ranges


def test_retention_drops_from_a_machine_without_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what goes is copied, to be summed up; what is damaged in the store stays."""
    lake = big_lake()
    asked: dict[str, Any] = {"job_id": "j"}
    expected = DuckEngine(lake).run("history_steps", **asked)
    folder = lake.relative(lake.folder("steps", "j"))
    for entry, body in (("live-1-900-901-8-00000000.parquet", b"torn" * 9), ("b", b"")):
        lake.bucket.write(f"{folder}/{entry}", body)
    lake.bucket.write(f"{folder}/live-2-900-901-8-00000000.parquet", b"")
    other = elsewhere(monkeypatch, tmp_path, "other")
    seen = Asked(other, monkeypatch)
    before_us = START_US + STEP_US * BIG
    assert [one.rows for one in retain(other, before_us, grace_s=0).dropped] == [ROLLED_ROWS]
    assert [name.split("-")[2:5] for name in seen.fetched] == [
        ["0", f"{BIG - 1}", f"{ROLLED_ROWS}"]
    ]
    last = elsewhere(monkeypatch, tmp_path, "last")
    assert DuckEngine(last).run("history_steps", **asked).equals(expected)


def test_a_url_has_both_slashes_wherever_it_is_printed_or_handed_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``pathlib``, through which every flag and setting goes, folds them to one."""
    flag = Path(URL)
    assert "//" not in str(flag)
    assert lake_words(flag) == f" --lake {URL}"
    assert environment_of(flag, None, None)["STEPTAX_LAKE"] == URL
    monkeypatch.setenv("STEPTAX_LAKE", environment_of(flag, None, None)["STEPTAX_LAKE"])
    assert Settings().lake_place == URL
    lake_at(URL, create=True)
    ws = open_workspace()
    with pytest.raises(NotFoundError) as error:
        ws.job("nosuch")
    assert error.value.where == ws.place == URL


def test_retention_names_the_next_command_with_the_url(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened(create=True).append("steps", timed(0, 1), source="recorder")
    words = ["steptax", "retain", "--days", "1", "--drop", "--lake", URL]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as left:
        main()
    assert not left.value.code
    assert f"steptax compact --lake {URL}" in " ".join(capsys.readouterr().out.split())
