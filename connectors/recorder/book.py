"""The open step: what the training thread calls, from its begin to the row that it becomes."""

from __future__ import annotations

import sys
import time
from threading import get_ident
from typing import Any

from steptax.connectors.recorder.book_state import BookState
from steptax.connectors.recorder.device import (
    HELD_STEPS,
    READ_AT_ONCE,
    CudaDevice,
    DeviceStep,
    Held,
)
from steptax.connectors.recorder.payload import Payload
from steptax.connectors.recorder.rows import FinishedStep
from steptax.connectors.recorder.timeline import (
    BUCKET_NAMES,
    COLLECTIVE,
    COMM,
    HOST,
)
from steptax.connectors.recorder.values import INT64_MAX, whole

#: The collection whose pause is timed on the device: younger ones are shorter than two events.
_FULL_COLLECTION = 2
_DRAIN_POLL_S = 0.001
#: The recorder times itself in one of so many steps.
_SAMPLED_STEPS = 16


class StepBook(BookState):
    """Measures one step at a time and hands each finished one to ``emit``, which may be replaced.

    A step belongs to the thread that began it; calls of other threads are misuse, as phases of two
    threads would not be disjoint. A step that is begun while one is open, or is left by an
    exception, is not finished: the open one is abandoned and gives no row.

    ``watch_cuda`` looks for an initialised device at each begin; ``on_device`` is told once.
    ``on_library`` is called at each begin until it says that there is no more need.
    """

    __slots__ = ()

    # -- steps ----------------------------------------------------------------------------------

    def begin(self, step: Any) -> None:
        """Open ``step``; raises TypeError or ValueError when it is no step number."""
        now_ns = self._now()
        if not self.is_running:
            self._notes.misused("a step before start() or after close()")
            return
        if self._is_open:
            self._notes.misused(f"step {self._number} was still open when another began")
            self.abandon()
        number = step if type(step) is int and 0 <= step <= INT64_MAX else whole(step)
        if self._watch_cuda and self._device is None and "torch" in sys.modules:
            self._find_device()
        if self._on_library is not None and self._on_library():
            self._on_library = None
        self._thread = get_ident()
        self._number = number
        self._is_flat = False
        self._payload = Payload()
        self._start_ns = self._wall()
        # If this raises, the step stays closed: times of the host must not pass for the device's.
        self._device_step = None if self._device is None else DeviceStep(self._device)
        self._timeline.begin(now_ns)
        self._is_open = True
        self._is_sampled = self.steps_done % _SAMPLED_STEPS == 1  # the first is not typical
        if self._is_sampled:
            self._taken_ns = self._now() - now_ns

    def end(self) -> None:
        """Close the open step and hand it over, now or once the device has done it."""
        now_ns = self._now()
        if not self._is_open or get_ident() != self._thread:
            self._refuse("the end of a step")
            return
        timeline = self._timeline
        if len(timeline.stack) > self._is_flat:
            self._notes.misused("a step ended inside a phase")
        duration_ns = timeline.end(now_ns)
        self._is_open = False
        device_step, self._device_step = self._device_step, None
        if device_step is not None:
            try:
                device_step.stamp(HOST)
            except Exception as error:  # the step is broken now, and dropped and counted as such
                self._notes.failed("timing on the device", error)
        number = self._number
        if number <= self._last_done:
            self.steps_repeated += 1
            self._notes.misused(
                f"step {number} came after step {self._last_done} in one attempt and is not "
                "recorded: count steps on over epochs, and give each attempt its number",
                topic="repeated",
            )
            return
        self._last_done = number
        payload = self._payload
        finished = FinishedStep(
            number,
            self._start_ns,
            duration_ns,
            timeline.spent_ns,
            self._seen,
            payload.tokens,
            payload.seq_sq_sum,
            payload.loss,
        )
        if device_step is None and payload.device_loss is None:
            self.emit(finished)
        else:
            self.held.add(Held(finished, device_step, payload.device_loss))
        if self.held:
            self._read_held()
        self.steps_done += 1
        if self._is_sampled:
            self._own_ns += self._taken_ns + self._now() - now_ns
            self._own_steps += 1

    def abandon(self) -> None:
        """Forget the open step, if there is one: it was not finished, so it gives no row."""
        if self._is_open:
            self._is_open = False
            self._device_step = None
            self.steps_abandoned += 1
            self._timeline.end(self._now())

    def stop(self) -> None:
        """Take no more steps; one that is open is abandoned."""
        self.abandon()
        self.is_running = False

    def drain(self, wait_s: float) -> None:
        """Give the device up to ``wait_s`` seconds to finish what is held; drop the rest."""
        # Polls are counted, not timed: the clock may be one that stands still.
        for _ in range(int(wait_s / _DRAIN_POLL_S)):
            self._read_held(HELD_STEPS)
            if not self.held:
                return
            time.sleep(_DRAIN_POLL_S)
        self.held.give_up()

    # -- parts of a step ------------------------------------------------------------------------

    def enter(self, bucket: int) -> None:
        """Open a phase or a collective."""
        now_ns = self._now()
        if not self._is_open or get_ident() != self._thread:
            self._refuse("a phase")
            return
        self._timeline.enter(bucket, now_ns)
        self._seen |= 1 << bucket
        if bucket == COMM:
            self._is_joined = False
            self._calls_open = 0
            self._comm_ns = self._timeline.spent_ns[COMM]
            if self._device_step is not None:
                self._comm_stamp = len(self._device_step.buckets)
        if self._device_step is not None:
            self._device_step.stamp(bucket)
        if self._is_sampled:
            self._taken_ns += self._now() - now_ns

    def leave(self, bucket: int) -> None:
        """Close the phase or collective that was opened last."""
        now_ns = self._now()
        if not self._is_open or get_ident() != self._thread:
            self._refuse("the end of a phase")
            return
        timeline = self._timeline
        if not timeline.leave(bucket, now_ns):
            self._notes.misused(f"{BUCKET_NAMES[bucket]} ended and was not the phase opened last")
        if self._device_step is not None:
            self._device_step.stamp(timeline.bucket)
        if self._is_sampled:
            self._taken_ns += self._now() - now_ns

    def comm_call_begins(self, calls: int) -> None:
        """The communication library is called, for so many operations, or waited for.

        In an open collective, what came before the first such call was this rank's own time: its
        peers cannot have been in it. Elsewhere nothing happens.
        """
        timeline = self._timeline
        stack = timeline.stack
        if not stack or stack[-1] != COMM or not self._is_open or get_ident() != self._thread:
            return
        now_ns = self._now()
        device_step = self._device_step
        self._calls_open += calls
        if timeline.bucket == COLLECTIVE or not self._is_joined:
            timeline.move(COMM, now_ns)
            if not self._is_joined:
                own_ns = timeline.spent_ns[COMM] - self._comm_ns
                timeline.spent_ns[COMM] -= own_ns
                timeline.spent_ns[COLLECTIVE] += own_ns
                self._is_joined = True
                self._seen |= 1 << COLLECTIVE
                if device_step is not None:
                    device_step.rename(self._comm_stamp, COMM, COLLECTIVE)
            if device_step is not None:
                device_step.stamp(COMM)
        if self._is_sampled:
            self._taken_ns += self._now() - now_ns

    def comm_call_ends(self) -> None:
        """An operation of the communication library was waited for and is through.

        Where none is open any more, what follows in the collective is this rank's own time.
        """
        timeline = self._timeline
        if not self._is_joined or timeline.bucket != COMM or get_ident() != self._thread:
            return
        now_ns = self._now()
        self._calls_open = max(0, self._calls_open - 1)
        if not self._calls_open:
            timeline.move(COLLECTIVE, now_ns)
            if self._device_step is not None:
                self._device_step.stamp(COLLECTIVE)
        if self._is_sampled:
            self._taken_ns += self._now() - now_ns

    def change(self, bucket: int | None) -> None:
        """End the phase that ``change`` opened, and open another unless None."""
        now_ns = self._now()
        if not self._is_open or get_ident() != self._thread:
            self._refuse("a phase")
            return
        timeline = self._timeline
        if len(timeline.stack) > self._is_flat:
            self._notes.misused("a phase was changed while another or a collective was open in it")
            return
        was_flat, self._is_flat = bool(timeline.stack), bucket is not None
        if bucket is not None:
            self._seen |= 1 << bucket
        if bucket is not None and was_flat:
            timeline.replace(bucket, now_ns)
        elif bucket is not None:
            timeline.enter(bucket, now_ns)
        elif was_flat:
            timeline.leave(timeline.stack[-1], now_ns)
        if self._device_step is not None:
            self._device_step.stamp(timeline.bucket)
        if self._is_sampled:
            self._taken_ns += self._now() - now_ns

    def collection(self, phase: str, info: dict[str, Any]) -> None:
        """A callback of ``gc.callbacks``. Collections that other threads start are not counted:
        whether they stop this one cannot be told.
        """
        if not self._is_open or get_ident() != self._thread:
            return
        timeline = self._timeline
        if phase == "start":
            timeline.pause(self._now())
        else:
            timeline.resume(self._now())
        device, device_step = self._device, self._device_step
        if device is None or device_step is None or info.get("generation") != _FULL_COLLECTION:
            return
        if not device.is_capturing():
            device_step.stamp(timeline.bucket)

    def payload(self, what: str) -> Payload | None:
        """Of the open step; None when ``what`` cannot be added to it, which is then noted."""
        if not self._is_open or get_ident() != self._thread:
            self._refuse(what)
            return None
        return self._payload

    # -- inside ---------------------------------------------------------------------------------

    def _refuse(self, what: str) -> None:
        """A call that came outside of a step, or in another thread than its step's."""
        where = "in another thread than its step" if self._is_open else "outside of a step"
        self._notes.misused(f"{what} {where}")

    def _read_held(self, most: int = READ_AT_ONCE) -> None:
        if self._device is not None and self._device.is_capturing():
            return
        for finished in self.held.read(self._wall(), most):
            self.emit(finished)

    def _find_device(self) -> None:
        try:
            self._device = CudaDevice.find()
        except Exception as error:  # something that calls itself torch
            self._watch_cuda = False
            self._notes.failed("looking for a device", error)
        if self._device is not None and self._on_device is not None:
            self._on_device(self._device)
