"""Commit records in an object store, where nothing is renamed and no lock ends with its process.

An ingest is committed by one object, ``commits/<id>.json``, that the store takes once: of two that
store the same input at once the second adds nothing. Compactions must not overlap, or rows would be
there twice: they are numbered, ``commits/compact-00000007.json``, and the store takes each number
once. Who reads the numbers before planning a merge and finds the next one taken was overtaken, and
merges nothing.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from steptax.app.lake.bucket import Bucket
from steptax.app.lake.commits import Commit, CommitLog, Overtaken, body_of, commit_of

FOLDER = "commits"
_NUMBERED = re.compile(r"compact-(\d{8})\.json")


class BucketCommits(CommitLog):
    """The records in a bucket, read again when what was read is older than ``fresh_s``."""

    def __init__(self, bucket: Bucket, *, fresh_s: float) -> None:
        super().__init__(Path(FOLDER))
        self._bucket = bucket
        self._fresh_s = fresh_s
        self._lock = Lock()
        self._read_at = -1e9
        self._names: frozenset[str] = frozenset()
        self._next: int | None = None
        self.generation = 0
        """Changes whenever there are other records than before."""

    def all(self) -> dict[str, Commit]:
        """Every commit by id, as of at most ``fresh_s`` ago."""
        with self._lock:
            if time.monotonic() - self._read_at > self._fresh_s:
                self._refresh()
            return {c.id: c for name, c in self._known.items() if name in self._names}

    def get(self, commit_id: str) -> Commit | None:
        """The commit ``commit_id``, as of now; None where there is none that can be read."""
        name = f"{FOLDER}/{commit_id}.json"
        body = self._bucket.read([name]).get(name)
        try:
            return None if body is None else commit_of(body)
        except (ValueError, KeyError, TypeError):
            return None

    def write(self, commit: Commit) -> None:
        """Make ``commit`` true; Overtaken where another compaction has its number, or an import of
        its id was committed already.
        """
        data = body_of(commit)
        name = f"{commit.id}.json"
        if commit.kind != "ingest":
            if self._next is None:
                raise ValueError(f"a {commit.kind} is committed within compacting() only")
            name = f"compact-{self._next:08d}.json"
            if not self._bucket.create(f"{FOLDER}/{name}", data):
                raise Overtaken(name)
            self._next += 1
        elif not self._bucket.create(f"{FOLDER}/{name}", data):
            if self.get(commit.id) is not None:
                raise Overtaken(name)
            self._bucket.write(f"{FOLDER}/{name}", data)  # what is there cannot be read
        with self._lock:
            self._known[name] = commit
            self._names |= {name}
            self.generation += 1

    @contextmanager
    def compacting(self, root: Path) -> Iterator[bool]:
        """Take the next number, before anything is planned; always True."""
        with self._lock:
            self._refresh()
            taken = [int(m[1]) for name in self._names if (m := _NUMBERED.fullmatch(name))]
        self._next = max(taken, default=-1) + 1
        try:
            yield True
        finally:
            self._next = None

    def _refresh(self) -> None:
        began = time.monotonic()
        names = frozenset(n for n in self._bucket.names(FOLDER) if n.endswith(".json"))
        new = [f"{FOLDER}/{name}" for name in sorted(names - self._known.keys())]
        known = {name: commit for name, commit in self._known.items() if name in names}
        for path, body in self._bucket.read(new).items():
            name = path.removeprefix(f"{FOLDER}/")
            if (commit := self._parsed(name, body)) is not None:
                known[name] = commit
        self._known = known
        if names != self._names:
            self._names = names
            self.generation += 1
        self._read_at = began
