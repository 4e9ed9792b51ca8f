"""The open step: what the training thread calls, from its begin to the row that it becomes."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from operator import index
from threading import get_ident
from typing import Any

from steptax.connectors.recorder.clock import Clock
from steptax.connectors.recorder.device import (
    HELD_STEPS,
    READ_AT_ONCE,
    CudaDevice,
    DeviceLoss,
    DeviceStep,
    Held,
    HeldSteps,
)
from steptax.connectors.recorder.notes import Notes
from steptax.connectors.recorder.rows import FinishedStep
from steptax.connectors.recorder.timeline import BUCKET_NAMES, GC, HOST, Timeline
from steptax.connectors.recorder.values import whole

#: The collection whose pause is timed on the device: younger ones are shorter than two events.
_FULL_COLLECTION = 2
_DRAIN_POLL_S = 0.001


class StepBook:
    """Measures one step at a time and hands each finished one to ``emit``.

    A step belongs to the thread that began it; calls of other threads are misuse, as phases of two
    threads would not be disjoint. A step that is begun while one is open, or is left by an
    exception, is not finished: the open one is abandoned and gives no row.

    ``watch_cuda`` looks for an initialised device at each begin; ``on_device`` is told once.
    """

    def __init__(
        self,
        clock: Clock,
        notes: Notes,
        emit: Callable[[FinishedStep], None],
        *,
        watch_cuda: bool = False,
        on_device: Callable[[CudaDevice], None] | None = None,
    ) -> None:
        self._now = clock.mono_ns
        self._wall = clock.wall_ns
        self._notes = notes
        self._emit = emit
        self._watch_cuda = watch_cuda
        self._on_device = on_device
        self._device: CudaDevice | None = None
        self._device_step: DeviceStep | None = None
        self._device_loss: DeviceLoss | None = None
        self._timeline = Timeline(self._now())
        self._thread = 0
        self._is_open = False
        self._is_flat = False
        self._seen = (1 << GC) if hasattr(gc, "callbacks") else 0
        self._start_ns = 0
        self._tokens: int | None = None
        self._seq_sq_sum: int | None = 0
        self._loss: Any = None
        self._own_ns = 0
        self.held = HeldSteps(notes)
        self.is_running = False
        self._number = -1
        self._last_done = -1
        self.steps_done = 0
        self.steps_abandoned = 0
        self.steps_repeated = 0

    # -- for the heartbeat, from another thread -------------------------------------------------

    def where(self) -> tuple[str, int]:
        """Name of what the training thread is in, and since when (monotonic ns)."""
        timeline = self._timeline
        for _ in range(3):
            bucket, since_ns, is_open = timeline.bucket, timeline.since_ns, self._is_open
            if (bucket, since_ns) == (timeline.bucket, timeline.since_ns):
                break
        return (BUCKET_NAMES[bucket] if is_open else "idle"), since_ns

    @property
    def number(self) -> int | None:
        """The open step, or the one that was open last; None before the first."""
        return self._number if self._number >= 0 else None

    @property
    def last_done(self) -> int | None:
        """The last finished step; None before the first."""
        return self._last_done if self._last_done >= 0 else None

    @property
    def is_timed_by_device(self) -> bool:
        """True once phases are timed by CUDA events."""
        return self._device is not None

    @property
    def overhead_us_mean(self) -> float | None:
        """Mean time per step that the training thread spent in here; None before the first."""
        return self._own_ns / self.steps_done / 1000 if self.steps_done else None

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
        number = whole(step)
        if self._watch_cuda and self._device is None:
            self._find_device()
        self._thread = get_ident()
        self._number = number
        self._is_flat = False
        self._tokens, self._seq_sq_sum, self._loss, self._device_loss = None, 0, None, None
        self._start_ns = self._wall()
        # If this raises, the step stays closed: times of the host must not pass for the device's.
        self._device_step = None if self._device is None else DeviceStep(self._device)
        self._timeline.begin(now_ns)
        self._is_open = True
        self._own_ns += self._now() - now_ns

    def end(self) -> None:
        """Close the open step and hand it over, now or once the device has done it."""
        now_ns = self._now()
        if not self._may("the end of a step"):
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
        finished = FinishedStep(
            number,
            self._start_ns,
            duration_ns,
            timeline.spent_ns,
            self._seen,
            self._tokens,
            None if self._tokens is None else self._seq_sq_sum,
            self._loss,
        )
        if device_step is None and self._device_loss is None:
            self._emit(finished)
        else:
            self.held.add(Held(finished, device_step, self._device_loss))
        if self.held:
            self._read_held()
        self.steps_done += 1
        self._own_ns += self._now() - now_ns

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
        if not self._may("a phase"):
            return
        self._timeline.enter(bucket, now_ns)
        self._seen |= 1 << bucket
        if self._device_step is not None:
            self._device_step.stamp(bucket)
        self._own_ns += self._now() - now_ns

    def leave(self, bucket: int) -> None:
        """Close the phase or collective that was opened last."""
        now_ns = self._now()
        if not self._may("the end of a phase"):
            return
        timeline = self._timeline
        if not timeline.leave(bucket, now_ns):
            self._notes.misused(f"{BUCKET_NAMES[bucket]} ended and was not the phase opened last")
        if self._device_step is not None:
            self._device_step.stamp(timeline.bucket)
        self._own_ns += self._now() - now_ns

    def change(self, bucket: int | None) -> None:
        """End the phase that ``change`` opened, and open another unless None."""
        now_ns = self._now()
        if not self._may("a phase"):
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
        self._own_ns += self._now() - now_ns

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

    # -- what a step processed ------------------------------------------------------------------

    def tokens(self, count: Any, seq_sq_sum: Any = None) -> None:
        """Add tokens to the open step; raises TypeError or ValueError for what is no count."""
        if not self._may("tokens"):
            return
        square = None if seq_sq_sum is None else whole(seq_sq_sum)
        self._tokens = (self._tokens or 0) + whole(count)
        if square is None or self._seq_sq_sum is None:
            self._seq_sq_sum = None  # the squares of a part say nothing of the whole
        else:
            self._seq_sq_sum += square

    def sequences(self, lengths: Any) -> None:
        """Add sequences by their lengths in tokens; raises TypeError or ValueError."""
        if getattr(lengths, "is_cuda", False):
            raise TypeError("lengths on the device cannot be read without waiting for the device")
        values = lengths.tolist() if hasattr(lengths, "tolist") else lengths
        whole_values = [index(value) for value in values]
        if min(whole_values, default=0) < 0:
            raise ValueError("a sequence length is negative")
        self.tokens(sum(whole_values), sum(value * value for value in whole_values))

    def loss(self, value: Any) -> None:
        """Note the loss of the open step. What lives on a device is read later, never waited for.

        Raises TypeError or ValueError for what is no number.
        """
        if not self._may("a loss"):
            return
        if isinstance(value, (int, float)):
            self._loss = float(value)
        elif getattr(value, "is_cuda", False):
            self._loss = self._device_loss = DeviceLoss(sys.modules["torch"], value)
        elif hasattr(value, "detach"):
            # Reading a tensor of the processor costs nothing, and the next step may overwrite it.
            detached = value.detach()
            self._loss = float(detached) if detached.device.type == "cpu" else detached
        elif type(value).__module__ == "numpy":
            self._loss = float(value)
        else:
            self._loss = value  # e.g. an array of another framework: read by the writing thread

    # -- inside ---------------------------------------------------------------------------------

    def _may(self, what: str) -> bool:
        if self._is_open and get_ident() == self._thread:
            return True
        where = "in another thread than its step" if self._is_open else "outside of a step"
        self._notes.misused(f"{what} {where}")
        return False

    def _read_held(self, most: int = READ_AT_ONCE) -> None:
        if self._device is not None and self._device.is_capturing():
            return
        for finished in self.held.read(self._wall(), most):
            self._emit(finished)

    def _find_device(self) -> None:
        self._device = CudaDevice.find()
        if self._device is not None and self._on_device is not None:
            self._on_device(self._device)
