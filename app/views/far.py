"""How far long work has come, told to whoever waits for it: a page or a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from steptax.app.words import count_text


@dataclass(frozen=True)
class Far:
    """How many of the jobs are worked out."""

    done: int
    total: int

    @property
    def share_ratio(self) -> float:
        """What is done of all."""
        return self.done / self.total

    @property
    def text(self) -> str:
        """``12 of 41 jobs``."""
        return f"{self.done:,} of {count_text(self.total, 'job')}"


Hear = Callable[[Far], object]

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
        hear(Far(done, total))
