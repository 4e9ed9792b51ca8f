"""The cause of a slow rank or group: the part of the step that grew, and what else was seen.

First the part: which phases of the late reports exceed their peers', and by how much of the excess
(``hints``). Then what can make that part grow: sequence lengths, devices, hosts, experts, links.
Each candidate brings a confidence; below the least one no cause is named, and what would settle it
is said instead. The policy, with every threshold, is ``docs/causes.md``.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from steptax.app.compute.causes.beside import expert_sides, host_sides
from steptax.app.compute.causes.device import NO_SAMPLES, DeviceEvidence, device_causes
from steptax.app.compute.causes.groups import Coordinates, Joint
from steptax.app.compute.causes.hints import (
    HOST,
    SETTLE_DEVICE,
    Explanation,
    Hint,
    PhaseExcess,
    explain,
)
from steptax.app.compute.causes.model import Cause, CauseVerdict, decide, named
from steptax.app.compute.causes.onset import Window
from steptax.app.compute.causes.sample import Sample
from steptax.app.compute.spoken import spoken_ratio
from steptax.app.compute.straggler.rules import CONFIDENCES, CauseRules, StragglerRules

#: Ranks of a group whose devices are looked at.
_DEVICES = 4
_NO_PHASES = "per-rank phases (compute_us, input_us, gc_us, ...)"
_NO_SEQUENCES = "sequence lengths per rank and step (seq_sq_sum, or tokens)"
_SLOW_STEPS = (
    "a profiler trace of some slow steps on all ranks: launch gaps, Python time, CPU steal"
)
_PROFILER = "a profiler trace of that rank: launch gaps, Python time, CPU steal"


def rank_cause(
    seen: Sample,
    joint: Joint,
    places: Coordinates,
    devices: DeviceEvidence | None,
    window: Window | None,
    straggler_rules: StragglerRules,
    rules: CauseRules,
) -> tuple[CauseVerdict, tuple[CauseVerdict, ...], str | None]:
    """Cause of slow work, further causes, and the part of the step that carries it."""
    told = explain(seen.matrix, seen.arrived, seen.excess_us, seen.cells, straggler_rules)
    part = _part(told, rules)
    candidates = [c for hint in told.hints if (c := _of_hint(hint, joint, rules)) is not None]
    candidates = [_beside(one, told, straggler_rules) for one in candidates]
    candidates = [_with_host(one, seen, joint, places, rules) for one in candidates]
    settle: list[str] = []
    computing = next((h for h in told.hints if h.id == "slow_compute"), None)
    unknown = not told.phases
    open_part = part in ("compute", "h2d") or unknown
    if computing is not None or open_part:
        expert = _expert(seen, joint, places, rules)
        if expert is not None:
            candidates.append(expert)
        found, lacking = _devices(seen, joint, devices, window, told, part, rules)
        candidates += [_beside(one, told, straggler_rules) for one in found]
        if lacking is not None:
            settle.append(lacking if lacking == NO_SAMPLES else f"{NO_SAMPLES}: {lacking}")
    if unknown:
        settle.append(_NO_PHASES)
    told_of = SETTLE_DEVICE if NO_SAMPLES in settle else None
    settle += [text for hint in told.hints for text in hint.settle if text != told_of]
    if not settle:
        settle.append(_PROFILER)
    verdict, also = decide(
        candidates,
        rules.least_confidence,
        abstain_text=_abstention(told, part),
        evidence=tuple(text for hint in told.hints for text in hint.evidence_for),
        settle=tuple(dict.fromkeys(settle)),
        action=_first_action(part, devices is None),
    )
    return verdict, also, part


def _part(told: Explanation, rules: CauseRules) -> str | None:
    """The part of the step that carries most of the excess."""
    dominant = told.dominant
    if dominant is None or dominant.share_ratio < rules.carries_ratio:
        return None
    return dominant.phase


def _of_hint(hint: Hint, joint: Joint, rules: CauseRules) -> CauseVerdict | None:
    """A hint from the phases as a cause; None for one that several causes could have."""
    several = len(joint.columns) > 1
    cause = {
        "sequence_length": Cause.SEQUENCE,
        "input": Cause.INPUT_LOADER,
        "gc": Cause.GC,
        "checkpoint": Cause.CHECKPOINT,
        HOST: Cause.HOST_CPU if several and "host" in joint.kinds else None,
    }.get(hint.id)
    if cause is None:
        return None
    # Half of the excess is as good as all of it: the rest is noise, or a second cause.
    sure = CONFIDENCES.phase * min(1.0, hint.share_ratio / rules.carries_ratio)
    return named(cause, sure, hint.evidence_for, hint.evidence_against)


#: Causes whose part of the step is not compute.
_PARTS = {
    Cause.INPUT_LOADER: "input",
    Cause.GC: "gc",
    Cause.CHECKPOINT: "checkpoint",
    Cause.HOST_CPU: HOST,
}


def _beside(verdict: CauseVerdict, told: Explanation, rules: StragglerRules) -> CauseVerdict:
    """The cause with the other parts of the step that carry a good part of the excess against it.

    What has half of it elsewhere as well is not all of the reason: its confidence is less by half
    of that share.
    """
    own = None if verdict.cause is None else _PARTS.get(verdict.cause)
    if verdict.cause is Cause.PCIE:
        own = max(
            (p for p in told.phases if p.phase in ("h2d", "compute")),
            key=lambda p: p.share_ratio,
            default=PhaseExcess("compute", 0.0, 0.0),
        ).phase
    other = [
        p
        for p in told.phases
        if p.phase != (own or "compute") and p.share_ratio >= rules.hint_share_ratio
    ]
    if not other:
        return verdict
    share = min(1.0, sum(p.share_ratio for p in other))
    against = tuple(
        f"{spoken_ratio(min(1.0, p.share_ratio))} of the excess is in {p.phase}: another cause"
        for p in other
    )
    return replace(
        verdict,
        confidence=verdict.confidence * (1.0 - 0.5 * share),
        evidence_against=(*verdict.evidence_against, *against),
    )


def _with_host(
    verdict: CauseVerdict, seen: Sample, joint: Joint, places: Coordinates, rules: CauseRules
) -> CauseVerdict:
    """The cause with what the other ranks of its host and other hosts do, if a host is blamed."""
    if verdict.cause is not Cause.HOST_CPU:
        return verdict
    speaks_for, against = host_sides(seen.excess_us, joint.columns, places, rules)
    return replace(
        verdict,
        evidence_for=(*verdict.evidence_for, *speaks_for),
        evidence_against=(*verdict.evidence_against, *against),
    )


def _expert(
    seen: Sample, joint: Joint, places: Coordinates, rules: CauseRules
) -> CauseVerdict | None:
    """Ranks that hold the same experts in several replicas are slow together."""
    if "expert" not in joint.kinds or "ep" not in places:
        return None
    where = list(joint.columns)
    if "dp" in places and len(np.unique(places["dp"][where])) < 2:
        return None
    sides = expert_sides(seen.excess_us, joint.columns, places, rules)
    return named(Cause.EXPERT, CONFIDENCES.expert, *sides)


def _devices(
    seen: Sample,
    joint: Joint,
    devices: DeviceEvidence | None,
    window: Window | None,
    told: Explanation,
    part: str | None,
    rules: CauseRules,
) -> tuple[list[CauseVerdict], str | None]:
    """Causes in the devices of the slow ranks, those that most of them share; what is lacking."""
    if devices is None or window is None:
        return [], NO_SAMPLES
    # A clock has to explain what compute carries; the rest of the excess has another cause.
    shares = [phase.share_ratio for phase in told.phases if phase.phase == "compute"]
    of_compute = min(1.0, max(0.0, shares[0])) if shares else 1.0
    stage = seen.matrix.stage
    slow = set(joint.columns)
    looked = joint.columns[:_DEVICES]
    votes: dict[Cause, list[CauseVerdict]] = {}
    lacking = None
    for column in looked:
        peers = [
            c
            for c in range(len(seen.matrix.ranks))
            if c not in slow and (stage is None or stage[c] == stage[column])
        ]
        mine = seen.cells[1] == column
        excess = float(np.nanmean(seen.excess_us[seen.cells][mine]))
        work = float(np.nanmean(seen.arrived.work_us[seen.cells][mine]))
        over = of_compute * excess / max(1.0, work - excess)
        found, why = device_causes(devices, column, peers, window, part, over, rules)
        lacking = lacking or why
        for cause in found:
            if cause.cause is not None:
                votes.setdefault(cause.cause, []).append(cause)
    weight = 1.0 if part == "h2d" else min(1.0, of_compute / rules.carries_ratio)
    shared = [v[0] for v in votes.values() if 2 * len(v) > len(looked)]
    return [replace(one, confidence=weight * one.confidence) for one in shared], lacking


def _not_named(why: str) -> str:
    start = "cause not named: "
    return why if why.startswith(start) else start + why


def _abstention(told: Explanation, part: str | None) -> str:
    if not told.phases:
        return _not_named(told.reason or "the parts of the step are not recorded")
    if part is None:
        return "cause not named: no part of the step carries most of the excess"
    where = {
        "compute": "compute is slow: device, host or kernel, not separable with what is recorded",
        "h2d": "host-to-device copies are slow: the PCIe link, or host memory that is not pinned",
        HOST: "host time is long: CPU contention, launch gaps or its own program",
        "other": "time that its source counts as other is long",
    }.get(part, f"{part} is long")
    return f"cause not named: {where}"


def _first_action(part: str | None, no_samples: bool) -> str:
    if part in ("compute", None) and no_samples:
        return "collect device samples on that host, then look at clock and throttle reasons"
    return {
        "compute": "run a matrix-multiplication benchmark on that device; if it is slow there too, "
        "replace it",
        "h2d": "pin host memory and check the PCIe generation and width of that device",
        HOST: "profile that rank: launch gaps, Python time, CPU contention on its host",
    }.get(part or "", "record per-rank phases on these ranks to name the cause")


def moving_cause(
    told: Explanation,
    rules: CauseRules,
    *,
    mostly: int | None = None,
    left_out: str | None = None,
) -> tuple[CauseVerdict, tuple[CauseVerdict, ...]]:
    """Cause of waiting for nobody who is slow for good.

    It is for a different rank from step to step, or for the rank ``mostly`` in too few steps; or
    for those that are ``left_out`` of the comparison, in words.
    """
    alone = Joint((0,), 0, 0, 0, False, 0.0, ())
    varies = "compute varies from rank to rank and step to step"
    if mostly is not None:
        varies = "compute is long in some of its steps"
    candidates = [c for hint in told.hints if (c := _of_hint(hint, alone, rules)) is not None]
    settle = [text for hint in told.hints for text in hint.settle] or [_NO_SEQUENCES, _NO_PHASES]
    if mostly is None:
        # It is no single device: nothing that one of them tells would settle it.
        settle = [_SLOW_STEPS if text == SETTLE_DEVICE else text for text in settle]
    action = (
        "no rank to replace: balance the batches, synchronise garbage collection, look at noise on "
        "the hosts, or price backup workers and local SGD in What-if"
        if mostly is None
        else f"look at what rank {mostly} does in the steps in which it is late: a save, a log, an "
        "evaluation of its own; keep watching whether there come more"
    )
    if left_out is not None:
        settle = [f"the steps of {left_out}", *settle]
        action = make_report(left_out) + ("" if mostly is None else f"; {action}")
    return decide(
        candidates,
        rules.least_confidence,
        abstain_text=_not_named(told.reason or varies),
        evidence=tuple(text for hint in told.hints for text in hint.evidence_for),
        settle=tuple(dict.fromkeys(settle)),
        action=action,
    )


def make_report(left_out: str) -> str:
    """What is to be done about ranks that are ``left_out`` of the comparison, in words."""
    return (
        f"make {left_out} report every step ({StragglerRules.complete_steps} that all ranks report "
        "are enough), or look at the devices there: who is not compared may be slow"
    )
