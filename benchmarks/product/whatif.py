"""How fast the what-if analysis is: ``python -m steptax.benchmarks.product.whatif``.

Each run reads a Parquet trace and computes everything: S, by type, stage, data-parallel rank and
worker, M_W, M_S, every step, launch delays, and the printed form. In-process runs of all traces are
interleaved; median and minimum are printed, with the processor time, which other programs on the
machine disturb less. Whole processes are run one by one for their time and peak memory. The traces
are those of the public artifact of Lin et al., OSDI'25 (``--data``), as they are and with their
data-parallel ranks repeated; ``--ranks`` makes one of that many ranks.

With ``--peer PATH`` of that artifact its three commands are run in turn with ours on the same
trace (``--peer-python`` for an interpreter with pandas < 3), and the results compared: every number
of its three files. Its commands write what they read and found into files, and start an interpreter
each; ours starts one and prints. Both find compiled bytecode. Without it our times are set against
figures that were measured with it on another day.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from steptax.app.whatif import analyse_file

#: Milliseconds in process, of 2 cores: what is asked of us, and what the published analyser took
#: for its main analysis, M_S and M_W together.
REFERENCE_MS = {"AR": (29.0, 1192.0 + 270.0 + 291.0), "ST": (6.5, 480.0 + 83.0 + 83.0)}
NOT_SIDE_BY_SIDE = "reference figures were measured on another day: not a side-by-side run"
#: Most that the analysis of 4,096 ranks and 50 steps may hold.
MOST_LARGE_BYTES = 8 << 30
#: Largest relative difference of results that are the same: the published analyser computes in
#: numbers of 24 bits.
SAME_RATIO = 1e-5


@dataclass
class Case:
    """A trace and what was measured on it."""

    name: str
    trace: Path
    sizes: dict[str, Any]
    rows: int
    wall_ms: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)
    slowdown: float | None = None


@dataclass(frozen=True)
class Whole:
    """One whole process: seconds, and the most memory that it held."""

    wall_s: float
    peak_bytes: int


def analyse(trace: Path, sizes: dict[str, Any]) -> dict[str, Any]:
    """The whole analysis, from the file to the printed form."""
    return analyse_file(trace, sizes=sizes).as_json()


def repeated(source: Path, times: int, target: Path, steps: int | None = None) -> int:
    """Write ``source`` with its data-parallel ranks ``times`` over; returns the number of rows.

    ``steps`` cuts or repeats the steps to that many. One row group for each repetition, so that
    memory does not grow with ``times``.
    """
    table = pq.read_table(source)
    if steps is not None:
        table = _with_steps(table, steps)
    dps = int(np.max(table["dp_rank"].to_numpy())) + 1
    ranks = int(np.max(table["rank"].to_numpy())) + 1
    schema = table.schema
    for name in ("dp_rank", "rank"):
        at = schema.get_field_index(name)
        schema = schema.set(at, pa.field(name, pa.int32()))
    with pq.ParquetWriter(target, schema) as writer:
        for i in range(times):
            part = table
            for name, size in (("dp_rank", dps), ("rank", ranks)):
                at = part.schema.get_field_index(name)
                moved = part[name].to_numpy().astype(np.int32) + i * size
                part = part.set_column(at, name, pa.array(moved, pa.int32()))
            writer.write_table(part.cast(schema))
    return times * int(table.num_rows)


def _with_steps(table: pa.Table, steps: int) -> pa.Table:
    """The first ``steps`` steps, over again from the first where there are fewer."""
    step = table["step"].to_numpy()
    labels = np.unique(step)
    parts = []
    for i in range(steps):
        part = table.filter(pa.array(step == labels[i % len(labels)]))
        at = part.schema.get_field_index("step")
        parts.append(part.set_column(at, "step", pa.array(np.full(part.num_rows, i, np.int64))))
    return pa.concat_tables(parts)


def yardstick_ms() -> float:
    """Median time of 20,000 additions of four numbers: how fast the machine is at the moment.

    Virtual machines change their speed by half from minute to minute; only times with about the
    same yardstick can be compared.
    """
    a = np.zeros(4)
    taken = []
    for _ in range(15):
        begin = time.perf_counter()
        for _ in range(20_000):
            np.add(a, a, out=a)
        taken.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(taken)


def interleaved(cases: Sequence[Case], runs: int) -> None:
    """Time every case in turn, ``runs`` times over, after one run of each that does not count."""
    for run in range(runs + 1):
        for case in cases:
            wall, cpu = time.perf_counter(), time.process_time()
            result = analyse(case.trace, case.sizes)
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
            case.slowdown = result["blocking_slowdown"]
            if run:
                case.wall_ms.append(wall * 1e3)
                case.cpu_ms.append(cpu * 1e3)


#: Runs a command and prints seconds and most memory of it. A process of its own, since Linux counts
#: what a parent holds when it forks as held by the child.
_LAUNCHER = """
import json, resource, subprocess, sys, time
begin = time.perf_counter()
done = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
wall = time.perf_counter() - begin
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(json.dumps([done.returncode, wall, peak, done.stdout.decode(errors="replace")[-500:]]))
"""
#: What a program that wants the analysis does, and nothing else.
_CHILD = """
import json, sys
from pathlib import Path
from steptax.app.whatif import analyse_file
print(json.dumps(analyse_file(Path(sys.argv[1]), sizes=json.loads(sys.argv[2])).as_json()))
"""


def whole_process(
    command: Sequence[str], cwd: Path | None = None, environment: Mapping[str, str] | None = None
) -> Whole:
    """Run a command to its end. RuntimeError with its last words when it fails."""
    launched = subprocess.run(
        [sys.executable, "-S", "-c", _LAUNCHER, *command],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        check=True,
    )
    code, wall_s, peak, said = json.loads(launched.stdout)
    if code:
        raise RuntimeError(f"{' '.join(command[:3])} ... failed: {said.strip()}")
    # Linux counts kibibytes, macOS bytes.
    return Whole(wall_s, peak * (1 if sys.platform == "darwin" else 1024))


def ours(case: Case, environment: Mapping[str, str] | None = None) -> Whole:
    """The analysis of a case as a process of its own."""
    child = [sys.executable, "-c", _CHILD, str(case.trace), json.dumps(case.sizes)]
    return whole_process(child, environment=environment)


def against_peer(case: Case, meta: Path, peer: Path, python: str, runs: int) -> dict[str, Any]:
    """Whole processes of the published analyser and of ours in turn, and what both found.

    RuntimeError where the peer fails. ``largest_difference`` is that of ``compared`` numbers; it is
    infinite where ours lacks one.
    """
    mine, theirs = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # A first run, which does not count, leaves the bytecode of both here.
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
        for run in range(runs + 1):
            one = ours(case, environment)
            other = _peer_commands(case, meta, peer, python, folder, environment)
            if run:
                mine.append(one)
                theirs.append(other)
        published = _published(folder, str(case.sizes.get("trial_name", case.name)))
    compared, difference = _difference(analyse(case.trace, case.sizes), published)
    return {
        "trace": case.name,
        "ours_s": statistics.median(w.wall_s for w in mine),
        "peer_s": statistics.median(w.wall_s for w in theirs),
        "ratio": statistics.median(b.wall_s / a.wall_s for a, b in zip(mine, theirs, strict=True)),
        "ours_peak_bytes": max(w.peak_bytes for w in mine),
        "peer_peak_bytes": max(w.peak_bytes for w in theirs),
        "compared": compared,
        "largest_difference": difference,
    }


def _peer_commands(
    case: Case, meta: Path, peer: Path, python: str, folder: Path, environment: Mapping[str, str]
) -> Whole:
    name = str(case.sizes.get("trial_name", case.name))
    tools = peer / "analyzer"
    shared = ["--dump-dir", str(folder), "--root", str(folder)]
    result = ["--trial", name, "--analysis-result", str(folder / f"{name}.json"), *shared]
    runs = [
        whole_process(
            [python, str(tools / script), *arguments],
            cwd=peer,
            environment={**environment, "PYTHONPATH": str(peer)},
        )
        for script, arguments in (
            ("wia.py", ["--metadata", str(meta), "--trace", str(case.trace), *shared]),
            ("compute_ms.py", result),
            ("compute_mw.py", result),
        )
    ]
    return Whole(sum(r.wall_s for r in runs), max(r.peak_bytes for r in runs))


def _published(folder: Path, name: str) -> dict[str, Any]:
    """What the three commands found, under the names that ours has."""
    found: dict[str, Any] = json.loads((folder / f"{name}.json").read_text())
    for file, theirs, mine in (("ms", "Ms", "M_S"), ("mw", "Mw", "M_W")):
        path = folder / f"{file}-{name}.json"
        if path.exists():
            found[mine] = {"value": json.loads(path.read_text())[theirs]}
    return found


def _difference(mine: Any, theirs: Any) -> tuple[int, float]:
    """How many numbers of ``theirs`` were compared, and the largest relative difference."""
    if isinstance(theirs, dict):
        held = mine if isinstance(mine, dict) else {}
        pairs = [_difference(held.get(key), value) for key, value in theirs.items()]
        return sum(n for n, _ in pairs), max((d for _, d in pairs), default=0.0)
    if not isinstance(theirs, float):
        return 0, 0.0
    if not isinstance(mine, float | int):
        return 1, math.inf
    if math.isnan(mine) or math.isnan(theirs):
        return 1, 0.0 if math.isnan(mine) and math.isnan(theirs) else math.inf
    return 1, abs(mine - theirs) / max(abs(theirs), 1e-300)


def cases_of(data: Path, tiles: Sequence[int], folder: Path) -> list[Case]:
    """AR and ST, and AR with its data-parallel ranks repeated."""
    out = []
    for name in ("AR", "ST"):
        trace = data / f"trace-{name}.parquet"
        sizes = yaml.safe_load((data / f"meta-{name}.yaml").read_text())
        out.append(Case(name, trace, sizes, pq.read_metadata(trace).num_rows))
    for times in tiles:
        target = folder / f"AR-{times}x.parquet"
        rows = repeated(data / "trace-AR.parquet", times, target)
        out.append(Case(f"AR {times}x", target, {"trial_name": f"AR-{times}x"}, rows))
    return out


def run(options: argparse.Namespace) -> dict[str, Any]:
    """All measurements, as one object for printing."""
    before = yardstick_ms()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cases = cases_of(options.data, options.tiles, folder)
        # The real traces by themselves: a trace of millions of rows empties every cache.
        interleaved(cases[:2], options.runs)
        interleaved(cases[2:], options.runs)
        out = []
        for case in cases:
            process = ours(case)
            median_ms = statistics.median(case.wall_ms)
            row: dict[str, Any] = {
                "trace": case.name,
                "rows": case.rows,
                "median_ms": median_ms,
                "min_ms": min(case.wall_ms),
                "cpu_median_ms": statistics.median(case.cpu_ms),
                "cpu_min_ms": min(case.cpu_ms),
                "process_s": process.wall_s,
                "peak_bytes": process.peak_bytes,
                "blocking_slowdown": case.slowdown,
            }
            if case.name in REFERENCE_MS and options.peer is None:
                bar, analyser = REFERENCE_MS[case.name]
                row |= {
                    "of_reference": median_ms / bar,
                    "analyser_over_ours": analyser / median_ms,
                }
            out.append(row)
        large = None
        if options.ranks:
            target = folder / "large.parquet"
            source = options.data / "trace-AR.parquet"
            each = len(np.unique(pq.read_table(source, columns=["rank"])["rank"].to_numpy()))
            times = -(-options.ranks // each)
            rows = repeated(source, times, target, options.steps)
            process = ours(Case("large", target, {}, rows))
            large = {"ranks": times * each, "steps": options.steps, "rows": rows, **asdict(process)}
        peers, failed = [], []
        if options.peer is not None:
            for case in cases[:2]:
                meta = options.data / f"meta-{case.name}.yaml"
                try:
                    peers.append(
                        against_peer(case, meta, options.peer, options.peer_python, options.runs)
                    )
                except RuntimeError as error:
                    failed.append(f"{case.name}: the peer {error}")
    return {
        "ok": not failed
        and (large is None or large["peak_bytes"] <= MOST_LARGE_BYTES)
        and all(p["compared"] and p["largest_difference"] <= SAME_RATIO for p in peers),
        "data": {
            "runs": options.runs,
            "load_average": os.getloadavg()[0],
            "yardstick_ms": (before, yardstick_ms()),
            "traces": out,
            "large": large,
            "side_by_side": peers,
        },
        "warnings": failed or ([] if peers else [NOT_SIDE_BY_SIDE]),
    }


def show(result: dict[str, Any]) -> None:
    """The same as a table."""
    data = result["data"]
    print(
        f"{data['runs']} interleaved runs, load average {data['load_average']:.1f}, yardstick "
        "{:.1f} ms before and {:.1f} ms after".format(*data["yardstick_ms"])
    )
    print("trace         rows   median ms   min ms   cpu median   cpu min   process s   peak MiB")
    for t in data["traces"]:
        print(
            f"{t['trace']:<8}{t['rows']:>10,}{t['median_ms']:>12.1f}{t['min_ms']:>9.1f}"
            f"{t['cpu_median_ms']:>13.1f}{t['cpu_min_ms']:>10.1f}{t['process_s']:>12.2f}"
            f"{t['peak_bytes'] / 2**20:>11.0f}"
        )
    for t in data["traces"]:
        if "of_reference" in t:
            print(
                f"{t['trace']}: {t['of_reference']:.2f} of the reference time; the published "
                f"analyser's figure is {t['analyser_over_ours']:.0f} times ours"
            )
    if data["large"]:
        g = data["large"]
        print(
            f"{g['ranks']:,} ranks x {g['steps']} steps, {g['rows']:,} rows: {g['wall_s']:.1f} s, "
            f"peak {g['peak_bytes'] / 2**30:.2f} GiB"
        )
    for p in data["side_by_side"]:
        peaks = (p[f"{who}_peak_bytes"] / 2**20 for who in ("ours", "peer"))
        print(
            f"{p['trace']} side by side, whole processes: ours {p['ours_s']:.2f} s, peer "
            f"{p['peer_s']:.2f} s, {p['ratio']:.1f} times as long; "
            "peak {:.0f} and {:.0f} MiB; ".format(*peaks)
            + f"{p['compared']:,} results differ by {p['largest_difference']:.1e} at most"
        )
    for warning in result["warnings"]:
        print(warning)


def main(arguments: list[str] | None = None) -> int:
    """Print the result; exit code 1 when the large trace needs more memory than allowed, and when
    the peer fails or finds something else.
    """
    parser = argparse.ArgumentParser(prog="steptax.benchmarks.product.whatif")
    shared = os.environ.get("STEPTAX_SHARED", "../shared")
    parser.add_argument("--data", type=Path, default=Path(shared) / "data" / "ops")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--tiles", type=int, nargs="*", default=[1, 4, 16])
    parser.add_argument("--ranks", type=int, default=0, help="also a trace of so many ranks: 4096")
    parser.add_argument("--steps", type=int, default=50, help="steps of that trace")
    parser.add_argument("--peer", type=Path, help="folder of the published analyser")
    parser.add_argument("--peer-python", default=sys.executable, help="interpreter for it")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    if options.runs < 1:
        parser.error("--runs must be at least 1")
    if not (options.data / "trace-AR.parquet").is_file():
        parser.error(f"no trace-AR.parquet in {options.data}: say where with --data")
    # The peer's commands run in its folder. A link of a virtual environment is not followed: the
    # interpreter behind it knows nothing of its packages.
    options.data = options.data.resolve()
    if options.peer is not None:
        options.peer = options.peer.resolve()
        if not (options.peer / "analyzer" / "wia.py").is_file():
            parser.error(f"--peer: no analyzer/wia.py in {options.peer}")
        python = shutil.which(options.peer_python)
        if python is None:
            parser.error(f"--peer-python: {options.peer_python} cannot be run")
        options.peer_python = str(Path(python).absolute())
    result = run(options)
    if options.json:
        print(json.dumps(result))
    else:
        show(result)
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
