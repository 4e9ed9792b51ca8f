"""How far a file was read, and whether a file is still the one that was read."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import BinaryIO

#: Bytes at the beginning of a file that tell it from another one.
HEAD_BYTES = 1024
#: Bytes before the place that was read up to: runs of one job begin with the same banner.
_TAIL_BYTES = 256


@dataclass(frozen=True)
class Position:
    """How far a file was read.

    ``head`` is the digest of its first ``head_bytes`` bytes, ``tail`` that of the last ones before
    ``offset``; of positions stored before there was one it is empty.
    """

    offset: int = 0
    line: int = 1
    inode: int = 0
    head: str = ""
    head_bytes: int = 0
    changed_ns: int = 0
    """When the file was written last, as of this reading; 0 = not known."""
    tail: str = ""

    def is_of(self, handle: BinaryIO) -> bool:
        """Whether the open file is the one that this is a position in; a beginning is in any."""
        if not self.head_bytes:
            return True
        found = os.fstat(handle.fileno())
        if found.st_size < self.offset:
            return False
        if self.tail and tail_of(handle, self.offset) != self.tail:
            return False
        return digest_of(handle, self.head_bytes) == self.head


def tail_of(handle: BinaryIO, offset: int) -> str:
    """Digest of the bytes before ``offset`` of an open file."""
    begin = max(0, offset - _TAIL_BYTES)
    return digest_of(handle, offset - begin, begin)


def digest_of(handle: BinaryIO, size: int, begin: int = 0) -> str:
    """Digest of ``size`` bytes of an open file from ``begin`` on."""
    handle.seek(begin)
    return hashlib.sha256(handle.read(size)).hexdigest()[:24]
