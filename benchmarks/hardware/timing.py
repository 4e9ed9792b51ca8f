"""How one case is timed: warm-up, iterations, repeats, percentiles.

A repeat allocates and fills its data anew. Repeats go round over all cases, not case by case, so
that what drifts (clocks, heat, neighbours) is in the spread of a case's repeats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from steptax.app.errors import UserError
from steptax.benchmarks.hardware.backend import Backend, Work

#: Fewer iterations than this give no 5th and 95th percentile worth the name.
LEAST_ITERATIONS = 5


@dataclass(frozen=True)
class Plan:
    """How often each case is run. ``seconds`` bounds the timed part of one repeat of one case."""

    warmup: int = 10
    iterations: int = 100
    repeats: int = 5
    seconds: float = 2.0

    def __post_init__(self) -> None:
        """Refuse what measures nothing."""
        for name, least in (("warmup", 0), ("iterations", 1), ("repeats", 1)):
            if getattr(self, name) < least:
                raise UserError(f"must be at least {least}", where=f"--{name}")
        if not self.seconds > 0:
            raise UserError("must be more than nothing", where="--seconds")


def one_repeat_us(backend: Backend, work: Work, plan: Plan, *, flush: bool = True) -> list[float]:
    """Durations of one repeat in microseconds.

    The warm-up runs count for nothing but the estimate of how many iterations ``plan.seconds``
    holds: at least five, at most ``plan.iterations``.
    """
    warm = backend.timed_us(work, max(1, plan.warmup), flush=False)
    # The first calls compile and allocate; the later half tells the pace.
    pace_us = max(median(warm[len(warm) // 2 :]), 0.01)
    fits = int(plan.seconds * 1e6 / pace_us)
    iterations = min(plan.iterations, max(LEAST_ITERATIONS, fits))
    return backend.timed_us(work, iterations, flush=flush)


@dataclass(frozen=True)
class Spread:
    """Percentiles over the iterations of all repeats, and the median of each repeat."""

    p5: float
    p50: float
    p95: float
    p99: float
    repeats: tuple[float, ...]
    n: int

    @property
    def value(self) -> float:
        """The headline: median over the repeats' medians."""
        return median(self.repeats)

    @property
    def spread_ratio(self) -> float | None:
        """(largest - smallest repeat) / headline; None with one repeat."""
        if len(self.repeats) < 2 or not self.value:
            return None
        return (max(self.repeats) - min(self.repeats)) / self.value


def spread_of(repeats: Sequence[Sequence[float]]) -> Spread:
    """Percentiles of values [repeat][iteration]."""
    every = np.concatenate([np.asarray(values, np.float64) for values in repeats])
    p5, p50, p95, p99 = (float(v) for v in np.percentile(every, (5, 50, 95, 99)))
    return Spread(p5, p50, p95, p99, tuple(median(values) for values in repeats), len(every))
