"""What a book of steps holds: the open step, counts of those before, and what others may read."""

from __future__ import annotations

import gc
from collections.abc import Callable

from steptax.connectors.recorder.clock import Clock
from steptax.connectors.recorder.device import CudaDevice, DeviceStep, HeldSteps
from steptax.connectors.recorder.notes import Notes
from steptax.connectors.recorder.payload import Payload
from steptax.connectors.recorder.rows import FinishedStep
from steptax.connectors.recorder.timeline import BUCKET_NAMES, GC, Timeline


def drop(finished: FinishedStep) -> None:
    """Where finished steps go before there is a place for them."""


class BookState:
    """The state of a ``StepBook``, and what the heartbeat reads of it from another thread."""

    # More attributes than a shared-key dictionary holds: without slots every access is slower.
    __slots__ = (
        "_calls_open",
        "_comm_ns",
        "_comm_stamp",
        "_device",
        "_device_step",
        "_is_flat",
        "_is_joined",
        "_is_open",
        "_is_sampled",
        "_last_done",
        "_notes",
        "_now",
        "_number",
        "_on_device",
        "_on_library",
        "_own_ns",
        "_own_steps",
        "_payload",
        "_seen",
        "_start_ns",
        "_taken_ns",
        "_thread",
        "_timeline",
        "_wall",
        "_watch_cuda",
        "emit",
        "held",
        "is_running",
        "steps_abandoned",
        "steps_done",
        "steps_repeated",
    )

    def __init__(
        self,
        clock: Clock,
        notes: Notes,
        *,
        emit: Callable[[FinishedStep], None] = drop,
        watch_cuda: bool = False,
        on_device: Callable[[CudaDevice], None] | None = None,
        on_library: Callable[[], bool] | None = None,
    ) -> None:
        self._now = clock.mono_ns
        self._wall = clock.wall_ns
        self._notes = notes
        self.emit = emit
        self._watch_cuda = watch_cuda
        self._on_device = on_device
        self._on_library = on_library
        self._is_joined = False
        self._calls_open = self._comm_ns = self._comm_stamp = 0
        self._device: CudaDevice | None = None
        self._device_step: DeviceStep | None = None
        self._timeline = Timeline(self._now())
        self._thread = 0
        self._is_open = False
        self._is_flat = False
        self._seen = (1 << GC) if hasattr(gc, "callbacks") else 0
        self._start_ns = 0
        self._payload = Payload()
        self._own_ns = 0
        self._own_steps = 0
        self._taken_ns = 0
        self._is_sampled = False
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
        """Mean time that the training thread spent in here in a step, over every 16th step.

        None before the second. Reading the clock twice in every call would make it a fifth longer.
        """
        return self._own_ns / self._own_steps / 1000 if self._own_steps else None
