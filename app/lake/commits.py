"""Commit records: the one rename that makes an ingest or a compaction visible.

A commit lists the segments that it adds and those that it replaces. A reader reads the commits
first and lists the segments after: whatever happens in between, it sees the state before or the
state after, never a mixture. Records of merges are folded into one file when they are old (see
``folded`` and ``fold``); those of imports stay, each in its file.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import zlib
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from steptax.app.errors import IntegrityError
from steptax.app.lake.files import locked, write_whole
from steptax.app.lake.folded import Folded, Replaced, fold_name, fold_number, fold_of, runs_named
from steptax.app.lake.listing import Listing
from steptax.app.lake.records import RETAIN, Commit, body_of, commit_of

__all__ = [
    "LOOKS",
    "RETAIN",
    "Commit",
    "CommitLog",
    "Overtaken",
    "Seen",
    "again_id",
    "body_of",
    "commit_of",
]

logger = logging.getLogger("steptax.lake")

#: Where locks of imports lie, and among how many what they hold is dealt out.
_LOCKS, _LOCK_COUNT = "locks", 64
#: How often a log is listed anew where folds follow one another: the next look sees the rest.
LOOKS = 5
_NO_FOLD = Folded()


class Overtaken(Exception):  # noqa: N818 - nothing is wrong: another was first
    """Another one of this id, or compaction, was committed since; nothing was changed."""


def again_id(ingest_id: str, number: int) -> str:
    """Id of the commit that stores an input for the ``number``-th time again, for it was lost.

    A record never changes, for whoever runs has read it; so what is stored again has its own.
    """
    return hashlib.sha256(f"{ingest_id} again {number}".encode()).hexdigest()[:24]


@dataclass(frozen=True, eq=False)
class Seen:
    """What was seen at a look: the names of files, records by name that no fold stands for."""

    names: tuple[str, ...] | None
    records: Mapping[str, Commit]
    folded: Folded

    def commits(self) -> dict[str, Commit]:
        """Every commit by id."""
        return {**self.folded.commits, **{c.id: c for c in self.records.values()}}


class CommitLog:
    """The folder of commit records. Records never change, so each is read once.

    ``all`` sees a record, or the fold that stands for it: a fold is there before the records that
    are in it go, so where no newer fold came while the names were read, none of them is missed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._listing = Listing()
        # Another thread may be at it too: what is known is replaced as a whole, and never changed.
        self._seen = Seen(None, {}, _NO_FOLD)
        self._replaced: tuple[frozenset[str], int, Mapping[str, Commit]] = frozenset(), 0, {}
        self.damaged: dict[str, str] = {}
        """Files of the log that cannot be read, and why: what they commit is not seen."""

    @property
    def folded(self) -> Folded:
        """The fold that held at the last look."""
        return self._seen.folded

    def all(self) -> dict[str, Commit]:
        """Every commit by id, as of now; of what is folded those that the fold tells."""
        return self.look().commits()

    def state(self) -> tuple[dict[str, Commit], Mapping[str, Commit]]:
        """Every commit by id, as of now, and every segment that one of them replaced, with that.

        A segment that was replaced is never seen again, also where a sender that did not hear of
        its success writes it once more. Of some that a fold stands for only that they were replaced
        is known (see ``Replaced``).
        """
        seen = self.look()
        commits, folded = seen.commits(), seen.folded
        ids, number, exact = self._replaced
        if commits.keys() != ids or folded.number != number:
            # A job that is recorded for a day replaces a million segments: only what is new counts.
            # A reader may hold the old ones, so they are not changed.
            is_more = folded.number == number and ids <= commits.keys()
            known = ids if is_more else frozenset()
            new = {path: c for c in commits.values() if c.id not in known for path in c.removes}
            exact = {**exact, **new} if known else new
            self._replaced = frozenset(commits), folded.number, exact
        return commits, Replaced(exact, folded) if folded.runs else exact

    def look(self) -> Seen:
        """The log as of now; what is known already is not read again."""
        names = self._listing.entries(str(self.folder))
        if names is self._seen.names and not self.damaged:
            return self._seen
        for _ in range(LOOKS):
            found = self._read(names)
            again = self._listing.entries(str(self.folder))
            if _newest(again) == _newest(names):
                break
            names = again
        self._seen = found
        return found

    def _read(self, names: tuple[str, ...]) -> Seen:
        """What the log says whose files are ``names``."""
        known, held = self._seen.records, self._seen.folded
        folds = sorted((n for n in names if fold_number(n) is not None), reverse=True)
        folded = self._fold_among(folds, held)
        records = [n for n in names if _is_record(n)]
        # A fold that is new may stand for whatever is known.
        asked = [n for n in records if folded is not held or n not in known]
        spent = folded.spent([f"commits/{n}" for n in asked])
        left = {n for n in records if f"commits/{n}" not in spent}
        found = {name: c for name, c in known.items() if name in left}
        new = [n for n in asked if n in left and n not in known]
        for name, body in self._bodies(new).items():
            if (commit := self._parsed(name, body)) is not None:
                found[name] = commit
        for name in self.damaged.keys() - {*left, *folds}:
            self.damaged.pop(name, None)
        return Seen(names, found, folded)

    def _fold_among(self, names: Iterable[str], held: Folded) -> Folded:
        """The first of the folds ``names``, the newest first, that can be read.

        What an older one stands for, and the records of after it, may be there still.
        """
        found = _NO_FOLD
        for name in names:
            if found.number or (held.number and name == held.name):
                found = found if found.number else held
                self.damaged.pop(name, None)  # nobody asks an older one
                continue
            body = self._bodies([name]).get(name)
            if body is None:  # a newer one came
                continue
            try:
                found = self._fold_from(body)
                self.damaged.pop(name, None)
            except (ValueError, KeyError, TypeError, FileNotFoundError) as error:
                # A disk that is full or refuses is raised: what is passed over looks like no rows.
                self._is_damaged(name, error)
        return found

    def _fold_from(self, body: bytes) -> Folded:
        """The fold that a file holds, and the runs that it rests on; errors are ``fold_of``'s."""
        return fold_of(body, self._fetched(runs_named(body)))

    def _bodies(self, names: Iterable[str]) -> dict[str, bytes]:
        """The content of files of the log, by name; those that are gone are left out."""
        bodies = {}
        for name in names:
            try:
                bodies[name] = (self.folder / name).read_bytes()
            except FileNotFoundError:
                continue
        return bodies

    def _fetched(self, runs: Iterable[str]) -> dict[str, Path]:
        """Where runs of a fold lie on this machine, by name."""
        return {name: self.folder / name for name in runs}

    def _parsed(self, name: str, body: bytes) -> Commit | None:
        """The record ``name``; None, and noted, where it is damaged."""
        try:
            commit = commit_of(body)
        except (ValueError, KeyError, TypeError) as error:
            self._is_damaged(name, error)
            return None
        self.damaged.pop(name, None)
        return commit

    def _is_damaged(self, name: str, error: Exception) -> None:
        if name not in self.damaged:
            logger.error("commits/%s is damaged and is passed over: %s", name, error)
        self.damaged[name] = str(error) or type(error).__name__

    def refuse_damaged_fold(self) -> None:
        """IntegrityError where a fold cannot be read: nobody may then merge, drop or delete.

        What it stands for is not seen: what is made without it contradicts it once it is back.
        """
        for name, reason in self.damaged.items():
            if fold_number(name) is not None:
                raise IntegrityError(
                    f"the fold of the log is damaged, and rows are missing: {reason}",
                    where=self.place_of(name),
                    hint="put the folder commits/ of a backup back beside what is there",
                )

    def place_of(self, name: str) -> str:
        """Where the file ``name`` of the log lies, for people."""
        return str(self.folder / name)

    @contextmanager
    def compacting(self, root: Path) -> Iterator[bool]:
        """True for one compactor at a time; the lock ends with its process, however that ends."""
        with (root / "compact.lock").open("w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            self.all()
            self.refuse_damaged_fold()
            yield True

    @contextmanager
    def storing(self, root: Path, what: Iterable[Hashable]) -> Iterator[None]:
        """Store of ``what`` alone, on this machine: another one that stores the same waits.

        So of two inputs that hold the same rows, the second finds them stored. Not to be nested.
        """
        names = (f"{zlib.crc32(repr(one).encode()) % _LOCK_COUNT:02d}" for one in what)
        with locked(root / _LOCKS, names):
            yield

    @contextmanager
    def delivering(self, root: Path) -> Iterator[None]:
        """Take one bill at a time, on this machine: what one replaces is what others stored."""
        with locked(root / _LOCKS, ["bills"]):
            yield

    def get(self, commit_id: str) -> Commit | None:
        """The commit ``commit_id``, or None; also None where its record cannot be read.

        So what it committed can be ingested again, which mends it.
        """
        path = self.folder / f"{commit_id}.json"
        try:
            return commit_of(path.read_bytes())
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None

    def write(self, commit: Commit) -> None:
        """Make ``commit`` true; Overtaken where an import of its id was committed already.

        Within ``storing``, where it is an import.
        """
        if commit.kind == "ingest" and self.get(commit.id) is not None:
            raise Overtaken(commit.id)
        write_whole(self.folder / f"{commit.id}.json", body_of(commit))

    # -- folding, within ``compacting`` ------------------------------------------------------

    def listed(self) -> list[str]:
        """Names of all files of the log, as of now."""
        self.all()
        return [*self._listing.entries(str(self.folder))]

    def write_run(self, name: str, data: bytes) -> Path:
        """Store a run of spent names; where it lies on this machine."""
        write_whole(self.folder / name, data)
        return self.folder / name

    def write_fold(self, number: int, body: bytes) -> None:
        """Make a fold true; Overtaken where there is one of its number."""
        path = self.folder / fold_name(number)
        if path.exists():
            raise Overtaken(path.name)
        write_whole(path, body)

    def remove(self, names: Iterable[str]) -> None:
        """Delete files of the log that a fold stands for, or that no fold rests on."""
        for name in names:
            (self.folder / name).unlink(missing_ok=True)

    def next_number(self, folded: Iterable[str]) -> int:
        """What a fold tells of the number of the next merge, where merges are numbered."""
        return 0


def _newest(names: Iterable[str]) -> int:
    """The highest number of a fold among files of a log; 0 of none."""
    return max((number for n in names if (number := fold_number(n)) is not None), default=0)


def _is_record(name: str) -> bool:
    return name.endswith(".json") and not name.startswith(".") and fold_number(name) is None
