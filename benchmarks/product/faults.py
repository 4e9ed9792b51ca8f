"""The fault laboratory: ``python -m steptax.benchmarks.product.faults``.

Makes jobs with known faults (``fault_jobs``), runs three detectors on the same rows, and prints how
well each does. ``--out FILE`` writes the score with its date and settings as JSON; ``--small``
takes seconds and shows that everything runs, the full setting is the score that counts.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from steptax.benchmarks.product import flags
from steptax.benchmarks.product.fault_detectors import DETECTORS, NAME_CAUSES, Found, matrix_of
from steptax.benchmarks.product.fault_jobs import make_job
from steptax.benchmarks.product.fault_model import Noise, Plan
from steptax.benchmarks.product.fault_plans import FULL, SHORT_STEPS, SMALL, Setting, plans
from steptax.benchmarks.product.fault_score import Score, both_found

#: What is asked of us; the second says whether more is better.
TARGETS: dict[str, tuple[float, bool]] = {
    "rank_recall": (0.98, True),
    "rank_precision": (0.98, True),
    "cause_accuracy": (0.90, True),
    "abstention": (0.95, True),
    "false_alarms_per_100000_healthy_rank_steps": (1.0, False),
}


#: Figures that are told of each group of jobs.
_OF_GROUP = (
    "rank_recall",
    "rank_precision",
    "rank_f1",
    "false_alarms_per_100000_healthy_rank_steps",
    "faulty_ranks",
    "healthy_rank_steps",
)


def noise_group(noise: Noise) -> str:
    """What jobs of that noise are called."""
    return f"{noise.name}: a healthy rank's steps vary by {100 * noise.sd_ratio:g} %"


def groups_of(plan: Plan) -> list[str]:
    """The groups of jobs that ``plan`` belongs to: its noise, and what is special about it."""
    special = {
        "comes and goes": any(fault.pattern for fault in plan.faults),
        "lost rows": plan.lost_ratio > 0,
        "short window": plan.steps <= SHORT_STEPS,
        "1,024 ranks and more": plan.shape.ranks >= 1024,
    }
    return [noise_group(plan.noise), *(name for name, is_it in special.items() if is_it)]


@dataclass
class Outcome:
    """Scores by detector, those of groups of jobs, seconds by detector, and how many jobs."""

    scores: dict[str, Score]
    groups: dict[str, dict[str, Score]]
    seconds: dict[str, float]
    jobs: int


def run(setting: Setting, seeds: Sequence[int], processes: int = 1) -> Outcome:
    """Every detector on the jobs of ``setting``."""
    scores = {name: Score(names_causes=name in NAME_CAUSES) for name in DETECTORS}
    groups: dict[str, dict[str, Score]] = {}
    seconds = dict.fromkeys(DETECTORS, 0.0)
    made = [plan for seed in seeds for plan in plans(setting, seed)]
    for plan, told in zip(made, _detected(made, processes), strict=True):
        for name, (found, took_s) in told.items():
            seconds[name] += took_s
            scores[name].add(plan, found)
            for group in groups_of(plan):
                of_group = groups.setdefault(group, {})
                of_group.setdefault(name, Score(counts_rough=True)).add(plan, found)
    return Outcome(scores, groups, seconds, len(made))


def _detected(
    made: Sequence[Plan], processes: int
) -> Iterator[dict[str, tuple[list[Found], float]]]:
    """What each detector finds in each job, in their order, and the processor's seconds."""
    if processes < 2:
        yield from map(_detect, made)
        return
    # A process that numpy's threads were started in must not be forked.
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        yield from pool.map(_detect, made)


def _detect(plan: Plan) -> dict[str, tuple[list[Found], float]]:
    job = make_job(plan)
    matrix = matrix_of(job)
    told = {}
    for name, detect in DETECTORS.items():
        begun = time.process_time()
        found = detect(job, matrix)
        told[name] = (found, time.process_time() - begun)
    return told


def report(setting: Setting, seeds: Sequence[int], outcome: Outcome) -> dict[str, Any]:
    """The whole result as it is stored."""
    scores, seconds = outcome.scores, outcome.seconds
    figures = {name: score.figures() for name, score in scores.items()}
    ours = figures["steptax"]
    for name in figures:
        if name != "steptax":
            mine, theirs = both_found(scores["steptax"], scores[name], name)
            for one in figures:
                figures[one] |= dict.fromkeys(mine)
            figures["steptax"] |= mine
            figures[name] |= theirs
    return {
        "benchmark": "faults",
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "seeds": list(seeds),
        "setting": asdict(setting),
        "jobs": outcome.jobs,
        "detectors": {
            name: of_one | {"seconds": round(seconds[name], 1)} for name, of_one in figures.items()
        },
        "targets": {
            name: {
                "target": target,
                "value": ours[name],
                "met": None
                if ours[name] is None
                else (ours[name] >= target if more else ours[name] <= target),
            }
            for name, (target, more) in TARGETS.items()
        },
        "groups": {
            group: {
                name: {figure: score.figures()[figure] for figure in _OF_GROUP}
                for name, score in by_name.items()
            }
            for group, by_name in outcome.groups.items()
        },
        "by_cause": {k: dict(v) for k, v in sorted(scores["steptax"].by_cause.items())},
        "confused": dict(scores["steptax"].confused.most_common()),
    }


def as_text(result: dict[str, Any]) -> str:
    """The score as a table."""
    names = list(result["detectors"])
    lines = [f"{result['jobs']} jobs, seeds {result['seeds']}, {result['measured_at']}", ""]
    lines.append(f"{'':<44}" + "".join(f"{name:>14}" for name in names))
    for key in result["detectors"][names[0]]:
        values = [result["detectors"][name][key] for name in names]
        lines.append(f"{key:<44}" + "".join(f"{_cell(v):>14}" for v in values))
    lines.append("")
    for name, row in result["targets"].items():
        lines.append(f"target {name} {row['target']:g}: {_cell(row['value'])}, met: {row['met']}")
    lines.append("")
    lines.append("rank recall / precision / F1 / false alarms per 100,000 healthy rank-steps")
    lines.append(f"{'':<48}" + "".join(f"{name:>40}" for name in names))
    for group, by_name in result["groups"].items():
        cells = (
            " / ".join(_cell(by_name[name][figure]) for figure in _OF_GROUP[:4]) for name in names
        )
        lines.append(f"{group:<48}" + "".join(f"{cell:>40}" for cell in cells))
    lines.append("")
    lines += [
        f"{cause:<18}" + ", ".join(f"{k} {n}" for k, n in sorted(tally.items()))
        for cause, tally in result["by_cause"].items()
    ]
    lines += [f"confused  {what}: {n}" for what, n in result["confused"].items()]
    return "\n".join(lines)


def _cell(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, and store where asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--small", action="store_true", help="a few seconds; no score to quote")
    parser.add_argument("--seed", type=flags.whole, default=1, help="which jobs are made")
    parser.add_argument(
        "--times", type=flags.count, default=1, help="that many seeds, from there on"
    )
    parser.add_argument("--out", type=Path, help="write the score there as JSON")
    parser.add_argument("--processes", type=flags.count, default=1, help="that many at a time")
    given = parser.parse_args(arguments)
    setting = SMALL if given.small else FULL
    seeds = range(given.seed, given.seed + max(1, given.times))
    result = report(setting, seeds, run(setting, seeds, given.processes))
    print(as_text(result))
    if given.out is not None:
        given.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
