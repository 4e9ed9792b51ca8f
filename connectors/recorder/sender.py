"""The one sender of a node: packs what the ranks have written, and sends it until it is taken."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable

from steptax.connectors.recorder.batch import (
    PACK_BYTES,
    Header,
    Piece,
    encode_batch,
    names_of,
    read_header,
)
from steptax.connectors.recorder.beatsender import BeatSender
from steptax.connectors.recorder.notes import Notes
from steptax.connectors.recorder.spool import Entry, Gaps, Packed, Spool
from steptax.connectors.recorder.transport import Answer, Backoff, Transport

#: While nothing is taken, batches are made this large, or this old.
_LARGE_BYTES = 1 << 20
_OLD_US = 15_000_000
_IDLE_S = 0.1
#: Ranks that end a step together write about it within this time: it is waited for, so that one
#: batch holds them all, but not for longer than a few times it.
_SETTLE_US = 100_000
_SETTLED_US = 300_000


class Sender:
    """Sends a spool. Only the holder of its lock may make one.

    ``connect`` gives the transport, and is tried again while it raises. When the spool holds more
    than ``limit_bytes`` the oldest batches go first, as the newest tell more about a running job;
    what goes is counted by rank and said in that rank's heartbeat.
    """

    def __init__(
        self, spool: Spool, connect: Callable[[], Transport], notes: Notes, limit_bytes: int
    ) -> None:
        self._spool = spool
        self._connect = connect
        self._notes = notes
        self._limit_bytes = limit_bytes
        self._large_bytes = min(_LARGE_BYTES, limit_bytes // 4)
        self._transport: Transport | None = None
        self._backoff = Backoff()
        self._not_before_s = 0.0
        self._pack_at_s = 0.0
        self._beat_at_s = 0.0
        self._stream = os.urandom(16).hex()
        self._seq = 0
        self._attempted: set[str] = set()
        self._leftovers: list[str] = []
        self.rows_sent = 0
        self.rows_lost = 0
        self.bytes_sent = 0
        self.cpu_s = 0.0
        spool.sweep()
        self.gaps = Gaps(spool)
        self._beats = BeatSender(spool, self.gaps, self._stream[:16])
        self._pending = spool.packed()
        self._inherited = {packed.path for packed in self._pending}
        self._forget_packed()

    @property
    def is_refused(self) -> bool:
        """True while the last attempt was not taken."""
        return self._backoff.failures > 0

    def run(self, stop: threading.Event, may_send: Callable[[], bool]) -> None:
        """Send until told to stop, or until another may be the sender."""
        while not stop.is_set() and may_send():
            self.turn()
            self.cpu_s = time.thread_time()
            stop.wait(_IDLE_S)

    def drain(self, deadline_s: float, *, patience_s: float) -> bool:
        """Send everything; False when that was not possible before ``deadline_s`` (monotonic).

        Gives up after ``patience_s`` in which nothing was taken.
        """
        give_up_s = time.monotonic() + patience_s
        self._not_before_s = 0.0
        while True:
            self._pack_at_s = self._beat_at_s = 0.0
            sent = self.rows_sent + self.rows_lost
            self.turn(is_last=True)
            now_s = time.monotonic()
            if not self._pending and not self._spool.entries():
                return True
            if self.rows_sent + self.rows_lost > sent:
                give_up_s = now_s + patience_s
            if now_s >= min(deadline_s, give_up_s):
                return False
            time.sleep(0.05)

    def close(self) -> None:
        """Let go of the connection."""
        if self._transport is not None:
            self._transport.close()

    def turn(self, *, is_last: bool = False) -> None:
        """One round: pack, send, heartbeats. Never raises."""
        try:
            transport = self._connected()
            if self._spool.was_hurried():
                self._pack_at_s = self._beat_at_s = 0.0
            self._pack_in_time(transport, is_last=is_last)
            if transport is None or time.monotonic() < self._not_before_s:
                return
            while self._pending and not self._leftovers and self._send(transport, self._pending[0]):
                del self._pending[0]
            if time.monotonic() >= max(self._beat_at_s, self._not_before_s):
                self._beat_at_s = time.monotonic() + transport.beat_s
                answer = self._beats.send(transport)
                if answer.kind == "retry":
                    self._wait(answer)
        except Exception as error:
            self._notes.failed("sending records", error)
            self._not_before_s = time.monotonic() + self._backoff.failed(None)

    # -- packing --------------------------------------------------------------------------------

    def _connected(self) -> Transport | None:
        if self._transport is None and time.monotonic() >= self._not_before_s:
            try:
                self._transport = self._connect()
            except Exception as error:
                self._notes.failed("sending records", error)
                self._not_before_s = time.monotonic() + self._backoff.failed(None)
        return self._transport

    def _pack_in_time(self, transport: Transport | None, *, is_last: bool) -> None:
        now_s = time.monotonic()
        if now_s < self._pack_at_s:
            return
        self._pack_at_s = now_s + (1.0 if transport is None else transport.pack_s)
        try:
            self._pack(is_last=is_last)
        except OSError as error:  # the disk is full: sending what is packed makes room
            self._notes.failed("packing records", error)

    def _forget_packed(self) -> None:
        """A sender may have been killed between making a batch and removing what is in it."""
        packed: set[tuple[str, str, str]] = set()
        for batch in list(self._pending):
            try:
                with open(batch.path, "rb") as file:
                    packed |= names_of(read_header(file.read()).pieces)
            except ValueError as error:  # the disk lost it in a power failure
                self._pending.remove(batch)
                self._notes.say("torn", f"a batch in the spool cannot be read: {error}")
                os.rename(batch.path, f"{batch.path}.bad")
        for entry in self._spool.entries():
            if names_of([entry.piece]) <= packed:
                os.unlink(entry.path)

    def _pack(self, *, is_last: bool) -> None:
        self._remove_leftovers()
        entries = self._spool.entries()
        if entries and not is_last and _are_coming(entries):
            self._pack_at_s = 0.0
            return
        while entries:
            size = sum(entry.piece.size for entry in entries)
            if self._pending and not is_last and size < self._large_bytes:
                age_us = time.time_ns() // 1000 - _created_us(entries[0])
                if age_us < _OLD_US:
                    break
            entries = self._pack_first(entries)
        self._trim(sum(entry.piece.size for entry in entries))

    def _pack_first(self, entries: list[Entry]) -> list[Entry]:
        """Make one batch of the oldest entries; returns the others."""
        taken: list[Entry] = []
        bodies: list[bytes] = []
        size = 0
        count = 0
        for entry in entries:
            count += 1
            body = self._read(entry)
            if body is not None:
                taken.append(entry._replace(piece=entry.piece._replace(size=len(body))))
                bodies.append(body)
                size += len(body)
            if size >= PACK_BYTES:
                break
        if taken:
            created_us = time.time_ns() // 1000
            pieces = tuple(entry.piece for entry in taken)
            header = Header(self._stream, self._seq + 1, socket.gethostname(), created_us, pieces)
            name = f"{created_us:017d}-{self._stream}-{header.seq:09d}.gz"
            batch = self._spool.keep(name, encode_batch(header, bodies))
            self._seq = header.seq
            self._pending.append(batch)
            self._leftovers = [entry.path for entry in taken]
            self._remove_leftovers()
        return entries[count:]

    def _remove_leftovers(self) -> None:
        """Segments that are in a batch. Before they are gone it is not sent: a next sender, which
        knows them by that batch, would pack them again.
        """
        while self._leftovers:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._leftovers[-1])
            self._leftovers.pop()

    def _read(self, entry: Entry) -> bytes | None:
        """The bytes of a segment; None when there is none any more, or it is torn."""
        try:
            with open(entry.path, "rb") as file:
                data = file.read()
        except FileNotFoundError:  # its rank has given it up
            return None
        if entry.path.endswith(".parquet"):
            is_whole = data[:4] == data[-4:] == b"PAR1"
        else:
            is_whole = data.count(b"\n") == entry.piece.rows and data.endswith(b"\n")
        if not is_whole:
            self._lose([entry.piece], [entry.path], "the disk of the node lost them")
            return None
        return data

    def _trim(self, waiting_bytes: int) -> None:
        """Keep the bound: the oldest go first."""
        size = waiting_bytes + sum(batch.size for batch in self._pending)
        while size > self._limit_bytes and len(self._pending) > 1:
            batch = self._pending.pop(0)
            size -= batch.size
            pieces = self._pieces_of(batch)
            self._lose(pieces, [batch.path], "the spool was full, the oldest went first")

    def _lose(self, pieces: list[Piece], paths: list[str], reason: str) -> None:
        rows = self.gaps.drop(pieces, paths, reason)
        self.rows_lost += rows
        self._notes.say("lost", f"{rows} rows or more will not arrive: {reason}")

    def _pieces_of(self, batch: Packed) -> list[Piece]:
        with open(batch.path, "rb") as file:
            return list(read_header(file.read()).pieces)

    # -- sending --------------------------------------------------------------------------------

    def _send(self, transport: Transport, batch: Packed) -> bool:
        """True when the batch is done with, one way or the other."""
        with open(batch.path, "rb") as file:
            data = file.read()
        is_first = batch.path not in self._attempted and batch.path not in self._inherited
        self._attempted.add(batch.path)
        answer = transport.send(data, is_first=is_first)
        if answer.kind == "retry":
            self._wait(answer)
            return False
        self._backoff.succeeded()
        self._attempted.discard(batch.path)
        self._inherited.discard(batch.path)
        pieces = read_header(data).pieces
        rows = sum(piece.rows for piece in pieces)
        if answer.kind == "refused":
            self._lose(list(pieces), [batch.path], f"the collector refused them, {answer.reason}")
            return True
        refused = [(pieces[n], why) for n, why in answer.lost if 0 <= n < len(pieces)]
        for piece, why in refused:
            self._lose([piece], [], f"the collector refused them, {why}")
        self.rows_sent += rows - sum(piece.rows for piece, _ in refused)
        self.bytes_sent += len(data)
        os.unlink(batch.path)
        return True

    def _wait(self, answer: Answer) -> None:
        self._not_before_s = time.monotonic() + self._backoff.failed(answer.after_s)
        reason = answer.reason or "no answer"
        # Each kind of failure is said once: that the token is wrong, even after an outage.
        self._notes.failed("sending records", ConnectionError(reason), reason.partition(":")[0])


def _are_coming(entries: list[Entry]) -> bool:
    """Whether ranks are just writing: the newest entry is young, and the oldest not old."""
    now_us = time.time_ns() // 1000
    oldest_us, newest_us = now_us - _created_us(entries[0]), now_us - _created_us(entries[-1])
    return 0 <= newest_us < _SETTLE_US and oldest_us < _SETTLED_US


def _created_us(entry: Entry) -> int:
    return int(entry.piece.name.split("-")[1])
