"""Writing a file so that it is there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def fsync_folder(folder: Path) -> None:
    """Make renames in ``folder`` survive a power loss; a no-op where folders cannot be opened."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows opens no folders
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def fsync_file(path: Path) -> None:
    """Force the content of ``path`` to the disk."""
    with path.open("rb+") as handle:
        os.fsync(handle.fileno())


@contextmanager
def whole_or_nothing(path: Path) -> Iterator[Path]:
    """Give a temporary neighbour of ``path`` to write; on success it becomes ``path``.

    The temporary name begins with a dot, which no reader lists. It is removed on failure.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        yield temporary
        fsync_file(temporary)
        temporary.rename(path)
        fsync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_whole(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path``, whole or not at all."""
    with whole_or_nothing(path) as temporary:
        temporary.write_bytes(data)
