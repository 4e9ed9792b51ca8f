"""Copies of a bucket's segments take as much room as they may; what is used stays."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from steptax.app.errors import UserError
from steptax.app.lake import copies as module
from steptax.app.lake.bucket_lake import BucketLake
from steptax.app.lake.compact import compact
from steptax.app.lake.copies import KEPT_S, Copies
from steptax.app.lake.ingest import ingest
from steptax.app.lake.retain import retain
from steptax.app.queries import DuckEngine
from steptax.app.schema import Batch
from tests.engines.test_object_storage import (
    bucket,
    elsewhere,
    once,
    opened,
    server,
    steps,
    stored,
)

__all__ = ["bucket", "server"]


def aged(path: Path, ago_s: float) -> Path:
    """``path``, as it was used last so long ago."""
    then_s = time.time() - ago_s
    os.utime(path, (then_s, then_s))
    return path


def held(root: Path, name: str, ago_s: float, size: int = 100) -> Path:
    path = root / "tables" / "steps" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    return aged(path, ago_s)


def names(root: Path) -> set[str]:
    return {path.name for path in root.rglob("*") if path.is_file()}


def test_what_was_used_longest_ago_goes_until_the_rest_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for k in range(5):
        held(tmp_path, f"old-{k}", KEPT_S + 100 * (5 - k))
    held(tmp_path, "staged", KEPT_S + 9_000)
    held(tmp_path, "new", 0.5 * KEPT_S)
    (tmp_path / "rollups").mkdir()
    (tmp_path / "rollups" / "sum").write_bytes(b"x" * 10_000)
    monkeypatch.setenv("STEPTAX_CACHE_BYTES", "450")
    copies = Copies(tmp_path, lambda place: not place.endswith("staged"))
    copies.use([tmp_path / "tables" / "steps" / "old-0"])
    assert copies.make_room() == 3
    assert names(tmp_path) == {"old-0", "old-4", "staged", "new", "sum"}
    assert copies.make_room() == 0
    # However little room there is: what somebody asked for a moment ago stays.
    monkeypatch.setenv("STEPTAX_CACHE_BYTES", "1")
    assert Copies(tmp_path, lambda _: True).make_room() == 2
    assert names(tmp_path) == {"old-0", "new", "sum"}


def test_without_a_limit_half_of_the_disk_is_for_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for k in range(4):
        held(tmp_path, f"old-{k}", KEPT_S + 100 * (5 - k))
    monkeypatch.delenv("STEPTAX_CACHE_BYTES", raising=False)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=100))
    assert Copies(tmp_path, lambda _: True).make_room() == 2  # 250 of 100 free and 400 held


def test_one_that_is_asked_for_while_room_is_made_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To look at a large cache takes seconds, in which another process may ask for any of it."""
    wanted = held(tmp_path, "wanted", KEPT_S + 200)
    other = held(tmp_path, "other", KEPT_S + 100)
    monkeypatch.setenv("STEPTAX_CACHE_BYTES", "1")

    def is_stored(place: str) -> bool:
        os.utime(wanted)
        return True

    assert Copies(tmp_path, is_stored).make_room() == 1
    assert (wanted.exists(), other.exists()) == (True, False)


@pytest.mark.parametrize(
    "folder", ["tables/steps", "rollups/step-totals/3/steps/job=j", "commits", "kept"]
)
def test_what_a_killed_process_left_in_part_goes(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir(parents=True)
    old, new = (tmp_path / folder / f".part-{k}.parquet.0123abcd.tmp" for k in (1, 2))
    for path, ago_s in ((old, module.UNFINISHED_S + 1), (new, KEPT_S)):
        path.write_bytes(b"torn")
        aged(path, ago_s)
    Copies(tmp_path, lambda _: False).make_room()
    assert (old.exists(), new.exists()) == (False, True)


def test_roll_ups_go_with_segments_that_another_machine_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that only reads has none of a segment that is gone, however long it reads."""
    monkeypatch.setattr("steptax.app.lake.rollups.ROLLED_ROWS", 4)
    monkeypatch.setattr("steptax.app.lake.rollups.FEW_PARTS", 2)
    lake = opened(create=True)
    for k in range(4):
        lake.append("steps", steps(k, 1), source="recorder")
    lake.append("steps", steps(2000, 1), source="recorder")
    reader = elsewhere(monkeypatch, tmp_path, "reader")
    asked = {"job_id": "j", "step_block": 1024, "window_steps": 1024}
    before = DuckEngine(reader).run("history_windows", **asked)  # type: ignore[arg-type]
    old = names(reader.root / "rollups")
    assert len(old) == 6  # five, and what adds four of them up
    compact(lake, minimum=2, grace_s=0)
    aged_us = 1_000_000 * (KEPT_S + 60)
    for shift_us, left in ((0, old), (aged_us, set())):
        now_s = time.time() + shift_us / 1e6
        monkeypatch.setattr(module.time, "time", lambda now_s=now_s: now_s)
        # Another process, which fetches what was merged.
        found = DuckEngine(opened()).run("history_windows", **asked)  # type: ignore[arg-type]
        assert sorted(found.to_pylist(), key=str) == sorted(before.to_pylist(), key=str)
        for path in (reader.root / "tables").rglob("part-*.parquet"):
            path.unlink()
        for path in (reader.root / "rollups").rglob("part-*.parquet"):
            path.unlink()
        assert {n for n in names(reader.root / "rollups") if not n.startswith("part-")} == left


def test_a_limit_that_is_no_number_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPTAX_CACHE_BYTES", "20GB")
    with pytest.raises(UserError, match="expected a number of bytes, found '20GB'"):
        opened(create=True)


def _aged(lake: BucketLake) -> set[Path]:
    found = {path for one in module.FOLDERS for path in (lake.root / one).rglob("*.parquet")}
    return {aged(path, 2 * KEPT_S) for path in found}


def test_copies_go_and_are_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = opened(create=True)
    for k in range(3):
        lake.append("steps", steps(k, 1), source="recorder")
    lake.append("steps", steps(0, 2, job="i"), source="recorder")
    ingest(lake, [Batch("steps", steps(3, 2))], ingest_id="0123abcd", source="file")
    monkeypatch.setenv("STEPTAX_CACHE_BYTES", "1")
    other = elsewhere(monkeypatch, tmp_path, "other")
    assert stored(other) == once(0, 5)
    old = _aged(other)
    assert len(old) == 4
    # What another process of this machine asks for.
    assert stored(opened(), "i") == once(0, 2)
    assert not [path for path in old if path.exists()]
    assert stored(other) == stored(opened()) == once(0, 5)


def test_what_is_read_again_and_again_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = opened(create=True)
    lake.append("steps", steps(0, 1), source="recorder")
    lake.append("steps", steps(0, 2, job="i"), source="recorder")
    monkeypatch.setenv("STEPTAX_CACHE_BYTES", "1")
    other = elsewhere(monkeypatch, tmp_path, "other")
    stored(other)
    old = _aged(other)
    monkeypatch.setattr(module, "NOTED_S", 0.0)
    assert stored(other) == once(0, 1)  # from the copy
    assert stored(opened(), "i") == once(0, 2)
    assert all(path.exists() for path in old)


def test_what_is_on_its_way_into_the_store_and_sums_that_outlive_rows_are_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import of an hour has parts that are old and that nobody has but this machine."""
    lake = opened(create=True)
    lake.append("steps", steps(0, 4), source="recorder")
    before = DuckEngine(lake).run("history_steps", job_id="j")
    retain(lake, 2**62, grace_s=0)
    monkeypatch.setenv("STEPTAX_CACHE_BYTES", "1")
    monkeypatch.setattr("steptax.app.lake.staging.PART_ROWS", 4)
    writer = elsewhere(monkeypatch, tmp_path, "writer")

    def batches() -> object:
        yield Batch("steps", steps(10, 1, job="new"))
        staged = _aged(writer)
        assert len(staged) == 1
        reader = opened()
        assert DuckEngine(reader).run("history_steps", job_id="j").equals(before)
        assert all(path.exists() for path in staged)
        yield Batch("steps", steps(11, 1, job="new"))

    done = ingest(writer, batches(), ingest_id="0123abcd", source="file")  # type: ignore[arg-type]
    assert done.accepted == {"steps": 8}
    assert sum(stored(opened(), "new").values()) == 8
    _aged(writer)
    lake.append("steps", steps(0, 2, job="i"), source="recorder")
    assert stored(opened(), "i") == once(0, 2)
    assert not list((writer.root / "kept").rglob("*.parquet"))
    assert DuckEngine(opened()).run("history_steps", job_id="j").equals(before)
