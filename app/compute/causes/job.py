"""What slows all ranks alike: no straggler, and still time that is paid for.

Two kinds. A *change*: a part of every rank's step (its median over the ranks) became longer for a
while; change points date it (``changepoint``). A *share*: a part takes a good share of the paid
time all along, such as blocking checkpoints or gaps between launches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from steptax.app.compute.causes.hints import HOST
from steptax.app.compute.causes.model import Cause, CauseVerdict, decide, named
from steptax.app.compute.spoken import spoken_ratio
from steptax.app.compute.stats.changepoint import Segment, change_points
from steptax.app.compute.stats.rows import Floats, Ints, row_mean, row_quantile
from steptax.app.compute.straggler.arrival import Arrivals, Basis
from steptax.app.compute.straggler.episodes import usual_step_us, warm_up_steps
from steptax.app.compute.straggler.peers import peer_median
from steptax.app.compute.straggler.rules import CONFIDENCES, CauseRules, EpisodeRules

_CAUSES = {
    "transfer": Cause.NETWORK,
    "input": Cause.INPUT_STORAGE,
    "checkpoint": Cause.CHECKPOINT,
    "gc": Cause.GC,
    HOST: Cause.LAUNCH_BOUND,
}
#: Parts of which a large share all along is a finding; compute and transfer are what is paid for.
_SHARES = ("input", "checkpoint", "gc", HOST)
#: Scale of the median absolute deviation to a standard deviation.
_MAD_SD = 1.4826
#: Length of the blocks of steps that the noise is read off.
_BLOCK_STEPS = 8
#: Ranks that the typical one is taken from, about.
_RANKS = 512
#: Steps in which ranks are compared with each other, evenly spread, at most.
_ROWS = 192
#: Transfers estimated from communication, of all ranks or of one group.
_ANY_TRANSFER = "communication"
_SETTLE_TRANSFER = "waiting and transfer per rank (wait_us, transfer_us): all ranks, or one group's"
_SETTLE_WORK = "per-rank phases (compute_us, input_us, gc_us, ...)"
_SETTLE_COMPUTE = "samples of the devices: a power cap or heat on all of them at once"


@dataclass(frozen=True)
class JobSlow:
    """A part of all ranks' steps that is long; places are positions of steps, both included."""

    part: str
    first: int
    last: int
    is_open: bool
    excess_us: float
    """Mean over the slow steps."""
    excess_ratio: float
    lost_us: float
    """Sum over the slow steps; no more than these steps took."""
    slow_steps: int
    """Steps from ``first`` to ``last`` in which it is long."""
    cause: CauseVerdict


@dataclass(frozen=True, eq=False)
class _Beside:
    """Whether a rank stands out in what all of them have."""

    ranks: NDArray[np.int32]
    """[R] their numbers."""
    stage: NDArray[np.int32] | None
    """[R] peers are of one stage."""
    usual_us: float
    least_ratio: float
    """Share of a step from which on a rank stands out."""

    def evidence(
        self, values: Floats | None, rows: Ints
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """For and against "all ranks alike", of a part [S, R]; neither where ranks cannot differ.

        ``rows`` are the slow steps.
        """
        if values is None or not len(rows):
            return (), ()
        spread = np.linspace(0, len(rows) - 1, min(len(rows), _ROWS)).astype(np.intp)
        part = values[rows[spread]]
        excess = row_mean((part - peer_median(part, self.stage)).T)
        if np.isnan(excess).all():
            return (), ()
        most = int(np.nanargmax(excess))
        ratio = float(excess[most]) / self.usual_us
        over = f"{spoken_ratio(max(0.0, ratio))} of a step more of it than its peers"
        if ratio < self.least_ratio:
            return (f"even the rank with most of it has {over}",), ()
        return (), (f"rank {int(self.ranks[most])} has {over}",)


def job_slow(
    arrived: Arrivals,
    parts: Mapping[str, Floats],
    rules: EpisodeRules,
    cause_rules: CauseRules,
    *,
    ranks: NDArray[np.int32],
    stage: NDArray[np.int32] | None = None,
    has_groups: bool = False,
    told: Mapping[str, frozenset[int]] | None = None,
) -> list[JobSlow]:
    """Findings about all ranks. ``parts`` are the measured parts of work [S, R].

    ``told`` are by part the ranks (positions) of which it is known that they are slow in it: where
    they are many, the typical rank is one of the others.

    ``ranks`` [R] are the numbers of the ranks, ``stage`` [R] their pipeline stages if known.

    With ``has_groups`` ranks communicate in several groups: then the least communication of a step
    grows with the slowest group, and only measured transfers tell it from the network of all.
    """
    told = told or {}
    step_us = arrived.step_us
    usual = usual_step_us(step_us)
    estimated = has_groups and arrived.choice.basis is Basis.COMM
    warm = warm_up_steps(step_us, rules)
    series: dict[str, Floats] = {}
    by_rank: dict[str, Floats] = dict(parts)
    if arrived.transfer_us is not None and arrived.choice.basis in (Basis.WAIT, Basis.COMM):
        series[_ANY_TRANSFER if estimated else "transfer"] = _typical(
            _others(arrived.transfer_us, told.get("transfer"))
        )
        if arrived.choice.basis is Basis.WAIT:
            # What is estimated from communication is the same on all ranks by construction.
            by_rank["transfer"] = arrived.transfer_us
    for name, values in parts.items():
        series[name] = _typical(_others(values, told.get(name)))
    if not parts:
        series["work"] = _typical(arrived.work_us)
        by_rank["work"] = arrived.work_us
    beside = _Beside(ranks, stage, usual, rules.job_ratio)
    out = []
    for name, values in series.items():
        shares = values / usual
        alone = 1.0 + shares if name not in ("checkpoint",) else None
        found = None
        if alone is not None:
            found = _change(
                name, alone, by_rank.get(name), arrived, warm, beside, rules, cause_rules
            )
        if found is None and name in _SHARES:
            found = _all_along(
                name,
                _others(parts[name], told.get(name)),
                arrived,
                warm,
                beside,
                rules,
                cause_rules,
            )
        if found is not None:
            out.append(found)
    return out


def _others(values: Floats, told: frozenset[int] | None) -> Floats:
    """[S, K] the columns of ranks that are not ``told``; all where those are few, or all.

    Up to a quarter of the ranks hardly move a median.
    """
    count = values.shape[1]
    if not told or 4 * len(told) <= count or len(told) == count:
        return values
    return values[:, [c for c in range(count) if c not in told]]


def _typical(values: Floats) -> Floats:
    """[S] median over the ranks, of evenly spread ones where there are very many."""
    return row_quantile(values[:, :: max(1, values.shape[1] // _RANKS)], 0.5)[0]


def _change(
    part: str,
    level: Floats,
    values: Floats | None,
    arrived: Arrivals,
    warm: int,
    beside: _Beside,
    rules: EpisodeRules,
    cause_rules: CauseRules,
) -> JobSlow | None:
    """The stretches in which ``level`` (1 + share of a step) is above its lowest, as one."""
    places = np.arange(warm, len(level), dtype=np.int64)
    found = change_points(places, level[warm:], min_change_ratio=rules.job_change_ratio)
    if len(found.segments) < 2:
        return None
    long = [s for s in found.segments if s.steps >= rules.min_steps] or list(found.segments)
    floor = min(s.mean for s in long)
    slow = [s for s in found.segments if s.mean - floor >= rules.job_ratio]
    lasting = sum(s.steps for s in slow)
    excess = sum((s.mean - floor) * s.steps for s in slow)
    if not slow or lasting < rules.min_steps or excess < rules.least_cost_steps:
        return None
    ratio = excess / lasting
    # The lowest stretch is one of several, and lies low by chance as well.
    calm = min(s.steps for s in long if s.mean == floor)
    noise = noise_sd(level, found.segments) * float(np.sqrt(1.0 / lasting + 1.0 / calm))
    if ratio < rules.job_sds * noise:
        return None
    first, last = slow[0].first_step, slow[-1].last_step
    rows = np.concatenate([np.arange(s.first_step, s.last_step + 1) for s in slow])
    rows = rows[np.isfinite(level[rows])]
    text = f"{spoken_ratio(ratio)} of a step longer than in its shortest stretch"
    if lasting < last - first + 1:
        text += f", in {lasting} of {last - first + 1} steps"
    return JobSlow(
        part,
        first,
        last,
        last == len(level) - 1,
        ratio * beside.usual_us,
        ratio,
        # A stretch is dated to a step or two, and no step gives back more than it took.
        min(excess * beside.usual_us, float(arrived.step_us[rows].sum())),
        lasting,
        _named(part, ratio, text, beside.evidence(values, rows), cause_rules),
    )


def noise_sd(level: Floats, segments: Sequence[Segment]) -> float:
    """Robust standard deviation of ``level`` [S] around the means of its stretches.

    Per independent step: from the means of blocks of steps, in which noise that neighbouring steps
    share is (batch means: Conway 1963).
    """
    rest = np.concatenate([level[s.first_step : s.last_step + 1] - s.mean for s in segments])
    rest = rest[np.isfinite(rest)]
    count = len(rest) // _BLOCK_STEPS
    if not count:
        return 0.0
    means = rest[: count * _BLOCK_STEPS].reshape(count, _BLOCK_STEPS).mean(axis=1)
    return _MAD_SD * float(np.median(np.abs(means))) * float(np.sqrt(_BLOCK_STEPS))


def _all_along(
    part: str,
    values: Floats,
    arrived: Arrivals,
    warm: int,
    beside: _Beside,
    rules: EpisodeRules,
    cause_rules: CauseRules,
) -> JobSlow | None:
    """A part whose share of the paid time is large on the typical rank, in all steps."""
    typical = _typical(values)[warm:]
    length = arrived.step_us[warm:]
    if not length.sum() > 0:
        return None
    share = float(typical.sum() / length.sum())
    if share < rules.job_share_ratio:
        return None
    text = f"{spoken_ratio(share)} of the paid time, all along"
    hit = typical[typical > 0]
    if part == "checkpoint" and len(hit):
        text += (
            f": {len(hit)} saves, {float(np.mean(hit)) / 1e6:.3g} s each, standard deviation "
            f"{spoken_ratio(float(np.std(hit) / np.mean(hit)))} of that"
        )
    return JobSlow(
        part,
        warm,
        len(values) - 1,
        True,
        float(row_mean(values)[warm:].mean()),
        share,
        min(float(typical.sum()), float(length.sum())),
        len(length),
        _named(
            part,
            share,
            text,
            beside.evidence(values, np.arange(warm, len(values), dtype=np.int64)),
            cause_rules,
        ),
    )


def _named(
    part: str,
    share: float,
    text: str,
    beside: tuple[tuple[str, ...], tuple[str, ...]],
    rules: CauseRules,
) -> CauseVerdict:
    cause = _CAUSES.get(part)
    evidence = (f"{part} of the typical rank: {text}", *beside[0])
    candidates = [] if cause is None else [named(cause, CONFIDENCES.job, evidence, beside[1])]
    settle = {"work": _SETTLE_WORK, _ANY_TRANSFER: _SETTLE_TRANSFER}.get(part, _SETTLE_COMPUTE)
    verdict, _ = decide(
        candidates,
        rules.least_confidence,
        abstain_text=f"cause not named: {part} of the typical rank is {spoken_ratio(share)} "
        "of a step longer",
        evidence=evidence,
        settle=(settle,),
        action="look at what changed for the whole job at that step: data, code, power",
    )
    if verdict.is_named:
        return verdict
    return replace(verdict, evidence_against=(*verdict.evidence_against, *beside[1]))
