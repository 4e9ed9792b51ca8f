"""One node of the live benchmark: a real recorder, which sends for the node, and simulated ranks.

A thread and three files a second for each rank are nothing on a node of eight; a thousand of them
on one machine leave nothing of it. So the other ranks put their rows into the recorder's spool by
its own functions, in the format and at the times at which recorders would, from one thread. From
the spool on nothing is simulated. Needs only the standard library.
"""

from __future__ import annotations

import json
import math
import random
import sys
import threading
import time
from typing import Any

from steptax.benchmarks.product.collector_node import JOB, Plan
from steptax.connectors.recorder import StepRecorder
from steptax.connectors.recorder.batch import Piece
from steptax.connectors.recorder.rows import Columns
from steptax.connectors.recorder.segments import encode_segment, replace_file, segment_name
from steptax.connectors.recorder.shipper import EARLY_RATIO, LOOK_S
from steptax.connectors.recorder.spool import Spool

#: Share of a step that a rank works, and how much longer the slow one does.
WORK_RATIO, SLOW_RATIO, NOISE_RATIO = 0.80, 0.12, 0.01
SLOW_RANK = 19
#: Recorders look for a step that ended at moments of their own: so many of them in LOOK_S.
PHASES = 5
BEAT_S = 2.0


class Simulated(threading.Thread):
    """The ranks of a node other than its first."""

    def __init__(self, plan: Plan, ranks: range, spool: Spool, begin_ns: int) -> None:
        super().__init__(daemon=True)
        self._plan = plan
        self._ranks = ranks
        self._spool = spool
        self._begin_ns = begin_ns
        self._first = dict.fromkeys(ranks, 0)
        """By rank: the step that it writes next."""
        self._beat_s = 0.0

    def run(self) -> None:
        """Flush each rank as its recorder would, at the end of steps, until all are written."""
        plan, tick = self._plan, 0
        steps_between = math.ceil(EARLY_RATIO * plan.flush_s / plan.step_s)
        for rank in self._ranks:
            self._put("ranks", rank, {"host": [f"node-{self._ranks.start}"]}, 1)
        while min(self._first.values()) < plan.steps:
            ends_s = (tick // PHASES + 1) * steps_between * plan.step_s
            due_s = ends_s + (tick % PHASES + 0.5) / PHASES * LOOK_S
            time.sleep(max(0.0, due_s - (time.time_ns() - self._begin_ns) / 1e9))
            ended = int((time.time_ns() - self._begin_ns) / 1e9 / plan.step_s)
            for rank in self._ranks[tick % PHASES :: PHASES]:
                self._flush(rank, min(ended, plan.steps))
            tick += 1
            if time.monotonic() - self._beat_s > BEAT_S:
                self._beat(ended, "running")
        self._beat(plan.steps, "closed")

    def _flush(self, rank: int, ended: int) -> None:
        steps = range(self._first[rank], ended)
        if not steps:
            return
        step_us = int(self._plan.step_s * 1e6)
        work_us = [
            int(step_us * (WORK_RATIO + (rank == SLOW_RANK) * SLOW_RATIO))
            + int(random.gauss(0.0, NOISE_RATIO * step_us))
            for _ in steps
        ]
        columns = {
            "attempt": [0] * len(steps),
            "step": list(steps),
            "start_us": [self._begin_ns // 1000 + step * step_us for step in steps],
            "duration_us": [step_us] * len(steps),
            "compute_us": [min(work, step_us) for work in work_us],
            "comm_us": [max(0, step_us - work) for work in work_us],
            "tokens": [4096] * len(steps),
        }
        self._put("steps", rank, columns, len(steps))
        self._first[rank] = ended

    def _put(self, table: str, rank: int, columns: Columns, rows: int) -> None:
        now_us = time.time_ns() // 1000
        same = {"job_id": JOB, "rank": rank, "source": "recorder", "ingested_at_us": now_us}
        whole = {name: [value] * rows for name, value in same.items()} | dict(columns)
        data, suffix = encode_segment(table, whole, rows, None)
        name, first, last = segment_name(table, whole, rows, now_us, suffix)
        self._spool.put(Piece(table, JOB, rank, 0, name, rows, first, last, len(data)), data)

    def _beat(self, step: int, state: str) -> None:
        self._beat_s = time.monotonic()
        now_us = time.time_ns() // 1000
        said = {"attempt": 0, "step": step, "ts_us": now_us, "state": state, "rows_dropped": 0}
        for rank in self._ranks:
            beat = {"rank": rank, "rows_written": self._first[rank], **said}
            replace_file(*self._spool.beat_path(JOB, rank), json.dumps(beat).encode())


def run_node(plan: Plan, place: int, url: str, spool: str) -> dict[str, Any]:
    """Run the ranks of one node to their end, and send all that they wrote."""
    ranks = range(place, plan.ranks, plan.nodes)
    recorder = StepRecorder(url, JOB, ranks[0], plan.ranks, flush_s=plan.flush_s, spool=spool)
    recorder.start()
    begin_ns = time.time_ns()
    others = Simulated(plan, ranks[1:], Spool(spool), begin_ns)
    others.start()
    for step in range(plan.steps):
        end_s = begin_ns / 1e9 + (step + 1) * plan.step_s
        with recorder.step(step):
            with recorder.phase("compute"):
                time.sleep(max(0.0, end_s - (1 - WORK_RATIO) * plan.step_s - time.time()))
            with recorder.collective():
                time.sleep(max(0.0, end_s - time.time()))
            recorder.tokens(4096, 4096)
    others.join()
    recorder.close()
    stats = recorder.stats
    return {
        "rows_dropped": stats["rows_dropped"],
        "rows_lost": stats["rows_lost"] or 0,
        "bytes_sent": stats["bytes_sent"] or 0,
        "last_error": stats["last_error"],
    }


if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    print(json.dumps(run_node(Plan(**arguments.pop("plan")), **arguments)))
