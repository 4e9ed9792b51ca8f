"""The thread that writes: rows at every interval, and a sign of life."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from steptax.connectors.recorder.clock import Clock
from steptax.connectors.recorder.notes import Notes
from steptax.connectors.recorder.outbox import Outbox
from steptax.connectors.recorder.rows import FinishedStep, step_columns
from steptax.connectors.recorder.sinks import Sink

#: Waiting rows of the small tables.
SMALL_LIMIT = 1_000
#: In the last part of an interval, from this share of it on, a step is written as it ends: all
#: ranks end it together, so what they write about it arrives together too.
EARLY_RATIO = 0.8
#: So often it is looked for then. Waking this thread is no work for the one that trains.
LOOK_S = 0.05


class Shipper(threading.Thread):
    """Empties the outboxes into a sink every ``flush_s`` seconds until closed.

    A little sooner where a step ends: what all ranks write about it arrives together then.

    ``identity`` holds the columns that are the same in every row of this rank. ``beat`` gives the
    heartbeat.
    """

    def __init__(
        self,
        sink: Sink,
        identity: Mapping[str, Any],
        beat: Callable[[], dict[str, Any]],
        clock: Clock,
        notes: Notes,
        *,
        flush_s: float,
        queue_limit: int,
    ) -> None:
        super().__init__(name="steptax-recorder", daemon=True)
        self.steps: Outbox[FinishedStep] = Outbox(queue_limit, self.wake)
        self.ranks: Outbox[dict[str, Any]] = Outbox(SMALL_LIMIT)
        self.events: Outbox[dict[str, Any]] = Outbox(SMALL_LIMIT)
        self.jobs: Outbox[dict[str, Any]] = Outbox(SMALL_LIMIT)
        self.links: Outbox[dict[str, Any]] = Outbox(SMALL_LIMIT)
        self.is_closed = False
        self._sink = sink
        self._identity = dict(identity)
        self._beat = beat
        self._clock = clock
        self._notes = notes
        self._flush_s = flush_s
        self._closing = False
        self._stamped_us = 0
        self._wanted = threading.Event()

    @property
    def written(self) -> int:
        """Rows on the disk, of all tables."""
        return sum(box.written for box in self._boxes())

    @property
    def dropped(self) -> int:
        """Rows that will never arrive, of all tables, as far as this process knows."""
        return sum(box.dropped for box in self._boxes()) + self._sink.lost

    @property
    def waiting(self) -> int:
        """Rows on their way, of all tables."""
        return sum(box.waiting for box in self._boxes())

    def wake(self) -> None:
        """Write now instead of at the end of the interval."""
        self._wanted.set()

    def close(self, wait_s: float) -> bool:
        """Write what waits and stop; False when that takes longer than ``wait_s`` seconds."""
        self._closing = True
        self.wake()
        self.join(wait_s)
        return not self.is_alive()

    def run(self) -> None:
        """The thread."""
        while not self._closing:
            self._ship()
            self._wait()
            self._wanted.clear()
        self._ship()
        for box in self._boxes():
            box.give_up()
        self.is_closed = True
        self._sign_of_life()
        self._guarded("sending records", self._sink.close)

    def _wait(self) -> None:
        """Until the interval is over, a step has ended late in it, or somebody wakes this."""
        begin_s = time.monotonic()
        wait_s = EARLY_RATIO * self._flush_s
        while not self._wanted.wait(wait_s) and not self.steps.waiting:
            left_s = begin_s + self._flush_s - time.monotonic()
            if left_s <= 0:
                return
            wait_s = min(LOOK_S, left_s)

    def _boxes(self) -> tuple[Outbox[Any], ...]:
        return (self.ranks, self.steps, self.events, self.links, self.jobs)

    def _ship(self) -> None:
        self._flush("ranks", self.ranks, _columns_of_dicts)
        self._flush("steps", self.steps, step_columns)
        self._flush("events", self.events, _columns_of_dicts)
        self._flush("link_probes", self.links, _columns_of_dicts)
        self._flush("jobs", self.jobs, _columns_of_dicts)
        self._sign_of_life()
        self._guarded("sending records", self._sink.turn)

    def _flush(
        self,
        table: str,
        box: Outbox[Any],
        columns_of: Callable[[Sequence[Any]], dict[str, list[Any]]],
    ) -> None:
        def write(rows: Sequence[Any]) -> None:
            # Of two rows about a job the newer holds, so no two of a recorder share a moment,
            # not even when both wait for the same flush.
            now_us = max(self._clock.wall_ns() // 1000, self._stamped_us + 1)
            stamps = [now_us] * len(rows) if table == "steps" else range(now_us, now_us + len(rows))
            self._stamped_us = stamps[-1]
            same = {**self._identity, "source": "recorder"}
            constant = {name: [value] * len(rows) for name, value in same.items()}
            constant["ingested_at_us"] = list(stamps)
            self._sink.write(table, constant | columns_of(rows), len(rows), now_us)

        try:
            box.flush(write)
        except Exception as error:
            self._notes.failed("writing records", error)

    def _sign_of_life(self) -> None:
        self._guarded("writing the heartbeat", lambda: self._sink.beat(self._beat()))

    def _guarded(self, doing: str, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:
            self._notes.failed(doing, error)


def _columns_of_dicts(rows: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}
