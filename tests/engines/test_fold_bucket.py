"""Folding the log of a lake in an object store: kills, machines at once, one that slept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from steptax.app.errors import IntegrityError
from steptax.app.lake.bucket_lake import BucketLake
from steptax.app.lake.commits import Overtaken
from steptax.app.lake.compact import compact
from steptax.app.lake.fold import FoldResult, fold_log
from tests.engines.test_object_storage import (
    _Killed,
    _killed_after,
    bucket,
    elsewhere,
    once,
    opened,
    server,
    steps,
    stored,
)

__all__ = ["bucket", "server"]


def folded(lake: BucketLake, *, grace_s: float = 0.0) -> FoldResult:
    """Fold whatever can be folded now."""
    with lake.commits.compacting(lake.root):
        return fold_log(lake, grace_s=grace_s, age_s=0.0, minimum=1)


def merged(turns: int, first: int = 0, *, create: bool = True) -> BucketLake:
    """A step a turn, merged each other one; what was replaced is gone."""
    lake = opened(create=create)
    for turn in range(first, first + turns):
        lake.append("steps", steps(turn, 1), source="r")
        if turn % 2:
            compact(lake, minimum=2, grace_s=0)
    return lake


def test_the_log_is_folded_and_read_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = merged(6)
    reader = elsewhere(monkeypatch, tmp_path, "reader")
    assert stored(reader) == once(0, 6)
    assert len(lake.bucket.names("commits")) == 3
    assert folded(lake).records == 3
    assert [n.rpartition(".")[2] for n in lake.bucket.names("commits")] == ["names", "json"]
    for one in (reader, lake, elsewhere(monkeypatch, tmp_path, "fresh")):
        assert stored(one) == once(0, 6)
        assert not one.commits.damaged
    # And on from there: numbers go on, and so does whoever knew the log before.
    merged(4, 6, create=False)
    assert "compact-00000003.json" in lake.bucket.names("commits")
    assert stored(reader) == once(0, 10)
    assert folded(opened()).records == 2
    assert stored(reader) == stored(elsewhere(monkeypatch, tmp_path, "last")) == once(0, 10)


def test_an_object_that_a_sender_writes_once_more_stays_hidden_and_goes() -> None:
    lake = opened(create=True)
    lake.append("steps", steps(0, 1), source="r")
    lake.append("steps", steps(1, 1), source="r")
    place, *_ = [lake.relative(s.path) for s in lake.segments("steps", "j")]
    body = lake.bucket.read([place])[place]
    compact(lake, minimum=2, grace_s=0)
    folded(lake)
    lake.bucket.write(place, body)
    assert stored(opened()) == once(0, 2)
    compact(opened(), minimum=2, grace_s=0)
    assert lake.bucket.read([place]) == {}
    assert stored(opened()) == once(0, 2)


@pytest.mark.parametrize("calls", range(5))
def test_a_fold_killed_between_any_two_writes(
    calls: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run, the format of the lake, the fold, what is removed; after 4 all of it is done."""
    lake = merged(4)
    victim = opened()
    _killed_after(victim, calls)
    if calls < 4:
        with pytest.raises(_Killed):
            folded(victim)
    else:
        folded(victim)
    for reader in (lake, elsewhere(monkeypatch, tmp_path, "fresh")):
        assert stored(reader) == once(0, 4)
    merged(2, 4, create=False)
    folded(opened())
    assert stored(elsewhere(monkeypatch, tmp_path, "last")) == once(0, 6)
    assert len(lake.bucket.names("commits")) <= 4


def test_a_copy_of_a_run_that_is_torn_is_fetched_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a power loss of this machine: the store has it whole, and no row is missing."""
    lake = merged(4)
    folded(lake)
    reader = elsewhere(monkeypatch, tmp_path, "reader")
    assert stored(reader) == once(0, 4)
    (copy,) = (reader.root / "commits").iterdir()
    body = copy.read_bytes()
    for torn in (b"", body[:-3]):
        copy.write_bytes(torn)
        again = opened()
        assert stored(again) == once(0, 4)
        assert not again.commits.damaged
        assert copy.read_bytes() == body
    # Where the store itself has it so, that is said, with the place in the store.
    lake.bucket.write(f"commits/{copy.name}", body[:-3])
    copy.unlink()
    with pytest.raises(IntegrityError, match="damaged") as error:
        compact(opened())
    assert str(error.value.where).startswith(f"{lake.url}/commits/fold-")


def test_a_number_that_is_free_again_stays_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A merge is planned, sleeps for hours, and is committed when its number was folded away."""
    lake = opened(create=True)
    for k in range(4):
        lake.append("steps", steps(k, 1), source="r")
    sleeper, other = opened(), elsewhere(monkeypatch, tmp_path, "other")
    create = sleeper.bucket.create

    def late(name: str, data: bytes) -> bool:
        compact(other, minimum=2, grace_s=0)
        folded(other)
        assert name.rpartition("/")[2] not in other.bucket.names("commits")
        done = create(name, data)
        assert done  # nothing is of that name any more
        return done

    monkeypatch.setattr(sleeper.bucket, "create", late)
    done = compact(sleeper, minimum=2, grace_s=0)
    assert (done.busy, done.merged_segments, done.deleted_files) == (True, 0, 0)
    for reader in (sleeper, other, elsewhere(monkeypatch, tmp_path, "third")):
        assert stored(reader) == once(0, 4)
    # Its record is no record, and is removed.
    folded(opened())
    assert not any(name.startswith("compact-") for name in lake.bucket.names("commits"))
    assert compact(opened(), minimum=2).merged_segments == 0
    lake.append("steps", steps(4, 1), source="r")
    assert compact(opened(), minimum=2, grace_s=0).merged_segments == 2
    assert stored(elsewhere(monkeypatch, tmp_path, "last")) == once(0, 5)


def test_of_two_machines_that_fold_at_once_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = merged(4)
    second = elsewhere(monkeypatch, tmp_path, "second")
    create = first.bucket.create

    def late(name: str, data: bytes) -> bool:
        second.append("steps", steps(4, 1), source="r")
        compact(second, minimum=2, grace_s=0)
        assert folded(second).records == 3
        return create(name, data)

    with monkeypatch.context() as patched:
        patched.setattr(first.bucket, "create", late)
        with pytest.raises(Overtaken):
            folded(first)
    readers: list[Any] = [first, second, elsewhere(monkeypatch, tmp_path, "third")]
    for reader in readers:
        assert stored(reader) == once(0, 5)
    folded(opened())
    assert stored(opened()) == once(0, 5)
    # Of the run that the first had written nothing is left.
    assert len(first.bucket.names("commits")) == 2
