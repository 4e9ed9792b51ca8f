"""How good the straggler detector is, as the fault laboratory measured it last.

The score that is shipped was measured by ``steptax.benchmarks.product.faults`` on the date that it
states. Whoever runs the laboratory again may put its file into the lake as
``detector_score.json``; that one is then shown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steptax.app.errors import InputError
from steptax.app.format import format_share

FILE = "detector_score.json"
_SHIPPED = Path(__file__).parents[1] / "data" / FILE
#: Figures in the order in which they are shown, and what each is called.
FIGURES = {
    "rank_recall": "slow ranks that were named",
    "rank_precision": "named ranks that were slow",
    "rank_f1": "F1, the harmonic mean of these two",
    "cause_accuracy": "right cause, where its signals are there",
    "abstention": "no cause named, where they are not",
    "steps_to_detect_p50": "steps to detect, median; a miss counts with all its steps",
    "steps_to_detect_p90": "steps to detect, 90 of 100; a miss counts as well",
    "steps_to_detect_p50_both_nvrx_style": "the same, median of the faults that NVRx found too",
    "steps_to_detect_p90_both_nvrx_style": "the same, 90 of 100 of these",
    "steps_to_detect_p50_both_naive": "the same, median of the faults that the naive one found too",
    "steps_to_detect_p90_both_naive": "the same, 90 of 100 of these",
    "false_alarms_per_1000_healthy_steps": "false alarms in 1,000 healthy steps",
    "false_alarms_per_100000_healthy_rank_steps": "false alarms in 100,000 healthy rank-steps",
    "job_wide_recall": "causes of the whole job that were named",
    "job_wide_false_alarms_per_1000_healthy_steps": "such causes named in 1,000 healthy steps",
}
#: Those of them that are shares.
SHARES = frozenset(
    ("rank_recall", "rank_precision", "rank_f1", "cause_accuracy", "abstention", "job_wide_recall")
)
DETECTORS = {
    "steptax": "Steptax",
    "nvrx_style": "scores as NVRx computes them",
    "naive": "naive: mean over the median",
}


@dataclass(frozen=True)
class GroupScore:
    """One detector on the jobs of one kind; None where they do not tell."""

    group: str
    detector: str
    slow_ranks: int
    rank_recall: float | None
    rank_precision: float | None
    rank_f1: float | None
    """The harmonic mean of both: many named ranks of which few are slow is no better recall."""
    alarms: float | None
    """False ones in 100,000 healthy rank-steps."""


@dataclass(frozen=True)
class DetectorScore:
    """Figures by detector; None where a detector does not give one."""

    sentence: str
    measured_at: str
    jobs: int
    rows: tuple[tuple[str, float | None, Mapping[str, float | None]], ...]
    """What, its target where there is one, and the value of each detector."""
    groups: tuple[GroupScore, ...] = ()
    """By noise and by what is special about the jobs; none in scores of before."""


def detector_score(lake: Path) -> DetectorScore:
    """The score of the lake, else the one that is shipped; InputError for a file that is none."""
    own = lake / FILE
    path = own if own.is_file() else _SHIPPED
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return _score(found)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"is no score of the fault laboratory: {error}",
            where=str(path),
            hint="write it by: python -m steptax.benchmarks.product.faults --out FILE",
        ) from None


def _score(found: Mapping[str, Any]) -> DetectorScore:
    detectors = found["detectors"]
    targets = found.get("targets", {})
    ours = detectors["steptax"]
    day = str(found["measured_at"])[:10]
    seeds = ", ".join(str(seed) for seed in found["seeds"])
    sentence = (
        f"On {found['jobs']:,} generated jobs (seed {seeds}) the detector named "
        f"{_said(ours['rank_recall'])} of the slow ranks, and {_said(ours['rank_precision'])} of "
        f"those that it named were slow; measured {day}."
    )
    rows = tuple(
        (
            name,
            (targets.get(name) or {}).get("target"),
            {detector: detectors[detector].get(name) for detector in DETECTORS},
        )
        for name in FIGURES
    )
    groups = tuple(
        GroupScore(
            str(group),
            title,
            int(by_name[detector]["faulty_ranks"]),
            by_name[detector]["rank_recall"],
            by_name[detector]["rank_precision"],
            by_name[detector].get("rank_f1"),
            by_name[detector]["false_alarms_per_100000_healthy_rank_steps"],
        )
        for group, by_name in found.get("groups", {}).items()
        for detector, title in DETECTORS.items()
    )
    return DetectorScore(sentence, day, int(found["jobs"]), rows, groups)


def _said(share: float | None) -> str:
    return "an unknown share" if share is None else format_share(share)
