"""Commit records in an object store, where nothing is renamed and no lock ends with its process.

An ingest is committed by one object, ``commits/<id>.json``, that the store takes once: of two that
store the same input at once the second adds nothing. Compactions must not overlap, or rows would be
there twice: they are numbered, ``commits/compact-00000007.json``, and the store takes each number
once. Who reads the numbers before planning a merge and finds the next one taken was overtaken, and
merges nothing.

Records of merges are folded and removed, so a number may be free again. It stays spent: the fold
tells which names it stands for, and a record of such a name, which somebody wrote who had slept for
hours, is no record. A store lists names in their order, ``fold-`` after ``compact-``: who does not
see a record that was removed sees the fold that came before its removal.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from steptax.app.lake.bucket import Bucket
from steptax.app.lake.commits import LOOKS, Commit, CommitLog, Overtaken, Seen, body_of, commit_of
from steptax.app.lake.folded import Folded, fold_name, fold_number, runs_named
from steptax.app.one_shot import still_counts

FOLDER = "commits"
_NUMBERED = re.compile(r"compact-(\d{8})\.json")


class BucketCommits(CommitLog):
    """The records in a bucket, read again when what was read is older than ``fresh_s``.

    Below ``copies`` lie the runs of the fold on this machine.
    """

    def __init__(self, bucket: Bucket, copies: Path, *, fresh_s: float) -> None:
        super().__init__(copies / FOLDER)
        self._bucket = bucket
        self._fresh_s = fresh_s
        self._lock = Lock()
        self._read_at = -1e9
        self._next: int | None = None
        self._refetched: set[str] = set()
        self.generation = 0
        """Changes whenever there are other records than before."""

    def look(self) -> Seen:
        """The log as of at most ``fresh_s`` ago, or of this look (``held_look``)."""
        with self._lock:
            is_old = time.monotonic() - self._read_at > self._fresh_s
            if is_old and not still_counts(self._read_at):
                self._refresh()
            return self._seen

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
            if self._is_spent(name):
                raise Overtaken(name)
            self._next += 1
        elif not self._bucket.create(f"{FOLDER}/{name}", data):
            if self.get(commit.id) is not None:
                raise Overtaken(name)
            self._bucket.write(f"{FOLDER}/{name}", data)  # what is there cannot be read
        with self._lock:
            seen = self._seen
            names = tuple(sorted({*(seen.names or ()), name}))
            self._seen = Seen(names, {**seen.records, name: commit}, seen.folded)
            self.generation += 1

    @contextmanager
    def compacting(self, root: Path) -> Iterator[bool]:
        """Take the next number, before anything is planned; always True."""
        with self._lock:
            self._refresh()
            seen = self._seen
        self.refuse_damaged_fold()
        taken = [int(m[1]) for name in seen.names or () if (m := _NUMBERED.fullmatch(name))]
        self._next = max(max(taken, default=-1) + 1, seen.folded.next_number)
        try:
            yield True
        finally:
            self._next = None

    def place_of(self, name: str) -> str:
        """Where the file ``name`` of the log lies, for people."""
        return f"{self._bucket.url}/{FOLDER}/{name}"

    # -- folding, within ``compacting`` ------------------------------------------------------

    def listed(self) -> list[str]:
        """Names of all files of the log, as of now."""
        with self._lock:
            self._refresh()
            return [*(self._seen.names or ())]

    def write_run(self, name: str, data: bytes) -> Path:
        """Store a run of spent names; where its copy lies on this machine."""
        path = super().write_run(name, data)
        self._bucket.write(f"{FOLDER}/{name}", data)
        return path

    def write_fold(self, number: int, body: bytes) -> None:
        """Make a fold true; Overtaken where there is one of its number."""
        if not self._bucket.create(f"{FOLDER}/{fold_name(number)}", body):
            raise Overtaken(fold_name(number))

    def remove(self, names: Iterable[str]) -> None:
        """Delete files of the log that a fold stands for, or that no fold rests on."""
        gone = [*names]
        with contextlib.suppress(FileNotFoundError):  # another machine was at it
            self._bucket.delete([f"{FOLDER}/{name}" for name in gone])
        super().remove(gone)

    def next_number(self, folded: Iterable[str]) -> int:
        """What the number of a merge is at least, after one that stands for ``folded``."""
        taken = (int(m[1]) + 1 for name in folded if (m := _NUMBERED.fullmatch(name)))
        return max(taken, default=0)

    # -- reading -----------------------------------------------------------------------------

    def _is_spent(self, name: str) -> bool:
        """Whether a fold stands for a record that was written just now: its name was free again."""
        with self._lock:
            self._refresh()
            return bool(self._seen.folded.spent([f"{FOLDER}/{name}"]))

    def _refresh(self) -> None:
        began = time.monotonic()
        seen = self._seen
        for _ in range(LOOKS):
            names = tuple(self._bucket.names(FOLDER))
            found = self._read(names)
            folds = [n for n in names if fold_number(n) is not None]
            if not folds or found.folded.number == fold_number(folds[-1]):
                break  # else it went while it was read, or it is damaged
        self._seen = found
        if found.names != seen.names:
            self.generation += 1
        self._read_at = began

    def _bodies(self, names: Iterable[str]) -> dict[str, bytes]:
        bodies = self._bucket.read([f"{FOLDER}/{name}" for name in sorted(names)])
        return {path.removeprefix(f"{FOLDER}/"): body for path, body in bodies.items()}

    def _fold_from(self, body: bytes) -> Folded:
        try:
            return super()._fold_from(body)
        except ValueError:
            # A copy on this machine may be torn, of a power loss say: the store has it whole.
            torn = {*runs_named(body)} - self._refetched
            if not torn:
                raise
            self._refetched |= torn
            for name in torn:
                (self.folder / name).unlink(missing_ok=True)
            return super()._fold_from(body)

    def _fetched(self, runs: Iterable[str]) -> dict[str, Path]:
        """Where copies of runs lie on this machine, each as long as it is: they never change."""
        paths = {name: self.folder / name for name in runs}
        missing = {f"{FOLDER}/{n}": path for n, path in paths.items() if not path.exists()}
        self._bucket.fetch(missing)
        return paths
