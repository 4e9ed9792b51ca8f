"""How fast profiler traces are read, and in how much memory.

    python -m steptax.benchmarks.product.kineto [--mib 200] [--peer PYTHON]

The traces are made up: a data-parallel job on devices is played forward event by event, and written
as Kineto writes it. Kernels run one after the other on a compute stream, as soon as the host has
launched them; the gradients of each layer are reduced on a stream of their own once its backward
kernels have ended, and the optimiser waits for all of them. What a change of the job would do is
known by playing it again.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from steptax.benchmarks.product import flags
from steptax.benchmarks.product.kineto_peer import RefusedError, duel

#: One moment of all made-up jobs, since 1970.
BASE_NS = 1_790_000_000_000_000_000
FORWARD = "ampere_bf16_s16816gemm_bf16_128x128_fwd"
BACKWARD = "ampere_bf16_s16816gemm_bf16_128x128_bwd"
NORM = "void layer_norm_kernel<c10::BFloat16>"
OPTIMISER = "multi_tensor_apply_kernel<adam>"
REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


@dataclass(frozen=True)
class Job:
    """A job to play. Times in microseconds; ``slow`` multiplies a rank's kernels by a factor."""

    ranks: int = 4
    steps: int = 4
    layers: int = 6
    forward_us: float = 900.0
    backward_us: float = 1800.0
    norm_us: float = 150.0
    optimiser_us: float = 700.0
    transfer_us: float = 1200.0
    launch_us: float = 6.0
    jitter: float = 0.01
    slow: dict[int, float] = field(default_factory=dict)
    clock_us: dict[int, float] = field(default_factory=dict)
    """By how much a rank's clock is ahead."""
    cpu_ops: int = 2
    """Host operations that are written for each kernel."""
    seed: int = 0


@dataclass(frozen=True)
class Event:
    """One event: ``lane`` is its stream or thread."""

    category: str
    name: str
    start_us: float
    duration_us: float
    lane: int
    args: dict[str, Any] = field(default_factory=dict)


@dataclass
class Played:
    """Events of each rank, and the length of each step in microseconds, mean over ranks."""

    events: list[list[Event]]
    step_us: list[float]


class _Rank:
    """What one rank is at: its host, its compute stream, its communication stream."""

    def __init__(self, job: Job, rank: int) -> None:
        self.job, self.rank = job, rank
        self.host = self.device = self.comm = 40.0 * rank
        self.events: list[Event] = []
        self.correlation = 0
        self.dice = random.Random(job.seed * 1000 + rank)

    def launch(self) -> tuple[float, int]:
        """The host launches something; when, and under which number."""
        self.correlation += 1
        at = self.host
        self.events += [
            Event("cpu_op", "aten::mm", at + i * 0.1, self.job.launch_us - i * 0.2, 1)
            for i in range(self.job.cpu_ops)
        ]
        self.host += self.job.launch_us
        number = {"correlation": self.correlation}
        self.events.append(Event("cuda_runtime", "cudaLaunchKernel", at + 1, 3.0, 1, number))
        return at + 4, self.correlation

    def kernel(self, name: str, duration_us: float, after: float = 0.0) -> None:
        """Compute something once the stream is free."""
        launched, number = self.launch()
        scale = self.job.slow.get(self.rank, 1.0) * self.dice.gauss(1.0, self.job.jitter)
        start = max(launched, self.device + 1.0, after)
        duration = max(1.0, duration_us * scale)
        args = {"stream": 7, "device": self.rank % 8, "correlation": number}
        self.events.append(Event("kernel", name, start, duration, 7, args))
        self.device = start + duration


def play(job: Job) -> Played:
    """Play ``job`` forward."""
    ranks = [_Rank(job, r) for r in range(job.ranks)]
    lengths = []
    for step in range(job.steps):
        begins = [rank.host for rank in ranks]
        ready = [_compute(rank, job) for rank in ranks]
        for bucket in range(job.layers):
            starts = [max(ready[r][bucket][0], rank.comm + 1.0) for r, rank in enumerate(ranks)]
            meet = max(starts)
            for r, rank in enumerate(ranks):
                end = meet + job.transfer_us
                args = {
                    "stream": 20,
                    "device": r % 8,
                    "correlation": ready[r][bucket][1],
                    "Collective name": "allreduce",
                    "dtype": "BFloat16",
                    "In msg nelems": 8_000_000,
                    "Out msg nelems": 8_000_000,
                    "Group size": job.ranks,
                    "Process Group Name": "0",
                    "Process Group Description": "default_pg",
                }
                rank.events.append(Event("kernel", REDUCE, starts[r], end - starts[r], 20, args))
                rank.comm = end
        for r, rank in enumerate(ranks):
            for _ in range(4):
                rank.kernel(OPTIMISER, job.optimiser_us / 4, after=rank.comm + 1.0)
            # The loss is read: the host waits for the device.
            rank.host = rank.device + 15.0
            name = f"ProfilerStep#{step + 10}"
            rank.events.append(Event("user_annotation", name, begins[r], rank.host - begins[r], 1))
        lengths.append(sum(k.host - b for k, b in zip(ranks, begins, strict=True)) / job.ranks)
    return Played([rank.events for rank in ranks], lengths)


def _compute(rank: _Rank, job: Job) -> list[tuple[float, int]]:
    """Forward and backward; when each bucket of gradients could be reduced, and its number."""
    for _ in range(job.layers):
        rank.kernel(FORWARD, job.forward_us)
        rank.kernel(NORM, job.norm_us)
    ready = []
    for _ in range(job.layers):
        rank.kernel(BACKWARD, job.backward_us)
        rank.kernel(NORM, job.norm_us)
        launched, number = rank.launch()
        ready.append((max(launched, rank.device + 1.0), number))
    return ready


def lines(job: Job, rank: int, events: list[Event], rounds: int = 1) -> Iterator[str]:
    """The text of a rank's file; its events come ``rounds`` times, one time after the other."""
    info = {
        "backend": "nccl",
        "rank": rank,
        "world_size": job.ranks,
        "pg_count": 1,
        "pg_config": [
            {
                "pg_name": "0",
                "pg_desc": "default_pg",
                "pg_size": job.ranks,
                "ranks": list(range(job.ranks)),
            }
        ],
    }
    yield '{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-80GB"}],\n'
    yield f'"distributedInfo": {json.dumps(info)}, "displayTimeUnit": "ms",\n'
    yield f'"baseTimeNanoseconds": {BASE_NS}, "traceEvents": [\n'
    shift = job.clock_us.get(rank, 0.0)
    length = max((e.start_us + e.duration_us for e in events), default=0.0) + 100.0
    number = 0
    for again in range(rounds):
        for event in events if again == 0 else _later(job, events, again):
            body = {
                "ph": "X",
                "cat": event.category,
                "name": event.name,
                "pid": 0,
                "tid": event.lane,
                "ts": round(event.start_us + shift + again * length, 3),
                "dur": round(event.duration_us, 3),
                "args": {"External id": number, **event.args},
            }
            number += 1
            yield json.dumps(body) + (",\n" if number < rounds * len(events) else "\n")
    yield '], "traceName": "made up"}\n'


def _later(job: Job, events: list[Event], again: int) -> Iterator[Event]:
    """The events once more, as later steps and other launches."""
    for event in events:
        args, name = event.args, event.name
        if "correlation" in args:
            args = args | {"correlation": args["correlation"] + again * len(events)}
        if name.startswith("ProfilerStep#"):
            name = f"ProfilerStep#{int(name[13:]) + again * job.steps}"
        yield replace(event, args=args, name=name)


def write(job: Job, folder: Path) -> tuple[list[Path], Played]:
    """One file for each rank of ``job`` in ``folder``, and what was played."""
    played = play(job)
    paths = []
    for rank, events in enumerate(played.events):
        path = folder / f"rank{rank}.json"
        with path.open("w") as target:
            target.writelines(lines(job, rank, events))
        paths.append(path)
    return paths, played


#: Runs in its own process, so that its peak is its own.
PROGRAM = """
import json, re, sys, time
from pathlib import Path
from steptax.connectors.base import Options
from steptax.connectors.registry import connector
import numpy, orjson, pandas, pyarrow.compute
def peak():
    text = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\\s+(\\d+)", text)[1])
Path("/proc/self/clear_refs").write_text("5")  # The peak counts from here on.
before = peak()
begin = time.process_time()
rows = {}
for batch in connector("kineto").read(Path(sys.argv[1]), Options()):
    rows[batch.table] = rows.get(batch.table, 0) + batch.rows.num_rows
print(json.dumps({
    "seconds": time.process_time() - begin, "rows": rows,
    "grew_mib": (peak() - before) / 1024,
}))
"""


def measure(path: Path) -> dict[str, Any]:
    """Read ``path`` in a process of its own: processor seconds, growth of memory (Linux)."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path)], capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    size = path.stat().st_size
    return found | {"mib": size / 2**20, "mib_per_s": size / 2**20 / found["seconds"]}


#: Steps of a made-up trace that are played; longer traces repeat them.
_PLAYED = 100


def large(mib: float, folder: Path, *, steps: int = _PLAYED, name: str = "long") -> Path:
    """A trace of one rank of about ``mib`` or more.

    Its short steps come in rounds of ``_PLAYED``; fewer ``steps`` are as long as needed.
    """
    [one], _ = write(Job(ranks=1, steps=1, cpu_ops=8), folder)
    needed = max(1, math.ceil(mib * 2**20 / one.stat().st_size))
    layers = Job().layers
    if steps < _PLAYED:
        layers, rounds = math.ceil(needed * layers / steps), 1
    else:
        rounds = math.ceil(needed / steps)
    job = Job(ranks=1, steps=steps, layers=layers, cpu_ops=8)
    path = folder / f"{name}.json"
    with path.open("w") as target:
        target.writelines(lines(job, 0, play(job).events[0], rounds))
    return path


def main() -> int:
    """Print size, speed and memory, and the same of a peer where one is named.

    Exit code 1 where that one does not read a trace, or finds something else in it.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=flags.amount, default=200.0, help="size of the made-up trace")
    parser.add_argument("traces", nargs="*", type=flags.file, help="traces to compare on, besides")
    parser.add_argument(
        "--peer",
        type=flags.file,
        metavar="PYTHON",
        help="an interpreter that has HolisticTraceAnalysis (its 0.5.0 fails with pandas 3 on "
        "large traces): python3 -m venv X; X/bin/pip install HolisticTraceAnalysis 'pandas<3'",
    )
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        path = large(asked.mib, Path(folder))
        print(f"written in {time.perf_counter() - begin:.1f} s")
        found = measure(path)
        print(
            f"{found['mib']:.0f} MiB in {found['seconds']:.1f} s, {found['mib_per_s']:.0f} MiB/s; "
            f"memory grew by {found['grew_mib']:.0f} MiB; rows {found['rows']}"
        )
        if asked.peer is None:
            return 0
        # Few long steps: the peer's time grows with the product of steps and events.
        path = large(asked.mib, Path(folder), steps=4, name="four-steps")
        is_well = True
        for trace in (*asked.traces, path):
            try:
                told = duel(trace, asked.peer)
            except RefusedError as refused:
                print(refused)
                is_well = False
                continue
            print("\n".join([f"against {told.peer_version}:", *told.lines()]))
            is_well &= told.agree
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
