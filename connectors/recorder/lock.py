"""Who of the processes on a node sends: the one that holds the lock of a file."""

from __future__ import annotations

import os
import weakref

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_held: weakref.WeakSet[Lock] = weakref.WeakSet()


class Lock:
    """A lock that ends with its process, however that ends.

    Only one holder at a time, also among holders in one process. Raises OSError from the
    constructor where the system has no such locks.
    """

    def __init__(self, path: str) -> None:
        if fcntl is None:
            raise OSError("this system has no file locks (fcntl), which a spool needs")
        self._path = path
        self._handle: int | None = None

    @property
    def is_held(self) -> bool:
        """True between a successful ``acquire`` and ``release``."""
        return self._handle is not None

    def acquire(self) -> bool:
        """Try to take it, without waiting; raises OSError when the file cannot be made."""
        if self._handle is not None:
            return True
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return False
        except BaseException:
            os.close(handle)
            raise
        self._handle = handle
        _held.add(self)
        return True

    def is_current(self) -> bool:
        """False when the file was taken away, e.g. with old temporary files: another may hold a
        new one then. Keeps the file young.
        """
        if self._handle is None:
            return False
        try:
            here, there = os.fstat(self._handle), os.stat(self._path)
            os.utime(self._path)
        except OSError:
            return False
        return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)

    def release(self) -> None:
        """Let another have it."""
        if self._handle is not None:
            # Said, and not left to the closing: a child that was just forked has a copy of it.
            fcntl.flock(self._handle, fcntl.LOCK_UN)
        self.forget()

    def forget(self) -> None:
        """Close our copy of it; the lock stays with whoever has another."""
        handle, self._handle = self._handle, None
        _held.discard(self)
        if handle is not None:
            os.close(handle)


def _after_fork_in_child() -> None:
    """A data loader's worker must not hold the lock of a parent that has died."""
    for lock in list(_held):
        lock.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
