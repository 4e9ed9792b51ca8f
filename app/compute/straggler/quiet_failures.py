"""The three quiet failures of a training job: stragglers, synchronisation stalls, stalled GPUs.

None of them stops a job, so none of them raises an alarm by itself: the job goes on, and takes
longer. Stragglers are counted elsewhere (straggler tax); here are the stalls.

- A *synchronisation stall* is a step in which the ranks waited for each other for longer than the
  job's usual wait and step: wait above ``STALL_TIMES`` the median wait and above
  ``STALL_STEP_RATIO`` of the median step, as the mean over ranks.
- A *step spike* is a step of more than ``SPIKE_TIMES`` the median step that is no warm-up; input
  explains it where the input phase took more than half of what it is longer.
- *Warm-up* are the steps of the first attempt before it is steady, and the leading ones of every
  attempt that are longer than a spike.
- *Steady* is a job from the first step on from which the median of ``STEADY_STEPS`` steps is not
  more than ``STEADY_RATIO`` above the median step of its later half.
- A *pause* is time between two steps of one attempt, above ``PAUSE_TIMES`` the median step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from steptax.app.compute.measure import Measure
from steptax.app.compute.stats.rows import Flags, Floats, Ints

STALL_TIMES = 3.0
STALL_STEP_RATIO = 0.10
SPIKE_TIMES = 1.5
STEADY_STEPS = 10
STEADY_RATIO = 0.10
PAUSE_TIMES = 1.0
#: Fewer steps tell nothing about what is usual.
LEAST_STEPS = 3 * STEADY_STEPS
US_PER_S = 1e6
_US_PER_MS = 1e3


@dataclass(frozen=True)
class SyncStalls:
    """Steps in which the ranks waited for each other far longer than usual."""

    steps: Measure
    """How many of the steps that were looked at."""
    lost_ratio: Measure
    """Waiting beyond the usual in those steps / time of all steps."""
    longest_ms: Measure
    worst_step: int | None


@dataclass(frozen=True)
class StalledGpus:
    """GPUs that are held and do not train."""

    steady_s: Measure
    """From the first step to the first steady one."""
    warm_up_lost_s: Measure
    """Time of the steps before, beyond what steady ones take."""
    checkpoint_s: Measure
    """Mean of a save; its ends are the shortest and the longest."""
    checkpoint_cv_ratio: Measure
    """Standard deviation / mean of the saves."""
    spikes: Measure
    """Steps far longer than the usual one."""
    input_spikes: Measure
    """Of them, those that input explains."""
    pauses_s: Measure
    """Time between steps of the same attempt, in all."""
    longest_pause_s: Measure


def sync_stalls(steps: Ints, wait_us: Floats | None, step_us: Floats) -> SyncStalls:
    """Stalls in ``steps`` [S] from the wait of each rank [S, R] and the time of each step [S]."""
    if wait_us is None:
        return _no_stalls("waiting cannot be told from computing here")
    wait = np.nanmean(wait_us, axis=1) if wait_us.size else np.empty(0)
    known = np.isfinite(wait) & np.isfinite(step_us)
    if known.sum() < LEAST_STEPS:
        return _no_stalls(f"fewer than {LEAST_STEPS} steps tell what is usual")
    wait, step, number = wait[known], step_us[known], steps[known]
    usual = float(np.median(wait))
    limit = max(STALL_TIMES * usual, STALL_STEP_RATIO * float(np.median(step)))
    stalled = wait > limit
    beyond = np.where(stalled, wait - usual, 0.0)
    longest = float(wait[stalled].max()) if stalled.any() else 0.0
    return SyncStalls(
        steps=Measure(float(stalled.sum()), "steps"),
        lost_ratio=Measure(float(beyond.sum() / step.sum()), "ratio"),
        longest_ms=Measure(longest / _US_PER_MS, "ms")
        if stalled.any()
        else Measure.missing("ms", "no step stalled"),
        worst_step=int(number[int(np.argmax(np.where(stalled, wait, -1.0)))])
        if stalled.any()
        else None,
    )


def _no_stalls(reason: str) -> SyncStalls:
    return SyncStalls(
        Measure.missing("steps", reason),
        Measure.missing("ratio", reason),
        Measure.missing("ms", reason),
        None,
    )


def stalled_gpus(
    attempts: Ints,
    start_us: Floats | None,
    duration_us: Floats,
    saves_us: Sequence[float],
    *,
    input_us: Floats | None,
    window_us: Floats,
    is_warm_up: Flags | None = None,
) -> StalledGpus:
    """What the whole job's steps tell, and its saves.

    ``attempts``, ``start_us`` and ``duration_us`` [E]: executed steps in order, starts None where
    no clock was kept. ``saves_us``: durations of saves. ``input_us`` [S]: the longest input phase
    of each step of the window; ``window_us`` [S] the time of those steps, ``is_warm_up`` [S]
    which of them are warm-up.
    """
    steady, warm_up = _steady(attempts, start_us, duration_us)
    spikes, by_input = _spikes(window_us, input_us, is_warm_up)
    pauses, longest = _pauses(attempts, start_us, duration_us)
    mean, spread = _saves(saves_us)
    return StalledGpus(steady, warm_up, mean, spread, spikes, by_input, pauses, longest)


def first_steady(duration_us: Floats) -> int | None:
    """Place of the first step from which the job is steady; None where it never is.

    The median of ``STEADY_STEPS`` steps from each place on is compared with the median of the
    later half: single spikes do not count, and neither does what comes after. Steps that are
    shorter than those of the later half are no warm-up: the job became slow later.
    """
    if len(duration_us) < LEAST_STEPS:
        return None
    usual = float(np.median(duration_us[len(duration_us) // 2 :]))
    medians = np.median(sliding_window_view(duration_us, STEADY_STEPS), axis=1)
    near = medians <= (1 + STEADY_RATIO) * usual
    if not near.any():
        return None
    first = int(np.argmax(near))
    # The window begins in the warm-up: its own first steps may still be long.
    slow = duration_us[first : first + STEADY_STEPS] > (1 + STEADY_RATIO) * usual
    while first < len(duration_us) - 1 and slow.size and slow[0]:
        first, slow = first + 1, slow[1:]
    return first


def warm_up(attempts: Ints, duration_us: Floats) -> Flags:
    """[E] which executed steps are warm-up; none where too few were executed to tell."""
    out: Flags = np.zeros(len(duration_us), dtype=bool)
    if len(duration_us) < LEAST_STEPS:
        return out
    limit = SPIKE_TIMES * float(np.median(duration_us))
    for number, attempt in enumerate(np.unique(attempts)):
        places = np.flatnonzero(attempts == attempt)
        usual = np.flatnonzero(duration_us[places] <= limit)
        count = int(usual[0]) if len(usual) else 0
        if number == 0:
            count = max(count, first_steady(duration_us[places]) or 0)
        out[places[:count]] = True
    return out


def _steady(
    attempts: Ints, start_us: Floats | None, duration_us: Floats
) -> tuple[Measure, Measure]:
    if len(duration_us) < LEAST_STEPS:
        reason = f"fewer than {LEAST_STEPS} steps were executed"
        return Measure.missing("s", reason), Measure.missing("s", reason)
    first = attempts == attempts[0]
    times = duration_us[first]
    place = first_steady(times)
    if place is None:
        reason = "the first attempt never became steady"
        return Measure.missing("s", reason), Measure.missing("s", reason)
    usual = float(np.median(times[len(times) // 2 :]))
    lost = float(np.clip(times[:place] - usual, 0.0, None).sum()) / US_PER_S
    if start_us is None:
        after = float(times[:place].sum())
    else:
        starts = start_us[first]
        after = float(starts[place] - starts[0])
    return Measure(after / US_PER_S, "s"), Measure(lost, "s")


def _spikes(
    window_us: Floats, input_us: Floats | None, is_warm_up: Flags | None
) -> tuple[Measure, Measure]:
    known = np.isfinite(window_us)
    if known.sum() < LEAST_STEPS:
        reason = f"fewer than {LEAST_STEPS} steps tell what is usual"
        return Measure.missing("steps", reason), Measure.missing("steps", reason)
    usual = float(np.median(window_us[known]))
    spiked = known & (window_us > SPIKE_TIMES * usual)
    if is_warm_up is not None:
        spiked &= ~is_warm_up
    count = Measure(float(spiked.sum()), "steps")
    if input_us is None:
        return count, Measure.missing("steps", "input_us was not recorded")
    usual_input = float(np.nanmedian(input_us)) if np.isfinite(input_us).any() else 0.0
    explained = spiked & (input_us - usual_input > 0.5 * (window_us - usual))
    return count, Measure(float(explained.sum()), "steps")


def _pauses(
    attempts: Ints, start_us: Floats | None, duration_us: Floats
) -> tuple[Measure, Measure]:
    if start_us is None or len(duration_us) < LEAST_STEPS:
        reason = (
            "the steps carry no start times"
            if start_us is None
            else f"fewer than {LEAST_STEPS} steps were executed"
        )
        return Measure.missing("s", reason), Measure.missing("s", reason)
    gaps = start_us[1:] - (start_us[:-1] + duration_us[:-1])
    same = attempts[1:] == attempts[:-1]
    long = same & (gaps > PAUSE_TIMES * float(np.median(duration_us)))
    total, longest = (gaps[long].sum(), gaps[long].max()) if long.any() else (0.0, 0.0)
    return Measure(float(total) / US_PER_S, "s"), Measure(float(longest) / US_PER_S, "s")


def _saves(saves_us: Sequence[float]) -> tuple[Measure, Measure]:
    if not saves_us:
        reason = "no save has a begin and an end on record"
        return Measure.missing("s", reason), Measure.missing("ratio", reason)
    times = np.asarray(saves_us, float) / US_PER_S
    mean = float(times.mean())
    shown = Measure(mean, "s", float(times.min()), float(times.max()))
    if len(times) < 2 or mean == 0:
        return shown, Measure.missing("ratio", "one save has no spread")
    return shown, Measure(float(times.std(ddof=1)) / mean, "ratio")
