"""The scores of NVIDIA's resiliency extension, for comparison with our own statistics.

    relative    least median over the ranks / median of the rank
    individual  least median that the rank ever reported / its median in the newest report
    GPU score   mean over kernels of the relative score, weighted by calls x mean time, over the
                kernels that every rank ran; collective kernels are left out, as they spin while
                they wait

A rank is flagged below 0.75. With the fastest rank as reference a normal spread already lowers
the scores of all others, so they over-state. Read from nvidia-resiliency-ext, straggler/reporting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steptax.app.compute.stats.rows import Floats, row_quantile

#: A score below this is flagged (the default of its report).
FLAG_BELOW = 0.75
#: Steps of a report, at least; a job is cut into at most this many reports.
REPORT_STEPS = 20
_REPORTS = 20
#: Kernels of collectives, as NCCL and RCCL name them.
_COLLECTIVES = ("nccl", "rccl")


@dataclass(frozen=True, eq=False)
class SectionScores:
    """Scores of one section; [R] each, NaN where the rank has none."""

    section: str
    relative: Floats
    individual: Floats | None
    """None with fewer than two reports."""


@dataclass(frozen=True, eq=False)
class NvrxScores:
    """Scores of every rank; ``reason`` says why there are none, or none of one kind."""

    sections: tuple[SectionScores, ...]
    gpu: Floats | None
    """[R] relative GPU score; None without kernels."""
    section_reason: str | None = None
    gpu_reason: str | None = None
    individual_reason: str | None = None

    def flagged(self) -> dict[int, tuple[str, ...]]:
        """What is flagged, by the place of the rank."""
        found: dict[int, list[str]] = {}
        kinds: list[tuple[str, Floats | None]] = [("GPU", self.gpu)]
        for section in self.sections:
            kinds.append((section.section, section.relative))
            kinds.append((f"{section.section}, against its own best", section.individual))
        for name, scores in kinds:
            if scores is not None:
                # NaN is below nothing.
                for place in np.flatnonzero(scores < FLAG_BELOW):
                    found.setdefault(int(place), []).append(name)
        return {place: tuple(names) for place, names in sorted(found.items())}


@dataclass(frozen=True)
class KernelStat:
    """All calls of one kernel on one rank."""

    rank: int
    kernel: str
    calls: int
    mean_us: float
    median_us: float


def nvrx_scores(
    sections: Mapping[str, Floats], ranks: Sequence[int], kernels: Sequence[KernelStat] = ()
) -> NvrxScores:
    """Scores from the times of ``sections`` [S, R] (NaN: not reported) and from ``kernels``.

    A section without a time on some rank has no reference, and no score.
    """
    scored = []
    for name, times in sections.items():
        relative = _relative(_median(times))
        if relative is not None:
            scored.append(SectionScores(name, relative, _individual(times)))
    section_reason = None
    if not scored:
        section_reason = (
            "no section of a step was timed on every rank"
            if sections
            else "no phase of a step was recorded"
        )
    few = bool(scored) and all(section.individual is None for section in scored)
    gpu, gpu_reason = gpu_scores(kernels, ranks)
    return NvrxScores(
        tuple(scored),
        gpu,
        section_reason,
        gpu_reason,
        f"fewer than two reports of {REPORT_STEPS} steps" if few else None,
    )


def _median(times: Floats) -> Floats:
    """[R] median over steps; NaN for a rank that never reported."""
    (median,) = row_quantile(np.ascontiguousarray(times.T), 0.5)
    return median


def _relative(median: Floats) -> Floats | None:
    """[R] least / own; None unless every rank has a time above zero."""
    if not len(median) or not (median > 0).all():
        return None
    return np.asarray(median.min() / median, dtype=np.float64)


def _individual(times: Floats) -> Floats | None:
    """[R] least median of any report / median of the newest one."""
    reports = min(_REPORTS, len(times) // REPORT_STEPS)
    if reports < 2:
        return None
    medians = np.stack([_median(part) for part in np.array_split(times, reports)])
    best, newest = np.fmin.reduce(medians, axis=0), medians[-1]
    usable = np.nan_to_num(newest) > 0
    return np.where(usable, best / np.where(usable, newest, 1.0), np.nan)


def gpu_scores(
    kernels: Sequence[KernelStat], ranks: Sequence[int]
) -> tuple[Floats | None, str | None]:
    """[R] GPU score of each of ``ranks``, or why there is none."""
    own = [k for k in kernels if not any(word in k.kernel.lower() for word in _COLLECTIVES)]
    if not own:
        return (
            None,
            "no kernel was traced" if not kernels else "only collective kernels were traced",
        )
    place = {int(rank): i for i, rank in enumerate(ranks)}
    names = sorted({k.kernel for k in own})
    index = {name: i for i, name in enumerate(names)}
    shape = (len(names), len(place))
    median: NDArray[np.float64] = np.full(shape, np.nan)
    weight = np.zeros(shape)
    for k in own:
        if k.rank in place:
            cell = index[k.kernel], place[k.rank]
            median[cell], weight[cell] = k.median_us, k.calls * k.mean_us
    common = (median > 0).all(axis=1)
    if not common.any():
        return None, "no kernel was traced on every rank"
    median, weight = median[common], weight[common]
    score = median.min(axis=1)[:, None] / median
    return np.asarray((score * weight).sum(axis=0) / weight.sum(axis=0), dtype=np.float64), None
