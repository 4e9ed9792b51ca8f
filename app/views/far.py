"""How far long work has come, told to whoever waits for it: a page or a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Hear = Callable[[int, int], None]
"""Called with what is done and how much there is, in jobs."""

_hear: ContextVar[Hear | None] = ContextVar("hear", default=None)


@contextmanager
def heard_by(hear: Hear) -> Iterator[None]:
    """Tell ``hear`` how far the work of this thread has come, while the block runs."""
    token = _hear.set(hear)
    try:
        yield
    finally:
        _hear.reset(token)


def come(done: int, total: int) -> None:
    """Say that ``done`` of ``total`` jobs are worked out."""
    hear = _hear.get()
    if hear is not None:
        hear(done, total)
