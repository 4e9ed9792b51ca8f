"""A rank's end of the spool, and the choice of the one rank that sends."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from steptax.connectors.recorder.batch import Piece
from steptax.connectors.recorder.lock import Lock
from steptax.connectors.recorder.notes import Notes
from steptax.connectors.recorder.rows import Columns
from steptax.connectors.recorder.segments import (
    Encoder,
    encode_segment,
    replace_file,
    segment_name,
)
from steptax.connectors.recorder.sender import Sender
from steptax.connectors.recorder.sinks import read_beat
from steptax.connectors.recorder.spool import Spool
from steptax.connectors.recorder.transport import Transport

#: What has not been packed for so long will not be soon: the sender hangs. Of a spool's bound one
#: rank may then hold this share.
HUNG_S = 60.0
_RANKS_SHARE = 1 / 8
#: How long closing waits for the network: in all, and without anything being taken.
SEND_WAIT_S = 20.0
PATIENCE_S = 5.0


class SpoolSink:
    """A spool on this node, which one of the node's ranks, or ``steptax forward``, sends."""

    def __init__(
        self,
        spool: Spool,
        connect: Callable[[], Transport],
        key: tuple[str, int, int],
        encoder: Encoder | None,
        notes: Notes,
        limit_bytes: int,
    ) -> None:
        self._spool = spool
        self._connect = connect
        self._job_id, self._rank, self._attempt = key
        self._encoder = encoder
        self._notes = notes
        self._limit_bytes = limit_bytes
        self._lock = Lock(spool.lock_path)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._sender: Sender | None = None
        self._mine: deque[tuple[str, int, int, float]] = deque()
        self._mine_bytes = 0
        self._beat_path = spool.beat_path(self._job_id, self._rank)
        self.lost = 0

    @property
    def is_sender(self) -> bool:
        """True while this process sends for the node."""
        return self._lock.is_held

    def write(self, table: str, columns: Columns, rows: int, now_us: int) -> None:
        """Keep a segment in the spool."""
        data, suffix = encode_segment(table, columns, rows, self._encoder)
        name, first, last = segment_name(table, columns, rows, now_us, suffix)
        piece = Piece(
            table, self._job_id, self._rank, self._attempt, name, rows, first, last, len(data)
        )
        path = self._spool.put(piece, data)
        self._mine.append((path, len(data), rows, time.monotonic()))
        self._mine_bytes += len(data)
        self._keep_bound()

    def beat(self, beat: dict[str, Any]) -> None:
        """Replace the heartbeat in the spool."""
        replace_file(*self._beat_path, json.dumps(beat).encode())

    def last_beat(self) -> dict[str, Any] | None:
        """From the spool: None unless the earlier attempt ran on this node."""
        return read_beat(self._beat_path) or None

    def turn(self) -> None:
        """Become the sender when there is none."""
        is_sending = self._thread is not None and self._thread.is_alive()
        if is_sending or not self._lock.acquire():
            return
        self._sender = sender = Sender(self._spool, self._connect, self._notes, self._limit_bytes)
        thread = threading.Thread(
            target=self._send, args=(sender,), name="steptax-sender", daemon=True
        )
        # From Python 3.12 on no thread begins while the interpreter ends: closing sends then.
        with contextlib.suppress(RuntimeError):
            thread.start()
            self._thread = thread

    def close(self) -> None:
        """Hand over what this rank has written: to the sender, or as the sender to the network."""
        deadline_s = time.monotonic() + SEND_WAIT_S
        self._stop.set()
        if self._thread is not None:
            self._thread.join(SEND_WAIT_S)
            if self._thread.is_alive():  # the network holds it; the lock ends with the process
                self._notes.say("spool", self._left())
                return
        if not self._take_over(deadline_s):
            return
        try:
            # Kept: what it sends now counts, too.
            sender = self._sender = self._sender or Sender(
                self._spool, self._connect, self._notes, self._limit_bytes
            )
            if not sender.drain(deadline_s, patience_s=PATIENCE_S):
                self._notes.say("spool", self._left())
            sender.close()
        finally:
            self._lock.release()

    def stats(self) -> dict[str, Any]:
        """What this process has sent for its node; None where another sends."""
        sender = self._sender
        return {
            "is_sender": self.is_sender,
            "rows_sent": None if sender is None else sender.rows_sent,
            "rows_lost": None if sender is None else sender.rows_lost,
            "bytes_sent": None if sender is None else sender.bytes_sent,
            "sender_cpu_s": None if sender is None else sender.cpu_s,
        }

    def _send(self, sender: Sender) -> None:
        """The sending thread."""
        sender.run(self._stop, self._lock.is_current)
        if not self._stop.is_set():  # the lock's file was taken away: choose again
            sender.close()
            self._lock.release()

    def _take_over(self, deadline_s: float) -> bool:
        """True when this rank has to send; False when another has taken that on, or nobody can."""
        closed_ns = time.time_ns()
        give_up_s = time.monotonic() + PATIENCE_S
        self._spool.hurry()
        while not self._lock.acquire():
            # A sender that has packed our rows has taken on to send them.
            is_packed = not self._is_waiting()
            if is_packed and self._spool.beats_sent_ns() >= closed_ns:
                return False
            if time.monotonic() >= (give_up_s if is_packed else deadline_s):
                if not is_packed:
                    self._notes.say("spool", self._left())
                return False
            time.sleep(0.05)
        return True

    def _left(self) -> str:
        return (
            f"rows wait in {self._spool.folder}: the next recorder on this node with the same "
            "destination sends them, or steptax forward does"
        )

    def _is_waiting(self) -> bool:
        """True while a segment of this rank is in no batch."""
        while self._mine and not os.path.exists(self._mine[0][0]):
            self._mine_bytes -= self._mine.popleft()[1]
        return bool(self._mine)

    def _keep_bound(self) -> None:
        """The sender keeps the bound of the spool; this is for when it hangs."""
        self._is_waiting()
        hung_s = time.monotonic() - HUNG_S
        share = self._limit_bytes * _RANKS_SHARE
        while self._mine_bytes > share and len(self._mine) > 1 and self._mine[0][3] < hung_s:
            path, size, rows, _ = self._mine.popleft()
            self._mine_bytes -= size
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
                self.lost += rows
                self._notes.failed(
                    "sending records", TimeoutError("the sender of this node hangs"), "hung"
                )
