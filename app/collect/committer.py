"""The thread that stores: what many senders send at about the same time becomes one commit."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field

from steptax.app.collect.commits import CommitStore
from steptax.app.collect.intake import Intake

logger = logging.getLogger("steptax.collect")

#: From one commit to the next: two files a second and table at most.
GROUP_S = 0.5
#: After that a batch waits no longer than others follow one another by this: what the nodes send
#: about a step that ended on all of them is stored together.
SETTLE_S = 0.2
#: Unpacked bytes with which a commit does not wait any longer, and that may wait in all.
GROUP_BYTES = 32 * 2**20
WAITING_BYTES = 256 * 2**20
#: Rejected requests that are kept; more in an hour are only counted.
KEPT_AN_HOUR = 200


@dataclass
class Ticket:
    """A batch that waits to be stored. ``error`` is set when the disk did not take it."""

    intake: Intake
    done: threading.Event = field(default_factory=threading.Event)
    error: str | None = None
    is_refused: bool = False
    """With ``error``: this batch cannot be stored, now or later."""
    already: bool = False


@dataclass
class Counts:
    """Since the collector was started."""

    batches: int = 0
    batches_repeated: int = 0
    rows: int = 0
    commits: int = 0
    commit_s: float = 0.0
    pieces_refused: int = 0
    requests_refused: int = 0
    requests_put_off: int = 0
    last_commit_us: int | None = None
    last_error: str | None = None


class Committer(threading.Thread):
    """Stores tickets in groups. ``store`` belongs to this thread once it is started."""

    def __init__(self, store: CommitStore) -> None:
        super().__init__(name="committer", daemon=True)
        self._store = store
        self._waiting: list[Ticket] = []
        self._bytes = 0
        self._changed = threading.Condition()
        self._is_closing = False
        self._kept_hour = 0
        self._kept = 0
        self._last_s = 0.0
        self.counts = Counts()

    def submit(self, intake: Intake) -> Ticket | None:
        """Queue a batch; None when too much waits already."""
        with self._changed:
            if self._is_closing or self._bytes + intake.size_bytes > WAITING_BYTES:
                self.counts.requests_put_off += 1
                return None
            return self._add(intake)

    def keep_reject(self, intake: Intake) -> None:
        """Store the rejects of a request that was refused as a whole, unless there are many."""
        with self._changed:
            self.counts.requests_refused += 1
            hour = int(time.time()) // 3600
            if hour != self._kept_hour:
                self._kept_hour, self._kept = hour, 0
            self._kept += 1
            if self._kept <= KEPT_AN_HOUR and not self._is_closing:
                self._add(intake)

    @property
    def waiting_bytes(self) -> int:
        """Unpacked bytes that are not stored yet."""
        return self._bytes

    def close(self) -> None:
        """Store what waits, and stop."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self.join()

    def run(self) -> None:
        """The thread."""
        while group := self._next_group():
            begin_s = time.monotonic()
            self._store_group(group)
            counts = self.counts
            counts.commits += 1
            counts.commit_s += time.monotonic() - begin_s
            for ticket in group:
                ticket.done.set()

    def _add(self, intake: Intake) -> Ticket:
        ticket = Ticket(intake)
        self._waiting.append(ticket)
        self._bytes += intake.size_bytes
        self._changed.notify()
        return ticket

    def _next_group(self) -> list[Ticket]:
        """What is stored next; empty at the end."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._waiting) or self._is_closing)
            begin_s = time.monotonic()
            came = -1
            while came < len(self._waiting) and not self._is_closing:
                came = len(self._waiting)
                now_s = time.monotonic()
                wait_s = max(SETTLE_S, self._last_s + GROUP_S - now_s)
                wait_s = min(wait_s, begin_s + GROUP_S - now_s)
                if wait_s <= 0 or self._bytes >= GROUP_BYTES:
                    break
                self._changed.wait(wait_s)
            group, self._waiting = self._waiting, []
            self._bytes = 0
            self._last_s = time.monotonic()
            return group

    def _store_group(self, group: list[Ticket]) -> None:
        try:
            self._commit(group)
        except OSError as error:  # the senders keep what they have, and try again
            self._failed(group, error)
        except Exception as error:
            if len(group) > 1:
                # One that cannot be stored must not keep out the others, for as long as it comes.
                for ticket in group:
                    self._store_group([ticket])
                return
            self._failed(group, error)
            group[0].is_refused = True

    def _failed(self, group: list[Ticket], error: Exception) -> None:
        said = f"{type(error).__name__}: {error}"
        self.counts.last_error = said
        logger.warning("nothing was stored: %s", said)
        for ticket in group:
            ticket.error = said

    def _commit(self, group: list[Ticket]) -> None:
        counts = self.counts
        seen: set[tuple[str, int]] = set()
        for ticket in group:
            stream, seq = ticket.intake.stream, ticket.intake.seq
            ticket.already = self._store.is_stored(stream, seq) or (stream, seq) in seen
            seen.add((stream, seq))
        # A stream's batches come in its order, but a group may hold them in another.
        rows = self._store.commit(sorted((t.intake for t in group), key=lambda i: i.seq))
        stored = [t for t in group if t.intake.stream]
        counts.batches += sum(not t.already for t in stored)
        counts.batches_repeated += sum(t.already for t in stored)
        counts.pieces_refused += sum(len(t.intake.refused) for t in stored if not t.already)
        counts.rows += rows
        counts.last_commit_us = time.time_ns() // 1000
