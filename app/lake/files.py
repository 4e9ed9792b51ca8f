"""Writing a file so that it is there whole or not at all."""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from steptax.app.errors import disk_error


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

    The temporary name begins with a dot, which no reader lists, and is nobody else's. It is removed
    on failure.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        yield temporary
        fsync_file(temporary)
        temporary.rename(path)
        fsync_folder(path.parent)
    except OSError as error:
        if error.filename is None and disk_error(error):  # libraries name no file
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def write_whole(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path``, whole or not at all."""
    with whole_or_nothing(path) as temporary:
        temporary.write_bytes(data)


@contextmanager
def locked(folder: Path, names: Iterable[str]) -> Iterator[None]:
    """Hold the locks ``names``, waiting for whoever has one; they end with their process.

    Taken in the order of their names, so that no two wait for each other. Not to be nested.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        for name in sorted(set(names)):
            handle = held.enter_context((folder / f"{name}.lock").open("w"))
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
