"""Real local jobs with injected faults: ``python -m steptax.benchmarks.product.fault_real``.

Worker processes train on this machine, one of them slow in a way that is known (``steptax demo``
has the same ways), and its records are diagnosed as any other job's. Four processes on a busy
machine are a noisy job: who is named besides the culprit is printed too.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from steptax.app.compute.straggler.analysis import analyse_stragglers
from steptax.app.demo.config import STRAGGLERS, DemoConfig
from steptax.app.demo.job import DemoJob
from steptax.app.views.job.causes import build_diagnosis
from steptax.app.views.job.load import load_job
from steptax.app.views.workspace import open_workspace
from steptax.benchmarks.product import flags

#: What the records can tell: extra computing has no signal of its own here, so none may be named.
CAUSES = {"sequence": "sequence", "gc": "gc", "input": "input_loader", "compute": None}
WORKERS = 4
CULPRIT = 2


@dataclass(frozen=True)
class Outcome:
    """What was injected into one job, and what was said of it."""

    injected: str
    culprit_found: bool | None
    """None where nothing was injected."""
    others_named: tuple[int, ...]
    cause: str | None
    cause_right: bool | None
    """Whether the cause is the injected one, or rightly not named."""
    said: tuple[str, ...]


def outcome_of(lake: Path, injected: str, steps: int, step_ms: int) -> Outcome:
    """Train with ``injected``, and diagnose what was recorded."""
    config = DemoConfig(
        lake,
        "job-1",
        workers=WORKERS,
        straggler=injected,
        straggler_rank=None if injected == "none" else CULPRIT,
        steps=steps,
        step_target_ms=step_ms,
    )
    job = DemoJob(config)
    try:
        job.start()
        state = job.wait()
        if state.failure is not None:
            raise RuntimeError(f"the job failed: {state.failure}")
    finally:
        job.stop()
    ws = open_workspace(lake)
    loaded = load_job(ws, ws.job("job-1"), last_steps=None)
    told = build_diagnosis(ws, loaded, analyse_stragglers(loaded.matrix))
    about_ranks = [f for f in told.findings if f.ranks]
    mine = [f for f in about_ranks if CULPRIT in f.ranks]
    cause = mine[0].cause.cause if mine else None
    others = {rank for f in about_ranks for rank in f.ranks} - {CULPRIT}
    is_none = injected == "none"
    return Outcome(
        injected,
        None if is_none else bool(mine),
        tuple(sorted(others | ({CULPRIT} if is_none and mine else set()))),
        None if cause is None else cause.value,
        None if is_none else bool(mine) and cause == CAUSES[injected],
        tuple(
            f"{f.place}, steps {f.first_step}-{f.last_step}: {f.cause.text}" for f in told.findings
        ),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run every kind, print, and store where asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=flags.count, default=150)
    parser.add_argument("--step-ms", type=flags.count, default=80, help="length of a healthy step")
    parser.add_argument("--only", choices=STRAGGLERS, help="one kind alone")
    parser.add_argument("--out", type=Path, help="write the outcomes there as JSON")
    given = parser.parse_args(arguments)
    outcomes = []
    for injected in STRAGGLERS if given.only is None else (given.only,):
        with tempfile.TemporaryDirectory() as folder:
            one = outcome_of(Path(folder), injected, given.steps, given.step_ms)
        outcomes.append(one)
        print(
            f"{one.injected:<10} culprit found: {one.culprit_found}, cause {one.cause}, right: "
            f"{one.cause_right}, others named: {list(one.others_named)}"
        )
        for text in one.said:
            print(f"           {text}")
    if given.out is not None:
        text = json.dumps([asdict(one) for one in outcomes], indent=2)
        given.out.write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
