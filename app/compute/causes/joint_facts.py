"""What is said of ranks that are slow together: their place, what they cost, and when it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from steptax.app.compute.causes.groups import GROUPS, Coordinates, Joint, slow_places
from steptax.app.compute.causes.model import Finding, Together
from steptax.app.compute.causes.onset import Window
from steptax.app.compute.spoken import spoken_list
from steptax.app.compute.stats.rows import Flags, row_quantile
from steptax.app.compute.straggler.episodes import usual_step_us
from steptax.app.compute.straggler.recover import saved_us
from steptax.app.compute.straggler.rules import CauseRules, EpisodeRules
from steptax.app.compute.straggler.steps import StepMatrix
from steptax.app.compute.straggler.tables import Used

#: Steps from which it is told what comes back, evenly spread.
_STEPS = 256
#: A share of the paid time that is less is not told of a joint repair.
_TOLD_RATIO = 0.005
_TITLES = {
    "host": "host",
    "expert": "expert place",
    "tp_group": "tensor-parallel group",
    "dp_group": "data-parallel group",
    "replica": "data-parallel replica",
    "stage": "pipeline stage",
}


def place_text(
    joint: Joint, used: Used, places: Coordinates, host_names: Sequence[str | None]
) -> str:
    """Where that is, in words; ``host_names`` [R] may be empty."""
    ranks = sorted(int(used.matrix.ranks[c]) for c in joint.columns)
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    said = f"ranks {spoken_list(ranks)}"
    if not joint.kinds:
        return said
    kind = joint.kinds[0]
    column = joint.columns[0]
    if kind == "host":
        name = host_names[column] if host_names else None
        return f"host {name} ({said})"
    where = ", ".join(f"{key.upper()} {int(places[key][column])}" for key in GROUPS[kind])
    return f"{_TITLES[kind]} {where} ({said})"


def excess_when_slow(joint: Joint) -> float:
    """Mean excess of its slow steps, a share of the usual step."""
    return joint.excess_ratio if joint.again is None else joint.again.level


def lost_ratio(joint: Joint, used: Used) -> float:
    """Share of the paid time of the window that comes back without this episode."""
    steps = slow_places(joint)
    rows = steps[np.unique(np.linspace(0, len(steps) - 1, min(len(steps), _STEPS)).astype(int))]
    saved = saved_us(
        used.arrived.arrival_us[rows],
        used.excess_us[rows],
        np.array(joint.columns, dtype=np.intp),
    )
    return _of_paid(float(np.nanmean(saved)) * len(steps), joint, used)


def longer_ratio(joint: Joint, used: Used) -> float:
    """The same of transfers, by how much longer they take."""
    usual = usual_step_us(used.arrived.step_us)
    return _of_paid(excess_when_slow(joint) * usual * len(slow_places(joint)), joint, used)


def _of_paid(lost_us: float, joint: Joint, used: Used) -> float:
    """``lost_us`` as a share of the window, no more than the steps of ``joint`` are."""
    step_us = used.arrived.step_us
    spanned = float(step_us[slow_places(joint)].sum())
    return min(lost_us, spanned) / float(step_us.sum())


def window_of(
    joint: Joint, used: Used, rules: EpisodeRules, cause_rules: CauseRules
) -> Window | None:
    """When that was; None where the steps have no start."""
    start = used.matrix.start_us
    if start is None or np.isnan(start).all():
        return None
    (moments,) = row_quantile(start, 0.5)
    # A step of which nobody told the start lies between its neighbours.
    told = np.flatnonzero(~np.isnan(moments))
    moments = np.interp(np.arange(len(moments)), told, moments[told])
    begin = int(moments[joint.first])
    end = int(moments[joint.last] + used.arrived.step_us[joint.last])
    first = int(moments[0])
    near = cause_rules.onset_steps
    since = int(moments[max(0, joint.first - near)])
    until = int(moments[min(joint.last, joint.first + near)])
    before = (first, begin) if joint.first >= rules.min_steps else None
    return Window(before, (begin, end), (since, until))


def together(joints: Sequence[Joint], used: Used) -> dict[tuple[int, ...], Together]:
    """By its columns what each of ``joints`` returns only with those that are slow beside it.

    Where others are as late, the repair of one leaves them to be waited for.
    Only where all together return more than twice of what it does alone.
    """
    out = {}
    for one in joints:
        beside = [j for j in joints if _shared(one, j) >= 0.5 * one.steps]
        columns = tuple(sorted({c for j in beside for c in j.columns}))
        if len(beside) < 2:
            continue
        alone, joint = (lost_ratio(j, used) for j in (one, replace(one, columns=columns)))
        if joint > 2.0 * max(0.0, alone) and joint >= _TOLD_RATIO:
            ranks = tuple(int(r) for r in used.matrix.ranks[list(columns)])
            out[one.columns] = Together(ranks, joint)
    return out


def _shared(one: Joint, two: Joint) -> int:
    return min(one.last, two.last) - max(one.first, two.first) + 1


def span_ratio(finding: Finding, used: Used) -> float:
    """Share of the paid time of the window from the first step of ``finding`` to its last."""
    steps = used.matrix.steps
    within = (steps >= finding.first_step) & (steps <= finding.last_step)
    return float(used.arrived.step_us[within].sum()) / float(used.arrived.step_us.sum())


def silent_ranks(matrix: StepMatrix, lag_steps: int) -> Flags:
    """[R] ranks whose newest report lags by more recorded steps than ``lag_steps``."""
    reported = matrix.reported
    newest = len(reported) - 1 - np.argmax(reported[::-1], axis=0)
    silent: Flags = ~reported.any(axis=0) | (len(reported) - 1 - newest > lag_steps)
    return silent
