"""What a table holds, looked up once for a question that asks for it again and again.

The version of a table with a folder per job is told by the time of every one of those folders: for
thousands of jobs ten milliseconds and more, and a page of a fleet rests on dozens of versions.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from steptax.app.one_shot import look_anew

_known: ContextVar[dict[Hashable, Any] | None] = ContextVar("steptax_look", default=None)


@contextmanager
def one_look() -> Iterator[None]:
    """Within it a lake shows each table as it was when it was first asked for, in this thread.

    What is appended meanwhile by others is there at the next look. Within another one it is a part
    of that.
    """
    if _known.get() is not None:
        yield
        return
    token = _known.set({})
    try:
        yield
    finally:
        _known.reset(token)


def looked_up() -> dict[Hashable, Any]:
    """What was looked up in this look; of none a new one, which nobody keeps."""
    known = _known.get()
    return {} if known is None else known


def look_again() -> None:
    """Forget what was looked up: something was written, or set aside."""
    looked_up().clear()
    look_anew()
