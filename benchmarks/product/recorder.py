"""What the recorder adds to a step: ``python -m steptax.benchmarks.product.recorder``.

Between two samples the process hashes a mebibyte: native work that lets go of the interpreter and
fills the caches, as the work of a training step does. Then an empty step and a recorded one are
timed one right after the other, in alternating order, and their difference is one sample. A
recorded step is a begin, four phases, a collective, a token count, a loss and an end. The writing
thread runs meanwhile; what it takes by holding the interpreter is in the samples. Samples in which
the kernel gave the core to somebody else are left out and counted, where it tells (Linux).

With pyarrow the rows are written as Parquet, without it as JSON Lines; both are measured.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any

from steptax.connectors.recorder import StepRecorder

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

#: What a recorder may add to a step on average.
TARGET_US = 50.0


@dataclass(frozen=True)
class Added:
    """Microseconds that recording added to a step, over ``samples`` pairs of steps.

    Times are None when every sample was disturbed by another process.
    """

    encoding: str
    samples: int
    disturbed: int
    p50_us: float | None
    mean_us: float | None
    p95_us: float | None
    rows_written: int
    rows_dropped: int


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest of ``values`` that at least ``share`` of them do not exceed (nearest rank)."""
    ranked = sorted(values)
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)]


def recorded_step(recorder: StepRecorder, step: int) -> None:
    """A step with nothing in it but the recorder."""
    with recorder.step(step):
        with recorder.phase("input"):
            pass
        with recorder.phase("h2d"):
            pass
        with recorder.phase("compute"):
            pass
        with recorder.collective():
            pass
        with recorder.phase("other"):
            pass
        recorder.tokens(4096, 4096)
        recorder.loss(1.0)


def empty_step(recorder: StepRecorder, step: int) -> None:
    """The same call without the recorder."""


def measure(encoding: str, steps: int, work_bytes: int) -> Added:
    """Record ``steps`` steps into a temporary lake, each after hashing ``work_bytes`` bytes."""
    added_us = []
    work = bytes(work_bytes)
    with tempfile.TemporaryDirectory() as lake:
        recorder = StepRecorder(lake, "benchmark", 0, 1, encoding=encoding)
        with recorder:
            for step in range(steps):
                sha256(work)
                order = (recorded_step, empty_step) if step % 2 else (empty_step, recorded_step)
                before = preemptions()
                taken_ns = {call: _time_ns(call, recorder, step) for call in order}
                if preemptions() == before:
                    added_us.append((taken_ns[recorded_step] - taken_ns[empty_step]) / 1000)
        stats = recorder.stats
    return Added(
        str(stats["encoding"]),
        len(added_us),
        steps - len(added_us),
        percentile(added_us, 0.5) if added_us else None,
        sum(added_us) / len(added_us) if added_us else None,
        percentile(added_us, 0.95) if added_us else None,
        int(stats["rows_written"]),
        int(stats["rows_dropped"]),
    )


def preemptions() -> int:
    """How often the kernel has taken the core from this thread; 0 where it does not tell."""
    if resource is None or not hasattr(resource, "RUSAGE_THREAD"):
        return 0
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw


def _time_ns(call: Callable[[StepRecorder, int], None], recorder: StepRecorder, step: int) -> int:
    begin_ns = time.perf_counter_ns()
    call(recorder, step)
    return time.perf_counter_ns() - begin_ns


def run(steps: int, work_bytes: int) -> dict[str, Any]:
    """Both encodings, as one object for printing; a fallback is named in ``warnings``."""
    variants = {asked: measure(asked, steps, work_bytes) for asked in ("parquet", "jsonl")}
    return {
        "ok": True,
        "data": {
            "target_mean_us": TARGET_US,
            "work_bytes": work_bytes,
            "python": sys.version.split()[0],
            "variants": [asdict(v) for asked, v in variants.items() if v.encoding == asked],
        },
        "warnings": [
            f"{asked} was not measured: pyarrow cannot be used here"
            for asked, variant in variants.items()
            if variant.encoding != asked
        ],
    }


def main(arguments: list[str] | None = None) -> int:
    """Print the result; exit code 1 when a mean is known and above the target."""
    parser = argparse.ArgumentParser(prog="steptax.benchmarks.product.recorder")
    parser.add_argument("--steps", type=int, default=5_000, help="steps per encoding")
    parser.add_argument("--work-kib", type=int, default=1024, help="hashed between steps")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    if options.steps < 1 or options.work_kib < 0:
        parser.error("--steps must be at least 1 and --work-kib at least 0")
    result = run(options.steps, options.work_kib * 1024)
    variants = result["data"]["variants"]
    if options.json:
        print(json.dumps(result))
    else:
        print("microseconds added to a step     p50     mean      p95")
        for v in variants:
            times = "".join(
                f"{'-':>9}" if v[name] is None else f"{v[name]:>9.1f}"
                for name in ("p50_us", "mean_us", "p95_us")
            )
            print(
                f"{v['encoding']:<27}{times}   {v['samples']} samples, {v['disturbed']} disturbed"
            )
        for warning in result["warnings"]:
            print(warning)
        print(f"target: at most {TARGET_US:.0f} us on average")
    return 0 if all((v["mean_us"] or 0.0) <= TARGET_US for v in variants) else 1


if __name__ == "__main__":
    sys.exit(main())
