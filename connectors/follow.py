"""Reading a file while it grows, from where the last reading of it stopped.

A stretch ends with a whole line: a line that is still being written waits. A file that was renamed
(rotated) is read to its end before the next one is begun, and each that was rotated since then
(``rotation``), packed or not, before the one that grows now. One that became shorter, or begins
with other bytes, was written anew: what it had is read from its copy, if there is one, and then it
from its beginning. Where the chain is broken, it is said that steps may be missing.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from steptax.app.errors import InputError
from steptax.app.schema import Batch
from steptax.connectors.base import Connector, LineFormat, Options, Run
from steptax.connectors.position import HEAD_BYTES, Position, digest_of, tail_of
from steptax.connectors.rotation import Generation, chain, open_plain
from steptax.connectors.sources import (
    BLOCK_BYTES,
    LINE_BYTES,
    BadLine,
    TextBlock,
    text_of,
)

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Stretch:
    """What one reading gave. ``after`` and ``state`` are where the next one goes on."""

    batches: tuple[Batch, ...]
    before: Position
    after: Position
    state: Mapping[str, Any]
    digest: str
    behind_bytes: int
    """Bytes of the file that were not read yet."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to store."""
        return not any(b.rows.num_rows or b.rejects for b in self.batches)


class Follower:
    """Reads one growing file, stretch by stretch."""

    def __init__(
        self,
        reader: Connector,
        source: Path,
        options: Options,
        *,
        position: Position | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        self.source = source
        self.notes: list[str] = []
        """What happened to the file; whoever follows takes them out."""
        self._reader = reader
        self._options = options
        self._position = position or Position()
        self._run: Run | None = None
        self._state = state
        self._handle: BinaryIO | None = None
        self._path = source
        """What is open; the source itself, or what it was before."""
        self._plain = source
        """The text of it."""
        self._identity = (0, 0)
        """Its inode and device, which it keeps when it is renamed."""
        self._last_form: LineFormat | None = None
        self._skipping = False
        self._said: set[str] = set()
        self._known: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    @property
    def position(self) -> Position:
        """How far the file was read."""
        return self._position

    def close(self) -> None:
        """Let go of the file."""
        if self._handle is not None:
            self._handle.close()
            self._handle = None

    def read(self) -> Stretch | None:
        """The next stretch of whole lines; None where there is none yet.

        InputError when the file is not what its kind reads.
        """
        turned = self._turn()
        if self._handle is None:
            return None
        data, final = self._fetch(turned)
        if not data:
            return None
        # The head of a renamed file is no longer under its name.
        form = self._last_form if turned and self._last_form else self._form()
        if form is None:
            return None
        self._last_form = form
        block, taken = self._block(data, form, final=final)
        if block is None:
            return None
        before = self._position
        size = os.fstat(self._handle.fileno()).st_size
        head_bytes = min(HEAD_BYTES, before.offset + taken)
        self._position = Position(
            before.offset + taken,
            before.line + data[:taken].count(b"\n"),
            self._identity[0],
            digest_of(self._handle, head_bytes),
            head_bytes,
            self._changed_ns(),
            tail_of(self._handle, before.offset + taken),
        )
        batches = tuple(self._parse(block, form))
        assert self._run is not None
        return Stretch(
            batches,
            before,
            self._position,
            self._run.state(),
            hashlib.sha256(data[:taken]).hexdigest(),
            size - self._position.offset,
        )

    # -- the file ----------------------------------------------------------------------------

    def _turn(self) -> bool:
        """Open what is to be read now; True while nobody will add to that."""
        while True:
            there = chain(self.source)
            now = there[0] if there and there[0].path == self.source else None
            if self._handle is None:
                self._open(there, now)
                if self._handle is None:
                    return False
                continue
            if now is not None and now.identity == self._identity:
                if not self._position.is_of(self._handle):
                    self._written_anew(there)
                return False
            if os.fstat(self._handle.fileno()).st_size > self._position.offset:
                return True  # renamed or deleted, and not read to its end
            following = self._following(there)
            if following is None:
                return True
            self.close()
            direct = following.path == self.source
            self.notes.append(
                "the file was renamed and begun anew"
                if direct
                else f"the file was renamed more than once: {following.path.name} comes next"
            )
            self._begin(following)

    def _open(self, there: list[Generation], now: Generation | None) -> None:
        """Open the file that the position is in, else where reading can go on."""
        if self._position.offset == 0:
            if now is not None:
                self._begin(now)
            return
        same = [g for g in there if g.identity[0] == self._position.inode]
        others = [*same, *(g for g in there if g not in same), *self._renamed(there)]
        for generation in others:
            if self._resume(generation):
                return
        if now is None:
            return
        line = self._position.line
        self.notes.append(
            "the file was replaced while nobody followed it, and the old one is not beside it: "
            f"what it had after line {line - 1:,} is not read, so steps may be missing"
        )
        newer = [g for g in there if 0 < self._position.changed_ns < g.changed_ns]
        self._begin(newer[-1] if newer else now)

    def _written_anew(self, there: list[Generation]) -> None:
        """The source was emptied: read what its copy has of it, then it from its beginning."""
        self.close()
        for generation in there:
            if generation.path != self.source and self._resume(generation):
                self.notes.append(
                    f"the file was written anew: {generation.path.name} has what it was before"
                )
                return
        self.notes.append(
            "the file was written anew: it is read from its beginning; what it had after line "
            f"{self._position.line - 1:,} and lost then was not read, so steps may be missing"
        )
        self._begin(there[0])

    def _resume(self, generation: Generation) -> bool:
        """Open ``generation`` if the position is in it."""
        try:
            handle, fault = open_plain(generation.path)
        except OSError:
            return False
        if not self._position.is_of(handle):
            handle.close()
            return False
        self._take(generation, handle, fault)
        return True

    def _begin(self, generation: Generation) -> None:
        """Open ``generation`` from its beginning; nothing is open if it is gone meanwhile."""
        self._position, self._skipping = Position(), False
        try:
            handle, fault = open_plain(generation.path)
        except OSError:
            return
        self._take(generation, handle, fault)

    def _take(self, generation: Generation, handle: BinaryIO, fault: str | None) -> None:
        self._handle, self._path, self._identity = handle, generation.path, generation.identity
        # A file that was unpacked lies elsewhere, for as long as it is open.
        self._plain = Path(handle.name)
        self._last_form = None if self._plain != self._path else self._last_form
        if fault is not None:
            self.notes.append(fault)

    def _following(self, there: list[Generation]) -> Generation | None:
        """The file that was written after the one that is open; None where there is none yet."""
        assert self._handle is not None
        for age, generation in enumerate(there):
            if generation.identity == self._identity:
                return there[age - 1] if age else None
        # It was packed or deleted since.
        for age, generation in enumerate(there):
            if self._is_of(generation.path):
                return there[age - 1] if age else None
        newer = [g for g in there if g.changed_ns >= self._changed_ns()]
        return newer[-1] if newer else None

    def _is_of(self, path: Path) -> bool:
        try:
            handle, _ = open_plain(path)
        except OSError:
            return False
        with handle:
            return self._position.is_of(handle)

    def _changed_ns(self) -> int:
        """When the open file was written last; that of a packed one is its own."""
        assert self._handle is not None
        found = os.fstat(self._handle.fileno())
        if (found.st_ino, found.st_dev) == self._identity:
            return found.st_mtime_ns
        with contextlib.suppress(OSError):
            return self._path.stat().st_mtime_ns
        return self._position.changed_ns

    def _renamed(self, there: list[Generation]) -> list[Generation]:
        """Other files beside the source that may be the one that was read, whatever their names."""
        folder, name = self.source.parent, self.source.name
        known = {g.path for g in there}
        found = []
        with contextlib.suppress(OSError):
            for path in sorted(folder.iterdir()):
                if path.name.startswith(name) and path not in known and path.is_file():
                    one = path.stat()
                    found.append(Generation(path, (one.st_ino, one.st_dev), one.st_mtime_ns))
        return found

    def _fetch(self, turned: bool) -> tuple[bytes, bool]:
        """Bytes after the position, and whether nobody will add to them."""
        assert self._handle is not None
        self._handle.seek(self._position.offset)
        data = self._handle.read(BLOCK_BYTES)
        ended = len(data) < BLOCK_BYTES
        return data, turned and ended

    def _form(self) -> LineFormat | None:
        """How to read the lines; None while the file's head says nothing yet."""
        try:
            form = self._reader.lines(self.source, self._options)
        except InputError:
            if self._path != self.source:
                # The one that grows now has hardly begun, or is not there.
                form = self._reader.lines(self._plain, self._options)
            elif self._position.offset == 0 and self._is_young():
                return None
            else:
                raise
        if form is None:
            raise InputError(
                "cannot be read while it grows",
                where=str(self.source),
                hint="name its folder: whole files are taken from there as they appear",
            )
        if self._run is None:
            self._run = self._reader.begin(self.source, self._options)
            if self._state is not None:
                self._run.restore(self._state)
        return form

    def _is_young(self) -> bool:
        """Whether the file has hardly begun: its first two lines are not written yet."""
        assert self._handle is not None
        self._handle.seek(0)
        return self._handle.read(LINE_BYTES).count(b"\n") < 2

    # -- lines -------------------------------------------------------------------------------

    def _block(self, data: bytes, form: LineFormat, *, final: bool) -> tuple[TextBlock | None, int]:
        """Whole lines of ``data`` and how many bytes of it they take; no block while none is."""
        line = self._position.line
        if self._skipping:
            # The rest of a line that was too long.
            end = data.find(b"\n") + 1
            self._skipping = end == 0
            return TextBlock(line, b""), end or len(data)
        cut = len(data) if final else data.rfind(b"\n") + 1
        if cut == 0 and len(data) > LINE_BYTES:
            self._skipping = True
            reason = f"expected a line of at most {LINE_BYTES} bytes, found a longer one"
            return TextBlock(line, b"", (BadLine(line, reason, text_of(data)),)), len(data)
        if cut and not final:
            cut = form.cut_at(data, cut)
        if cut == 0:
            return None, 0
        text = data[:cut]
        if self._position.offset == 0:
            text = text.removeprefix(_BOM)
        return TextBlock(line, text), cut

    def _parse(self, block: TextBlock, form: LineFormat) -> Iterator[Batch]:
        assert self._run is not None
        raw = form.chunk(block)
        for batch in self._reader.parse(raw, self._options):
            for out in self._run.take(batch):
                yield self._once(out)
        for out in self._run.flush():
            yield self._once(self._news(out))

    def _once(self, batch: Batch) -> Batch:
        fresh = tuple(note for note in dict.fromkeys(batch.notes) if note not in self._said)
        self._said.update(fresh)
        return replace(batch, notes=fresh)

    def _news(self, batch: Batch) -> Batch:
        """Facts of jobs and ranks that were not said before."""
        keep = []
        for row in batch.rows.to_pylist():
            key = (batch.table, row.get("job_id"), row.get("rank"))
            values = tuple(sorted((k, str(v)) for k, v in row.items()))
            keep.append(self._known.get(key) != values)
            self._known[key] = values
        return replace(batch, rows=batch.rows.filter(keep)) if keep else batch
