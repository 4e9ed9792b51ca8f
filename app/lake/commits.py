"""Commit records: the one rename that makes an ingest or a compaction visible.

A commit lists the segments that it adds and those that it replaces. A reader reads the commits
first and lists the segments after: whatever happens in between, it sees the state before or the
state after, never a mixture.
"""

from __future__ import annotations

import fcntl
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import orjson

from steptax.app.lake.files import write_whole

logger = logging.getLogger("steptax.lake")

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
    """Another compaction was committed since this one was planned; nothing was changed."""


class CommitLog:
    """The folder of commit records. Records never change, so each is read once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[str, Commit] = {}
        self._replaced: tuple[frozenset[str], frozenset[str]] = frozenset(), frozenset()
        self.damaged: dict[str, str] = {}
        """Records that cannot be read, and why: what they commit is not seen."""

    def all(self) -> dict[str, Commit]:
        """Every commit by id, as of now."""
        try:
            names = {entry.name for entry in self.folder.iterdir()}
        except FileNotFoundError:
            names = set()
        for name in names - self._known.keys():
            if name.endswith(".json") and not name.startswith("."):
                try:
                    body = (self.folder / name).read_bytes()
                except FileNotFoundError:
                    continue
                self._keep(name, body)
        return {c.id: c for name, c in self._known.items() if name in names}

    def state(self) -> tuple[dict[str, Commit], frozenset[str]]:
        """Every commit by id, as of now, and every segment that one of them replaced.

        A segment that was replaced is never seen again, also where a sender that did not hear of
        its success writes it once more.
        """
        commits = self.all()
        ids, replaced = self._replaced
        if commits.keys() != ids:
            # A job that is recorded for a day replaces a million segments: only what is new counts.
            known = ids if ids <= commits.keys() else frozenset()
            new = (path for c in commits.values() if c.id not in known for path in c.removes)
            replaced = (replaced if known else frozenset()).union(new)
            self._replaced = frozenset(commits), replaced
        return commits, replaced

    def _keep(self, name: str, body: bytes) -> None:
        try:
            self._known[name] = commit_of(body)
            self.damaged.pop(name, None)
        except (ValueError, KeyError, TypeError) as error:
            if name not in self.damaged:
                logger.error("commits/%s is damaged and is passed over: %s", name, error)
            self.damaged[name] = str(error) or type(error).__name__

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
        """Make ``commit`` true."""
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
    return Commit(
        found["id"],
        found["kind"],
        found["created_us"],
        tuple(found["adds"]),
        tuple(found["removes"]),
        _UNSAID | found["detail"] if found["kind"] == "ingest" else found["detail"],
    )
