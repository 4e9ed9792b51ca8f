"""Every figure of our own speed in one table: ``python -m steptax.benchmarks.product.table``.

Each part is a benchmark of its own (``python -m steptax.benchmarks.product.PART --help``), run in
its own processes, one after the other. Peers are asked the same in the same run, and nothing is
installed for them: one that is not here is named, with how to get it. The last lines tell which
parts kept their limits and what these are, which have none, and which peers were not asked.

Peers, by part:
  queries  polars and pandas, where this interpreter has them
  whatif   the artifact of Lin et al., OSDI'25 (ByteDance-Seed/StragglerAnalysis on GitHub): its
           folder as --whatif-peer, an interpreter with pandas < 3 for it as --whatif-python, and a
           folder with its traces, trace-AR.parquet and trace-ST.parquet, as --whatif-data
  kineto   HolisticTraceAnalysis: an interpreter that has it as --trace-peer
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

from steptax.benchmarks.product import live_hour, recorder, scale, sessions, whatif

_PACKAGE = "steptax.benchmarks.product"
_KEPT, _MEASURED = "kept its limits", "no limit"
_QUERIES = ", ".join(
    f"{kind} {cold_s:g} s cold, {warm_s:g} s warm"
    for kind, (cold_s, warm_s) in scale.LIMITS_S.items()
)
#: Libraries that answer the same questions about the same files.
QUERY_PEERS = ("polars", "pandas")
TRACE_PEER_HOW = (
    "python3 -m venv X; X/bin/pip install HolisticTraceAnalysis 'pandas<3'; then --trace-peer "
    "X/bin/python"
)
WHATIF_PEER_HOW = (
    "git clone https://github.com/ByteDance-Seed/StragglerAnalysis X; python3 -m venv Y; "
    "Y/bin/pip install 'pandas<3' -r X/requirements.txt; then --whatif-peer X and "
    "--whatif-python Y/bin/python"
)


@dataclass(frozen=True)
class Part:
    """One benchmark with its arguments."""

    name: str
    title: str
    module: str
    arguments: tuple[str, ...] = ()
    missing: str = ""
    """What is not here, and how to get it."""
    runs: bool = True
    """Whether it runs without what is missing."""
    limit: str = ""
    """What it fails beyond, in words; empty where it only measures."""


def parts(asked: argparse.Namespace, folder: Path) -> Iterator[Part]:
    """What the table consists of."""
    here = [name for name in QUERY_PEERS if importlib.util.find_spec(name)]
    absent = [name for name in QUERY_PEERS if name not in here]
    missing = f"{' and '.join(absent)}: pip install {' '.join(absent)}" if absent else ""
    sizes = [(4096, 5000), (16_384, 10_000)] if asked.full else [(1024, 1280)]
    for ranks, steps in sizes:
        lake = folder / f"{ranks}x{steps}"
        job = ("--ranks", str(ranks), "--steps", str(steps), "--lake", str(lake))
        title = f"page queries of {ranks:,} ranks x {steps:,} steps, {ranks * steps:,} rows"
        yield Part("queries", title, "scale", (*job, "--peers", *here), missing, limit=_QUERIES)
    long = ("32", "2000000") if asked.full else ("1", "100000")
    words = ("--mib", long[0], "--rows", long[1])
    yield Part("ingest", "rows a second by connector", "ingest", words)
    if asked.full:
        title = "1,024 ranks for an hour, from record to page"
        yield Part("live", title, "live_hour", limit=live_hour.LIMIT)
    else:
        few = ("--ranks", "64", "--nodes", "4", "--steps", "20", "--step-s", "0.5", "--kills", "0")
        title = "64 ranks, from record to reader"
        yield Part("live", title, "collector", few, limit="every row once")
    samples = ("--steps", "5000" if asked.full else "1000")
    title, limit = "what the recorder adds to a step", f"{recorder.TARGET_US:g} µs in the mean"
    yield Part("recorder", title, "recorder", samples, limit=limit)
    yield Part("start", "until something answers", "start")
    yield _whatif(asked)
    size = "200" if asked.full else "20"
    peer = ("--peer", str(asked.trace_peer)) if asked.trace_peer else ()
    missing = "" if peer else f"HolisticTraceAnalysis: {TRACE_PEER_HOW}"
    limit = "the same results as its peer" if peer else ""
    yield Part("kineto", "profiler traces", "kineto", ("--mib", size, *peer), missing, limit=limit)
    held = ("50", "600") if asked.full else ("5", "20")
    readers = ("--sessions", held[0], "--seconds", held[1])
    title = f"{held[0]} readers of a live job at once"
    yield Part("sessions", title, "sessions", readers, limit=sessions.LIMIT)


def _whatif(asked: argparse.Namespace) -> Part:
    data = asked.whatif_data
    if data is None or not (data / "trace-AR.parquet").is_file():
        why = "the traces of the published analyser, trace-AR.parquet and trace-ST.parquet: "
        why += "--whatif-data FOLDER"
        return Part("whatif", "what-if analysis", "whatif", (), why, runs=False)
    words = ("--data", str(data), *(() if asked.full else ("--runs", "3", "--tiles", "1")))
    memory = ""
    if asked.full:
        words = (*words, "--ranks", "4096")
        memory = f"4,096 ranks in {whatif.MOST_LARGE_BYTES >> 30} GiB"
    if asked.whatif_peer is None:
        why = f"the published analyser: {WHATIF_PEER_HOW}"
        return Part("whatif", "what-if analysis", "whatif", words, why, limit=memory)
    words = (*words, "--peer", str(asked.whatif_peer))
    if asked.whatif_python is not None:
        words = (*words, "--peer-python", str(asked.whatif_python))
    limit = f"the same results as its peer{f', {memory}' if memory else ''}"
    return Part("whatif", "what-if analysis", "whatif", words, limit=limit)


def run(part: Part) -> tuple[str, float]:
    """Print a part; how it ended, and its seconds."""
    print(f"\n## {part.title}\n", flush=True)
    if part.missing:
        what = "its peer is not here" if part.runs else "not run, this is not here"
        print(f"{what}: {part.missing}\n", flush=True)
    if not part.runs:
        return "not run", 0.0
    begin = time.perf_counter()
    command = [sys.executable, "-m", f"{_PACKAGE}.{part.module}", *part.arguments]
    code = subprocess.run(command, check=False).returncode
    ended = _KEPT if part.limit else _MEASURED
    return ended if code == 0 else f"exit code {code}", time.perf_counter() - begin


def options(arguments: list[str] | None = None) -> argparse.Namespace:
    """What is asked for; it exits where that is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    shared = Path(os.environ.get("STEPTAX_SHARED", "../shared")) / "data" / "ops"
    add = parser.add_argument
    sizes = "sizes that the figures in the documents are of (hours); else small ones (minutes)"
    add("--full", action="store_true", help=sizes)
    add("--only", nargs="+", default=[], metavar="PART", help="some parts; --list names them")
    add("--list", action="store_true", help="name the parts, run none")
    add("--lake", type=Path, metavar="DIR", help="keep the big made-up jobs there, for next time")
    add("--trace-peer", type=Path, metavar="PYTHON", help="that has HolisticTraceAnalysis")
    add("--whatif-peer", type=Path, metavar="DIR", help="the published what-if analyser")
    add("--whatif-python", type=Path, metavar="PYTHON", help="to run that with: pandas < 3")
    add("--whatif-data", type=Path, metavar="DIR", default=shared, help="its traces")
    asked = parser.parse_args(arguments)
    for name in ("trace_peer", "whatif_peer", "whatif_python"):
        given = getattr(asked, name)
        if given is not None and not given.exists():
            parser.error(f"--{name.replace('_', '-')}: there is no {given}")
    names = {part.name for part in parts(asked, Path())}
    if unknown := {*asked.only} - names:
        parser.error(f"no part is called {', '.join(sorted(unknown))}: see --list")
    return asked


def main(arguments: list[str] | None = None) -> int:
    """Print the table; 1 where a part that was run missed a limit or failed."""
    asked = options(arguments)
    place = nullcontext(asked.lake) if asked.lake else tempfile.TemporaryDirectory()
    ended: list[tuple[Part, str, float]] = []
    with place as name:
        for part in parts(asked, Path(name)):
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
            alone = "; its peer was not asked" if part.missing and part.runs else ""
            limit = f" ({part.limit})" if part.limit else ""
            print(f"{part.name:10}{how:18}{seconds:8.1f} s  {part.title}{limit}{alone}")
    return 0 if all(how in (_KEPT, _MEASURED, "not run") for _, how, _ in ended) else 1


if __name__ == "__main__":
    raise SystemExit(main())
