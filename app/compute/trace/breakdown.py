"""How one rank's device spends its time: what a profiler trace shows without any other rank.

Definitions follow Holistic Trace Analysis (``get_temporal_breakdown``, ``get_comm_comp_overlap`` of
https://github.com/facebookresearch/HolisticTraceAnalysis). The window goes from the first start of
any device operation to the last end. The device is *idle* where no operation runs on any stream,
it *computes* where a kernel runs that is no communication, and *non-compute* is the rest of the
window. *Overlap* is the share of communication during which a kernel computes. All times are
lengths of unions of whole nanoseconds, so that kernels side by side on two streams count once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from steptax.app.intervals import Ints, Spans, measure, minus, union

#: Nanoseconds of the clock to which Holistic Trace Analysis rounds.
WHOLE_US_NS = 1000


class Work(IntEnum):
    """What a device operation is."""

    COMPUTE = 0
    COMMUNICATION = 1
    COPY = 2
    """A copy in either direction, on the device, or a memset."""


@dataclass(frozen=True, eq=False)
class DeviceWork:
    """The N device operations of one rank, in any order.

    ``name`` indexes ``names`` and ``stream`` indexes ``streams``. ``launch_ns`` is when the host
    asked for an operation, where ``launched`` says that this is recorded; both are None where
    launches are not recorded at all. ``step`` is the profiled step it was launched in, -1 for none.
    """

    kind: Ints
    start_ns: Ints
    end_ns: Ints
    name: Ints
    names: tuple[str, ...]
    stream: Ints
    streams: tuple[str, ...]
    step: Ints
    launch_ns: Ints | None = None
    launched: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.kind)

    def only(self, keep: NDArray[np.bool_]) -> DeviceWork:
        """The operations of ``keep`` [N]."""
        return replace(
            self,
            kind=self.kind[keep],
            start_ns=self.start_ns[keep],
            end_ns=self.end_ns[keep],
            name=self.name[keep],
            stream=self.stream[keep],
            step=self.step[keep],
            launch_ns=None if self.launch_ns is None else self.launch_ns[keep],
            launched=None if self.launched is None else self.launched[keep],
        )

    def spans(self, *kinds: Work) -> Spans:
        """When any operation of ``kinds`` ran; of any kind without one."""
        rows = np.isin(self.kind, kinds) if kinds else np.ones(len(self), bool)
        return union(self.start_ns[rows], self.end_ns[rows])

    def in_whole_us(self) -> DeviceWork:
        """Each operation cut to the whole microseconds inside of it.

        What Holistic Trace Analysis does to traces with fractions of microseconds before it
        analyses them (``round_down_time_stamps``), on account of pytorch/pytorch#122425. Each
        operation loses up to 2 us, and one without a whole microsecond in it gets a length of -1
        there and of 0 here.
        """
        start = -(-self.start_ns // WHOLE_US_NS) * WHOLE_US_NS
        end = np.maximum(start, self.end_ns // WHOLE_US_NS * WHOLE_US_NS)
        return replace(self, start_ns=start, end_ns=end)


@dataclass(frozen=True)
class TimeBreakdown:
    """The window of one rank in nanoseconds; compute, exposed parts and idle add up to it.

    ``communication_ns`` and ``copy_ns`` are whole unions, ``exposed_*`` what of them lies outside
    of computing (and, for copies, outside of communication too).
    """

    window_ns: int
    compute_ns: int
    communication_ns: int
    exposed_communication_ns: int
    copy_ns: int
    exposed_copy_ns: int
    idle_ns: int

    @property
    def non_compute_ns(self) -> int:
        """The device is busy and does not compute."""
        return self.window_ns - self.compute_ns - self.idle_ns

    @property
    def overlap_ns(self) -> int:
        """Communication hidden behind computing."""
        return self.communication_ns - self.exposed_communication_ns

    @property
    def overlap_ratio(self) -> float | None:
        """Share of communication that is hidden; None where there is no communication."""
        return self.overlap_ns / self.communication_ns if self.communication_ns else None

    def share(self, part_ns: int) -> float | None:
        """``part_ns`` as a share of the window; None for an empty window."""
        return part_ns / self.window_ns if self.window_ns else None


@dataclass(frozen=True)
class StreamUse:
    """One stream: its operations, and for how long any of each kind ran on it."""

    stream: str
    operations: int
    busy_ns: int
    compute_ns: int
    communication_ns: int
    copy_ns: int


def time_breakdown(work: DeviceWork) -> TimeBreakdown | None:
    """The window of ``work`` by what the device does; None without any operation."""
    if not len(work):
        return None
    window = int(work.end_ns.max() - work.start_ns.min())
    compute, comm, copies = (work.spans(kind) for kind in Work)
    exposed = minus(comm, compute)
    return TimeBreakdown(
        window_ns=window,
        compute_ns=measure(compute),
        communication_ns=measure(comm),
        exposed_communication_ns=measure(exposed),
        copy_ns=measure(copies),
        exposed_copy_ns=measure(minus(minus(copies, compute), comm)),
        idle_ns=window - measure(work.spans()),
    )


def stream_use(work: DeviceWork) -> tuple[StreamUse, ...]:
    """Each stream, the busiest first."""
    found = []
    for stream in np.unique(work.stream).tolist():
        mine = work.only(work.stream == stream)
        parts = [measure(mine.spans(kind)) for kind in Work]
        busy = measure(mine.spans())
        found.append(StreamUse(work.streams[stream], len(mine), busy, *parts))
    return tuple(sorted(found, key=lambda use: (-use.busy_ns, use.stream)))


def without_last_step(work: DeviceWork, starts_ns: Sequence[int]) -> DeviceWork:
    """The operations that Holistic Trace Analysis looks at, unless told otherwise.

    Of a trace with several profiled steps, which begin at ``starts_ns``, those that the host is
    known to have launched before the last one begins; of any other trace all.
    """
    if len(starts_ns) < 2:
        return work
    if work.launch_ns is None or work.launched is None:
        return work.only(np.zeros(len(work), bool))
    return work.only(work.launched & (work.launch_ns < max(starts_ns)))
