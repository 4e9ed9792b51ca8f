"""Old records of merges become one file: what is seen, refused and told of them stays the same."""

from __future__ import annotations

import errno
import shutil
import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steptax.app.doctor import examine
from steptax.app.errors import InputError, IntegrityError
from steptax.app.ingest import ingest_file
from steptax.app.lake import Lake, fold
from steptax.app.lake.commits import RETAIN, Commit, CommitLog
from steptax.app.lake.compact import compact, sweep
from steptax.app.lake.fold import FoldResult, fold_log
from steptax.app.lake.folded import DIGEST_BYTES, LIVE, Run, fold_number
from steptax.app.lake.standing import known, lost
from steptax.app.settings import Settings
from steptax.connectors.base import Options
from tests.app.test_gone_rows import put
from tests.app.test_lake import steps

FOLDER = "tables/steps/job=j"


def folded(lake: Lake, *, grace_s: float = 0.0) -> FoldResult:
    """Fold whatever can be folded now."""
    with lake.commits.compacting(lake.root) as alone:
        assert alone
        return fold_log(lake, grace_s=grace_s, age_s=0.0, minimum=1)


def files(lake: Lake) -> list[str]:
    """Files of the log."""
    return sorted(path.name for path in (lake.root / "commits").iterdir())


def seen(lake: Lake) -> list[int]:
    """The steps of the job, as a new reader sees them."""
    return sorted(Lake(lake.root).read("steps", "j")["step"].to_pylist())


def appended(lake: Lake, count: int, first: int = 0) -> None:
    for step in range(first, first + count):
        lake.append("steps", steps("j", step, 1, ranks=1), source="recorder")


def merged(lake: Lake) -> None:
    compact(lake, minimum=2, grace_s=0.0)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Steps 0 to 11 of a job, merged three times; the files that were replaced are gone."""
    lake = Lake(tmp_path / "lake", create=True)
    for turn in range(3):
        appended(lake, 4, 4 * turn)
        merged(lake)
    return lake


def test_what_was_merged_again_and_again_is_one_commit(lake: Lake) -> None:
    assert len(files(lake)) == 3
    (before,) = lake.segments("steps", "j")
    version = lake.version("steps", "j")
    assert folded(lake) == FoldResult(3, 3)
    names = files(lake)
    assert [name.partition(".")[2] for name in names] == ["names", "json"]
    for reader in (lake, Lake(lake.root)):
        assert reader.segments("steps", "j") == [before]
        assert reader.version("steps", "j") == version
    assert seen(lake) == list(range(12))
    (commit,) = Lake(lake.root).commits.all().values()
    assert commit.adds == (lake.relative(before.path),)
    assert (commit.removes, commit.detail) == ((), {LIVE: 12})
    assert orjson.loads((lake.root / "LAKE.json").read_bytes()) == {"format": 2}
    # And on from there.
    appended(lake, 2, 12)
    merged(lake)
    assert seen(lake) == list(range(14))
    assert folded(lake).records == 1
    assert [fold_number(name) for name in files(lake) if name.endswith("json")] == [2]
    assert seen(lake) == list(range(14))
    assert folded(lake) == FoldResult()


def test_nothing_is_folded_that_is_young_or_few_or_whose_files_are_there(lake: Lake) -> None:
    with lake.commits.compacting(lake.root):
        assert fold_log(lake, grace_s=0.0, minimum=1) == FoldResult()
        assert fold_log(lake, grace_s=0.0, age_s=0.0, minimum=4) == FoldResult()
    appended(lake, 3, 12)
    compact(lake, minimum=2, grace_s=600.0)
    # The newest record is kept: what it replaced can still be read, and be put in its place again.
    assert folded(lake).records == 3
    assert sum(name.endswith(".json") for name in files(lake)) == 2
    assert seen(lake) == list(range(15))


def test_a_live_segment_that_is_written_again_stays_hidden_and_goes(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", create=True)
    appended(lake, 4)
    old = {s.path: s.path.read_bytes() for s in lake.segments("steps", "j")}
    merged(lake)
    folded(lake)
    for path, body in old.items():
        path.write_bytes(body)
    assert seen(lake) == list(range(4))
    appended(lake, 1, 4)
    assert seen(lake) == list(range(5))
    assert compact(lake, minimum=2, grace_s=0.0).merged_segments == 2
    assert not any(path.exists() for path in old)
    assert seen(lake) == list(range(5))


def test_what_came_back_is_kept_while_its_merged_segment_is_gone(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", create=True)
    appended(lake, 4)
    old = {s.path: s.path.read_bytes() for s in lake.segments("steps", "j")}
    merged(lake)
    folded(lake)
    (whole,) = lake.segments("steps", "j")
    body = whole.path.read_bytes()
    whole.path.unlink()
    for path, content in old.items():
        path.write_bytes(content)
    merged(lake)
    assert all(path.exists() for path in old)
    (one,) = lost(lake)
    assert (one.live_segments, one.undo) == (4, None)
    whole.path.write_bytes(body)
    merged(lake)
    assert not any(path.exists() for path in old)
    assert seen(lake) == list(range(4))


def test_records_and_files_of_a_backup_beside_the_fold_add_nothing(
    lake: Lake, tmp_path: Path
) -> None:
    """A copy that nothing is removed from has all that ever was, and is put back as a whole."""
    backup = tmp_path / "backup"

    def copied() -> None:
        for part in ("commits", "tables"):
            shutil.copytree(lake.root / part, backup / part, dirs_exist_ok=True)

    copied()
    for turn in range(3, 6):
        appended(lake, 4, 4 * turn)
        copied()
        merged(lake)
        copied()
        folded(lake)
        copied()
    shutil.copytree(backup, lake.root, dirs_exist_ok=True)
    assert seen(lake) == list(range(24))
    again = Lake(lake.root)
    merged(again)
    folded(again)
    assert seen(again) == list(range(24))
    assert len(list(again.folder("steps", "j").iterdir())) == 1
    assert len(files(again)) == 2 + len(again.commits.folded.runs) - 1


class _Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize(
    ("what", "calls"),
    [("mark_folded", 0), ("write_run", 0), ("write_run", 1), ("write_fold", 0), ("write_fold", 1)]
    + [("unlink", k) for k in range(5)],
)
def test_a_fold_that_is_killed_loses_and_doubles_nothing(
    what: str, calls: int, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    folded(lake)
    appended(lake, 4, 12)
    merged(lake)
    appended(lake, 4, 16)
    merged(lake)
    owner: Any = {"mark_folded": Lake, "unlink": Path}.get(what, CommitLog)
    real = getattr(owner, what)
    left = [calls]

    def dying(self: Any, *arguments: Any, **more: Any) -> Any:
        if what == "unlink" and (self.parent.name != "commits" or self.name.startswith(".")):
            return real(self, *arguments, **more)
        if what == "unlink" and not left[0]:
            raise _Killed
        if not left[0]:
            raise _Killed
        left[0] -= 1
        found = real(self, *arguments, **more)
        if not left[0] and what != "unlink":
            raise _Killed
        return found

    with monkeypatch.context() as patched:
        patched.setattr(owner, what, dying)
        if what == "unlink" and calls == 4:
            folded(lake)
        else:
            with pytest.raises(_Killed):
                folded(lake)
    assert seen(lake) == list(range(20))
    again = Lake(lake.root)
    appended(again, 1, 20)
    merged(again)
    folded(again)
    assert seen(again) == list(range(21))
    assert len(files(again)) <= 1 + len(again.commits.folded.runs)


def test_a_reader_never_misses_both_the_records_and_the_fold(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is read in pieces: records are gone by then, and the fold came behind its back."""
    first = sorted(files(lake))[:1]
    for listed in ([], first, files(lake)):
        reader = Lake(lake.root)
        real = reader.commits._listing.entries
        came = iter([tuple(listed)])

        def entries(folder: str, real: Any = real, came: Any = came) -> tuple[str, ...]:
            for names in came:
                folded(lake)
                return tuple(names)
            return tuple(real(folder))

        monkeypatch.setattr(reader.commits._listing, "entries", entries)
        assert sorted(reader.read("steps", "j")["step"].to_pylist()) == list(range(12))
        assert not reader.commits.damaged


def test_a_fold_that_goes_while_it_is_read_is_looked_for_again(lake: Lake) -> None:
    folded(lake)
    reader = Lake(lake.root)
    real = reader.commits._fetched
    came = iter([None])

    def fetched(runs: Iterable[str]) -> dict[str, Path]:
        for _ in came:
            appended(lake, 1, 12)
            merged(lake)
            folded(lake)
        return real(runs)

    reader.commits._fetched = fetched  # type: ignore[method-assign]
    assert sorted(reader.read("steps", "j")["step"].to_pylist()) == list(range(13))
    assert not reader.commits.damaged


def test_of_two_folds_of_one_number_one_is_overtaken(lake: Lake) -> None:
    """Within a folder a lock keeps them apart; the second finds nothing to do."""
    with lake.commits.compacting(lake.root):
        assert compact(Lake(lake.root), fold_age_s=0.0).busy
    assert folded(lake).records == 3
    assert folded(Lake(lake.root)).records == 0


def test_a_refresh_reads_what_is_new_alone(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    folded(lake)
    reader = Lake(lake.root)
    reader.segments("steps", "j")
    read: list[str] = []
    real = CommitLog._bodies

    def bodies(self: CommitLog, names: Iterable[str]) -> dict[str, bytes]:
        asked = [*names]
        read.extend(asked)
        return real(self, asked)

    monkeypatch.setattr(CommitLog, "_bodies", bodies)
    appended(lake, 3, 12)
    reader.segments("steps", "j")
    assert read == []
    compact(Lake(lake.root), minimum=2)
    read.clear()
    assert len(reader.segments("steps", "j")) == 1
    assert len(read) == 1
    # The names that are spent are read from the file, and not held.
    (run,) = reader.commits.folded.runs
    assert isinstance(run.digests, np.memmap)


def test_imports_are_found_through_folded_merges(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", create=True)
    given_files = [put(tmp_path, number) for number in range(3)]
    for path in given_files:
        ingest_file(lake, "steps", path, Options(job_id="j"))
        merged(lake)
    lake.append("steps", steps("j", 90, 3, ranks=2), source="recorder")
    merged(lake)
    rows = lake.read("steps", "j").num_rows
    assert folded(lake).records > 3
    assert ingest_file(lake, "steps", given_files[0], Options(job_id="j")).already
    # The merged segment is lost: doctor names the three inputs, and what is in a backup alone.
    (whole,) = lake.segments("steps", "j")
    whole.path.unlink()
    (one,) = lost(lake)
    assert (len(one.inputs), one.live_segments, one.undo) == (3, 1, None)
    assert "backup alone" in one.hint(lake)
    for path in given_files:
        assert not ingest_file(lake, "steps", path, Options(job_id="j")).already
        assert ingest_file(lake, "steps", path, Options(job_id="j")).already
    assert lake.read("steps", "j").num_rows == rows - 6
    merged(lake)
    folded(lake)
    assert all(ingest_file(lake, "steps", p, Options(job_id="j")).already for p in given_files)
    assert lake.read("steps", "j").num_rows == rows - 6


def test_a_fold_that_is_damaged_is_named_and_nothing_is_made_without_it(
    lake: Lake, tmp_path: Path
) -> None:
    folded(lake)
    shutil.copytree(lake.root / "commits", tmp_path / "backup")
    for name in files(lake):
        path = lake.root / "commits" / name
        body = path.read_bytes()
        path.write_bytes(body[:-3])
        assert seen(lake) == []
        with pytest.raises(IntegrityError, match="the fold of the log is damaged"):
            compact(Lake(lake.root))
        (told,) = [f for f in examine(Settings(lake=lake.root)) if f.state == "fail"]
        assert "fold-00000001.json is damaged" in told.text
        assert told.hint is not None
        assert "backup" in told.hint
        assert "ingest" not in told.hint
        shutil.copytree(tmp_path / "backup", lake.root / "commits", dirs_exist_ok=True)
        assert seen(lake) == list(range(12))
        assert not any(f.state == "fail" for f in examine(Settings(lake=lake.root)))


def test_bits_that_flipped_in_a_run_are_found_where_everything_is_read(lake: Lake) -> None:
    folded(lake)
    asked = Settings(lake=lake.root)
    assert not any(f.state == "fail" for f in examine(asked, deep=True))
    (run,) = lake.root.joinpath("commits").glob("*.names")
    body = bytearray(run.read_bytes())
    body[-1] ^= 1
    run.write_bytes(body)
    (told,) = [f for f in examine(asked, deep=True) if f.state == "fail"]
    assert f"{run.name} is damaged" in told.text


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EIO])
def test_a_disk_that_refuses_is_no_damaged_fold(
    number: int, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that are missing without an error would look like all there are."""
    folded(lake)
    reader = Lake(lake.root)

    def refused(self: CommitLog, runs: Iterable[str]) -> dict[str, Path]:
        raise OSError(number, "refused")

    with monkeypatch.context() as patched:
        patched.setattr(CommitLog, "_fetched", refused)
        with pytest.raises(OSError, match="refused"):
            reader.segments("steps", "j")
    assert not reader.commits.damaged
    assert sorted(reader.read("steps", "j")["step"].to_pylist()) == list(range(12))


def test_the_format_of_a_folded_lake_is_told_again_where_a_backup_had_the_other(
    lake: Lake,
) -> None:
    """A backup takes the format first: it may be that of before the fold which it takes next."""
    marker = lake.root / "LAKE.json"
    first = marker.read_bytes()
    folded(lake)
    marker.write_bytes(first)
    again = Lake(lake.root)
    appended(again, 2, 12)
    merged(again)
    folded(again)
    assert orjson.loads(marker.read_bytes()) == {"format": 2}
    marker.write_text("{}")
    with pytest.raises(InputError) as error:
        Lake(lake.root)
    assert '{"format": 2}' in str(error.value.hint)


def test_merging_runs_takes_so_much_memory_and_no_more(lake: Lake) -> None:
    dice = np.random.default_rng(0)
    old, new = (
        Run("", "", "", np.unique(np.frombuffer(dice.bytes(DIGEST_BYTES * n), f"S{DIGEST_BYTES}")))
        for n in (1 << 15, 1 << 14)
    )
    tracemalloc.start()
    try:
        (both,) = fold._with(lake.commits, 1, [old], new)
        most_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(both.digests) == len(old.digests) + len(new.digests)
    assert most_bytes < 40 * len(both.digests)
    # The largest of all: one that may be merged still, and one that is half as long.
    assert 36 * (fold._FULL_RUN + fold._FULL_RUN // 2) < 460e6


def test_what_retention_dropped_stays_dropped(lake: Lake) -> None:
    from steptax.app.lake.kept import dropped
    from steptax.app.lake.retain import retain

    old = lake.segments("steps", "j")[0]
    body = old.path.read_bytes()
    retain(lake, 2**62, grace_s=0.0)
    told = dropped(lake, "steps", "j")
    assert told is not None
    assert folded(lake).records == 4
    assert [c.kind for c in Lake(lake.root).commits.all().values()] == [RETAIN]
    assert dropped(Lake(lake.root), "steps", "j") == told
    old.path.write_bytes(body)
    assert seen(lake) == []
    assert lost(Lake(lake.root)) == []


# -- whatever happens, a folded log says what one says that was never folded ---------------------

KINDS = ("append", "import", "merge", "drop", "sweep", "fold", "late", "record", "lose")
#: Half of the work is what the others need to come to something.
WORK = (*KINDS, "append", "append", "merge", "merge", "fold", "fold", "late", "sweep")
OPS = st.lists(
    st.tuples(
        st.sampled_from(WORK),
        st.integers(0, 11),
        st.integers(2, 4),
    ),
    max_size=24,
)


class _Both:
    """The same done to a lake that is folded and to one that never is; segments are names alone."""

    def __init__(self, root: Path) -> None:
        self.lakes = [Lake(root / name, create=True) for name in ("folded", "plain")]
        self.live: list[str] = []
        self.imports: list[str] = []
        self.records: dict[str, bytes] = {}
        self.count = 0

    def touch(self, place: str) -> None:
        for lake in self.lakes:
            path = lake.root / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()

    def commit(self, commit: Commit) -> None:
        for lake in self.lakes:
            lake.commit(commit)
        name = f"{commit.id}.json"
        self.records[name] = (self.lakes[1].root / "commits" / name).read_bytes()

    def places(self) -> list[str]:
        lake = self.lakes[1]
        return [lake.relative(s.path) for s in lake.segments("steps", "j")]

    def do(self, what: str, which: int, size: int) -> None:
        self.count += 1
        number = self.count
        visible = self.places()
        chosen = [visible[(which + k) % len(visible)] for k in range(min(size, len(visible)))]
        if what == "append":
            # Senders' clocks differ: what comes later may bear an earlier time.
            at = (which + 1) * 1000 + number
            self.live.append(f"{FOLDER}/live-{at:017d}-{number}-{number}-1-{number:08x}.parquet")
            self.touch(self.live[-1])
        elif what == "import":
            ingest_id = f"{number:024x}"
            place = f"{FOLDER}/part-{ingest_id}-0-{number}-{number}-1-{number:08x}.parquet"
            self.imports.append(ingest_id)
            self.touch(place)
            self.commit(Commit(ingest_id, "ingest", number, (place,)))
        elif what == "merge" and len(chosen) > 1:
            merge_id = f"{number:024x}"
            place = f"{FOLDER}/part-{merge_id}-0-0-{number}-{len(chosen)}.parquet"
            self.touch(place)
            self.commit(Commit(merge_id, "compact", number, (place,), tuple(chosen)))
        elif what == "drop" and chosen:
            detail = {"table": "steps", "job_id": "j", "rows": 1, "first": 0, "last": number}
            drop_id = f"{number:024x}"
            self.commit(Commit(drop_id, RETAIN, number, (), tuple(chosen), detail))
        elif what == "sweep":
            for lake in self.lakes:
                lake.segments("steps", "j")
                sweep(lake, 0.0)
        elif what == "fold":
            folded(self.lakes[0])
        elif what == "late" and self.live:
            self.touch(self.live[which % len(self.live)])
        elif what == "record" and self.records:
            # A backup brings an old record back.
            name = sorted(self.records)[which % len(self.records)]
            for lake in self.lakes:
                (lake.root / "commits" / name).write_bytes(self.records[name])
        elif what == "lose" and any("/part-" in place for place in visible):
            parts = [place for place in visible if "/part-" in place]
            for lake in self.lakes:
                (lake.root / parts[which % len(parts)]).unlink()

    def told(self, lake: Lake) -> tuple[Any, ...]:
        """What a reader, doctor and an import are told."""
        segments = sorted(lake.relative(s.path) for s in lake.segments("steps", "j"))
        return (
            segments,
            [(one.places, one.live_segments, [c.id for c in one.inputs]) for one in lost(lake)],
            [known(lake, ingest_id).lost for ingest_id in self.imports],
        )


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(work=OPS)
def test_a_folded_log_says_what_an_unfolded_one_says(
    work: list[tuple[str, int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    both = _Both(tmp_path_factory.mktemp("both"))
    for what, which, size in work:
        both.do(what, which, size)
        first, second = (both.told(lake) for lake in both.lakes)
        assert first == second, what
    for lake in both.lakes:  # as one that was there all the time, so one that comes new
        assert both.told(Lake(lake.root)) == second if work else True


def test_a_lake_that_no_fold_was_made_of_is_of_the_first_format(
    lake: Lake, steptax: Callable[..., Any]
) -> None:
    assert orjson.loads((lake.root / "LAKE.json").read_bytes()) == {"format": 1}
    steptax("compact", "--lake", str(lake.root))
    assert orjson.loads((lake.root / "LAKE.json").read_bytes()) == {"format": 1}
    folded(lake)
    assert steptax("doctor", "--lake", str(lake.root), "--deep")["failed"] == 0
