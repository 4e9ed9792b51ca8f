"""How well a detector does on made-up jobs: every count, and the ratios that are made from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from steptax.benchmarks.product.fault_detectors import Found
from steptax.benchmarks.product.fault_model import ROUGH_NOISES, Fault, Plan
from steptax.benchmarks.product.fault_plans import EXCESS_RANGE, LEAST_STEPS

#: What a detector may call the cause of a fault; most have one name.
NAMES = {
    "gc_moving": "gc",
    "sequence_moving": "sequence",
}
#: A finding is of a fault when it covers this much of the shorter of the two.
OVERLAP_RATIO = 0.5


@dataclass
class Score:
    """Counts over jobs; see ``figures``."""

    counts_rough: bool = False
    """Whether faults in rough noise count, where small ones cannot be told; alarms always do."""
    names_causes: bool = True
    """A detector that never says why has no figures about causes: it did not abstain either."""

    found: int = 0
    missed: int = 0
    true_alarms: int = 0
    false_alarms: int = 0
    wide_found: int = 0
    wide_missed: int = 0
    right: int = 0
    wrong: int = 0
    unnamed: int = 0
    """Of faults that were found and whose signals are there: cause named right, wrong, not."""
    abstained: int = 0
    guessed: int = 0
    """Of faults that were found and whose signals are absent."""
    healthy_alarms: int = 0
    healthy_wide_alarms: int = 0
    """Findings about a whole job that is healthy."""
    healthy_steps: int = 0
    healthy_rank_steps: int = 0
    confidences: list[float] = field(default_factory=list)
    """Of the causes that are named of faults."""
    to_detect: list[int] = field(default_factory=list)
    """Of faults of ranks; one that was missed counts with all its steps."""
    was_found: list[bool] = field(default_factory=list)
    """Of the same faults, in the same order, which all detectors have alike."""
    duty_errors: list[float] = field(default_factory=list)
    """Of faults that come and go: duty as said less duty as made."""
    confused: Counter[str] = field(default_factory=Counter)
    by_cause: dict[str, Counter[str]] = field(default_factory=dict)

    def add(self, plan: Plan, found: Sequence[Found]) -> None:
        """Count what a detector ``found`` in the job of ``plan``."""
        alarms = [f for f in found if f.scope in ("ranks", "stage") and f.ranks]
        # On a rank basis, so that a group of eight counts like eight ranks for every detector. An
        # alarm is true of a rank that is at fault in most of the steps that it is about.
        for alarm in alarms:
            blamed = set().union(
                *(fault.ranks for fault in plan.faults if _explains(fault, alarm)), set()
            )
            right = len(blamed & set(alarm.ranks))
            self.true_alarms += right
            self.false_alarms += len(alarm.ranks) - right
        if not plan.faults:
            steps, ranks = plan.steps, plan.shape.ranks
            self.healthy_alarms += sum(len(alarm.ranks) for alarm in alarms)
            self.healthy_wide_alarms += sum(f.scope == "job" for f in found)
            self.healthy_steps += steps
            self.healthy_rank_steps += steps * ranks
        if plan.noise in ROUGH_NOISES and not self.counts_rough:
            return
        for fault in plan.faults:
            if fault.excess_ratio >= EXCESS_RANGE[0] and fault.steps >= LEAST_STEPS:
                self._fault(fault, found, alarms)

    def _fault(self, fault: Fault, found: Sequence[Found], alarms: Sequence[Found]) -> None:
        tally = self.by_cause.setdefault(fault.cause, Counter())
        if fault.is_placed:
            mine = [a for a in alarms if set(a.ranks) & set(fault.ranks) and _covers(fault, a)]
            seen = set().union(*(a.ranks for a in mine), set()) & set(fault.ranks)
            self.found += len(seen)
            self.missed += len(fault.ranks) - len(seen)
            said = [a.duty_ratio for a in mine if a.duty_ratio is not None]
            if fault.pattern and said:
                self.duty_errors.append(said[0] - fault.duty_ratio)
            if fault.scope != "stage":
                # Whoever misses the hard ones would be fast at the others: a miss took all of it.
                begun = min((a.detected for a in mine), default=fault.last + 1)
                self.to_detect.append(max(0, begun - fault.first))
                self.was_found.append(bool(mine))
            mine.sort(key=lambda a: -len(set(a.ranks) & set(fault.ranks)))
        else:
            scopes = ("moving",) if fault.scope == "moving" else ("job",)
            mine = [f for f in found if f.scope in scopes and _covers(fault, f)]
            wanted = NAMES.get(fault.cause, fault.cause)
            mine.sort(key=lambda f: f.cause != wanted)
            if fault.signals:
                self.wide_found += bool(mine)
                self.wide_missed += not mine
        self._cause(fault, mine, tally)

    def _cause(self, fault: Fault, mine: Sequence[Found], tally: Counter[str]) -> None:
        wanted = NAMES.get(fault.cause, fault.cause)
        said = mine[0].cause if mine else None
        if mine and mine[0].confidence is not None:
            self.confidences.append(mine[0].confidence)
        if not fault.signals:
            # Whatever is named then is a guess, even a lucky one; who saw nothing abstained of
            # nothing.
            self.abstained += bool(mine) and said is None
            self.guessed += said is not None
            tally["not found" if not mine else "abstained" if said is None else "guessed"] += 1
            if said is not None:
                self.confused[f"{fault.cause} without its signals: {said}"] += 1
            return
        if said == wanted:
            self.right += 1
            tally["right"] += 1
        elif said is None:
            self.unnamed += 1
            tally["not found" if not mine else "unnamed"] += 1
        else:
            self.wrong += 1
            tally["wrong"] += 1
            self.confused[f"{fault.cause}: {said}"] += 1

    def figures(self) -> dict[str, Any]:
        """The ratios, None where there is nothing to divide by."""
        knows = self.names_causes
        named = self.right + self.wrong + self.unnamed if knows else 0
        absent = self.abstained + self.guessed if knows else 0
        recall = _share(self.found, self.found + self.missed)
        precision = _share(self.true_alarms, self.true_alarms + self.false_alarms)
        return {
            "rank_recall": recall,
            "rank_precision": precision,
            "rank_f1": _harmonic(recall, precision),
            "job_wide_recall": _share(self.wide_found, self.wide_found + self.wide_missed),
            "cause_accuracy": _share(self.right, named),
            "wrong_cause": _share(self.wrong, named),
            "right_of_named": _share(self.right, self.right + self.wrong + self.guessed),
            "mean_confidence_of_named": float(np.mean(self.confidences))
            if self.confidences
            else None,
            "abstention": _share(self.abstained, absent),
            "steps_to_detect_p50": _quantile(self.to_detect, 0.5),
            "steps_to_detect_p90": _quantile(self.to_detect, 0.9),
            "duty_error_p50": _quantile([abs(e) for e in self.duty_errors], 0.5),
            "false_alarms_per_1000_healthy_steps": _rate(
                self.healthy_alarms, self.healthy_steps, 1_000
            ),
            "false_alarms_per_100000_healthy_rank_steps": _rate(
                self.healthy_alarms, self.healthy_rank_steps, 100_000
            ),
            # A detector that never speaks of a whole job does not keep silent about healthy ones.
            "job_wide_false_alarms_per_1000_healthy_steps": _rate(
                self.healthy_wide_alarms, self.healthy_steps, 1_000
            )
            if knows
            else None,
            "faulty_ranks": self.found + self.missed,
            "healthy_rank_steps": self.healthy_rank_steps,
        }


def both_found(ours: Score, other: Score, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Steps to detect of two detectors on the faults that both found, ``name`` being the other.

    Whoever finds the easy faults alone is quick at those; on the same faults that does not show.
    """
    places = [
        i for i, both in enumerate(zip(ours.was_found, other.was_found, strict=True)) if all(both)
    ]
    pair = []
    for score in (ours, other):
        steps = [score.to_detect[i] for i in places]
        pair.append(
            {
                f"steps_to_detect_p50_both_{name}": _quantile(steps, 0.5),
                f"steps_to_detect_p90_both_{name}": _quantile(steps, 0.9),
                f"faults_both_{name}": len(places),
            }
        )
    return pair[0], pair[1]


def _shared(fault: Fault, alarm: Found) -> int:
    return min(fault.last, alarm.last) - max(fault.first, alarm.first) + 1


def _explains(fault: Fault, alarm: Found) -> bool:
    return _shared(fault, alarm) >= OVERLAP_RATIO * (alarm.last - alarm.first + 1)


def _covers(fault: Fault, alarm: Found) -> bool:
    return _shared(fault, alarm) >= OVERLAP_RATIO * min(fault.steps, alarm.last - alarm.first + 1)


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _harmonic(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return None
    return 2.0 * one * other / (one + other) if one + other > 0 else 0.0


def _rate(count: int, whole: int, per: int) -> float | None:
    return count * per / whole if whole else None


def _quantile(values: Sequence[float], share: float) -> float | None:
    return float(np.quantile(values, share)) if values else None
