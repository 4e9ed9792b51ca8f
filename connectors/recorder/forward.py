"""A process of its own that sends a node's spool: what ``steptax forward`` runs."""

from __future__ import annotations

import threading
import time

from steptax.connectors.recorder.delivery import Delivery, connector_of, open_spool
from steptax.connectors.recorder.lock import Lock
from steptax.connectors.recorder.notes import Notes
from steptax.connectors.recorder.sender import Sender
from steptax.connectors.recorder.spoolsink import PATIENCE_S, SEND_WAIT_S

_TRY_S = 1.0


class Forwarder:
    """Sends as soon as no rank does. Raises OSError when there can be no spool.

    Started before the job it is the sender from the beginning, and no training process spends
    anything on the network; when it dies one of them takes over.
    """

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self._spool = open_spool(delivery)
        self._notes = Notes()
        self._lock = Lock(self._spool.lock_path)
        self._sender: Sender | None = None

    @property
    def folder(self) -> str:
        """The spool."""
        return self._spool.folder

    @property
    def rows_sent(self) -> int:
        """Rows that were taken."""
        return 0 if self._sender is None else self._sender.rows_sent

    @property
    def rows_lost(self) -> int:
        """Rows that were given up."""
        return 0 if self._sender is None else self._sender.rows_lost

    def run(self, stop: threading.Event, *, once: bool = False) -> bool:
        """Send until told to stop, or once what waits; True when nothing is left."""
        connect = connector_of(self._delivery, self._notes)
        while True:
            while not self._lock.acquire():
                if stop.wait(_TRY_S):
                    return False
            limit_bytes = self._delivery.spool_bytes
            self._sender = Sender(self._spool, connect, self._notes, limit_bytes)
            if not once:
                self._sender.run(stop, self._lock.is_current)
            if once or stop.is_set():
                return self._finish(self._sender)
            self._sender.close()  # the lock's file was taken away: choose again
            self._lock.release()

    def _finish(self, sender: Sender) -> bool:
        """Send what is left, if the other side takes it; True when nothing is left."""
        try:
            return sender.drain(time.monotonic() + SEND_WAIT_S, patience_s=PATIENCE_S)
        finally:
            sender.close()
            self._lock.release()
