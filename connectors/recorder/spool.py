"""A folder on the node's own disk where rows wait for their way over the network.

    <spool>/sender.lock                            held by the one process that sends
    <spool>/in/job=<id>/<table>.<rank>.<attempt>.<segment>   written by ranks
    <spool>/batches/<created us>-<stream>-<seq>.gz           packed, sent as they are
    <spool>/beats/job=<id>/rank-000003.json        heartbeats, replaced in place
    <spool>/gaps.json                              what had no room, by job and rank

What ranks write is safe from the death of any process; batches are forced to the disk too.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple
from urllib.parse import unquote

from steptax.connectors.recorder.batch import Piece
from steptax.connectors.recorder.segments import job_folder, replace_file, write_whole

#: Leftovers of ranks that were killed while they wrote.
_UNFINISHED_S = 3_600.0


def default_spool(url: str) -> str:
    """The folder of this user on this node for this destination."""
    base = os.environ.get("STEPTAX_SPOOL") or os.path.join(
        tempfile.gettempdir(), f"steptax-spool-{getattr(os, 'getuid', lambda: 0)()}"
    )
    return os.path.join(base, hashlib.sha256(url.encode()).hexdigest()[:12])


class Entry(NamedTuple):
    """A segment that a rank has written."""

    path: str
    piece: Piece


class Packed(NamedTuple):
    """A batch on the disk."""

    path: str
    size: int


class Spool:
    """Raises OSError when the folder cannot be made, or is not this user's own."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._in = os.path.join(folder, "in")
        self._batches = os.path.join(folder, "batches")
        self._beats = os.path.join(folder, "beats")
        os.makedirs(os.path.dirname(os.path.abspath(folder)), mode=0o700, exist_ok=True)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self._check_owner()
        for part in (self._in, self._batches, self._beats):
            os.makedirs(part, mode=0o700, exist_ok=True)
        self._beats_sent = os.path.join(folder, "beats.sent")
        self._hurry = os.path.join(folder, "hurry")
        self.lock_path = os.path.join(folder, "sender.lock")

    def _check_owner(self) -> None:
        """In a folder that everybody may write, somebody else may have made ours before us."""
        if not hasattr(os, "getuid"):
            return
        found = os.lstat(self.folder)
        parent = os.stat(os.path.dirname(os.path.abspath(self.folder)))
        is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
        is_safe = parent.st_uid in (0, os.getuid()) and (
            not parent.st_mode & 0o022 or bool(parent.st_mode & stat.S_ISVTX)
        )
        if not is_ours or not is_safe or found.st_mode & 0o022:
            raise PermissionError(
                f"others than this user may write to {self.folder}; name another spool"
            )

    # -- what ranks write -----------------------------------------------------------------------

    def put(self, piece: Piece, data: bytes) -> str:
        """Keep a segment; returns its path. Raises OSError, and nothing is kept then."""
        folder = os.path.join(self._in, job_folder(piece.job_id))
        name = f"{piece.table}.{piece.rank}.{piece.attempt}.{piece.name}"
        replace_file(folder, name, data)
        return os.path.join(folder, name)

    def entries(self) -> list[Entry]:
        """Segments that are not in a batch yet, oldest first."""
        found = [
            Entry(file.path, piece)
            for folder in _folders(self._in)
            for file in _files(folder.path)
            if (piece := _piece_of(folder.name, file)) is not None
        ]
        return sorted(found, key=lambda entry: entry.piece.name)

    # -- batches --------------------------------------------------------------------------------

    def packed(self) -> list[Packed]:
        """Batches in the order in which they were made; within a stream that of its numbers.

        The clock may have been set back between two batches, and a batch that comes after a later
        one of its stream would pass for one that is stored already.
        """
        found = [Packed(f.path, f.stat().st_size) for f in _files(self._batches)]
        named = [(*_batch_name(packed.path), packed) for packed in found]
        begins: dict[str, int] = {}
        for stream, _, created_us, _ in named:
            begins[stream] = min(begins.get(stream, created_us), created_us)
        ordered = sorted((begins[stream], stream, seq, p) for stream, seq, _, p in named if stream)
        return [packed for _, _, _, packed in ordered]

    def keep(self, name: str, data: bytes) -> Packed:
        """Force a batch to the disk; raises OSError, and nothing is kept then."""
        write_whole(self._batches, name, data)
        return Packed(os.path.join(self._batches, name), len(data))

    # -- heartbeats -----------------------------------------------------------------------------

    def beat_path(self, job_id: str, rank: int) -> tuple[str, str]:
        """Folder and name of a rank's heartbeat."""
        return os.path.join(self._beats, job_folder(job_id)), f"rank-{rank:06d}.json"

    def beats(self) -> Iterator[tuple[str, str, int]]:
        """Path, job and time of change (ns) of each heartbeat."""
        for folder in _folders(self._beats):
            for file in _files(folder.path):
                with contextlib.suppress(FileNotFoundError):
                    yield file.path, unquote(folder.name[4:]), file.stat().st_mtime_ns

    def beats_sent_ns(self) -> int:
        """Heartbeats written before this moment (ns since 1970) have been delivered."""
        try:
            return os.stat(self._beats_sent).st_mtime_ns
        except FileNotFoundError:
            return 0

    def mark_beats(self, moment_ns: int) -> None:
        """Note what ``beats_sent_ns`` says."""
        with open(self._beats_sent, "ab"):
            pass
        os.utime(self._beats_sent, ns=(moment_ns, moment_ns))

    def hurry(self) -> None:
        """Ask the sender not to wait for its next interval."""
        with open(self._hurry, "ab"):
            pass

    def was_hurried(self) -> bool:
        """True once after each ``hurry``."""
        try:
            os.unlink(self._hurry)
        except FileNotFoundError:
            return False
        return True

    # -- tidying --------------------------------------------------------------------------------

    def sweep(self) -> None:
        """Remove what killed ranks left half written."""
        before_s = time.time() - _UNFINISHED_S
        for base, _, names in os.walk(self.folder):
            for name in names:
                path = os.path.join(base, name)
                with contextlib.suppress(OSError):
                    if name.endswith(".tmp") and os.stat(path).st_mtime < before_s:
                        os.unlink(path)


class Gaps:
    """Rows that will never arrive, by job and rank: kept on the disk, so that a next sender knows.

    ``drop`` counts and removes files such that a kill between the two neither hides a gap nor
    counts it twice.
    """

    def __init__(self, spool: Spool) -> None:
        self._folder = spool.folder
        self._by_rank: dict[str, dict[str, Any]] = {}
        try:
            with open(os.path.join(spool.folder, "gaps.json"), "rb") as file:
                found = json.load(file)
            self._by_rank = dict(found["by_rank"])
            unfinished = list(found["removing"])
        except (OSError, ValueError, KeyError, TypeError):
            return
        for path in unfinished:
            _unlink(path)

    def drop(self, pieces: Iterable[Piece], paths: Iterable[str], reason: str) -> int:
        """Give up ``pieces``, which the files ``paths`` hold; returns the number of rows."""
        rows = 0
        for piece in pieces:
            rows += piece.rows
            gap = self._by_rank.setdefault(
                _key(piece.job_id, piece.rank), {"rows": 0, "first": None, "last": None}
            )
            gap["rows"] += piece.rows
            gap["reason"] = reason
            if piece.table == "steps":
                first, last = gap["first"], gap["last"]
                gap["first"] = piece.first if first is None else min(first, piece.first)
                gap["last"] = piece.last if last is None else max(last, piece.last)
        removing = list(paths)
        body = {"by_rank": self._by_rank, "removing": removing}
        with contextlib.suppress(OSError):  # a full disk: room is what this is about
            replace_file(self._folder, "gaps.json", json.dumps(body).encode())
        for path in removing:
            _unlink(path)
        return rows

    def of(self, job_id: str, rank: int) -> tuple[int, str | None]:
        """Rows that a rank has lost on the way, and the sentence that says so."""
        gap = self._by_rank.get(_key(job_id, rank))
        if gap is None:
            return 0, None
        steps = "" if gap["first"] is None else f" of steps {gap['first']} to {gap['last']}"
        return gap["rows"], f"{gap['rows']} rows{steps} were lost on the way: {gap['reason']}"


def _key(job_id: str, rank: int) -> str:
    return f"{rank} {job_id}"


def _batch_name(path: str) -> tuple[str, int, int]:
    """Stream, number and time of a batch; an empty stream when the file is none."""
    parts = os.path.basename(path).removesuffix(".gz").split("-")
    if not path.endswith(".gz") or len(parts) != 3:
        return "", 0, 0
    return parts[1], int(parts[2]), int(parts[0])


def _unlink(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def _folders(path: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as found:
            return [f for f in found if f.name.startswith("job=") and f.is_dir()]
    except FileNotFoundError:
        return []


def _files(path: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as found:
            return [file for file in found if not file.name.startswith(".")]
    except FileNotFoundError:
        return []


def _piece_of(folder: str, file: os.DirEntry[str]) -> Piece | None:
    """What a name says; None when the file is none of ours, or was just taken away."""
    try:
        table, rank, attempt, name = file.name.split(".", 3)
        _, _, first, last, rows, _ = name.split("-")
        return Piece(
            table,
            unquote(folder[4:]),
            int(rank),
            int(attempt),
            name,
            int(rows),
            int(first),
            int(last),
            file.stat().st_size,
        )
    except (ValueError, FileNotFoundError):
        return None
