"""What exists from ``start`` to ``close``: the writing thread, and what is said of the job."""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

from steptax.connectors.recorder.book import StepBook
from steptax.connectors.recorder.clock import Clock
from steptax.connectors.recorder.columns import EVENT_KINDS
from steptax.connectors.recorder.delivery import Delivery, make_sink
from steptax.connectors.recorder.device import CudaDevice, DeviceName
from steptax.connectors.recorder.identity import Identity
from steptax.connectors.recorder.notes import Notes
from steptax.connectors.recorder.parquet import steps_encoder
from steptax.connectors.recorder.rows import FinishedStep
from steptax.connectors.recorder.segments import Encoder
from steptax.connectors.recorder.shipper import Shipper
from steptax.connectors.recorder.values import rank_list, text, whole

#: How long closing waits for the disk.
DISK_WAIT_S = 30.0


class Settings(NamedTuple):
    """What a recorder was made with, checked."""

    delivery: Delivery
    identity: Identity
    flush_s: float
    queue_limit: int
    wants_cuda: bool
    """Asked for, as opposed to used where it is there."""
    encoding: str


class Session:
    """Starts the writing thread; raises what that raises (OSError, RuntimeError)."""

    def __init__(self, settings: Settings, book: StepBook, clock: Clock, notes: Notes) -> None:
        self._settings = settings
        self._identity = identity = settings.identity
        self._book = book
        self._clock = clock
        self._notes = notes
        self._device = DeviceName(None, None)
        self.encoding = settings.encoding
        now_us = clock.wall_ns() // 1000
        self.sink = make_sink(settings.delivery, identity, self._encoder(), notes)
        self._job_start_us: int | None = now_us
        if identity.attempt > 0:
            # A further attempt goes on with the job: its start is the first attempt's. Where that
            # cannot be seen it is left open, and what the first attempt has said holds.
            last = self.sink.last_beat()
            if last is None:
                self._job_start_us = None
            else:
                with contextlib.suppress(TypeError, ValueError):
                    self._job_start_us = whole(last.get("job_start_us"))
        self.shipper = Shipper(
            self.sink,
            identity.key(),
            self._beat,
            clock,
            notes,
            flush_s=settings.flush_s,
            queue_limit=settings.queue_limit,
        )
        self.shipper.ranks.put(identity.rank_row(None))
        self._put_job("running", None)
        self._put_moment("process_start", now_us)
        self.shipper.start()
        book.emit = self._emit_first

    def _emit_first(self, finished: FinishedStep) -> None:
        """The first finished step; the others go to the writing thread without a detour."""
        self._put_moment("first_step", finished.start_ns // 1000)
        if self._settings.wants_cuda and not self._book.is_timed_by_device:
            self._notes.say("cuda", "CUDA is not in use: phases are timed by the host's clock")
        self._book.emit = self.shipper.steps.put
        self.shipper.steps.put(finished)

    def found_device(self, device: CudaDevice) -> None:
        """Note which device this rank computes on."""
        try:
            self._device = device.name()
        except Exception as error:
            self._notes.failed("asking for the device's name", error)
            return
        self.shipper.ranks.put(self._identity.rank_row(self._device.uuid))
        self._put_job("running", None)

    def event(
        self, kind: Any, start_us: Any, end_us: Any | None, ranks: Any, detail: Any | None
    ) -> None:
        """Note an event; raises TypeError or ValueError for what is none."""
        if kind not in EVENT_KINDS:
            self._notes.misused(f"there is no kind of event {kind!r}; it is kept", topic="event")
        begin_us = whole(start_us)
        if end_us is not None and whole(end_us) < begin_us:
            raise ValueError(f"{kind} ends before it begins")
        self.shipper.events.put(
            {
                "start_us": begin_us,
                "end_us": None if end_us is None else whole(end_us),
                "kind": text(kind),
                "ranks": rank_list(ranks),
                "detail": None if detail is None else text(detail),
            }
        )

    def link(self, step: Any, peer: Any, size_bytes: Any, duration_us: Any) -> None:
        """Note the time of a link; raises TypeError or ValueError for what is none."""
        self.shipper.links.put(
            {
                "step": whole(step),
                "peer": whole(peer),
                "bytes": None if size_bytes is None else whole(size_bytes),
                "duration_us": whole(duration_us),
            }
        )

    def close(self, state: str) -> None:
        """Note how the job ended, write what waits, and stop the thread."""
        now_us = self._clock.wall_ns() // 1000
        self._put_moment("process_end", now_us)
        self._put_job(state, now_us)
        if not self.shipper.close(DISK_WAIT_S):
            self._notes.say("close", "the disk does not answer; the last records may be lost")

    def _put_job(self, state: str, end_us: int | None) -> None:
        if self._identity.rank == 0:
            self.shipper.jobs.put(
                self._identity.job_row(state, self._job_start_us, end_us, self._device.model)
            )

    def _put_moment(self, kind: str, start_us: int) -> None:
        if self._identity.rank == 0:
            self.shipper.events.put({"kind": kind, "start_us": start_us})

    def _encoder(self) -> Encoder | None:
        """None: JSON Lines. Importing pyarrow takes a while: now, before training begins.

        Rows on their way through a spool are packed with others and unpacked again: JSON Lines
        unless Parquet was asked for.
        """
        if self.encoding == "auto" and self._settings.delivery.target.kind != "folder":
            self.encoding = "jsonl"
        if self.encoding in ("auto", "parquet"):
            try:
                encoder = steps_encoder()
            except Exception as error:  # absent, or broken in a way of its own
                if self.encoding == "parquet":
                    self._notes.failed("pyarrow cannot be used, JSON Lines instead", error)
            else:
                self.encoding = "parquet"
                return encoder
        elif self.encoding != "jsonl":
            self._notes.misused(f"there is no encoding {self.encoding!r}: JSON Lines instead")
        self.encoding = "jsonl"
        return None

    def _beat(self) -> dict[str, Any]:
        """The sign of life, on the writing thread."""
        book, identity = self._book, self._identity
        phase, since_ns = book.where()
        now_us = self._clock.wall_ns() // 1000
        age_us = max(0, self._clock.mono_ns() - since_ns) // 1000
        return {
            "rank": identity.rank,
            "attempt": identity.attempt,
            "step": book.number,
            "phase": phase,
            "phase_since_us": now_us - age_us,
            "last_step_done": book.last_done,
            "ts_us": now_us,
            "host": identity.host,
            "pid": identity.pid,
            "state": "closed" if self.shipper.is_closed else "running",
            "rows_written": self.shipper.written,
            "rows_dropped": self.shipper.dropped + book.held.dropped,
            "last_error": self._notes.last_error,
            "overhead_us_mean": book.overhead_us_mean,
            "job_start_us": self._job_start_us,
        }
