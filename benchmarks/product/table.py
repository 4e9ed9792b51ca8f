"""Every figure of our own speed in one table: ``python -m steptax.benchmarks.product.table``.

    --full              sizes that the figures in the documents are of (hours); else small ones
    --only NAME ...     some parts; --list names them
    --lake FOLDER       keep the big made-up jobs there, for the next time
    --trace-peer PYTHON an interpreter that has HolisticTraceAnalysis
    --whatif-peer DIR   the published what-if analyser, and --whatif-data its traces

Each part is a benchmark of its own (``python -m steptax.benchmarks.product.PART --help``), run in
its own processes, one after the other. Peers are asked the same in the same run; a peer that is not
here is said to be missing. The last lines tell which parts kept their limits.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

_PACKAGE = "steptax.benchmarks.product"
#: Libraries that answer the same questions about the same files.
QUERY_PEERS = ("polars", "pandas")


@dataclass(frozen=True)
class Part:
    """One benchmark with its arguments. ``missing`` says why it, or its peer, is not run."""

    name: str
    title: str
    module: str
    arguments: tuple[str, ...] = ()
    missing: str = ""
    runs: bool = True


def parts(asked: argparse.Namespace, folder: Path) -> Iterator[Part]:
    """What the table consists of."""
    here = [name for name in QUERY_PEERS if importlib.util.find_spec(name)]
    absent = [name for name in QUERY_PEERS if name not in here]
    missing = f"peers that are not installed: {', '.join(absent)}" if absent else ""
    sizes = [(4096, 5000), (16_384, 10_000)] if asked.full else [(1024, 1280)]
    for ranks, steps in sizes:
        lake = folder / f"{ranks}x{steps}"
        job = ("--ranks", str(ranks), "--steps", str(steps), "--lake", str(lake))
        title = f"page queries of {ranks:,} ranks x {steps:,} steps, {ranks * steps:,} rows"
        yield Part("queries", title, "scale", (*job, "--peers", *here), missing)
    long = ("32", "2000000") if asked.full else ("1", "100000")
    words = ("--mib", long[0], "--rows", long[1])
    yield Part("ingest", "rows a second by connector", "ingest", words)
    if asked.full:
        yield Part("live", "1,024 ranks for an hour, from record to page", "live_hour")
    else:
        few = ("--ranks", "64", "--nodes", "4", "--steps", "20", "--step-s", "0.5", "--kills", "0")
        yield Part("live", "64 ranks, from record to reader", "collector", few)
    samples = ("--steps", "5000" if asked.full else "1000")
    yield Part("recorder", "what the recorder adds to a step", "recorder", samples)
    yield Part("start", "until something answers", "start")
    yield _whatif(asked)
    size = "200" if asked.full else "20"
    peer = ("--peer", str(asked.trace_peer)) if asked.trace_peer else ()
    missing = "" if peer else "HolisticTraceAnalysis: name an interpreter that has it, --trace-peer"
    yield Part("kineto", "profiler traces", "kineto", ("--mib", size, *peer), missing)
    held = ("50", "600") if asked.full else ("5", "20")
    readers = ("--sessions", held[0], "--seconds", held[1])
    yield Part("sessions", f"{held[0]} readers of a live job at once", "sessions", readers)


def _whatif(asked: argparse.Namespace) -> Part:
    data = asked.whatif_data
    if data is None or not (data / "trace-AR.parquet").is_file():
        why = "the traces of the published analyser are not here: --whatif-data FOLDER"
        return Part("whatif", "what-if analysis", "whatif", (), why, runs=False)
    words = ("--data", str(data), *(() if asked.full else ("--runs", "3", "--tiles", "1")))
    if asked.full:
        words = (*words, "--ranks", "4096")
    if asked.whatif_peer is None:
        return Part("whatif", "what-if analysis", "whatif", words, "its peer: --whatif-peer DIR")
    return Part("whatif", "what-if analysis", "whatif", (*words, "--peer", str(asked.whatif_peer)))


def run(part: Part) -> tuple[str, float]:
    """Print a part; how it ended, and its seconds."""
    print(f"\n## {part.title}\n", flush=True)
    if part.missing:
        print(f"not run: {part.missing}", flush=True)
    if not part.runs:
        return "not run", 0.0
    begin = time.perf_counter()
    command = [sys.executable, "-m", f"{_PACKAGE}.{part.module}", *part.arguments]
    code = subprocess.run(command, check=False).returncode
    return "kept its limits" if code == 0 else f"exit code {code}", time.perf_counter() - begin


def main(arguments: list[str] | None = None) -> int:
    """Print the table; 1 where a part that was run missed a limit or failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    shared = Path(os.environ.get("STEPTAX_SHARED", "../shared")) / "data" / "ops"
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--lake", type=Path)
    parser.add_argument("--trace-peer", type=Path, metavar="PYTHON")
    parser.add_argument("--whatif-peer", type=Path, metavar="DIR")
    parser.add_argument("--whatif-data", type=Path, metavar="DIR", default=shared)
    asked = parser.parse_args(arguments)
    place = nullcontext(asked.lake) if asked.lake else tempfile.TemporaryDirectory()
    ended: list[tuple[Part, str, float]] = []
    with place as name:
        found = list(parts(asked, Path(name)))
        if unknown := {*asked.only} - {part.name for part in found}:
            parser.error(f"no part is called {', '.join(sorted(unknown))}: see --list")
        for part in found:
            if asked.only and part.name not in asked.only:
                continue
            if asked.list:
                print(f"{part.name:10}{part.title}")
            else:
                ended.append((part, *run(part)))
    if ended:
        load = f"; load {os.getloadavg()[1]:.1f}" if hasattr(os, "getloadavg") else ""
        print(f"\n## Limits, on {os.cpu_count()} processors{load}\n")
        for part, how, seconds in ended:
            print(f"{part.name:10}{how:18}{seconds:8.1f} s  {part.title}")
    return 0 if all(how in ("kept its limits", "not run") for _, how, _ in ended) else 1


if __name__ == "__main__":
    raise SystemExit(main())
