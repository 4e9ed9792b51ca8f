"""One node of the collector's benchmark: its ranks and nothing else, as a training job has them.

Needs only the standard library, so that what it takes is what recorders take.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

from steptax.connectors.recorder import StepRecorder

JOB = "benchmark"


@dataclass(frozen=True)
class Plan:
    """What is run."""

    ranks: int
    nodes: int
    steps: int
    step_s: float
    flush_s: float
    kills: int
    outage_s: float


def run_node(plan: Plan, place: int, url: str, spool: str) -> dict[str, Any]:
    """Run the ranks of one node; their steps are spread over the step time, as they would be."""
    ranks = range(place, plan.ranks, plan.nodes)
    recorders = [
        StepRecorder(url, JOB, rank, plan.ranks, flush_s=plan.flush_s, spool=spool)
        for rank in ranks
    ]
    for recorder in recorders:
        recorder.start()
    begin_s = time.monotonic()
    for step in range(plan.steps):
        for turn, recorder in enumerate(recorders):
            due_s = begin_s + (step + turn / len(recorders)) * plan.step_s
            time.sleep(max(0.0, due_s - time.monotonic()))
            with recorder.step(step):
                with recorder.phase("compute"):
                    pass
                with recorder.collective():
                    pass
                recorder.tokens(4096, 4096)
    threads = [threading.Thread(target=recorder.close) for recorder in recorders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stats = [recorder.stats for recorder in recorders]
    return {
        "rows_dropped": sum(s["rows_dropped"] for s in stats),
        "rows_sent": sum(s["rows_sent"] or 0 for s in stats),
        "rows_lost": sum(s["rows_lost"] or 0 for s in stats),
        "bytes_sent": sum(s["bytes_sent"] or 0 for s in stats),
        "sender_cpu_s": sum(s["sender_cpu_s"] or 0.0 for s in stats),
        "last_error": next((s["last_error"] for s in stats if s["last_error"]), None),
    }


if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    print(json.dumps(run_node(Plan(**arguments.pop("plan")), **arguments)))
