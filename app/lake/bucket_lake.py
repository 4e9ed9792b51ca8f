"""A lake in an object store: listed there, read through copies of its segments on the local disk.

A segment never changes, so a copy is never wrong; it is fetched when it is first read, and whatever
reads a lake in a folder reads the copy. What is written goes to the store first and is then there
for everybody:

    append      one object, visible when it is whole
    ingest      its parts as objects that nobody lists, then the record that adds them
    compaction  the same, with a record whose number the store takes once (see ``bucket_commits``)

A process that is killed between two of these leaves objects that no record adds. They are never
read, and an ingest or a merge of the same rows writes them anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from steptax.app.errors import NotFoundError
from steptax.app.lake.bucket import Bucket
from steptax.app.lake.bucket_commits import BucketCommits
from steptax.app.lake.commits import Commit
from steptax.app.lake.copies import KEPT_S, Copies, limit_bytes
from steptax.app.lake.files import write_whole
from steptax.app.lake.heartbeats import is_of_beats, newest_beats
from steptax.app.lake.lake import FOLDED_FORMAT, FORMAT, Lake
from steptax.app.lake.listing import Listing
from steptax.app.lake.look import look_again
from steptax.app.lake.quarantine import SetAside, damaged
from steptax.app.lake.segments import Name, Segment, job_folder, job_of_folder, parse_name
from steptax.app.one_shot import is_held, still_counts

#: What others write is seen after at most this.
FRESH_S = 1.0
#: Of the end of a segment so much is read at first: the footer of a million steps with every column
#: has 15 kB.
FOOTER_BYTES = 16 * 2**10
_MARKER = "LAKE.json"


def cache_folder(url: str) -> Path:
    """Where copies of the objects of ``url`` lie: below $STEPTAX_CACHE, else the user's cache."""
    base = os.environ.get("STEPTAX_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "steptax"
    )
    return Path(base) / hashlib.sha256(url.encode()).hexdigest()[:16]


class BucketListing(Listing):
    """The segments and jobs of a bucket, listed again when the list is older than ``fresh_s``.

    Within ``held_look`` a folder is listed once.
    """

    def __init__(self, bucket: Bucket, root: Path, commits: BucketCommits, fresh_s: float) -> None:
        super().__init__()
        self._bucket = bucket
        self._root = root
        self._commits = commits
        self._fresh_s = fresh_s
        self._held: dict[str, tuple[int, float, list[tuple[str, Name]]]] = {}
        self._held_folders: dict[str, tuple[int, float, list[str]]] = {}
        self._sizes_bytes: dict[str, dict[str, int]] = {}
        self._guard = Lock()

    def segments(self, folder: str) -> list[tuple[str, Name]]:
        """The segments in ``folder`` by name, and what their names say.

        A list is never older than the commits that are read with it: what a newer commit adds
        would be missing, and what it replaces hidden.
        """
        generation, now_s = self._commits.generation, time.monotonic()
        with self._guard:
            held = self._held.get(folder)
        if (
            held is not None
            and held[0] == generation
            and (now_s - held[1] <= self._fresh_s or still_counts(held[1]))
        ):
            return held[2]
        place = Path(folder).relative_to(self._root).as_posix()
        sizes_bytes = self._bucket.sizes_bytes(place) if self._may_be_there(folder) else {}
        names = ((entry, parse_name(entry)) for entry in sizes_bytes)
        found = [(entry, name) for entry, name in names if name is not None]
        with self._guard:
            self._held[folder] = generation, now_s, found
            self._sizes_bytes[folder] = sizes_bytes
        return found

    def sizes_bytes(self, folder: str) -> Mapping[str, int]:
        """How large what lies in ``folder`` is by name, as it was listed last; it never changes."""
        with self._guard:
            return self._sizes_bytes.get(folder, {})

    def jobs(self, folder: str) -> list[str]:
        """The jobs that have a folder in ``folder``, sorted; as of now, or of this look."""
        found = (job_of_folder(entry) for entry in self._folders(folder))
        return sorted(job for job in found if job is not None)

    def _folders(self, folder: str) -> list[str]:
        """Names of the folders in ``folder``."""
        generation, now_s = self._commits.generation, time.monotonic()
        with self._guard:
            held = self._held_folders.get(folder)
        if held is not None and held[0] == generation and still_counts(held[1]):
            return held[2]
        place = Path(folder).relative_to(self._root).as_posix()
        found = self._bucket.folders(place) if self._may_be_there(folder) else []
        with self._guard:
            self._held_folders[folder] = generation, now_s, found
        return found

    def _may_be_there(self, folder: str) -> bool:
        """False where the folder above it was listed in this look, and did not have it.

        Most tables of a lake are empty, and most jobs have rows in few of them. A store is asked
        twice about what it does not have.
        """
        above, _, name = folder.rpartition("/")
        return not is_held() or Path(above) == self._root or name in self._folders(above)

    def forget(self, folder: Path) -> None:
        """List ``folder`` anew: something was written there."""
        with self._guard:
            self._held.pop(str(folder), None)
            self._held_folders.clear()


class BucketLake(Lake):
    """A lake at a URL that fsspec reaches. ``root`` is the folder of copies on this machine."""

    def __init__(self, url: str, *, create: bool = False, fresh_s: float = FRESH_S) -> None:
        self.url = url
        self.bucket = Bucket(url)
        copies = cache_folder(url)
        marker = self._marker()
        if marker is None and create:
            marker = orjson.dumps({"format": FORMAT})
            self.bucket.write(_MARKER, marker)
        if marker is None and not self.bucket.folders("tables"):
            raise NotFoundError(
                "there is no lake here",
                where=url,
                hint="make one: steptax ingest KIND PATH --lake URL",
            )
        write_whole(copies / _MARKER, marker or orjson.dumps({"format": FORMAT}))
        super().__init__(copies)
        commits = BucketCommits(self.bucket, copies, fresh_s=fresh_s)
        self.commits = commits
        self._remote = BucketListing(self.bucket, copies, commits, fresh_s)
        self._listing = self._remote
        self._copies = Copies(copies, self._is_stored, self._is_merged)
        limit_bytes()  # says now what is wrong with it

    def _marker(self) -> bytes | None:
        return self.bucket.read([_MARKER]).get(_MARKER)

    # -- reading -----------------------------------------------------------------------------

    def fetched(self, segments: Iterable[Segment]) -> Sequence[Segment]:
        """``segments``, each with its copy on this machine."""
        found = list(segments)
        missing = {self.relative(s.path): s.path for s in found if not s.path.exists()}
        # Before what is there is counted on, and what is fetched is of now.
        self._copies.use(s.path for s in found)
        if missing:
            self._copies.make_room()
        self.bucket.fetch(missing)
        return found

    def _is_stored(self, place: str) -> bool:
        """Whether the store has, or had, the file of that name: a segment that was committed."""
        told = parse_name(place.rpartition("/")[2])
        if told is None:
            return False
        commits, replaced = self.commits.state()
        if told.commit_id is None or place in replaced:
            return True
        commit = commits.get(told.commit_id)
        return commit is not None and place in commit.added

    def _is_merged(self, place: str) -> bool:
        """Whether the segment of that name was merged or dropped, longer ago than it is read."""
        _, replaced = self.commits.state()
        if place not in replaced:
            return False
        commit = replaced.get(place)  # None: it was folded, and is older than that
        return commit is None or commit.created_us < (time.time() - KEPT_S) * 1e6

    def footers(self, segments: Iterable[Segment]) -> dict[Path, pq.FileMetaData]:
        """What the ends of Parquet segments say of them, of those without a copy read alone."""
        wanted = [segment for segment in segments if segment.is_parquet]
        found = super().footers(s for s in wanted if s.path.exists())
        sizes_bytes = self.sizes_bytes(s for s in wanted if s.path not in found)
        ends = self._ends(dict.fromkeys(sizes_bytes, FOOTER_BYTES), sizes_bytes)
        # One that is longer says so in the eight bytes at its end.
        longer = {
            path: length
            for path, end in ends.items()
            if len(end) < (length := int.from_bytes(end[-8:-4], "little") + 8) <= sizes_bytes[path]
        }
        ends |= self._ends(longer, sizes_bytes)
        for path, end in ends.items():
            with contextlib.suppress(pa.ArrowException, OSError):
                found[path] = pq.read_metadata(pa.BufferReader(end))
        return found

    def _ends(
        self, lengths_bytes: Mapping[Path, int], sizes_bytes: Mapping[Path, int]
    ) -> dict[Path, bytes]:
        """The last so many bytes of objects, by where their copies lie; nothing of empty ones."""
        paths = {self.relative(path): path for path in lengths_bytes if sizes_bytes[path]}
        ranges = {
            name: (max(0, sizes_bytes[path] - lengths_bytes[path]), sizes_bytes[path])
            for name, path in paths.items()
        }
        return {paths[name]: end for name, end in self.bucket.read_ranges(ranges).items()}

    def sizes_bytes(self, segments: Iterable[Segment]) -> dict[Path, int]:
        """How large segments are in the store, by path; those that are gone are left out."""
        found = {}
        for path in (segment.path for segment in segments):
            size = self._remote.sizes_bytes(str(path.parent)).get(path.name)
            if size is not None:
                found[path] = size
        return found

    def is_there(self, path: Path) -> bool:
        """Whether a file that a commit names can be read: unless it was found damaged, it can."""
        return path not in self._passed_over

    def _entries_of(self, folder: str) -> set[str]:
        """Names of the objects in a folder of the lake."""
        return {*self.bucket.names(folder)}

    def set_damaged_aside(self, segments: Iterable[Segment]) -> int:
        """Fetch damaged copies anew; what is damaged in the store too is passed over."""
        here = [segment for segment in segments if segment.path.exists()]
        found = damaged(self.root, here)
        for path in found:
            with contextlib.suppress(FileNotFoundError):  # merged and removed meanwhile
                self.bucket.fetch({self.relative(path): path})
        for path, reason in damaged(self.root, (s for s in here if s.path in found)).items():
            place, now_us = self.relative(path), time.time_ns() // 1000
            self._passed_over[path] = SetAside(place, reason, now_us, is_moved=False)
            path.unlink(missing_ok=True)
        look_again()
        return len(found)

    def live_job_ids(self) -> list[str]:
        """Jobs whose recorders have given a sign of life, sorted."""
        found = (job_of_folder(entry) for entry in self.bucket.folders("live"))
        return sorted(job for job in found if job is not None)

    def _beats(self, job_id: str) -> tuple[list[dict[str, Any]], Mapping[str, str]]:
        place = f"live/{job_folder(job_id)}"
        names = [f"{place}/{n}" for n in self.bucket.names(place) if is_of_beats(n)]
        # Nothing of it goes through a file: others of this machine read at the same moment.
        bodies = self.bucket.read(names)
        return newest_beats({path.rpartition("/")[2]: body for path, body in bodies.items()})

    # -- writing -----------------------------------------------------------------------------

    def append(self, name: str, rows: pa.Table, *, source: str) -> list[Path]:
        """Append rows, visible at once. Returns the copies of the segments written."""
        written = super().append(name, rows, source=source)
        self.bucket.put({self.relative(path): path for path in written})
        for path in written:
            self._remote.forget(path.parent)
        return written

    def commit(self, commit: Commit) -> None:
        """Make an ingest or a compaction visible."""
        added = {name: self.root / name for name in commit.adds}
        self.bucket.put(added)
        super().commit(commit)

    def mark_folded(self) -> None:
        """Have versions that know no folds refuse this lake; before each fold of its log."""
        body = orjson.dumps({"format": FOLDED_FORMAT})
        if self._marker() != body:
            self.bucket.write(_MARKER, body)
        super().mark_folded()

    def discard(self, names: Iterable[str]) -> list[str]:
        """Remove replaced segments; those that were still there."""
        gone = sorted(self.holding(names))
        self.bucket.delete(gone)
        for name in gone:
            (self.root / name).unlink(missing_ok=True)
        return gone
