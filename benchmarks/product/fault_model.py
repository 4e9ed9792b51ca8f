"""What can be wrong with a made-up job, where it shows, and how unlike its healthy ranks are.

The parameters are drawn from ranges that published measurements and common sense give; none was
chosen by what a detector makes of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

GPUS_PER_HOST = 8
#: Cause to where it shows: on single ranks, on a host's ranks, a stage's, a group's, or on all.
SCOPES = {
    "thermal": "rank",
    "power_cap": "rank",
    "clocks": "rank",
    "ecc": "rank",
    "pcie": "rank",
    "xid": "rank",
    "nvlink": "tp_group",
    "host_cpu": "host",
    "gc": "rank",
    "input_loader": "rank",
    "sequence": "replica",
    "expert": "expert",
    "link": "dp_group",
    "stage": "stage",
    "gc_moving": "moving",
    "sequence_moving": "moving",
    "input_storage": "job",
    "network": "job",
    "checkpoint": "job",
    "launch_bound": "job",
    "kernel": "rank",
}
#: Slow compute that nothing which is recorded tells the cause of: it may not be named.
UNNAMED = frozenset({"kernel"})
CAUSES = tuple(cause for cause in SCOPES if cause not in UNNAMED)
#: How a fault that comes and goes comes: at random steps, every so many, or in bursts.
PATTERNS = ("random", "periodic", "bursts")
DEVICE_CAUSES = ("thermal", "power_cap", "clocks", "ecc", "pcie", "xid", "nvlink")


@dataclass(frozen=True)
class Shape:
    """Sizes of the parallel groups; ranks are numbered tp first, then dp, then pp."""

    dp: int
    pp: int = 1
    tp: int = 1
    experts: int = 0
    """Expert-parallel ranks, a divisor of dp; 0 for a dense model."""

    @property
    def ranks(self) -> int:
        """World size."""
        return self.dp * self.pp * self.tp


@dataclass(frozen=True)
class Noise:
    """How unlike healthy ranks and steps are; shares of the compute of a step."""

    name: str
    sd_ratio: float
    """Of a rank's compute from step to step."""
    rank_sd_ratio: float
    """Between ranks, for good."""
    tail_probability: float
    """Of a spike, per rank and step; its size is Pareto with exponent 2 from 3 % on."""
    sequence_cv: float
    """Of the sum of squared sequence lengths of a replica from step to step."""


NOISES = (
    Noise("quiet", 0.003, 0.004, 0.001, 0.0),
    Noise("usual", 0.010, 0.008, 0.003, 0.05),
    Noise("loud", 0.025, 0.010, 0.008, 0.12),
)
#: Noise in which small excesses cannot be told: false alarms count all the same.
ROUGH_NOISES = (
    Noise("harsh", 0.10, 0.010, 0.008, 0.12),
    Noise("wild", 0.30, 0.010, 0.008, 0.12),
)


@dataclass(frozen=True)
class Fault:
    """What is wrong, where, and when; ``first`` and ``last`` are steps, both included."""

    cause: str
    ranks: tuple[int, ...]
    """Empty where no rank is to blame: the whole job, or a different rank each time."""
    first: int
    last: int
    excess_ratio: float
    """Mean time that is lost in a step, as a share of the healthy step."""
    signals: bool = True
    """Whether what settles the cause is recorded."""
    duty_ratio: float = 1.0
    """Share of its steps in which it is there."""
    pattern: str = ""
    """Of ``PATTERNS`` where it comes and goes."""

    @property
    def scope(self) -> str:
        """rank, host, tp_group, dp_group, replica, expert, stage, moving or job."""
        return SCOPES[self.cause]

    @property
    def is_placed(self) -> bool:
        """Whether what is recorded can tell the ranks.

        No total of communication tells a link, and of two halves nothing tells the slow one unless
        it is known which ranks do the same work.
        """
        return bool(self.ranks) and (self.signals or self.cause not in ("link", "stage"))

    @property
    def steps(self) -> int:
        """How long it lasts."""
        return self.last - self.first + 1


@dataclass(frozen=True)
class Plan:
    """All that a job is made from."""

    seed: int
    shape: Shape
    steps: int
    noise: Noise
    faults: tuple[Fault, ...] = ()
    decoys: tuple[Fault, ...] = ()
    """What devices show signs of and is not there."""
    lost_ratio: float = 0.0
    """Share of the rows of ``steps`` that were lost on the way."""


def ranks_of(shape: Shape) -> dict[str, NDArray[np.int64]]:
    """Coordinate of each rank by kind, and its host."""
    rank = np.arange(shape.ranks)
    out = {
        "tp": rank % shape.tp,
        "dp": rank // shape.tp % shape.dp,
        "pp": rank // (shape.tp * shape.dp),
        "host": rank // GPUS_PER_HOST,
    }
    if shape.experts:
        out["ep"] = out["dp"] % shape.experts
    return out
