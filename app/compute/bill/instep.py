"""Buckets of the time in steps: what ranks measured, and how much of it model FLOPs account for.

The useful part comes out of the compute phase of ranks that reported one, and out of the time that
was not split elsewhere; a step of which a part alone is on the timeline counts for that part, in
whole millionths. FLOPs that take longer at peak than there is time for are refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from steptax.app.compute.bill.attempt_layer import State
from steptax.app.compute.bill.buckets import BUCKETS
from steptax.app.compute.bill.executions import Executions
from steptax.app.compute.bill.job_events import Finding
from steptax.app.compute.bill.step_split import StepSplit
from steptax.app.compute.bill.timeline import Painted
from steptax.app.compute.mfu.step_flops import StepFlops
from steptax.app.compute.stats.rows import Ints
from steptax.app.errors import IntegrityError

Parts = dict[str, Fraction]
_ZERO = Fraction(0)
_PARTS = 1_000_000
#: Notes of a bucket that are said in full, where windows differ.
_NOTES = 3
_UNSPLIT = {State.WHOLE: "step_unsplit", State.UNRECORDED: "steps_unrecorded"}
_MEASURED = ("input", "exposed_comm", "pipeline_bubble", "straggler_wait", "host_gaps", "compute")
_FACTORS = ("kernel_inefficiency", "recompute", "useful")
_LIKELY = "likely the wrong peak, device, precision or number of tokens"
_NO_RANKS = "no per-rank phases of these steps are loaded or recorded"


@dataclass(frozen=True, eq=False)
class Inner:
    """Buckets by the state whose time they divide, GPU-microseconds, and what to say of them."""

    buckets: Mapping[State, Parts]
    missing: Mapping[str, str]
    notes: Mapping[str, str]
    findings: tuple[Finding, ...]
    no_useful: str
    """Why the useful part is not known; empty if it is."""


@dataclass(frozen=True)
class _Pool:
    """Time that useful work is taken out of."""

    state: State
    parts: Parts
    counted: Fraction
    """Steps, in parts of steps."""
    shares: Mapping[str, Fraction]
    """Bucket to the share of the useful work that was done in its time."""


def inner_buckets(
    painted: Painted,
    steps: Executions,
    splits: Sequence[StepSplit],
    flops: StepFlops,
    world_size: int,
) -> Inner:
    """The buckets inside of steps; they add up to the time of these steps on the timeline.

    Raises IntegrityError where the parts of steps exceed the steps by more than 1 % and 1 ms a
    step: then they belong to other steps.
    """
    pools = [_split_pool(split, painted, steps, world_size) for split in splits]
    covered = np.zeros(len(steps), dtype=np.bool_)
    for split in splits:
        covered[split.places] = True
    whole = ~covered & ~steps.lost
    seen = _share(painted.visible_us, painted.own_us - painted.taken_us)
    gaps = _share(painted.gap_visible_us, painted.gap_us) * painted.gap_steps
    for state, counted in ((State.WHOLE, seen[whole]), (State.UNRECORDED, gaps)):
        us, bucket = Fraction(painted.timeline.gpu_us(state)), _UNSPLIT[state]
        if us:
            done = Fraction(int(counted.sum()), _PARTS)
            pools.append(_Pool(state, {bucket: us}, done, {bucket: Fraction(1)}))
    missing, notes = _remarks(pools, splits)
    findings = [finding for split in splits for finding in split.findings]
    no_useful = flops.reason if flops.useful_gpu_us is None else ""
    if not pools:
        no_useful = "no step that counts was recorded"
    elif not no_useful and (no_useful := _too_much(pools, flops)):
        findings.append(Finding("rejected", no_useful))
    if no_useful:
        missing |= dict.fromkeys(_FACTORS, no_useful)
    else:
        for pool in pools:
            _take(pool, flops)
        notes["useful"] = flops.note
        if flops.recompute_gpu_us is None:
            missing["recompute"] = "how much is recomputed is not known"
            missing["kernel_inefficiency"] = "not told from recomputation"
        elif not any("kernel_inefficiency" in pool.parts for pool in pools):
            missing["kernel_inefficiency"] = "no compute phase to hold the FLOPs against"
    buckets: dict[State, Parts] = {}
    for pool in pools:
        mine = buckets.setdefault(pool.state, {})
        for bucket, us in pool.parts.items():
            mine[bucket] = mine.get(bucket, _ZERO) + us
    return Inner(buckets, missing, notes, tuple(findings), no_useful)


def _share(part_us: Ints, whole_us: Ints) -> Ints:
    """Millionths of each whole, rounded down; 0 of nothing."""
    return np.where(whole_us > 0, part_us * _PARTS // np.maximum(whole_us, 1), 0)


def _split_pool(split: StepSplit, painted: Painted, steps: Executions, world_size: int) -> _Pool:
    """The measured parts, in proportion to how much of their steps is on the timeline."""
    taken = painted.taken_us[split.places]
    left_us = painted.own_us[split.places] - taken
    room = int(left_us.sum()) * world_size
    longest = int((steps.duration_us[split.places] - taken).sum()) * world_size
    visible = int(painted.visible_gpu_us[split.places].sum())
    own = split.without(taken)
    total = sum(own.values(), _ZERO)
    if total - longest > Fraction(longest, 100) + 1000 * world_size * len(split.places):
        raise IntegrityError(
            f"the ranks of {len(split.places):,} steps report {float(total):.0f} GPU-us, but these "
            f"steps last {longest} GPU-us",
            hint="the parts belong to other steps, or the world size is wrong",
        )
    scale = Fraction(visible, room) if room else _ZERO
    if room and total > room:
        # Ranks leave a barrier at different times, so the longest reports of neighbouring steps
        # overlap, and clocks differ; what does not fit in is spread evenly over the parts.
        scale *= room / total
    parts = {bucket: us * scale for bucket, us in own.items()}
    if rest := visible - sum(parts.values(), _ZERO):
        parts["step_rest"] = rest
    work = "compute" if "compute" in parts else "step_unsplit"
    shares = {
        "step_unsplit": split.unsplit_ratio,
        "ranks_unrecorded": split.unrecorded_ratio,
    }
    shares[work] = shares.get(work, _ZERO) + 1 - sum(shares.values(), _ZERO)
    counted = int(_share(painted.visible_us[split.places], left_us).sum())
    return _Pool(State.SPLIT, parts, Fraction(counted, _PARTS), shares)


def _executed(pool: _Pool, flops: StepFlops) -> tuple[Fraction, Fraction]:
    """Useful and recomputed GPU-microseconds of a pool."""
    useful = (flops.useful_gpu_us or _ZERO) * pool.counted
    return useful, (flops.recompute_gpu_us or _ZERO) * pool.counted


def _too_much(pools: Sequence[_Pool], flops: StepFlops) -> str:
    """Why the FLOPs cannot be, empty if they can."""
    for pool in pools:
        needed = sum(_executed(pool, flops))
        in_steps = sum(pool.parts.values()) - pool.parts.get("checkpoint", _ZERO)
        if needed > in_steps:
            return (
                f"the FLOPs take {float(needed):.0f} GPU-us at peak, but the steps last "
                f"{float(in_steps):.0f} GPU-us: {_LIKELY}"
            )
        for bucket, share in pool.shares.items():
            held = pool.parts.get(bucket, _ZERO)
            if needed * share > held:
                return (
                    f"the FLOPs take {float(needed * share):.0f} GPU-us at peak, but there are "
                    f"{float(held):.0f} GPU-us of {BUCKETS[bucket].title}: {_LIKELY}"
                )
    return ""


def _take(pool: _Pool, flops: StepFlops) -> None:
    """Take useful and recomputed time out of a pool; what is left of compute is inefficiency."""
    useful, again = _executed(pool, flops)
    for bucket, share in pool.shares.items():
        if share:
            pool.parts[bucket] -= (useful + again) * share
    pool.parts["useful"] = useful
    left = "kernel_and_recompute"
    if flops.recompute_gpu_us is not None:
        pool.parts["recompute"] = again
        left = "kernel_inefficiency"
    if "compute" in pool.parts:
        pool.parts[left] = pool.parts.pop("compute")


def _joined(texts: Sequence[str]) -> str:
    """Notes of several windows as one, the first ones in full."""
    more = [f"and {len(texts) - _NOTES} more"] if len(texts) > _NOTES else []
    return "; ".join([*texts[:_NOTES], *more])


def _remarks(
    pools: Sequence[_Pool], splits: Sequence[StepSplit]
) -> tuple[dict[str, str], dict[str, str]]:
    """Reasons for what was not measured, and notes on what was."""
    missing: dict[str, str] = {}
    said: dict[str, dict[str, None]] = {}
    for split in splits:
        missing |= split.missing
        for bucket, note in split.notes.items():
            said.setdefault(bucket, {})[note] = None
    notes = {bucket: _joined(list(texts)) for bucket, texts in said.items()}
    for bucket in _MEASURED:
        have = sum(bucket in split.parts for split in splits)
        if have:
            missing.pop(bucket, None)
            if have < len(splits):
                notes[bucket] = f"not measured in {len(splits) - have} of {len(splits)} windows"
        else:
            missing.setdefault(bucket, _NO_RANKS)
    if any(pool.state is State.WHOLE for pool in pools):
        texts = [*said.get("step_unsplit", ()), "the length of these steps alone is known"]
        notes["step_unsplit"] = _joined(texts)
    notes["steps_unrecorded"] = "the step numbers on record show that they ran"
    notes["step_rest"] = "ranks that ended a step before its longest report"
    missing.pop("compute", None)
    return missing, notes
