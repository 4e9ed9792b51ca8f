"""How the ranks' work spreads over a long job: median and 95th percentile, from roll-ups."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from steptax.app.compute.measure import Level, Measure
from steptax.app.compute.stats.bins import ERROR_RATIO, Bins, Quantiles, quantiles
from steptax.app.compute.stats.rows import Floats, Ints
from steptax.app.format import format_value
from steptax.app.schema.rollups import SPAN_STEPS
from steptax.app.views.job.shape import MAX_SERIES_POINTS
from steptax.app.views.workspace import Workspace

#: Blocks of more steps are of the widest windows at least: more bins than that take a second.
_MOST_SINGLE = 128
MEDIAN, MOST = 0.5, 0.95


@dataclass(frozen=True)
class Spread:
    """Median and 95th percentile of the work of all reports of a job, and how exact they are."""

    p50: Measure
    p95: Measure
    """Both in ms, with the bounds of the bins."""
    error_ratio: float
    """Each, and each in the figure, is within this share of the exact one: rounded up."""
    block_steps: int
    """Steps whose reports a median in the figure is of."""
    reports: int
    sentence: str

    @property
    def of_what(self) -> str:
        """What a median in the figure is of, where that is not a step alone."""
        return "" if self.block_steps == 1 else f" of {self.block_steps:,} steps"


@dataclass(frozen=True, eq=False)
class SpreadOfSteps:
    """The same in milliseconds for each of S steps: of the block that it lies in; NaN: not kept."""

    p50_ms: Floats
    p95_ms: Floats
    whole: Spread | None
    """None where nothing was kept."""


def spread_of(ws: Workspace, job_id: str, steps: Ints, level: Level, unit: str) -> SpreadOfSteps:
    """Of the ascending ``steps`` [S] of a job; ``unit`` is that of sentences."""
    block, window = spread_block_of(int(steps[-1]) - int(steps[0]) + 1)
    found = ws.engine.run("history_bins", job_id=job_id, step_block=block, window_steps=window)
    names = ("block_step", "work_bin", "row_count")
    bins = Bins(*(found[name].to_numpy().astype(np.int64) for name in names))
    if not len(bins.group):  # all its rows are gone since before bins were kept
        unknown = np.full(len(steps), np.nan)
        return SpreadOfSteps(unknown, unknown, None)
    first = steps - steps % block
    p50, p95 = (_by_step(quantiles(bins, ratio), first) for ratio in (MEDIAN, MOST))
    lacking = int(np.count_nonzero(np.isnan(p50)))
    return SpreadOfSteps(p50, p95, _whole(bins.together(), block, level, unit, lacking))


def spread_block_of(steps: int) -> tuple[int, int]:
    """Steps that share one median, and of the widest stored windows that make them.

    As few as make no more blocks than a figure shows; one in a job of so many steps at the most.
    """
    block = 1 << (-(-steps // MAX_SERIES_POINTS) - 1).bit_length()
    if block > _MOST_SINGLE:
        block = max(block, SPAN_STEPS[0])
    return block, max(width for width in (1, *SPAN_STEPS) if width <= block)


def _by_step(found: Quantiles, block_step: Ints) -> Floats:
    place = np.minimum(np.searchsorted(found.group, block_step), len(found.group) - 1)
    is_known = found.group[place] == block_step
    return np.asarray(np.where(is_known, found.value[place] / 1000.0, np.nan))


def _whole(bins: Bins, block: int, level: Level, unit: str, lacking: int) -> Spread:
    p50, p95 = (_measure(quantiles(bins, ratio), level) for ratio in (MEDIAN, MOST))
    reports = int(bins.count.sum())
    each = "each step" if block == 1 else f"each {block:,} steps"
    error_ratio = math.ceil(ERROR_RATIO * 1000) / 1000
    sentence = (
        f"Half of {reports:,} reports worked no more than {format_value(p50.value, unit)}, 95 % no "
        f"more than {format_value(p95.value, unit)}; the band is from median to 95 % of the "
        f"reports of {each}. Both are read from bins: within {format_value(error_ratio, 'ratio')} "
        "of the exact ones."
    )
    if lacking:
        sentence += f" Of {lacking:,} steps no bins were kept."
    return Spread(p50, p95, error_ratio, block, reports, sentence)


def _measure(found: Quantiles, level: Level) -> Measure:
    value, low, high = (float(x[0]) / 1000.0 for x in (found.value, found.low, found.high))
    return Measure(
        value,
        "ms",
        low,
        high,
        level,
        ("steps.duration_us", "steps.comm_us"),
        ("low and high are the ends of the bins that hold the exact value",),
    )
