"""Whether this process answers one question and ends: it looks at an object store once then.

Each list of a bucket's folder is a request that is billed and waited for. A page lists again what
it listed a second ago; a command that only reads would do that for as long as it computes. Within
``held_look`` what was listed counts until ``look_anew``: after something was written, or a file
that was listed is gone.

Only for what reads: who appends, merges or deletes looks at what is there at that moment. Without
an import of its own: a command that needs no lake does not wait for one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

#: A list counts no longer than this: what is merged is deleted five minutes later (``GRACE_S``).
HELD_S = 200.0
#: Since when lists count though they are old, by ``time.monotonic``; empty where they grow old.
#: Of the process, not of a thread: commands count their work in one thread and do it in another.
_since_s: list[float] = []


@contextmanager
def held_look() -> Iterator[None]:
    """Within it a list of a bucket that was made within it counts for ``HELD_S``."""
    _since_s.append(time.monotonic())
    try:
        yield
    finally:
        _since_s.pop()


def look_anew() -> None:
    """Let no list count that was made before."""
    if _since_s:
        _since_s[-1] = time.monotonic()


def is_held() -> bool:
    """Whether lists count though they are old."""
    return bool(_since_s)


def still_counts(listed_s: float) -> bool:
    """Whether a list that was begun then, by ``time.monotonic``, counts though it is old."""
    return bool(_since_s) and listed_s >= _since_s[-1] and time.monotonic() - listed_s <= HELD_S
