"""How much room the copies of a bucket's segments take on this machine, and which go.

Copies are used again and again, so they stay as long as there is room: up to $STEPTAX_CACHE_BYTES,
else half of what the disk had without them. Beyond that those go that were used longest ago, never
one of the last quarter of an hour: whoever has just asked for it may not have opened it yet. Who
has a file open reads on when it is removed, and who asks for it later has it fetched again.

Whoever merges segments removes them from the store, and their roll-ups on its own machine. On the
others these go here, and so does what a process that was killed had fetched in part.

When a copy was used is the time of its file, so that all processes of the machine know it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from steptax.app.errors import UserError
from steptax.app.lake.rollups import forget

#: What was used since then stays, however much it is.
KEPT_S = 900.0
#: Use is noted, and room made, no more often than this by one process.
NOTED_S = 60.0
#: What was fetched in part and not written to for so long has no writer any more.
UNFINISHED_S = 86_400.0
#: Folders of a lake that hold copies: of segments, and of sums that outlived theirs.
FOLDERS = ("tables", "kept")
#: Copies whose use one process has in mind.
_NOTED = 1 << 17
_LIMIT = "STEPTAX_CACHE_BYTES"


class Copies:
    """The copies below ``root``; safe to share between threads and processes.

    ``is_stored`` says of the name of a file, relative to ``root``, whether the store has it: what
    was written here and is on its way there is no copy yet. ``is_merged`` says whether it is of a
    segment that another took the place of, longer ago than anybody reads it.
    """

    def __init__(
        self,
        root: Path,
        is_stored: Callable[[str], bool],
        is_merged: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._root = root
        self._is_stored = is_stored
        self._is_merged = is_merged
        self._noted_s: dict[Path, float] = {}
        self._room_made_s = -NOTED_S

    def use(self, paths: Iterable[Path]) -> None:
        """Note that copies are used now."""
        now_s = time.monotonic()
        if len(self._noted_s) > _NOTED:
            self._noted_s = {}
        for path in paths:
            if now_s - self._noted_s.get(path, -NOTED_S) >= NOTED_S:
                with contextlib.suppress(OSError):
                    os.utime(path)
                self._noted_s[path] = now_s

    def make_room(self) -> int:
        """Remove those used longest ago while there are too many; how many there were."""
        now_s = time.monotonic()
        if now_s - self._room_made_s < NOTED_S:
            return 0
        self._room_made_s = now_s
        self._clear()
        there = sorted(self._there())
        held_bytes = sum(size for _, size, _ in there)
        limit_bytes = self._limit_bytes(held_bytes)
        before_s, count = time.time() - KEPT_S, 0
        for used_s, size, path in there:
            if held_bytes <= limit_bytes or used_s >= before_s:
                break
            if not self._is_stored(path.relative_to(self._root).as_posix()):
                continue
            with contextlib.suppress(OSError):  # another process removed it, or it is another's
                # To look at all of them takes seconds: one may have been asked for since.
                if path.stat().st_mtime >= before_s:
                    continue
                path.unlink()
                count += 1
                held_bytes -= size
        return count

    def _clear(self) -> None:
        """Remove what nobody reads any more, however much room there is."""
        for level in sorted((self._root / "rollups").glob("*/*")):
            for place, _, names in os.walk(level):
                for path in (Path(place, name) for name in names):
                    segment = "tables" / path.relative_to(level)
                    if self._is_merged(segment.as_posix()):
                        with contextlib.suppress(OSError):
                            # First, while it is there: what adds it up goes with it.
                            forget(self._root, segment.parts[1], self._root / segment)
                            path.unlink(missing_ok=True)  # also one of an older version
        before_s = time.time() - UNFINISHED_S
        # Anywhere: sums and what stands for commits are written in the same way as copies.
        for path in self._root.rglob(".*.tmp"):
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < before_s:
                    path.unlink()

    def _there(self) -> Iterator[tuple[float, int, Path]]:
        """When each file was used, how large it is, and where it lies."""
        for folder in FOLDERS:
            for place, _, names in os.walk(self._root / folder):
                for path in (Path(place, name) for name in names):
                    with contextlib.suppress(FileNotFoundError):  # another process removed it
                        told = path.stat()
                        yield told.st_mtime, told.st_size, path

    def _limit_bytes(self, held_bytes: int) -> int:
        given = limit_bytes()
        return (shutil.disk_usage(self._root).free + held_bytes) // 2 if given is None else given


def limit_bytes() -> int | None:
    """What this machine is told copies of a lake may take; None where it is told nothing."""
    given = os.environ.get(_LIMIT)
    if not given:
        return None
    if not given.isdecimal():
        raise UserError(
            f"expected a number of bytes, found {given!r}",
            where=_LIMIT,
            hint=f"{_LIMIT}=50000000000 for 50 GB",
        )
    return int(given)
