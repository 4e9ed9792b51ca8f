"""Which files pages made for whom: a file's address alone opens it for nobody else."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from threading import Lock

#: Files that are remembered; who comes later for an older one makes it again.
KEPT = 20_000


class Handed:
    """Who may have which content; safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._readers: OrderedDict[bytes, set[str]] = OrderedDict()

    def note(self, content: bytes | str, reader: str) -> None:
        """A page made ``content`` for ``reader``."""
        key = _key(content)
        with self._lock:
            self._readers.setdefault(key, set()).add(reader)
            self._readers.move_to_end(key)
            while len(self._readers) > KEPT:
                self._readers.popitem(last=False)

    def is_for(self, content: bytes | str, reader: str) -> bool:
        """Whether a page made ``content`` for ``reader``."""
        with self._lock:
            return reader in self._readers.get(_key(content), ())


def _key(content: bytes | str) -> bytes:
    raw = content.encode() if isinstance(content, str) else content
    return hashlib.sha256(raw).digest()


#: Of this process.
HANDED = Handed()
