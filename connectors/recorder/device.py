"""Time of a step on a CUDA device, from events on the stream and never by waiting for it.

Kernels are launched long before they run, so the host's clock says when work was asked for and not
when it was done. Where torch runs on CUDA, each change of phase therefore also records an event on
the stream that was current when the step began. The time between two neighbouring events goes to
the phase that the host was in between them. As all of them lie on one stream they are in order:
parts are disjoint and add up to the time from the first event to the last. A host phase that the
device did not notice (input fetched while kernels were still queued) gets no time; one that kept
the device idle gets just that idle time, which is the part that costs.

Events are read by the training thread, at the ends of later steps, once the last one has been
reached. A thread of our own must not ask for them: during a graph capture such a question from
another thread can spoil the capture.
"""

from __future__ import annotations

import sys
from collections import deque
from typing import Any, NamedTuple

from steptax.connectors.recorder.notes import Notes
from steptax.connectors.recorder.rows import FinishedStep
from steptax.connectors.recorder.timeline import BUCKETS, HOST

#: Steps whose events may be outstanding; beyond it the oldest is dropped.
HELD_STEPS = 64
#: Steps read at the end of one step: more than one, so that a backlog shrinks.
READ_AT_ONCE = 2


class DeviceName(NamedTuple):
    """What identifies a device; None where this version of torch does not tell."""

    uuid: str | None
    model: str | None


class DeviceStep:
    """The events of one step."""

    __slots__ = ("_device", "_stream", "broken", "buckets", "events")

    def __init__(self, device: CudaDevice) -> None:
        self._device = device
        self._stream = device.cuda.current_stream()
        self.events: list[Any] = []
        self.buckets: list[int] = []
        self.broken = False
        self.stamp(HOST)

    def stamp(self, bucket: int) -> None:
        """From here on the stream's time belongs to ``bucket``."""
        try:
            event = self._device.event()
            event.record(self._stream)
        except Exception:
            self.broken = True
            raise
        self.events.append(event)
        self.buckets.append(bucket)

    def rename(self, first: int, bucket: int, into: int) -> None:
        """From the stamp number ``first`` on, what was ``bucket`` belongs to ``into`` instead."""
        self.buckets[first:] = [into if b == bucket else b for b in self.buckets[first:]]

    def is_complete(self) -> bool:
        """True once the device has reached the last event."""
        return bool(self.events[-1].query())

    def spent_ns(self) -> list[int]:
        """Nanoseconds by bucket; only once complete."""
        spent = [0] * BUCKETS
        for place, bucket in enumerate(self.buckets[:-1]):
            elapsed_ms = self.events[place].elapsed_time(self.events[place + 1])
            spent[bucket] += max(0, round(elapsed_ms * 1e6))
        return spent

    def recycle(self, events: list[Any]) -> None:
        """Give events that have been read to later steps."""
        self._device.give_back(events)


class DeviceLoss:
    """A loss that is still to be computed: copied behind the kernels that compute it."""

    __slots__ = ("_copy", "_event")

    def __init__(self, torch: Any, loss: Any) -> None:
        # A non-blocking copy to the host goes to pinned memory, in the order of the stream.
        self._copy = loss.detach().to("cpu", non_blocking=True)
        self._event = torch.cuda.Event()
        self._event.record(torch.cuda.current_stream(loss.device))

    def is_complete(self) -> bool:
        """True once the value is there."""
        return bool(self._event.query())

    def __float__(self) -> float:
        return float(self._copy)


class CudaDevice:
    """The device of this process, seen through torch; makes and keeps events."""

    def __init__(self, torch: Any) -> None:
        self.cuda = torch.cuda
        self._pool: list[Any] = []

    @classmethod
    def find(cls) -> CudaDevice | None:
        """The device, if torch has been imported and has initialised CUDA; we do neither."""
        torch = sys.modules.get("torch")
        cuda = getattr(torch, "cuda", None)
        if torch is None or cuda is None or not cuda.is_initialized():
            return None
        return cls(torch)

    def name(self) -> DeviceName:
        """Identity of the current device."""
        properties = self.cuda.get_device_properties(self.cuda.current_device())
        uuid = getattr(properties, "uuid", None)
        model = getattr(properties, "name", None)
        return DeviceName(None if uuid is None else f"GPU-{uuid}", model)

    def event(self) -> Any:
        """An event with timing, used before or new."""
        return self._pool.pop() if self._pool else self.cuda.Event(enable_timing=True)

    def give_back(self, events: list[Any]) -> None:
        """Take events for use in later steps."""
        self._pool.extend(events)

    def is_capturing(self) -> bool:
        """True while a graph is captured on the current stream: leave the device alone then."""
        return bool(self.cuda.is_current_stream_capturing())


class Held(NamedTuple):
    """A step that ended on the host and perhaps not yet on the device."""

    step: FinishedStep
    device: DeviceStep | None
    loss: DeviceLoss | None

    def is_complete(self) -> bool:
        """True once its times and its loss can be read."""
        return (self.device is None or self.device.is_complete()) and (
            self.loss is None or self.loss.is_complete()
        )


class HeldSteps:
    """Steps waiting for the device, oldest first; belongs to the training thread."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._held: deque[Held] = deque()
        self._anchor: tuple[Any, int] | None = None
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._held)

    def add(self, held: Held) -> None:
        """Hold a step back; drops the oldest when there are too many."""
        if held.device is not None and held.device.broken:
            self.dropped += 1
            return
        if len(self._held) >= HELD_STEPS:
            self._held.popleft()
            self.dropped += 1
        self._held.append(held)

    def give_up(self) -> None:
        """Drop every step that is held."""
        self.dropped += len(self._held)
        self._held.clear()

    def read(self, wall_ns: int, most: int = READ_AT_ONCE) -> list[FinishedStep]:
        """Take out up to ``most`` complete steps. A step whose events cannot be read is dropped."""
        ready: list[FinishedStep] = []
        while self._held and len(ready) < most:
            step, device, _ = held = self._held[0]
            try:
                if not held.is_complete():
                    break
                finished = step if device is None else self._timed(step, device, wall_ns)
            except Exception as error:
                self.dropped += 1
                self._notes.failed("reading the device's times", error)
            else:
                ready.append(finished)
            self._held.popleft()
        return ready

    def _timed(self, step: FinishedStep, device: DeviceStep, wall_ns: int) -> FinishedStep:
        """The step with the device's times.

        Events have no date. The start is dated from the step before, by the time between their
        first events; what is certain corrects the drift between the two clocks: the device cannot
        have begun before the host asked, nor end after the moment ``wall_ns`` when it had ended.
        """
        spent_ns = device.spent_ns()
        duration_ns = sum(spent_ns)
        first, *others = device.events
        start_ns = step.start_ns
        if self._anchor is not None:
            event, event_ns = self._anchor
            dated_ns = event_ns + round(event.elapsed_time(first) * 1e6)
            start_ns = max(start_ns, min(dated_ns, wall_ns - duration_ns))
            others.append(event)
        self._anchor = (first, start_ns)
        device.recycle(others)
        return step._replace(start_ns=start_ns, duration_ns=duration_ns, spent_ns=spent_ns)
