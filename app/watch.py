"""Following sources into the lake: what was read and how far become visible in one rename."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import fnmatch
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from steptax.app.errors import InputError, UserError
from steptax.app.ingest import ingest_file
from steptax.app.lake import Lake
from steptax.app.lake.conflicts import LaterRunError
from steptax.app.lake.ingest import IngestResult, fingerprint, ingest
from steptax.connectors.base import Connector, Options
from steptax.connectors.follow import Follower
from steptax.connectors.money.bill import BillConnector
from steptax.connectors.position import Position
from steptax.connectors.registry import connector

#: Names of files that their writers have not finished.
_UNFINISHED = (".*", "*.tmp", "*.part", "*.partial", "*~", "*.swp")
#: What the system says where nothing more can be written; None: a library that does not say.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, None)
Clock = Callable[[], float]


@dataclass(frozen=True)
class Stored:
    """A commit: what one stretch or one whole file gave."""

    path: Path
    result: IngestResult
    behind_bytes: int
    """Bytes of the file that were not read yet."""
    lag_s: float
    """Age of the newest data in the file when it was stored."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Told:
    """What was noticed in lines that gave nothing to store."""

    path: Path
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Refused:
    """A file that cannot be read, and why.

    ``waits`` tells that each look tries it again, and that what it was is said once only: a server
    that is away, a disk that is full.
    """

    path: Path
    error: InputError
    waits: bool = False


def not_stored(lake: Lake, error: OSError) -> InputError:
    """What is said where the lake, or a folder for what was pulled, cannot be written."""
    return InputError(
        f"cannot be stored: {error.strerror or error}",
        where=str(lake.root),
        hint="free some disk space; what the source holds is taken at a later look",
    )


@dataclass
class _File:
    """A file of the source, and how far it is taken."""

    follower: Follower | None = None
    whole: tuple[int, int] | None = None
    """Size and time of the whole file that was stored last, or refused."""
    seen: tuple[int, int] | None = None
    """The same of the last look: a file that changes from look to look is not finished."""
    refused: tuple[int, int] | None = None
    """The same of the look at which it could not be read."""


@dataclass
class Watch:
    """Follows one file, or the files of one folder, into ``lake``.

    ``match`` chooses files of a folder by name. ``clock`` gives seconds since 1970.
    """

    lake: Lake
    kind: str
    source: Path
    options: Options
    match: str = "*"
    clock: Clock = time.time
    _files: dict[Path, _File] = field(default_factory=dict)
    _is_full: bool = field(default=False, init=False)
    """Whether the lake could not be written at the last look, which is told once."""

    def __post_init__(self) -> None:
        """NotFoundError for a kind that does not exist."""
        self._reader: Connector = connector(self.kind)
        self._facts = sorted((k, str(v)) for k, v in asdict(self.options).items() if v)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold this source: UserError where another watch of it is at work in this lake."""
        with held(self.lake, self._key(self.source), str(self.source)):
            try:
                yield
            finally:
                self.close()

    def close(self) -> None:
        """Let go of all files."""
        for file in self._files.values():
            if file.follower is not None:
                file.follower.close()
        self._files.clear()

    def look(self, *, settled: bool = False) -> Iterator[Stored | Refused | Told]:
        """Store what is new since the last look.

        A whole file of a folder is taken once it no longer changes from one look to the next;
        ``settled`` takes it at once. InputError where the source itself cannot be read. A lake that
        cannot be written (its disk is full) is told once, and tried again at the next look; with
        ``settled`` InputError.
        """
        try:
            for found in self._look(settled=settled):
                if isinstance(found, Stored):
                    self._is_full = False
                yield found
        except OSError as error:
            if error.errno not in _FULL:  # of the source, say
                raise
            fault = not_stored(self.lake, error)
            if settled:
                raise fault from error
            if not self._is_full:
                self._is_full = True
                yield Refused(self.source, fault, waits=True)

    def _look(self, *, settled: bool) -> Iterator[Stored | Refused | Told]:
        if not self.source.is_dir():
            yield from self._one(self.source, settled=settled, alone=True)
            return
        for path in self._listed():
            yield from self._one(path, settled=settled, alone=False)

    def _listed(self) -> list[Path]:
        found = []
        for path in self.source.rglob("*"):
            name = path.name
            parts = path.relative_to(self.source).parts
            if any(part.startswith(".") for part in parts):
                continue
            if any(fnmatch.fnmatch(name, pattern) for pattern in _UNFINISHED):
                continue
            if fnmatch.fnmatch(name, self.match) and path.is_file():
                found.append(path)
        if isinstance(self._reader, BillConnector):
            # Of a bill that is exported again the newest holds, whatever it is called.
            return sorted(found, key=lambda path: (_stamp(path)[1], path))
        return sorted(found)

    def _one(self, path: Path, *, settled: bool, alone: bool) -> Iterator[Stored | Refused | Told]:
        file = self._files.setdefault(path, _File())
        if file.refused is not None and file.refused == _stamp(path):
            return
        try:
            if file.follower is None and not self._begin(path, file):
                yield from self._whole(
                    path, file, settled=settled or (alone and file.whole is None)
                )
                return
            yield from self._grow(path, file)
        except InputError as error:
            if alone:
                raise
            if file.refused is None:
                yield Refused(path, error)
            file.refused, file.follower = _stamp(path), None

    def _begin(self, path: Path, file: _File) -> bool:
        """Follow ``path`` from where it was left; False where only the whole file can be read."""
        position, state = self._left(path)
        if position is None:
            try:
                if path.exists() and self._reader.lines(path, self.options) is None:
                    return False
            except InputError:
                with path.open("rb") as handle:
                    if handle.read(1 << 20).count(b"\n") > 1:
                        raise
                # Its first lines are not written yet: whether it grows will be seen then.
        file.follower = Follower(self._reader, path, self.options, position=position, state=state)
        return True

    def _grow(self, path: Path, file: _File) -> Iterator[Stored | Told]:
        follower = file.follower
        assert follower is not None
        while True:
            changed = self.clock()
            with contextlib.suppress(FileNotFoundError):
                changed = path.stat().st_mtime
            stretch = follower.read()
            if stretch is None:
                return
            file.refused = None
            if stretch.is_empty:
                heard = tuple(n for batch in stretch.batches for n in batch.notes)
                if heard:
                    yield Told(path, heard)
                continue
            ingest_id = fingerprint(
                [],
                "watch",
                self.kind,
                self._reader.version,
                self._key(path),
                stretch.digest,
                asdict(stretch.before),
                asdict(stretch.after),
            )
            try:
                result = ingest(
                    self.lake,
                    stretch.batches,
                    ingest_id=ingest_id,
                    source=f"{self.kind}:{path.name}",
                    refuse_later_run=True,
                    local_clock=self._reader.has_local_clock(self.options),
                    detail={
                        "path": str(path.resolve()),
                        "connector": self.kind,
                        "version": self._reader.version,
                        "options": dict(self._facts),
                        "watch": {
                            "key": self._key(path),
                            "position": asdict(stretch.after),
                            "state": stretch.state,
                        },
                    },
                )
            except BaseException as error:
                # What was read is not stored: begin again from what is.
                follower.close()
                file.follower = None
                if isinstance(error, LaterRunError):
                    raise error.at(path) from None
                raise
            notes, follower.notes = tuple(follower.notes), []
            lag = max(0.0, self.clock() - changed)
            yield Stored(path, result, stretch.behind_bytes, lag, notes)

    def _whole(self, path: Path, file: _File, *, settled: bool) -> Iterator[Stored]:
        now = _stamp(path)
        if now == file.whole or not now[0]:
            return
        if not settled and now != file.seen:
            file.seen = now
            return
        try:
            result = ingest_file(self.lake, self.kind, path, self.options)
        except InputError:
            file.whole = now
            raise
        file.whole, file.refused = now, None
        if not result.already:
            yield Stored(path, result, 0, max(0.0, self.clock() - now[1] / 1e9))

    def _key(self, path: Path) -> str:
        """What identifies this watch of ``path``: the same options read it the same way.

        A link is what is followed, and not the file that it leads to just now.
        """
        named = Path(os.path.abspath(path))
        place = named.parent.resolve() / named.name
        return fingerprint([], "watch", self.kind, place, self._facts)

    def _left(self, path: Path) -> tuple[Position | None, dict[str, Any] | None]:
        """Where the newest commit of this watch stopped."""
        newest = newest_of(self.lake, self._key(path))
        if newest is None:
            return None, None
        return Position(**newest["position"]), newest["state"]


@contextmanager
def held(lake: Lake, key: str, source: str) -> Iterator[None]:
    """Hold the watch ``key`` of ``source``: UserError where another one is at work in ``lake``."""
    folder = lake.root / "watch"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{key}.lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(
                "another watch of this source is at work",
                where=source,
                hint="stop it first, or leave it to it",
            ) from None
        yield


def newest_of(lake: Lake, key: str) -> dict[str, Any] | None:
    """What the newest commit of the watch ``key`` says of where it stopped; None before it."""
    newest: dict[str, Any] | None = None
    at_us = -1
    for commit in lake.commits.all().values():
        said = commit.detail.get("watch")
        if said is not None and said["key"] == key and commit.created_us > at_us:
            newest, at_us = said, commit.created_us
    return newest


def _stamp(path: Path) -> tuple[int, int]:
    """Size and time of ``path``; zeros where it is gone."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0, 0
    return found.st_size, found.st_mtime_ns
