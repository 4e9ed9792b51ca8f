"""A job of many ranks on a live page, for an hour: how late it is there, and what it takes.

    python -m steptax.benchmarks.product.live_hour [--ranks 1024] [--seconds 3600] [--step-s 1]

The first rank of each node is a real recorder, which sends for the node; the others write what
recorders write into its spool (live_node.py). A real ``steptax collect`` stores what comes and
merges small segments; a real page server shows the job to ``--viewers`` websockets that ask anew as
often as the page tells them, from before the first step on: a page that finds no job yet looks for
it by itself. Of every step is measured, from the moment at which its last rank ended it:

* *readable*: a reader that asks the page's own query four times a second finds the rows of all
  ranks;
* *on the page*: an answer of the page has arrived that tells this step, or a later one, as the
  newest that all ranks have reported, with its time, waiting and last rank. So the wait for the
  next refresh and the making of the answer are in it;
* *in all figures*: sentence, card and figures, which are worked out less often, rest on a window up
  to the step; only answers count that were asked for after it was readable.

Prints both with p50, p95 and maximum, the memory of page server and collector (after the first
quarter, at the end, the slope between), processor seconds of each, the segments that are live, and
rows lost or doubled. A shorter ``--step-s`` compresses time. All of it runs on one machine, the
ranks too: what they take of it is told. The files of all nodes would meet on one disk then, which
they don't where each node has its own: so the spools are in memory (``--spools`` puts them
elsewhere), the lake on the disk.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from steptax.app.lake import Lake
from steptax.app.queries import DuckEngine
from steptax.app.serve import free_port, server_command, wait_until_healthy
from steptax.benchmarks.product.collector import (
    CollectorProcess,
    end_nodes,
    start_node,
    wait_for_nodes,
)
from steptax.benchmarks.product.collector_node import JOB, Plan
from steptax.benchmarks.product.live_tab import Seen, open_once, view
from steptax.benchmarks.product.process import cpu_s, resident_mib

READ_S = 0.25
WEIGH_S = 10.0
_MEMORY = "/dev/shm"
#: Seconds of a run from which on its delays and its memory tell.
TELLING_S = 3_000.0
#: Of all steps, that are on the page within 3 s.
ON_TIME_RATIO = 0.99
ON_TIME_S = 3.0
#: Most that memory may grow by in an hour, of what is held after the first quarter.
GROWTH_RATIO = 0.15
LIMIT = f"every row once; {ON_TIME_RATIO:.0%} on the page within {ON_TIME_S:g} s, memory flat"


@dataclass(frozen=True)
class Outcome:
    """What came of it. ``None``: nothing of the kind was seen."""

    wall_s: float
    steps: int
    rows_expected: int
    rows_found: int
    rows_distinct: int
    readable_p50_s: float | None
    readable_p95_s: float | None
    readable_max_s: float | None
    first_answer_s: float | None
    steps_on_page: int
    page_p50_s: float | None
    page_p95_s: float | None
    page_max_s: float | None
    within_3_s_ratio: float | None
    late_steps: tuple[tuple[int, float], ...]
    """Of those that took longer than 3 s, the first twenty: the step, and the seconds."""
    figures_p50_s: float | None
    figures_p95_s: float | None
    answers: int
    answer_p50_s: float | None
    answer_p95_s: float | None
    page_errors: tuple[str, ...]
    server_quarter_mib: float | None
    server_end_mib: float | None
    server_on_the_way_mib: tuple[int, ...]
    """Some twenty readings from begin to end."""
    server_slope_mib_per_h: float | None
    collector_quarter_mib: float | None
    collector_end_mib: float | None
    collector_slope_mib_per_h: float | None
    segments_max: int
    segments_end: int
    server_cpu_s: float
    collector_cpu_s: float
    nodes_cpu_s: float
    load_5_min: float

    @property
    def is_complete(self) -> bool:
        """Whether every row arrived once, and no page showed an error."""
        whole = self.rows_found == self.rows_distinct == self.rows_expected
        return whole and not self.page_errors

    @property
    def missed(self) -> list[str]:
        """Limits that were missed, in words; a shorter run is judged by its rows alone."""
        found = [] if self.is_complete else ["not every row or page was well"]
        if self.wall_s < TELLING_S:
            return found
        if self.within_3_s_ratio is None or self.within_3_s_ratio < ON_TIME_RATIO:
            found.append("steps came late to the page")
        for who in ("server", "collector"):
            slope = getattr(self, f"{who}_slope_mib_per_h")
            if slope is None or slope > GROWTH_RATIO * getattr(self, f"{who}_quarter_mib"):
                found.append(f"the memory of the {who} grew")
        return found


class Reader(threading.Thread):
    """Asks the query that the page asks, for the steps that were not whole yet."""

    def __init__(self, lake: Path, plan: Plan, seen: Seen) -> None:
        super().__init__(daemon=True)
        self._engine = DuckEngine(Lake(lake))
        self._plan = plan
        self._seen = seen
        self._over = threading.Event()

    def stop(self) -> None:
        """End it."""
        self._over.set()
        self.join()

    def run(self) -> None:
        """The thread."""
        next_step = 0
        while not self._over.wait(READ_S):
            rows = self._engine.run(
                "step_rows", job_id=JOB, first_step=next_step, last_step=next_step + 120
            )
            now_s = time.time()
            ends = pc.add(rows["start_us"], rows["duration_us"])
            found = rows.select(["step"]).append_column("end_us", ends)
            sums = found.group_by("step").aggregate([("end_us", "count"), ("end_us", "max")])
            for one in sums.sort_by("step").to_pylist():
                if one["end_us_count"] == self._plan.ranks:
                    self._seen.readable.setdefault(one["step"], now_s)
                    self._seen.ended.setdefault(one["step"], one["end_us_max"] / 1e6)
            while next_step in self._seen.readable:
                next_step += 1


def run(plan: Plan, viewers: int, folder: Path, spools: Path) -> Outcome:
    """Run it in ``folder``, which is empty, with the spools of the nodes in ``spools``."""
    lake, token = folder / "lake", folder / "token"
    token.touch(0o600)
    token.write_text(secrets.token_hex(16))
    collector = CollectorProcess(lake, token)
    collector.start()
    port = free_port(8950)
    environment = {**os.environ, "STEPTAX_TOKEN": token.read_text(), "STEPTAX_LAKE": str(lake)}
    environment["STEPTAX_PRICE_USD_PER_GPU_HOUR"] = "2"
    command = server_command("127.0.0.1", port)
    server = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    seen = Seen()
    reader = Reader(lake, plan, seen)
    nodes: list[subprocess.Popen[str]] = []
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until_healthy(url, server)
        # A server begins once, and what that takes is measured elsewhere (start.py): the job
        # begins on one that has been asked.
        seen.first_answer_s = asyncio.run(open_once(url))
        begin_s = time.monotonic()
        for place in range(plan.nodes):
            nodes.append(start_node(plan, place, collector.url, spools, environment, "live_node"))
        reader.start()
        until_s = begin_s + plan.steps * plan.step_s
        viewing = threading.Thread(target=view, args=(url, viewers, until_s, seen), daemon=True)
        viewing.start()
        while time.monotonic() < until_s:
            time.sleep(min(WEIGH_S, plan.steps * plan.step_s / 20))
            seen.server_mib.append(resident_mib(server.pid))
            seen.collector_mib.append(resident_mib(collector.pid))
            seen.segments.append(len(Lake(lake).segments("steps", JOB)))
        _, nodes_cpu_s, _ = wait_for_nodes(nodes)
        viewing.join(60)
        wall_s = time.monotonic() - begin_s
        time.sleep(2 * READ_S)
        server_cpu_s = cpu_s(server.pid)
    finally:
        end_nodes(nodes)
        reader.stop()
        server.terminate()
        server.wait(timeout=20)
        collector.end(signal.SIGTERM)
    return _outcome(plan, seen, lake, wall_s, (server_cpu_s, collector.cpu_s, nodes_cpu_s))


def _outcome(
    plan: Plan, seen: Seen, lake: Path, wall_s: float, cpu: tuple[float, float, float]
) -> Outcome:
    found = Lake(lake).read("steps", JOB).select(["rank", "step"])
    keys = found["rank"].to_numpy().astype(np.int64) << 32 | found["step"].to_numpy()
    readable = [at_s - seen.ended[step] for step, at_s in seen.readable.items()]
    by_step = {step: at_s - seen.ended[step] for step, at_s in seen.on_page().items()}
    on_page = list(by_step.values())
    late = [
        (step, round(delay_s, 2))
        for step, delay_s in sorted(by_step.items())
        if delay_s > ON_TIME_S
    ]
    figures = [at_s - seen.ended[step] for step, at_s in seen.in_figures().items()]
    hours = wall_s / 3600
    server, collector = _trend(seen.server_mib, hours), _trend(seen.collector_mib, hours)
    return Outcome(
        wall_s=wall_s,
        steps=plan.steps,
        rows_expected=plan.ranks * plan.steps,
        rows_found=found.num_rows,
        rows_distinct=len(np.unique(keys)),
        readable_p50_s=_percentile(readable, 50),
        readable_p95_s=_percentile(readable, 95),
        readable_max_s=_percentile(readable, 100),
        first_answer_s=seen.first_answer_s,
        steps_on_page=len(on_page),
        page_p50_s=_percentile(on_page, 50),
        page_p95_s=_percentile(on_page, 95),
        page_max_s=_percentile(on_page, 100),
        within_3_s_ratio=float(np.mean(np.array(on_page) <= ON_TIME_S)) if on_page else None,
        late_steps=tuple(late[:20]),
        figures_p50_s=_percentile(figures, 50),
        figures_p95_s=_percentile(figures, 95),
        answers=len(seen.took_s),
        answer_p50_s=_percentile(seen.took_s, 50),
        answer_p95_s=_percentile(seen.took_s, 95),
        page_errors=tuple(seen.errors[:5]),
        server_quarter_mib=server[0],
        server_end_mib=server[1],
        server_on_the_way_mib=tuple(
            map(round, seen.server_mib[:: max(1, len(seen.server_mib) // 20)])
        ),
        server_slope_mib_per_h=server[2],
        collector_quarter_mib=collector[0],
        collector_end_mib=collector[1],
        collector_slope_mib_per_h=collector[2],
        segments_max=max(seen.segments, default=0),
        segments_end=seen.segments[-1] if seen.segments else 0,
        server_cpu_s=cpu[0],
        collector_cpu_s=cpu[1],
        nodes_cpu_s=cpu[2],
        load_5_min=os.getloadavg()[1],
    )


def _percentile(values: list[float], share: float) -> float | None:
    return float(np.percentile(values, share)) if values else None


def _trend(mib: list[float], hours: float) -> tuple[float | None, float | None, float | None]:
    """After the first quarter, at the end, and the slope between in MiB an hour."""
    later = mib[len(mib) // 4 :]
    if len(later) < 3:
        return None, None, None
    slope = np.polyfit(np.linspace(0, 0.75 * hours, len(later)), later, 1)[0]
    return later[0], later[-1], float(slope)


def main(arguments: list[str] | None = None) -> int:
    """Print the result; exit code 1 where it misses a limit."""
    parser = argparse.ArgumentParser(prog="steptax.benchmarks.product.live_hour")
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--nodes", type=int, default=8, help="processes that hold the ranks")
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--step-s", type=float, default=1.0, help="seconds of a step")
    parser.add_argument("--flush-s", type=float, default=1.0, help="of the recorders")
    parser.add_argument("--viewers", type=int, default=1, help="browser tabs on the job")
    parser.add_argument(
        "--spools", help="folder for the spools of the nodes (default: in memory where it can be)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    asked = parser.parse_args(arguments)
    steps = round(asked.seconds / asked.step_s)
    if not 1 <= asked.nodes <= asked.ranks or steps < 1:
        parser.error("expected 1 <= --nodes <= --ranks, and at least one step")
    plan = Plan(asked.ranks, asked.nodes, steps, asked.step_s, asked.flush_s, 0, 0.0)
    within = asked.spools or (_MEMORY if os.path.isdir(_MEMORY) else None)
    with (
        tempfile.TemporaryDirectory(prefix="steptax-live-") as folder,
        tempfile.TemporaryDirectory(prefix="steptax-spools-", dir=within) as spools,
    ):
        outcome = run(plan, asked.viewers, Path(folder), Path(spools))
    if asked.json:
        data = {"plan": asdict(plan), "viewers": asked.viewers, **asdict(outcome)}
        print(json.dumps({"ok": not outcome.missed, "data": data, "warnings": outcome.missed}))
    else:
        print(f"{plan.ranks} ranks, a step each {plan.step_s:g} s, {asked.viewers} on the page")
        for name, value in asdict(outcome).items():
            is_real = isinstance(value, float)
            print(f"{name:<27}{value:>14,.3f}" if is_real else f"{name:<27}{value!s:>14}")
        print("; ".join(outcome.missed) or "all limits were kept")
    return 0 if not outcome.missed else 1


if __name__ == "__main__":
    sys.exit(main())
