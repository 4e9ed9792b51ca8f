"""What the recorder adds to a step: ``python -m steptax.benchmarks.product.recorder``.

One process trains nothing: each step sleeps, then an empty step and a recorded one are timed one
right after the other, in alternating order, and their difference is one sample. A recorded step is
a begin, four phases, a collective, a token count, a loss and an end. The sleep lets the writing
thread run and the caches go cold, as they do between the calls of a real step; what the thread
takes from the training thread by holding the interpreter is thus in the samples.

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
from typing import Any

from steptax.connectors.recorder import StepRecorder

#: What a recorder may add to a step on average.
TARGET_US = 50.0


@dataclass(frozen=True)
class Added:
    """Microseconds that recording added to a step, over ``steps`` pairs of steps."""

    encoding: str
    steps: int
    p50_us: float
    mean_us: float
    p95_us: float
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


def measure(encoding: str, steps: int, pause_s: float) -> Added:
    """Record ``steps`` steps into a temporary lake, ``pause_s`` seconds apart."""
    added_us = []
    with tempfile.TemporaryDirectory() as lake:
        recorder = StepRecorder(lake, "benchmark", 0, 1, encoding=encoding)
        with recorder:
            for step in range(steps):
                time.sleep(pause_s)
                order = (recorded_step, empty_step) if step % 2 else (empty_step, recorded_step)
                taken_ns = {call: _time_ns(call, recorder, step) for call in order}
                added_us.append((taken_ns[recorded_step] - taken_ns[empty_step]) / 1000)
        stats = recorder.stats
    return Added(
        str(stats["encoding"]),
        steps,
        percentile(added_us, 0.5),
        sum(added_us) / steps,
        percentile(added_us, 0.95),
        int(stats["rows_written"]),
        int(stats["rows_dropped"]),
    )


def _time_ns(call: Callable[[StepRecorder, int], None], recorder: StepRecorder, step: int) -> int:
    begin_ns = time.perf_counter_ns()
    call(recorder, step)
    return time.perf_counter_ns() - begin_ns


def run(steps: int, pause_s: float) -> dict[str, Any]:
    """Both encodings, as one object for printing; a fallback is named in ``warnings``."""
    variants = {asked: measure(asked, steps, pause_s) for asked in ("parquet", "jsonl")}
    return {
        "ok": True,
        "data": {
            "target_mean_us": TARGET_US,
            "pause_ms": pause_s * 1000,
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
    """Print the result; exit code 1 when the mean is above the target."""
    parser = argparse.ArgumentParser(prog="steptax.benchmarks.product.recorder")
    parser.add_argument("--steps", type=int, default=5_000, help="steps per encoding")
    parser.add_argument("--pause-ms", type=float, default=1.0, help="sleep between steps")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    if options.steps < 1 or options.pause_ms < 0:
        parser.error("--steps must be at least 1 and --pause-ms at least 0")
    result = run(options.steps, options.pause_ms / 1000)
    variants = result["data"]["variants"]
    if options.json:
        print(json.dumps(result))
    else:
        print("microseconds added to a step     p50     mean      p95")
        for v in variants:
            print(
                f"{v['encoding']:<27} {v['p50_us']:>8.1f} {v['mean_us']:>8.1f} {v['p95_us']:>8.1f}"
            )
        for warning in result["warnings"]:
            print(warning)
        print(f"target: at most {TARGET_US:.0f} us on average")
    return 0 if all(v["mean_us"] <= TARGET_US for v in variants) else 1


if __name__ == "__main__":
    sys.exit(main())
