"""What a running recorder registers with its process: collections, the exit, forks."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import sys
import weakref
from collections.abc import Callable
from typing import Any

_installed: weakref.WeakSet[Hooks] = weakref.WeakSet()


class Hooks:
    """``on_collection`` is called as ``gc.callbacks`` are, ``on_exit`` with the job's state when
    the process ends, ``on_fork`` in a forked child.
    """

    def __init__(
        self,
        on_collection: Callable[[str, dict[str, Any]], None],
        on_exit: Callable[[str], None],
        on_fork: Callable[[], None],
    ) -> None:
        self._on_collection = on_collection
        self._on_exit = on_exit
        self.on_fork = on_fork

    def install(self) -> None:
        """Register."""
        if hasattr(gc, "callbacks"):  # of CPython
            gc.callbacks.append(self._on_collection)
        atexit.register(self._exit)
        _installed.add(self)

    def remove(self) -> None:
        """Undo it; nothing happens when it was not registered."""
        with contextlib.suppress(ValueError, AttributeError):
            gc.callbacks.remove(self._on_collection)
        atexit.unregister(self._exit)
        _installed.discard(self)

    def _exit(self) -> None:
        # The interpreter keeps the exception that nobody caught; sys.exit leaves none.
        kind, error = getattr(sys, "last_type", None), getattr(sys, "last_value", None)
        self._on_exit(outcome(kind, error))


def outcome(kind: type[BaseException] | None, error: BaseException | None) -> str:
    """State of a job whose process ended with this exception, or with none."""
    if kind is None:
        return "completed"
    if issubclass(kind, KeyboardInterrupt):
        return "cancelled"
    if isinstance(error, SystemExit) and error.code in (None, 0):
        return "completed"
    return "failed"


def _after_fork_in_child() -> None:
    """The writing thread did not come along, and the parent goes on writing its rows."""
    for hooks in list(_installed):
        hooks.on_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
