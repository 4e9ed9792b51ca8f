"""Rows of one table on their way to the disk: bounded, and every loss counted."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Row = TypeVar("Row")
#: Bounds the time for which encoding one segment keeps the interpreter busy.
SEGMENT_ROWS = 4_096


class Outbox(Generic[Row]):
    """A queue that any thread fills and one thread empties.

    At most ``limit`` rows wait; when there is no room the oldest go, as the newest tell more about
    a running job. ``wake`` is called when half of the room is taken.
    """

    def __init__(self, limit: int, wake: Callable[[], None] | None = None) -> None:
        self._limit = max(1, limit)
        self._queue: deque[Row] = deque()
        self._alarm = max(1, self._limit // 2)
        self._wake = wake
        self._unwritten: list[Row] = []
        # One counter for each side, so that no count is lost between two threads.
        self._overflowed = 0
        self._given_up = 0
        self.written = 0

    @property
    def dropped(self) -> int:
        """Rows that will never be written."""
        return self._overflowed + self._given_up

    @property
    def waiting(self) -> int:
        """Rows that are still to be written."""
        return len(self._queue) + len(self._unwritten)

    def put(self, row: Row) -> None:
        """Add a row; never waits."""
        queue = self._queue
        size = len(queue)
        if size >= self._limit:
            # The other side may empty the queue just now: only what was taken out is counted.
            with contextlib.suppress(IndexError):
                queue.popleft()
                self._overflowed += 1
        queue.append(row)
        if size == self._alarm and self._wake is not None:
            self._wake()

    def flush(self, write: Callable[[Sequence[Row]], None]) -> None:
        """Write everything that waits, in segments.

        A segment that the disk refuses (OSError, passed on) stays for the next flush; one that
        cannot be written for another reason is dropped and the reason passed on, since it would
        never be written.
        """
        rows = self._unwritten
        for _ in range(len(self._queue)):
            try:
                rows.append(self._queue.popleft())
            except IndexError:  # the other side has just taken the oldest out
                break
        excess = len(rows) - self._limit
        if excess > 0:
            del rows[:excess]
            self._given_up += excess
        while rows:
            segment = rows[:SEGMENT_ROWS]
            try:
                write(segment)
            except OSError:
                raise
            except Exception:
                self._given_up += len(segment)
                del rows[: len(segment)]
                raise
            self.written += len(segment)
            del rows[: len(segment)]

    def give_up(self) -> None:
        """Drop what waits."""
        self._given_up += self.waiting
        self._queue.clear()
        self._unwritten.clear()
