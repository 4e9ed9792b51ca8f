"""Many ranks into one collector that is killed: ``python -m steptax.benchmarks.product.collector``.

Each node is a process with its share of the ranks; every rank is a real recorder, which writes into
the node's spool, and one of them sends for all. The collector is a real ``steptax collect``, killed
without warning ``--kills`` times and started again after ``--outage-s`` seconds. In the end every
row must be in the lake once. Step and flush times can be shortened to compress the time.

The latency of a row is from the end of its step to the moment at which a reader that lists the lake
ten times a second sees its segment; *steady* leaves out the outages. Its two parts are given as
well: *stored* is until the segment is in the lake, which is the recorder's, the network's and the
collector's, and *looked* from there until that reader, here in Python, has seen it. Processor time
of the nodes is that of the recorders and of the senders; that of the sending threads is given
too.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow.parquet as pq

from steptax.app.lake import Lake
from steptax.app.lake.segments import job_folder
from steptax.benchmarks.product.collector_node import JOB, Plan

LOOK_S = 0.1
#: Rows of steps that ended so long before an outage, or after it, say nothing of the steady state:
#: they wait for it to end, and for the senders to try again.
BEFORE_S, AFTER_S = 5.0, 15.0

Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Outcome:
    """What came of it. Latencies are None when no segment was seen while it was live."""

    wall_s: float
    rows_expected: int
    rows_found: int
    rows_distinct: int
    rows_per_s: float
    kills: int
    segments_written: int
    latency_p50_s: float | None
    latency_p95_s: float | None
    latency_max_s: float | None
    steady_p50_s: float | None
    steady_p95_s: float | None
    stored_p50_s: float | None
    """From the end of a step until its segment is in the lake, outages included."""
    stored_p95_s: float | None
    looked_p50_s: float | None
    """From there until the reader has seen it."""
    looked_p95_s: float | None
    collector_cpu_s: float
    collector_peak_mib: float
    nodes_cpu_s: float
    sending_cpu_s: float
    node_peak_mib: float
    rows_dropped: int
    bytes_sent: int

    @property
    def is_complete(self) -> bool:
        """True when every row arrived once."""
        return self.rows_found == self.rows_distinct == self.rows_expected


# -- the collector --------------------------------------------------------------------------------


class CollectorProcess:
    """A ``steptax collect`` that can be killed and started again; sums up what it used."""

    def __init__(self, lake: Path, token: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self._command = [sys.executable, "-m", "steptax.app.cli", "collect", "--lake", str(lake)]
        self._command += ["--port", str(self.port), "--token-file", str(token), "--json"]
        self.cpu_s = 0.0
        self.peak_mib = 0.0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Its process while it runs."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it and wait until it answers."""
        # In a session of its own: Ctrl-C is for the benchmark, which ends it and takes its figures.
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.DEVNULL, start_new_session=True
        )
        while True:
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=5):
                    return
            except OSError:
                if self._process.poll() is not None:
                    raise RuntimeError("the collector did not start") from None
                time.sleep(0.05)

    def end(self, how: signal.Signals) -> None:
        """Send it a signal and wait for its end."""
        assert self._process is not None
        self._process.send_signal(how)
        _, status, used = os.wait4(self._process.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        self.cpu_s += used.ru_utime + used.ru_stime
        self.peak_mib = max(self.peak_mib, used.ru_maxrss / 1024)


class Watch(threading.Thread):
    """Notes when each segment of ``steps`` is seen first."""

    def __init__(self, lake: Path) -> None:
        super().__init__(daemon=True)
        self._folder = lake / "tables" / "steps" / job_folder(JOB)
        self._seen: set[str] = set()
        self._done = threading.Event()
        self.found: list[tuple[Floats, Floats, Floats]] = []
        """Of the rows of each segment: when its step ended, how long it took to be seen, and how
        long of that to be in the lake."""

    @property
    def segments(self) -> int:
        """Live segments that have been seen."""
        return len(self._seen)

    def close(self) -> None:
        """Stop looking."""
        self._done.set()
        self.join()

    def run(self) -> None:
        """The thread."""
        while not self._done.wait(LOOK_S):
            try:
                names = {name for name in os.listdir(self._folder) if name.startswith("live-")}
            except FileNotFoundError:
                continue
            now_us = time.time_ns() // 1000
            for name in names - self._seen:
                # A segment is in the lake when it has got its name, which its folder's files say.
                there_us = min(now_us, (self._folder / name).stat().st_ctime_ns // 1000)
                rows = pq.read_table(self._folder / name, columns=["start_us", "duration_us"])
                ends = rows["start_us"].to_numpy() + rows["duration_us"].to_numpy()
                self.found.append((ends / 1e6, (now_us - ends) / 1e6, (there_us - ends) / 1e6))
            self._seen |= names


def run(plan: Plan, folder: Path) -> Outcome:
    """Run it in ``folder``, which is empty."""
    lake, token = folder / "lake", folder / "token"
    token.touch(0o600)
    token.write_text(secrets.token_hex(16))
    collector = CollectorProcess(lake, token)
    collector.start()
    watch = Watch(lake)
    watch.start()
    environment = {**os.environ, "STEPTAX_TOKEN": token.read_text()}
    begin_s = time.monotonic()
    nodes: list[subprocess.Popen[str]] = []
    try:
        for place in range(plan.nodes):
            nodes.append(start_node(plan, place, collector.url, folder, environment))
        length_s = plan.steps * plan.step_s
        outages: list[tuple[float, float]] = []
        for kill in range(plan.kills):
            time.sleep(
                max(0.0, begin_s + length_s * (kill + 1) / (plan.kills + 1) - time.monotonic())
            )
            killed_s = time.time()
            collector.end(signal.SIGKILL)
            time.sleep(plan.outage_s)
            collector.start()
            outages.append((killed_s - BEFORE_S, time.time() + AFTER_S))
        said, cpu_s, peak_mib = wait_for_nodes(nodes)
    finally:
        end_nodes(nodes)
    _send_what_waits(plan, collector.url, folder, environment)
    wall_s = time.monotonic() - begin_s
    collector.end(signal.SIGTERM)
    watch.close()
    found = Lake(lake).read("steps", JOB).select(["rank", "step"])
    keys = found["rank"].to_numpy().astype(np.int64) << 32 | found["step"].to_numpy()
    ends_s, latencies_s, stored_s = (
        np.concatenate([one[side] for one in watch.found]) if watch.found else np.empty(0)
        for side in (0, 1, 2)
    )
    looked_s = latencies_s - stored_s
    is_steady = np.ones(len(ends_s), bool)
    for from_s, to_s in outages:
        is_steady &= (ends_s < from_s) | (ends_s > to_s)
    return Outcome(
        wall_s=wall_s,
        rows_expected=plan.ranks * plan.steps,
        rows_found=found.num_rows,
        rows_distinct=len(np.unique(keys)),
        rows_per_s=found.num_rows / wall_s,
        kills=plan.kills,
        segments_written=watch.segments,
        latency_p50_s=_percentile(latencies_s, 50),
        latency_p95_s=_percentile(latencies_s, 95),
        latency_max_s=_percentile(latencies_s, 100),
        steady_p50_s=_percentile(latencies_s[is_steady], 50),
        steady_p95_s=_percentile(latencies_s[is_steady], 95),
        stored_p50_s=_percentile(stored_s, 50),
        stored_p95_s=_percentile(stored_s, 95),
        looked_p50_s=_percentile(looked_s, 50),
        looked_p95_s=_percentile(looked_s, 95),
        collector_cpu_s=collector.cpu_s,
        collector_peak_mib=collector.peak_mib,
        nodes_cpu_s=cpu_s,
        sending_cpu_s=sum(s["sender_cpu_s"] for s in said),
        node_peak_mib=peak_mib,
        rows_dropped=sum(s["rows_dropped"] + s["rows_lost"] for s in said),
        bytes_sent=sum(s["bytes_sent"] for s in said),
    )


def _percentile(values: Floats, share: float) -> float | None:
    return float(np.percentile(values, share)) if len(values) else None


def _send_what_waits(plan: Plan, url: str, folder: Path, environment: dict[str, str]) -> None:
    """What a job does not get rid of before it ends, `steptax forward` sends: a slow start of the
    collector, longer than a job waits at its end, is no loss."""
    for place in range(plan.nodes):
        spool = folder / f"spool-{place}"
        if spool.exists():
            command = [sys.executable, "-m", "steptax.app.cli", "forward", url, "--once"]
            subprocess.run(
                [*command, "--spool", str(spool), "--json"],
                env=environment,
                check=False,
                stdout=subprocess.DEVNULL,
            )


def start_node(
    plan: Plan,
    place: int,
    url: str,
    folder: Path,
    environment: dict[str, str],
    module: str = "collector_node",
) -> subprocess.Popen[str]:
    """A process with the ranks of the node at ``place``, which sends to ``url``."""
    spool = str(folder / f"spool-{place}")
    arguments = {"plan": asdict(plan), "place": place, "url": url, "spool": spool}
    return subprocess.Popen(
        [sys.executable, "-m", f"steptax.benchmarks.product.{module}", json.dumps(arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )


def end_nodes(nodes: Sequence[subprocess.Popen[str]]) -> None:
    """Stop those that are still at work: a recorder takes no Ctrl-C for the end of its job."""
    for process in nodes:
        if process.poll() is None:
            process.kill()
            process.wait()


def wait_for_nodes(nodes: list[subprocess.Popen[str]]) -> tuple[list[dict[str, Any]], float, float]:
    """What each node says, processor seconds of all, and the largest peak of one in MiB."""
    said, cpu_s, peak_mib = [], 0.0, 0.0
    for process in nodes:
        stream: IO[str] | None = process.stdout
        assert stream is not None
        said.append(json.loads(stream.read()))
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        stream.close()
        cpu_s += used.ru_utime + used.ru_stime
        peak_mib = max(peak_mib, used.ru_maxrss / 1024)
    return said, cpu_s, peak_mib


def main(arguments: list[str] | None = None) -> int:
    """Print the result; exit code 1 unless every row arrived once."""
    parser = argparse.ArgumentParser(prog="steptax.benchmarks.product.collector")
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--nodes", type=int, default=16, help="senders")
    parser.add_argument("--steps", type=int, default=100, help="of each rank")
    parser.add_argument("--step-s", type=float, default=1.0, help="seconds of a step")
    parser.add_argument("--flush-s", type=float, default=1.0, help="of the recorders")
    parser.add_argument("--kills", type=int, default=2, help="times that the collector is killed")
    parser.add_argument("--outage-s", type=float, default=5.0, help="until it is started again")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    plan = Plan(
        options.ranks,
        options.nodes,
        options.steps,
        options.step_s,
        options.flush_s,
        options.kills,
        options.outage_s,
    )
    if not 1 <= plan.nodes <= plan.ranks or plan.steps < 1 or plan.step_s <= 0 or plan.kills < 0:
        parser.error("expected 1 <= --nodes <= --ranks, and positive numbers")
    with tempfile.TemporaryDirectory() as folder:
        outcome = run(plan, Path(folder))
    if options.json:
        data = {"plan": asdict(plan), **asdict(outcome)}
        print(json.dumps({"ok": outcome.is_complete, "data": data, "warnings": []}))
    else:
        print(f"{plan.ranks} ranks, {plan.nodes} senders, {plan.steps} steps of {plan.step_s} s")
        for name, value in asdict(outcome).items():
            print(
                f"{name:<22}{value:>14,.3f}"
                if isinstance(value, float)
                else f"{name:<22}{value!s:>14}"
            )
        print("every row arrived once" if outcome.is_complete else "ROWS ARE MISSING OR DOUBLED")
    return 0 if outcome.is_complete else 1


if __name__ == "__main__":
    sys.exit(main())
