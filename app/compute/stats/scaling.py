"""From the ranks that were measured to more ranks, without promising what was not seen.

Work of rank i in step t is common_t + persistent_i + transient_it. Only what differs between
ranks inside a step makes anyone wait, so the common part is taken out first. Two bands are kept
apart: what the sample could have been (nodes resampled as clusters, steps in moving blocks), and
what the distribution could be (the observed step function, which saturates, against fitted
tails). The wider end is printed. Persistent slowness does not average over steps: for it the
sample is the number of ranks, however long the run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv

from steptax.app.compute.measure import Level, Measure, Ratio
from steptax.app.compute.stats.order_stats import (
    Array,
    any_slow_ratio,
    nested_max_mean,
    require_ranks,
)
from steptax.app.compute.stats.resample import block_length
from steptax.app.compute.straggler.pool import Draws, Pool
from steptax.app.errors import UserError

Ints = npt.NDArray[np.int64]

#: Farthest that measured ranks may speak for others when nothing is said about faults.
MAX_REACH = 64


@dataclass(frozen=True)
class FaultModel:
    """What the caller knows about bad ranks: how many, and how slow (work / mean work)."""

    bad_rank_ratio: float
    bad_slowdown: float

    def __post_init__(self) -> None:
        """Refuse a share outside 0..1 and a bad rank that is not slower."""
        if not 0 <= self.bad_rank_ratio <= 1:
            raise UserError(f"must lie in 0..1, not {self.bad_rank_ratio}", where="bad_rank_ratio")
        if not self.bad_slowdown >= 1:
            raise UserError(f"must be at least 1, not {self.bad_slowdown}", where="bad_slowdown")


@dataclass(frozen=True)
class VarianceParts:
    """Standard deviations in us. ``idiosyncratic`` holds persistent and transient together."""

    common_us: float
    persistent_us: float
    transient_us: float
    idiosyncratic_us: float

    @property
    def correlation(self) -> float | None:
        """Share of the variance that all ranks have in common; None when nothing varies."""
        total = self.common_us**2 + self.idiosyncratic_us**2
        return self.common_us**2 / total if total > 0 else None


@dataclass(frozen=True)
class Extrapolation:
    """The expected slowest work among ``target_ranks``, in us, and what it rests on.

    ``expected_max_us`` is the larger of the floor and the lognormal fit, with the wider of both
    bands; ``bad_rank_upper_ratio`` is the 95 % bound on the rate of bad ranks, of which none was
    seen, and ``any_bad_upper_ratio`` the chance that follows for at least one at the target size.
    """

    observed_ranks: int
    observed_steps: int
    target_ranks: int
    parts: VarianceParts
    mean_us: float
    expected_max_us: Measure
    slowdown: Measure
    floor_us: Measure
    lognormal_us: Measure
    tail_us: Measure
    nested_us: Measure
    bad_rank_upper_ratio: Ratio
    any_bad_upper_ratio: Ratio
    beyond_seen_ratio: Ratio


def bad_rank_upper_ratio(observed: int, bad: int = 0, confidence: float = 0.95) -> float:
    """Upper confidence bound on the rate of bad ranks after seeing ``bad`` of ``observed``.

    None seen at 95 %: the rule of three, 3/n. Else Clopper and Pearson (1934), one-sided.

    Raises:
        UserError: more bad ranks than ranks.
    """
    observed = require_ranks(observed, "observed_ranks")
    if not 0 <= bad <= observed:
        raise UserError(f"must lie in 0..{observed}, not {bad}", where="bad")
    if bad == observed:
        return 1.0
    if bad == 0 and confidence == 0.95:
        return min(1.0, 3 / observed)
    return float(betaincinv(bad + 1, observed - bad, confidence))


def variance_parts(work_us: Array) -> VarianceParts:
    """Split the variance of work, shape (steps, ranks), NaN where a rank did not report.

    idiosyncratic^2 = mean over steps of the variance over ranks (never the pooled variance, which
    would count what all ranks share). The persistent part is what the ranks' own means differ by,
    less what chance alone makes them differ; likewise the common part.

    Raises:
        UserError: fewer than two ranks, a negative time, or no step with two ranks.
    """
    work = _checked(work_us)
    residual = work - np.nanmean(work, axis=1, keepdims=True)
    per_step = np.isfinite(residual).sum(axis=1)
    idiosyncratic = float(np.mean(np.nansum(residual**2, axis=1) / (per_step - 1)))
    reported = np.isfinite(residual).any(axis=0)
    own = np.nanmean(residual[:, reported], axis=0)
    steps = np.isfinite(residual[:, reported]).sum(axis=0)
    between = float(np.var(own, ddof=1))
    persistent = between
    if steps.min() > 1:
        scatter = np.nansum((residual[:, reported] - own) ** 2, axis=0) / (steps - 1)
        persistent = max(0.0, between - float(np.mean(scatter / steps)))
    persistent = min(persistent, idiosyncratic)
    common = 0.0
    if work.shape[0] > 1:
        level = np.nanmean(work, axis=1)
        common = max(0.0, float(np.var(level, ddof=1)) - idiosyncratic / float(per_step.mean()))
    return VarianceParts(
        math.sqrt(common),
        math.sqrt(persistent),
        math.sqrt(idiosyncratic - persistent),
        math.sqrt(idiosyncratic),
    )


def extrapolate(
    work_us: Array,
    target_ranks: int,
    *,
    nodes: Ints | None = None,
    fault_model: FaultModel | None = None,
    replicates: int = 200,
    seed: int = 0,
    level: Level = Level.PHASES,
) -> Extrapolation:
    """E[max work over ``target_ranks``] from work of shape (steps, ranks), in us, NaN = no report.

    ``nodes`` numbers the node of each rank, shape (ranks,); without it every rank counts as its
    own node and the band says so. Beyond 64 times the ranks seen the answer is missing, with its
    reason, unless a fault model says what bad ranks do.

    Raises:
        UserError: as ``variance_parts``; ``nodes`` of another length; no target rank.
    """
    work = _checked(work_us)
    target = require_ranks(target_ranks, "target_ranks")
    cluster = _clusters(nodes, work.shape[1])
    reported = np.isfinite(work).any(axis=0)
    work, cluster = work[:, reported], np.unique(cluster[reported], return_inverse=True)[1]
    n = work.shape[1]
    pool = Pool.of(work, target)
    sample = pool.everything_once()
    floor, logs, tail = float(pool.floors(sample)[0]), pool.lognormals(sample), pool.tail()
    lognormal = None if logs is None else float(logs[0])
    nested = _nested_us(work, cluster, target, pool.mean_us)
    if target > MAX_REACH * n and fault_model is None:
        expected = Measure.missing(
            "us",
            f"{target} ranks are more than {MAX_REACH} times the {n} seen: say how many ranks are "
            "bad and how slow they are (a fault model), for the measured ones cannot tell",
            level=level,
        )
    else:
        value = max(floor, floor if lognormal is None else lognormal)
        draws = _resample(np.random.default_rng(seed), cluster, work.shape[0], replicates)
        drawn = pool.lognormals(draws) if value > floor else None
        if drawn is None:
            drawn = pool.floors(draws)
        sampled = np.percentile(np.append(drawn[np.isfinite(drawn)], value), (2.5, 97.5))
        low = min(float(sampled[0]), floor, floor if nested is None else nested)
        high = max(float(sampled[1]), *(m for m in (floor, lognormal, tail) if m is not None))
        if fault_model is not None:
            low, value, high = (
                _with_faults(v, pool.mean_us, target, fault_model) for v in (low, value, high)
            )
        caveats = _caveats(n, target, nodes is None, tail is None, fault_model is not None)
        expected = Measure(value, "us", low, high, level, ("work_us",), caveats)
    upper = bad_rank_upper_ratio(n)
    return Extrapolation(
        observed_ranks=n,
        observed_steps=work.shape[0],
        target_ranks=target,
        parts=variance_parts(work),
        mean_us=pool.mean_us,
        expected_max_us=expected,
        slowdown=expected.map(lambda v: v / pool.mean_us, "ratio")
        if pool.mean_us > 0
        else Measure.missing("ratio", "the mean work is zero", level=level),
        floor_us=Measure(
            floor,
            "us",
            level=level,
            warnings=("floor: it cannot exceed the largest value seen",) if target > n else (),
        ),
        lognormal_us=_maybe(lognormal, "a value is not positive", level),
        tail_us=_maybe(tail, "too few distinct large values, or an infinite mean", level),
        nested_us=_maybe(nested, "nodes unknown, or of unequal size", level),
        bad_rank_upper_ratio=Ratio(upper, level=level, warnings=("95 % upper bound",)),
        any_bad_upper_ratio=Ratio(
            any_slow_ratio(upper, target), level=level, warnings=("95 % upper bound",)
        ),
        beyond_seen_ratio=Ratio(target / (n + target), level=level),
    )


def _clusters(nodes: Ints | None, ranks: int) -> Ints:
    """The node of each rank, numbered from 0; each rank its own where nodes are unknown."""
    cluster = np.arange(ranks) if nodes is None else np.unique(nodes, return_inverse=True)[1]
    if cluster.shape != (ranks,):
        raise UserError(f"needs one node per rank ({ranks}), got {cluster.shape}", where="nodes")
    return cluster


def _checked(work_us: Array) -> Array:
    work = np.asarray(work_us, dtype=np.float64)
    if work.ndim != 2 or work.shape[1] < 2:
        raise UserError(
            f"needs steps x ranks with at least 2 ranks, got shape {work.shape}", where="work_us"
        )
    if bool(np.any(work < 0)) or bool(np.any(np.isinf(work))):
        raise UserError("a work time is negative or infinite", where="work_us")
    kept: Array = work[np.isfinite(work).sum(axis=1) >= 2]
    if kept.shape[0] == 0:
        raise UserError("no step has two ranks that reported", where="work_us")
    return kept


def _resample(rng: np.random.Generator, cluster: Ints, steps: int, count: int) -> Draws:
    """Draws of whole nodes, and of steps in blocks of neighbours that wrap at the end."""
    nodes = int(cluster.max()) + 1
    block = block_length(steps)
    ranks_drawn = np.empty((count, cluster.size))
    steps_drawn = np.empty((count, steps))
    for i in range(count):
        node_count = np.bincount(rng.integers(nodes, size=nodes), minlength=nodes)
        ranks_drawn[i] = node_count[cluster]
        starts = rng.integers(steps, size=math.ceil(steps / block))
        drawn = (starts[:, None] + np.arange(block)).ravel()[:steps] % steps
        steps_drawn[i] = np.bincount(drawn, minlength=steps)
    return Draws(ranks_drawn, steps_drawn)


def _nested_us(work: Array, cluster: Ints, target: int, mean_us: float) -> float | None:
    """E[max] with a node effect and a rank effect, both normal; None unless nodes are equal."""
    sizes = np.bincount(cluster)
    size = int(sizes[0])
    whole = work[np.isfinite(work).all(axis=1)]
    if size < 2 or sizes.size < 2 or bool(np.any(sizes != size)) or whole.shape[0] == 0:
        return None
    by_node = whole[:, np.argsort(cluster, kind="stable")].reshape(whole.shape[0], -1, size)
    within = float(np.mean(np.var(by_node, axis=2, ddof=1)))
    between = float(np.mean(np.var(by_node.mean(axis=2), axis=1, ddof=1))) - within / size
    nodes = max(1, round(target / size))
    return mean_us + nested_max_mean(nodes, size, math.sqrt(max(0.0, between)), math.sqrt(within))


def _with_faults(base: float, mean_us: float, target: int, model: FaultModel) -> float:
    bad = any_slow_ratio(model.bad_rank_ratio, target)
    return base + bad * max(0.0, model.bad_slowdown * mean_us - base)


def _caveats(n: int, target: int, no_nodes: bool, no_tail: bool, faults: bool) -> tuple[str, ...]:
    said = (
        (target > n, f"extrapolated from {n} ranks to {target}"),
        (no_nodes, "nodes unknown: ranks were resampled one by one, so the band is too narrow"),
        (no_tail, "no tail fitted: too few distinct large values, or their mean is infinite"),
        (faults, "includes the bad ranks of the fault model given"),
    )
    return tuple(text for holds, text in said if holds)


def _maybe(value: float | None, reason: str, level: Level) -> Measure:
    if value is None:
        return Measure.missing("us", reason, level=level)
    return Measure(value, "us", level=level)
