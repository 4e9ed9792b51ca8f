"""Why a device is idle between two operations, as Holistic Trace Analysis tells it apart.

(``get_idle_time_breakdown`` of https://github.com/facebookresearch/HolisticTraceAnalysis.) The gap
before an operation is a

* *host wait* if the host asked for it only after the operation before had ended,
* *kernel wait* if not, and the gap is shorter than ``KERNEL_WAIT_NS``: the cost of launching many
  small kernels,
* *other* if neither, such as a kernel that waits for a communication on another stream.

There it is told for each stream, from the end of the one operation before. Here the gap counts from
the latest end of all before, so that operations that overlap on a stream make no negative gaps; and
the same is told for the device as a whole, whose gaps are those in which no stream is busy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steptax.app.compute.trace.breakdown import DeviceWork

#: Shorter gaps are the launching of kernels; "consecutive_kernel_delay" there, in microseconds.
KERNEL_WAIT_NS = 30_000


@dataclass(frozen=True)
class IdleCauses:
    """Idle nanoseconds by cause; ``stream`` is None for the device as a whole.

    ``unlinked`` operations do not tell when they were launched: the gaps before them can only be
    kernel wait or other.
    """

    stream: str | None
    host_wait_ns: int
    kernel_wait_ns: int
    other_ns: int
    gaps: int
    unlinked: int

    @property
    def total_ns(self) -> int:
        """All idle time between the first and the last operation."""
        return self.host_wait_ns + self.kernel_wait_ns + self.other_ns


def idle_causes(
    work: DeviceWork, *, kernel_wait_ns: int = KERNEL_WAIT_NS
) -> tuple[IdleCauses, tuple[IdleCauses, ...]] | None:
    """Causes for the device as a whole and for each stream, in the order of ``work.streams``.

    None where the trace records no launches, or nothing ran.
    """
    if not len(work) or work.launch_ns is None:
        return None
    streams = tuple(
        _causes(work.only(work.stream == stream), work.streams[stream], kernel_wait_ns)
        for stream in np.unique(work.stream).tolist()
    )
    return _causes(work, None, kernel_wait_ns), streams


def _causes(work: DeviceWork, stream: str | None, kernel_wait_ns: int) -> IdleCauses:
    assert work.launch_ns is not None
    assert work.launched is not None
    order = np.lexsort((work.end_ns, work.start_ns))
    start, launch = work.start_ns[order], work.launch_ns[order]
    launched = work.launched[order]
    before = np.maximum.accumulate(work.end_ns[order])[:-1]
    gap = np.maximum(start[1:] - before, 0)
    host = launched[1:] & (launch[1:] > before)
    short = ~host & (gap < kernel_wait_ns)
    return IdleCauses(
        stream,
        int(gap[host].sum()),
        int(gap[short].sum()),
        int(gap[~host & ~short].sum()),
        int((gap > 0).sum()),
        int((~launched).sum()),
    )
