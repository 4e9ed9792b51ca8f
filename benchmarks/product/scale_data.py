"""A seeded job of any size, written straight into a lake: R ranks by S steps, in segments.

Work of a rank is a smooth level of its own with noise; rank ``ranks // 3`` computes at 90 % speed
from the middle on. Every value is a whole microsecond and follows from the seed.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from steptax.app.lake import Lake

JOB = "scale"
#: Steps of one segment: 2 M rows at 16,384 ranks, as a compactor leaves them.
SEGMENT_STEPS = 128
EPOCH_US = 1_772_000_000_000_000
_STEP_US = 1_000_000


def slow_rank(ranks: int) -> int:
    """The rank that is slow from the middle of the job on."""
    return ranks // 3


def segments(
    ranks: int, steps: int, *, seed: int = 0, segment_steps: int = SEGMENT_STEPS
) -> Iterator[pa.Table]:
    """Rows of ``steps``, rank by rank inside each segment of ``segment_steps``."""
    level = np.random.default_rng(seed).normal(0, 2_000, ranks).astype(np.int64)
    for first in range(0, steps, segment_steps):
        count = min(segment_steps, steps - first)
        dice = np.random.default_rng((seed, first))
        number = np.arange(first, first + count)
        compute = 400_000 + level[:, None] + dice.integers(-6_000, 6_000, (ranks, count))
        compute[slow_rank(ranks), number >= steps // 2] += 44_000
        transfer = dice.integers(55_000, 65_000, count)
        duration = compute.max(axis=0) + transfer
        comm = duration - compute
        yield pa.table(
            {
                "job_id": pa.array([JOB], pa.string()).take(pa.array(np.zeros(ranks * count, int))),
                "attempt": np.zeros(ranks * count, np.int32),
                "step": np.tile(number, ranks),
                "rank": np.repeat(np.arange(ranks, dtype=np.int32), count),
                "start_us": np.tile(EPOCH_US + number * _STEP_US, ranks),
                "duration_us": np.tile(duration, ranks),
                "compute_us": compute.ravel(),
                "comm_us": comm.ravel(),
                "wait_us": (comm - transfer).ravel(),
                "tokens": np.full(ranks * count, 8_192),
            }
        )


def fill(lake: Lake, ranks: int, steps: int, *, seed: int = 0) -> int:
    """Store the job; how many rows it has."""
    rows = 0
    for part in segments(ranks, steps, seed=seed):
        lake.append("steps", part, source="benchmark")
        rows += part.num_rows
    return rows
