"""The text that the demo trains on: the source of Python's standard library, as bytes.

It is on every machine that can run the demo. Each rank owns its own files; a document is a
paragraph (text between blank lines), or a whole top-level definition where a shard is of long
documents. Lengths are what they are in the files.
"""

from __future__ import annotations

import sysconfig
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from steptax.app.demo.model import Tokens
from steptax.app.errors import InputError

#: Separates paragraphs, and top-level definitions (two blank lines, by PEP 8).
PARAGRAPH = b"\n\n"
DEFINITION = b"\n\n\n"
#: Shorter scraps (a lone bracket, an ``else:``) are no documents.
SHORTEST_BYTES = 16
#: A common shard leaves out longer paragraphs, a shard of long documents shorter definitions.
LONGEST_PARAGRAPH_BYTES = 480
SHORTEST_DEFINITION_BYTES = 768


def library_files() -> tuple[Path, ...]:
    """The source files of the standard library, in the order of their names.

    Raises InputError when this Python came without them.
    """
    folder = Path(sysconfig.get_paths()["stdlib"])
    files = tuple(sorted(folder.glob("*.py")))
    if not files:
        raise InputError(
            "no source files of the standard library to train on",
            where=str(folder),
            hint="use a Python that ships its library as files",
        )
    return files


def documents(text: bytes, *, long: bool) -> list[bytes]:
    """Split one file into documents: its long top-level definitions, or its short paragraphs."""
    parts = [part.strip(b"\n") for part in text.split(DEFINITION if long else PARAGRAPH)]
    if long:
        return [part for part in parts if len(part) >= SHORTEST_DEFINITION_BYTES]
    return [part for part in parts if SHORTEST_BYTES <= len(part) <= LONGEST_PARAGRAPH_BYTES]


def mean_tokens(files: tuple[Path, ...], context: int) -> float:
    """Mean length of the paragraphs of ``files``, in tokens, cut at ``context``."""
    lengths = [
        min(len(document), context)
        for file in files
        for document in documents(file.read_bytes(), long=False)
    ]
    return float(np.mean(lengths))


@dataclass(frozen=True)
class Batch:
    """Packed sequences: ``inputs`` and ``targets`` hold sum(lengths) tokens (bytes)."""

    inputs: Tokens
    targets: Tokens
    lengths: list[int]

    @property
    def tokens(self) -> int:
        """Number of tokens."""
        return len(self.inputs)


def pack(sequences: list[bytes]) -> Batch:
    """Pack sequences for next-byte prediction; each starts from byte 0, which no text holds."""
    targets = np.frombuffer(b"".join(sequences), dtype=np.uint8).astype(np.intp)
    inputs = np.empty_like(targets)
    inputs[1:] = targets[:-1]
    lengths = [len(s) for s in sequences]
    inputs[np.cumsum([0, *lengths[:-1]])] = 0
    return Batch(inputs, targets, lengths)


class Shard:
    """The documents of one rank, without end, in an order that its seed decides.

    A document that is longer than ``context`` tokens is cut into pieces of that length. The files
    are shuffled anew in each epoch, and the documents inside each file. Raises InputError when
    the files hold no document at all.
    """

    def __init__(
        self, files: tuple[Path, ...], *, seed: int, context: int, long: bool = False
    ) -> None:
        if not any(documents(file.read_bytes(), long=long) for file in files):
            raise InputError(
                "a shard without documents",
                where=", ".join(file.name for file in files) or "no files",
                hint="use fewer workers",
            )
        self.context = context
        self._files = files
        self.long = long
        self._rng = np.random.default_rng(seed)
        self._pieces: deque[bytes] = deque()
        self._order: deque[Path] = deque()

    def batch(self, tokens: int) -> Batch:
        """The next ``tokens`` tokens; the last piece is cut there, its rest comes next."""
        taken: list[bytes] = []
        missing = tokens
        while missing:
            while not self._pieces:
                self._pieces.extend(self._next_file())
            piece = self._pieces.popleft()
            take = min(missing, self.context, len(piece))
            taken.append(piece[:take])
            missing -= take
            if take < len(piece):
                self._pieces.appendleft(piece[take:])
        return pack(taken)

    def _next_file(self) -> list[bytes]:
        """Read the next file's documents, shuffled."""
        if not self._order:
            order = self._rng.permutation(len(self._files))
            self._order.extend(self._files[i] for i in order.tolist())
        found = documents(self._order.popleft().read_bytes(), long=self.long)
        return [found[i] for i in self._rng.permutation(len(found)).tolist()]


class ColdShard(Shard):
    """A shard on slow storage without a cache: each document is a file opened and read anew.

    The storage answers after ``latency_s``, as a remote or overloaded one does.
    """

    def __init__(
        self, files: tuple[Path, ...], *, seed: int, context: int, latency_s: float
    ) -> None:
        super().__init__(files, seed=seed, context=context)
        self._latency_s = latency_s

    def _next_file(self) -> list[bytes]:
        time.sleep(self._latency_s)
        return super()._next_file()[:1]
