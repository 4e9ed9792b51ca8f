"""Commit records: the one rename that makes an ingest or a compaction visible.

A commit lists the segments that it adds and those that it replaces. A reader reads the commits
first and lists the segments after: whatever happens in between, it sees the state before or the
state after, never a mixture.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import zlib
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import UnionType
from typing import Any

import orjson

from steptax.app.lake.files import locked, write_whole

logger = logging.getLogger("steptax.lake")

#: The kind of the commits that drop rows, of which sums remain.
RETAIN = "retain"
#: Where locks of imports lie, and among how many what they hold is dealt out.
_LOCKS, _LOCK_COUNT = "locks", 64
#: Moments end with the year 9999, which is the last that can be written as a date.
LAST_US = 253_402_300_800_000_000
#: What a record holds, and what is told of it by kind: it may be of another version, or a hand's.
_SHAPE: dict[str, type | UnionType] = {
    **dict.fromkeys(("id", "kind"), str),
    **dict.fromkeys(("adds", "removes"), list),
    "created_us": int,
    "detail": dict,
}
_DETAIL: dict[str, dict[str, type | UnionType]] = {
    "ingest": {
        **dict.fromkeys(("accepted", "rejected", "repeated"), dict),
        **dict.fromkeys(("first_rejects", "job_ids", "notes"), list),
    },
    RETAIN: {
        "table": str,
        "job_id": str | None,
        **dict.fromkeys(("rows", "first", "last"), int),
    },
}
#: What an import of an older version does not say of itself.
_UNSAID: dict[str, Any] = {
    "accepted": {},
    "rejected": {},
    "repeated": {},
    "first_rejects": [],
    "job_ids": [],
    "notes": [],
}


@dataclass(frozen=True)
class Commit:
    """One record. ``adds`` and ``removes`` are paths relative to the lake."""

    id: str
    kind: str
    created_us: int
    adds: tuple[str, ...] = ()
    removes: tuple[str, ...] = ()
    detail: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def added(self) -> frozenset[str]:
        """``adds``, to look up in."""
        return frozenset(self.adds)


class Overtaken(Exception):  # noqa: N818 - nothing is wrong: another was first
    """Another one of this id, or compaction, was committed since; nothing was changed."""


def again_id(ingest_id: str, number: int) -> str:
    """Id of the commit that stores an input for the ``number``-th time again, for it was lost.

    A record never changes, for whoever runs has read it; so what is stored again has its own.
    """
    return hashlib.sha256(f"{ingest_id} again {number}".encode()).hexdigest()[:24]


class CommitLog:
    """The folder of commit records. Records never change, so each is read once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[str, Commit] = {}
        self._replaced: tuple[frozenset[str], Mapping[str, Commit]] = frozenset(), {}
        self.damaged: dict[str, str] = {}
        """Records that cannot be read, and why: what they commit is not seen."""

    def all(self) -> dict[str, Commit]:
        """Every commit by id, as of now."""
        try:
            names = {entry.name for entry in self.folder.iterdir()}
        except FileNotFoundError:
            names = set()
        # Another thread may be at it too: what it knows is replaced as a whole, and never changed.
        known = self._known
        new = {}
        for name in names - known.keys():
            if name.endswith(".json") and not name.startswith("."):
                try:
                    body = (self.folder / name).read_bytes()
                except FileNotFoundError:
                    continue
                if (commit := self._parsed(name, body)) is not None:
                    new[name] = commit
        if new or not known.keys() <= names:
            known = {name: c for name, c in known.items() if name in names} | new
            self._known = known
        for name in self.damaged.keys() - names:
            self.damaged.pop(name, None)
        return {c.id: c for c in known.values()}

    def state(self) -> tuple[dict[str, Commit], Mapping[str, Commit]]:
        """Every commit by id, as of now, and every segment that one of them replaced, with that.

        A segment that was replaced is never seen again, also where a sender that did not hear of
        its success writes it once more.
        """
        commits = self.all()
        ids, replaced = self._replaced
        if commits.keys() != ids:
            # A job that is recorded for a day replaces a million segments: only what is new counts.
            # A reader may hold the old ones, so they are not changed.
            known = ids if ids <= commits.keys() else frozenset()
            new = {path: c for c in commits.values() if c.id not in known for path in c.removes}
            replaced = {**replaced, **new} if known else new
            self._replaced = frozenset(commits), replaced
        return commits, replaced

    def _parsed(self, name: str, body: bytes) -> Commit | None:
        """The record ``name``; None, and noted, where it is damaged."""
        try:
            commit = commit_of(body)
        except (ValueError, KeyError, TypeError) as error:
            if name not in self.damaged:
                logger.error("commits/%s is damaged and is passed over: %s", name, error)
            self.damaged[name] = str(error) or type(error).__name__
            return None
        self.damaged.pop(name, None)
        return commit

    @contextmanager
    def compacting(self, root: Path) -> Iterator[bool]:
        """True for one compactor at a time; the lock ends with its process, however that ends."""
        with (root / "compact.lock").open("w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
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


def body_of(commit: Commit) -> bytes:
    """The record of ``commit`` as it is stored."""
    body = {
        "id": commit.id,
        "kind": commit.kind,
        "created_us": commit.created_us,
        "adds": list(commit.adds),
        "removes": list(commit.removes),
        "detail": dict(commit.detail),
    }
    return orjson.dumps(body)


def commit_of(body: bytes) -> Commit:
    """The commit of a record; ValueError, KeyError or TypeError where it is none."""
    found = orjson.loads(body)
    _check("commit", found, _SHAPE)
    commit = Commit(
        found["id"],
        found["kind"],
        found["created_us"],
        tuple(found["adds"]),
        tuple(found["removes"]),
        _UNSAID | found["detail"] if found["kind"] == "ingest" else found["detail"],
    )
    _check("detail", commit.detail, _DETAIL.get(commit.kind, {}))
    if not 0 <= commit.created_us < LAST_US:
        raise ValueError("created_us: expected a moment before the year 10000")
    for place in (*commit.adds, *commit.removes):
        # What is removed is deleted one day: nothing outside of the lake is.
        if not isinstance(place, str) or place[:1] == "/" or "/../" in f"/{place}/":
            raise ValueError(f"expected a place in the lake, found {place!r}")
    for name in ("accepted", "rejected", "repeated") if commit.kind == "ingest" else ():
        if not all(type(count) is int for count in commit.detail[name].values()):
            raise ValueError(f"{name}: expected numbers of rows")
    return commit


def _check(what: str, held: Mapping[str, Any], shape: Mapping[str, type | UnionType]) -> None:
    for name, kind in shape.items():
        if not isinstance(held[name], kind) or isinstance(held[name], bool):
            raise ValueError(f"{what}: {name} is of an unexpected type")
