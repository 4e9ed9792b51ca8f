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
