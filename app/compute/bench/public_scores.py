"""Results of MLPerf Training from its single runs, and what a benchmark costs per run.

What is made of public logs here is "recomputed from the public logs; not verified by MLCommons".
Dollars, GPU-hours and shares are derived, and no metrics of MLPerf.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from steptax.app.compute.measure import Measure

CAVEAT = "recomputed from the public logs of MLPerf Training; not verified by MLCommons"
SUCCESS = "success"


@dataclass(frozen=True)
class PublicRun:
    """One run: ``train_s`` is None where its log ends before it does."""

    status: str | None
    train_s: float | None


def train_time(runs: Sequence[PublicRun], scaling_factor: float | None = None) -> Measure:
    """Time to train in s, with the shortest and the longest run as its ends.

    The mean of the runs without the fastest and the slowest, times the factor by which the
    organiser corrects for lucky convergence. One failed run counts as the slowest; with more there
    is no result (https://github.com/mlcommons/training_policies, section "Olympic scoring";
    the same in mlcommons/logging, result_summarizer.py).
    """
    if len(runs) < 3:
        return Measure.missing("s", f"a result needs at least 3 runs, there are {len(runs)}")
    good = [r.train_s for r in runs if r.status == SUCCESS and r.train_s is not None]
    failed = len(runs) - len(good)
    if failed > 1:
        return Measure.missing("s", f"{failed} of {len(runs)} runs failed, at most one may")
    ordered = sorted(good)
    counted = ordered[1:] if failed else ordered[1:-1]
    factor = 1.0 if scaling_factor is None else scaling_factor
    return Measure(
        math.fsum(counted) / len(counted) * factor,
        "s",
        ordered[0] * factor,
        ordered[-1] * factor,
        inputs=("public_runs.train_s",),
        warnings=(f"one of {len(runs)} runs failed and counts as the slowest",) if failed else (),
    )


def gpu_hours(train_s: Measure, gpus: int) -> Measure:
    """GPU-hours of one run of ``gpus`` devices."""
    return train_s.map(lambda seconds: seconds * gpus / 3600, "GPU-hours")


@dataclass(frozen=True)
class ScalePoint:
    """The fewest GPU-hours that any system of so many devices needed for the same result."""

    gpus: int
    train_s: float
    gpu_hours: float
    premium_ratio: float
    """GPU-hours against those of the smallest number of devices, less one."""
    speedup: float
    """How many times as fast as with the smallest number."""
    system: str


def scale_premium(results: Sequence[tuple[int, float, str]]) -> tuple[ScalePoint, ...]:
    """What scale costs: (devices, time to train in s, system) of one benchmark and device.

    Of each number of devices the fastest system counts; the smallest number is the reference.
    """
    fastest: dict[int, tuple[float, str]] = {}
    for gpus, seconds, system in results:
        fastest[gpus] = min(fastest.get(gpus, (math.inf, "")), (seconds, system))
    points: list[ScalePoint] = []
    for gpus, (seconds, system) in sorted(fastest.items()):
        hours = gpus * seconds / 3600
        first = points[0] if points else None
        points.append(
            ScalePoint(
                gpus,
                seconds,
                hours,
                hours / first.gpu_hours - 1 if first else 0.0,
                first.train_s / seconds if first else 1.0,
                system,
            )
        )
    return tuple(points)
