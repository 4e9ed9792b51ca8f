"""Which kernels take a device's time: the table of kernels of one rank.

As ``get_gpu_kernel_breakdown`` of Holistic Trace Analysis has it, without its folding of small
kernels into "others": sums are over launches, so that kernels side by side on two streams count
twice here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from steptax.app.compute.trace.breakdown import DeviceWork, Work


@dataclass(frozen=True)
class KernelUse:
    """All launches of one kernel on one rank; ``share_ratio`` is of all operations of its kind.

    ``deviation_ns`` is the sample's standard deviation, 0 for one launch.
    """

    name: str
    kind: Work
    count: int
    total_ns: int
    mean_ns: float
    min_ns: int
    max_ns: int
    deviation_ns: float
    share_ratio: float


def kernel_table(work: DeviceWork) -> tuple[KernelUse, ...]:
    """The kernels and copies of ``work``, those that take the most time first."""
    if not len(work):
        return ()
    duration = work.end_ns - work.start_ns
    pairs, place = np.unique(work.name * len(Work) + work.kind, return_inverse=True)
    count = np.bincount(place)
    # Whole numbers: sums of nanoseconds outgrow what doubles hold exactly.
    total = np.zeros(len(pairs), np.int64)
    np.add.at(total, place, duration)
    low = np.full(len(pairs), np.iinfo(np.int64).max)
    np.minimum.at(low, place, duration)
    high = np.zeros(len(pairs), np.int64)
    np.maximum.at(high, place, duration)
    mean = total / count
    squares = np.bincount(place, (duration - mean[place]) ** 2)
    deviation = np.sqrt(squares / np.maximum(count - 1, 1))
    kinds = pairs % len(Work)
    of_kind = np.zeros(len(Work), np.int64)
    np.add.at(of_kind, kinds, total)
    found = [
        KernelUse(
            work.names[pairs[i] // len(Work)],
            Work(int(kinds[i])),
            int(count[i]),
            int(total[i]),
            float(mean[i]),
            int(low[i]),
            int(high[i]),
            float(deviation[i]),
            float(total[i] / of_kind[kinds[i]]) if of_kind[kinds[i]] else 0.0,
        )
        for i in range(len(pairs))
    ]
    return tuple(sorted(found, key=lambda use: (-use.total_ns, use.name)))
